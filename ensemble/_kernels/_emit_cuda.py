"""Graphs written out as CUDA C++: a ``__device__`` function, and the elementwise kernel around it.

Compile with `OPTIONS`: products and sums are then rounded one by one, as on the CPU.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from ensemble._kernels._broadcast import Layout
from ensemble._kernels._compile import raw_module
from ensemble._kernels._emit_numba import parameters
from ensemble._kernels._operations import OPERATIONS, WEAK
from ensemble._kernels._trace import Graph, Node, is_entry

__all__ = ["OPTIONS", "PRELUDE", "device_function", "elementwise_source", "launch"]

OPTIONS = ("--fmad=false", "--std=c++17")

THREADS = 256

TYPES = {"bool": "bool", "int32": "int", "int64": "long long", "float32": "float", "float64": "double"}

PRELUDE = """
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

template <class T> __device__ inline T sign(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x == 0 ? T(0) : x; }

template <class T> __device__ inline T floor_divide(T a, T b) {
    if (b == 0) return a / b;
    const T rest = fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign(T(0), a / b);
    const T whole = floor(quotient);
    return quotient - whole > T(0.5) ? whole + 1 : whole;
}

template <class T> __device__ inline T floor_remainder(T a, T b) {
    const T rest = fmod(a, b);
    if (b == 0) return rest;
    if (rest == 0) return copysign(T(0), b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}

template <class T> __device__ inline T floor_divide_int(T a, T b) {
    if (b == 0) return 0;
    if (b == -1) return T(0ULL - (unsigned long long)a);
    const T quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

template <class T> __device__ inline T remainder_int(T a, T b) {
    if (b == 0 || b == -1) return 0;
    const T rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
"""


def _constant(node: Node) -> str:
    value, kind = node.value, TYPES[node.dtype]
    if node.dtype == "bool":
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        text = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    elif isinstance(value, float):
        text = repr(value)
    else:
        text = "(-9223372036854775807LL - 1)" if value == -(2**63) else f"{value}LL"
    return f"static_cast<{kind}>({text})"


def _expression(graph: Graph, node: Node) -> str:
    """The right-hand side of one definition."""
    if node.operation == "constant":
        return _constant(node)
    operands = [f"t{k}" for k in node.inputs]
    kind = TYPES[node.dtype]
    if node.operation == "cast":
        return f"{operands[0]} != 0" if node.dtype == "bool" else f"static_cast<{kind}>({operands[0]})"
    integer = not graph.nodes[node.inputs[-1]].dtype.startswith("float")
    text = OPERATIONS[node.operation].text("cuda", integer).format(*operands)
    return f"static_cast<{kind}>({text})"


def kinds_of(graph: Graph) -> dict[str, str]:
    """The C++ type of each parameter of the body, by name, in order."""
    positions, names = parameters(graph)
    dtypes = {node.value: node.dtype for node in graph.nodes if node.operation == "input"}
    kinds = [TYPES[dtypes[p]] for p in positions] + [TYPES[graph.nodes[k].dtype] for k in graph.entering]
    return dict(zip(names, kinds, strict=True))


def device_function(graph: Graph, name: str) -> str:
    """CUDA C++ of the body: scalars in by value, results out by reference (`r0`, `r1`, ...)."""
    entering = {k: f"s{number}" for number, k in enumerate(graph.entering)}
    taken = [f"{kind} {parameter}" for parameter, kind in kinds_of(graph).items()]
    given = [f"{TYPES[dtype]}& r{k}" for k, dtype in enumerate(graph.dtypes)]
    lines = [f"__device__ __forceinline__ void {name}({', '.join([*taken, *given])}) {{"]
    for k, node in enumerate(graph.nodes):
        if node.dtype in WEAK:
            continue
        if node.operation == "input":
            text = f"a{node.value}"
        else:
            text = entering[k] if is_entry(graph.nodes, node) else _expression(graph, node)
        lines.append(f"    const {TYPES[node.dtype]} t{k} = {text};")
    lines += [f"    r{number} = t{k};" for number, k in enumerate(graph.outputs)]
    return "\n".join([*lines, "}"])


def elementwise_source(graph: Graph, arrays: Sequence[int], n_axes: int) -> str:
    """A kernel ``fused(n, lengths, inputs with their strides, scalars, outs)`` over `n_axes` joined axes."""
    kinds = kinds_of(graph)
    used = [p for p in arrays if graph.uses(p)]
    flat = {f"a{p}" for p in used}
    numbers = range(len(graph.outputs))
    signature = ["const long long n", *(f"const long long d{axis}" for axis in range(n_axes))]
    for name, kind in kinds.items():
        if name in flat:
            signature += [f"const {kind}* {name}"]
            signature += [f"const long long {name}_{axis}" for axis in range(n_axes)]
        else:
            signature.append(f"const {kind} {name}")
    signature += [f"{TYPES[graph.dtypes[k]]}* o{k}" for k in numbers]
    lines = [f"long long at{p} = 0;" for p in used]
    for axis in range(n_axes - 1, -1, -1):
        place = f"rest % d{axis}" if axis else "rest"
        lines += [f"const long long c{axis} = {place};"]
        lines += [f"at{p} += c{axis} * a{p}_{axis};" for p in used]
        lines += [f"rest /= d{axis};"] if axis else []
    operands = [f"{name}[at{name[1:]}]" if name in flat else name for name in kinds]
    lines += [f"{TYPES[graph.dtypes[k]]} r{k};" for k in numbers]
    lines += [f"body({', '.join([*operands, *(f'r{k}' for k in numbers)])});", *(f"o{k}[i] = r{k};" for k in numbers)]
    inside = "\n        ".join(["long long rest = i;", *lines])
    return f"""{PRELUDE}
{device_function(graph, "body")}

extern "C" __global__ void fused({", ".join(signature)}) {{
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {{
        {inside}
    }}
}}
"""


@functools.cache
def _kernel(source: str) -> Any:
    return raw_module(source, OPTIONS).get_function("fused")


def launch(graph: Graph, arrays: dict[int, Any], layout: Layout, numbers: dict[str, Any], outs: list[Any]) -> None:
    """Run the kernel on CuPy arrays, by position; `numbers` are the scalar parameters by name."""
    from numpy import int64

    arguments: list[Any] = [int64(layout.size), *(int64(length) for length in layout.axes)]
    rows = dict(zip(arrays, zip(layout.strides, layout.forms, strict=True), strict=True))
    for name in kinds_of(graph):
        position = int(name[1:])
        if name[0] == "a" and position in rows and name not in numbers:
            strides, form = rows[position]
            array = arrays[position]
            arguments += [array.copy(order="C") if form == "copy" else array, *(int64(s) for s in strides)]
        else:
            arguments.append(numbers[name])
    source = elementwise_source(graph, list(arrays), len(layout.axes))
    n_blocks = min(-(-layout.size // THREADS), 1 << 20)
    _kernel(source)((n_blocks,), (THREADS,), (*arguments, *outs))
