"""The loops over a tensor product of nodes on a CUDA device: a thread for each tuple of outer digits.

A thread runs the loops over the inner digits, the innermost of them unrolled, so that nodes and weights are constants
of the code. Threads of a block add their sums in a tree, and one block adds the sums of all blocks in fixed order.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ensemble._compile import device
from ensemble._compile.cuda import sources
from ensemble._compile.trace.cuda_source import OPTIONS, PRELUDE, TYPES, expression, tables
from ensemble._compile.trace.graph import Graph, Node
from ensemble._kernels.quadrature.levels import Arranged, arranged, digit_order

__all__ = ["source", "tensor_sums"]

THREADS = 256

THREADS_WANTED = 1 << 20

MOST_UNROLLED = 1024
"""Operations of the unrolled loops."""

MOST_POINTS_OF_FUNCTIONS = 16
"""Points of the unrolled loops where `functions.cuh` is used: so many are computed side by side."""

MOST_BLOCKS = 1 << 20
"""Of a launch: the samples of a larger ensemble run one part after another."""

OWN = ("exp", "cos", "sin")
"""Functions of `functions.cuh`, in float64."""

KERNELS = ("partial_sums", "add_partials")

REDUCTION = """
// The sum over the threads of a block, in a tree.
__device__ __forceinline__ double block_sum(double value, double* shared) {
    __syncthreads();
    shared[threadIdx.x] = value;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    __syncthreads();
    return shared[0];
}

// Sum k of the partial sums (n_sums, count).
extern "C" __global__ void __launch_bounds__(THREADS) add_partials(const double* partials, REAL* out, int64 count) {
    __shared__ double shared[THREADS];
    const double* mine = partials + blockIdx.x * count;
    double sum = 0;
    for (int64 k = threadIdx.x; k < count; k += THREADS) sum += mine[k];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) out[blockIdx.x] = static_cast<REAL>(sum);
}
"""


class Writer:
    """Writes the kernel ``partial_sums``."""

    def __init__(self, graph: Arranged, order: tuple[int, ...], n_nodes: int, outer: int, real: str) -> None:
        self.graph, self.levels, _ = graph
        self.places = {variable: place for place, variable in enumerate(order)}
        self.dim, self.n_nodes, self.outer, self.real = len(order), n_nodes, outer, real
        self.fused = graph.fused()
        self.absorbed = set(self.fused.values())
        self.has_own = any(map(self.is_own, self.graph.nodes))
        self.lines: list[str] = []
        self.depth = 1

    @staticmethod
    def is_own(node: Node) -> bool:
        """Tell whether a node is a function that `functions.cuh` defines, not one of CUDA's library."""
        return node.operation in OWN and node.dtype == "float64"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def unrolled(self) -> int:
        """The first loop that is unrolled, with all inside it."""
        most = MOST_POINTS_OF_FUNCTIONS if self.has_own else MOST_UNROLLED
        copies, operations, first = 1, 0, self.dim
        for j in range(self.dim - 1, self.outer - 1, -1):
            operations = self.n_nodes * (operations + max(1, sum(level == j for level in self.levels)))
            copies *= self.n_nodes
            if (copies if self.has_own else operations) > most:
                break
            first = j
        return first

    def kernel(self) -> str:
        """The source."""
        n, sums = self.n_nodes, range(len(self.graph.outputs))
        outer = n**self.outer
        blocks = -(-outer // THREADS)
        self.nodes_of(-1)
        for j in range(self.outer):
            self.line(f"const int d{j} = int(place / {n ** (self.outer - 1 - j)}LL % {n});")
            self.line(f"const REAL x{j} = NODES[d{j}];")
            self.nodes_of(j)
        first = self.unrolled()
        for j in range(self.outer, self.dim):
            self.line("REAL " + ", ".join(f"s{j}_{o} = 0" for o in sums) + ";")
            unrolled = " (F::unrolled)" if self.has_own else ""
            self.line(f"#pragma unroll{unrolled if j >= first else ' 1'}")
            self.line(f"for (int d{j} = 0; d{j} < {n}; ++d{j}) {{")
            self.depth += 1
            self.line(f"const REAL x{j} = NODES[d{j}];")
            self.nodes_of(j)
        for o, k in enumerate(self.graph.outputs):
            self.line(f"const REAL s{self.dim}_{o} = t{k};")
        for j in range(self.dim - 1, self.outer - 1, -1):
            for o in sums:
                self.line(f"s{j}_{o} = fma(WEIGHTS[d{j}], s{j + 1}_{o}, s{j}_{o});")
            self.depth -= 1
            self.line("}")
        weight = " * ".join(["1.0", *(f"double(WEIGHTS[d{j}])" for j in range(self.outer))])
        self.line(f"const double weight = {weight};")
        for o in sums:
            self.line(f"total[{o}] = weight * s{self.outer}_{o};")
        given = "const REAL* __restrict__ parameters, int64 n_samples, int64 sample, int64 place, double* total"
        loops, self.lines = self.lines, []
        self.line("__shared__ double shared[THREADS];")
        self.line(f"const int64 sample = blockIdx.x / {blocks}, part = blockIdx.x % {blocks};")
        self.line("const int64 place = part * THREADS + threadIdx.x;")
        self.line(f"double total[{len(sums)}] = {{}};")
        self.line(f"if (place < {outer}LL) {{")
        kind = "Near" if self.has_own else "Exact"
        self.line(f"    const bool far = thread_sums<{kind}>(parameters, n_samples, sample, place, total);")
        if self.has_own:
            self.line("    if (far) thread_sums<Exact>(parameters, n_samples, sample, place, total);")
        self.line("}")
        for o in sums:
            self.line(f"total[{o}] = block_sum(total[{o}], shared);")
            self.line(f"if (threadIdx.x == 0) partials[({o} * n_samples + sample) * {blocks} + part] = total[{o}];")
        return "\n".join([
            f"template <class F> __device__ __forceinline__ bool thread_sums({given}) {{", "    F functions;",
            *loops, "    return functions.far;", "}",
            'extern "C" __global__ void __launch_bounds__(THREADS)',
            "partial_sums(const REAL* __restrict__ parameters, double* __restrict__ partials, int64 n_samples) {",
            *self.lines, "}",
        ])  # fmt: skip

    def nodes_of(self, level: int) -> None:
        """The values that are known from this loop on."""
        nodes = self.graph.nodes
        for k, at in enumerate(self.levels):
            if at != level or k in self.absorbed:
                continue
            node = nodes[k]
            if node.operation == "input":
                given = self.places.get(node.value)
                text = f"parameters[{node.value - self.dim} * n_samples + sample]" if given is None else f"x{given}"
            elif k in self.fused:
                text = self.multiply_add(k)
            elif self.is_own(node):
                text = f"functions.{node.operation}_of(t{node.inputs[0]})"
            else:
                text = expression(self.graph, node)
            self.line(f"const {TYPES[node.dtype]} t{k} = {text};")

    def multiply_add(self, k: int) -> str:
        """A product and a sum, rounded once."""
        nodes = self.graph.nodes
        node, product = nodes[k], self.fused[k]
        first, second = nodes[product].inputs
        other = node.inputs[0] if node.inputs[1] == product else node.inputs[1]
        minus = node.operation == "subtract"
        left = "-" if minus and node.inputs[1] == product else ""
        right = "-" if minus and node.inputs[1] != product else ""
        return f"fma({left}t{first}, t{second}, {right}t{other})"


def outer_digits(dim: int, n_nodes: int) -> int:
    """Digits of the number of a thread: enough threads for a device, which does not depend on the device."""
    outer = 0
    while outer < dim and n_nodes**outer < THREADS_WANTED:
        outer += 1
    return outer


def source(graph: Graph, dim: int, nodes: np.ndarray, weights: np.ndarray) -> str:
    """The CUDA C++ of the sums over a tensor product."""
    order, real = digit_order(graph, dim), TYPES[nodes.dtype.name]
    made = arranged(graph, order, 0)
    suffix = "f" if real == "float" else ""
    rows = []
    for name, row in (("NODES", nodes), ("WEIGHTS", weights)):
        numbers = ", ".join(f"{float(value)!r}{suffix}" for value in row)
        rows.append(f"static __device__ constexpr REAL {name}[{nodes.size}] = {{{numbers}}};")
    kernel = Writer(made, order, nodes.size, outer_digits(dim, nodes.size), real).kernel()
    flags = [f"#define THREADS {THREADS}", f"#define REAL {real}"]
    functions = sources("_kernels/quadrature/functions.cuh")
    return "\n".join([PRELUDE, functions, *flags, *tables(made.graph), *rows, REDUCTION, kernel])


@functools.lru_cache(maxsize=256)
def kernels(text: str) -> dict[str, Any]:
    """The compiled kernels of a source, by name."""
    module = device.raw_module(text, OPTIONS, KERNELS)
    return {name: module.get_function(name) for name in KERNELS}


@functools.lru_cache(maxsize=256)
def kernels_of(graph: Graph, dim: int, nodes: tuple[float, ...], weights: tuple[float, ...], dtype: str) -> Any:
    """The compiled kernels of an integrand."""
    return kernels(source(graph, dim, np.array(nodes, dtype), np.array(weights, dtype)))


def tensor_sums(graph: Graph, dim: int, nodes: np.ndarray, weights: np.ndarray, parameters: np.ndarray) -> Any:
    """The weighted sums of the graph's outputs over all tuples of nodes on a device, shape (n_outputs, n_samples)."""
    dtype, n_outputs, n_samples = nodes.dtype, len(graph.outputs), parameters.shape[1]
    found = kernels_of(graph, dim, tuple(nodes.tolist()), tuple(weights.tolist()), dtype.name)
    blocks = math.ceil(nodes.size ** outer_digits(dim, nodes.size) / THREADS)
    at_once = max(1, MOST_BLOCKS // blocks)
    result = device.device_empty((n_outputs, n_samples), dtype)
    for first in range(0, n_samples, at_once):
        given = np.ascontiguousarray(parameters[:, first : first + at_once], dtype)
        count = given.shape[1]
        partials = device.device_empty((n_outputs, count, blocks), np.dtype(np.float64))
        here = device.device_array(given if given.size else np.zeros((1, count), dtype))
        found["partial_sums"]((count * blocks,), (THREADS,), (here, partials, np.int64(count)))
        part = result if count == n_samples else device.device_empty((n_outputs, count), dtype)
        found["add_partials"]((n_outputs * count,), (THREADS,), (partials, part, np.int64(blocks)))
        if part is not result:
            result[:, first : first + at_once] = part
    return result
