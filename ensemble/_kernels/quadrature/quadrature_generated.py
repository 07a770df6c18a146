"""The loops over a tensor product of nodes on the CPU, written for one integrand.

The outermost digits of a point's index number the blocks that threads share; each of the next ones is a loop; the last
ones are carried by lanes. Sums follow the digits: each loop adds weight times the sum of the loop inside, so that a sum
has as many terms as a rule has nodes, and no number of threads changes a bit.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.lanes import arithmetic, circular, functions, quotients, types
from ensemble._compile.lanes import tables as _lane_tables
from ensemble._compile.numba import heard, threads_for
from ensemble._compile.trace.elementwise import SCALAR_FUNCTIONS
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numba_source import expression, imports_of, load_module, tables
from ensemble._kernels.quadrature.levels import Arranged, arranged, digit_order

__all__ = ["Shape", "shape_of", "source", "tensor_sums"]

WIDEST = 64
"""Lanes of a block: eight registers of eight."""

BLOCKS_WANTED = 256

SMALL = 1 << 15
"""Points of one block, at least."""

MOST_LOOPS = 18
"""Python compiles at most 20 nested blocks."""

MOST_PARTIALS = 1 << 22
"""Partial sums that are held at a time."""

HEAD = '''"""Sums over a tensor product of nodes, written by ensemble; it may be deleted at any time."""

import numpy as np

from ensemble._compile.numba import compiled, compiled_serial, prange
from ensemble._compile.trace.elementwise import {functions}
{imports}

WIDTH = {width}
{tables}


@compiled_serial
def block(place, nodes, lane_nodes, weights, lane_weights, parameters, partials):
{body}


@compiled
def sums(n, nodes, lane_nodes, weights, lane_weights, parameters, partials):
    for place in prange(n):
        block(place, nodes, lane_nodes, weights, lane_weights, parameters, partials)
'''


class Shape(NamedTuple):
    """How the digits are shared out: from the outermost, `blocks`, loops, and `lanes`."""

    dim: int
    n_nodes: int
    blocks: int
    lanes: int
    width: int
    tiles: int
    """Sets of lanes that hold the values of the lanes' digits."""


@functools.cache
def shape_of(dim: int, n_nodes: int, dtype: str) -> Shape:
    """The shape for `dim` variables of `n_nodes` nodes each."""
    register = 8 if dtype == "float64" else 16
    lanes = 1
    while lanes < dim and n_nodes**lanes < 2 * register and n_nodes ** (lanes + 1) <= WIDEST:
        lanes += 1
    count = n_nodes**lanes
    width = -(-count // register) * register if count <= WIDEST else 2 * register
    tiles = -(-count // width)
    blocks = 0
    while blocks < dim - lanes and n_nodes**blocks < BLOCKS_WANTED and n_nodes ** (dim - blocks - 1) >= SMALL:
        blocks += 1
    blocks = max(blocks, dim - lanes - MOST_LOOPS)
    return Shape(dim, n_nodes, blocks, lanes, width, tiles)


class Writer:
    """Writes the body of ``block``."""

    def __init__(self, graph: Arranged, shape: Shape, order: tuple[int, ...], n_parameters: int) -> None:
        self.graph, self.levels, self.wide = graph
        self.shape, self.order = shape, order
        self.fused = graph.fused()
        self.absorbed = set(self.fused.values())
        self.spread_at: dict[int, int] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.places = {variable: place for place, variable in enumerate(order)}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def body(self) -> str:
        """All lines."""
        shape = self.shape
        self.line("nodes, lane_nodes, parameters = borrowed(nodes), borrowed(lane_nodes), borrowed(parameters)")
        self.line("weights, lane_weights, partials = borrowed(weights), borrowed(lane_weights), borrowed(partials)")
        self.line(f"sample, rest = place // {shape.n_nodes**shape.blocks}, place % {shape.n_nodes**shape.blocks}")
        self.nodes_of(-1)
        for j in range(shape.blocks):
            self.line(f"x{j} = nodes[rest // {shape.n_nodes ** (shape.blocks - 1 - j)} % {shape.n_nodes}]")
            self.nodes_of(j)
        last = shape.dim - shape.lanes
        sums = range(len(self.graph.outputs))
        for j in range(shape.blocks, last):
            for o in sums:
                self.line(f"s{j}_{o} = zeros(nodes, WIDTH)")
            self.line(f"for d{j} in range({shape.n_nodes}):")
            self.depth += 1
            self.line(f"x{j} = nodes[d{j}]")
            self.nodes_of(j)
        if shape.tiles > 1:
            for o in sums:
                self.line(f"s{last}_{o} = zeros(nodes, WIDTH)")
            self.line(f"for tile in range({shape.tiles}):")
            self.depth += 1
            self.wide_nodes(range(-1, last))
            self.line("weight = load(lane_weights, tile * WIDTH, WIDTH)")
            for o, k in enumerate(self.graph.outputs):
                self.line(f"s{last}_{o} = fma(weight, {self.as_lanes(k)}, s{last}_{o})")
            self.depth -= 1
        else:
            for o, k in enumerate(self.graph.outputs):
                self.line(f"s{last}_{o} = {self.as_lanes(k)}")
        for j in range(last - 1, shape.blocks - 1, -1):
            self.line(f"weight = spread(weights[d{j}], WIDTH)")
            for o in sums:
                self.line(f"s{j}_{o} = fma(weight, s{j + 1}_{o}, s{j}_{o})")
            self.depth -= 1
        for o in sums:
            self.line(f"store(partials, (place * {len(sums)} + {o}) * WIDTH, s{shape.blocks}_{o})")
        return "\n".join(self.lines)

    def nodes_of(self, level: int) -> None:
        """The values that are known from this loop on."""
        for k, at in enumerate(self.levels):
            if at == level and not self.wide[k]:
                self.write(k)
        if self.shape.tiles == 1:
            self.wide_nodes([level])

    def wide_nodes(self, levels: Sequence[int]) -> None:
        """Values on lanes."""
        for k, at in enumerate(self.levels):
            if at in levels and self.wide[k]:
                self.write(k)

    def write(self, k: int) -> None:
        """The assignment of value `k`."""
        node = self.graph.nodes[k]
        if k in self.absorbed:
            return
        if node.operation == "input":
            self.line(f"t{k} = {self.given(node.value)}")
            return
        if k in self.fused:
            self.line(f"t{k} = {self.multiply_add(k)}")
            return
        text = expression(self.graph, node, self.wide[k])
        if self.wide[k]:
            for i in dict.fromkeys(node.inputs):  # a choice between equal values has one of them twice
                if not self.wide[i]:
                    text = re.sub(rf"\bt{i}\b", self.as_lanes(i), text)
        self.line(f"t{k} = {text}")

    def multiply_add(self, k: int) -> str:
        """A product and a sum, rounded once."""
        node, product = self.graph.nodes[k], self.fused[k]
        first, second = self.graph.nodes[product].inputs
        word = self.as_lanes if self.wide[k] else lambda i: f"t{i}"
        a, b = word(first), word(second)
        other = word(node.inputs[0] if node.inputs[1] == product else node.inputs[1])
        if node.operation == "subtract" and node.inputs[1] == product:
            a = f"-{a}"
        elif node.operation == "subtract":
            other = f"-{other}"
        return f"fma({a}, {b}, {other})"

    def as_lanes(self, k: int) -> str:
        """Value `k` as lanes."""
        return f"t{k}" if self.wide[k] else f"spread(t{k}, WIDTH)"

    def given(self, position: int) -> str:
        """Input `position`: a variable or a parameter."""
        shape = self.shape
        if position >= shape.dim:
            return f"parameters[{position - shape.dim}, sample]"
        place = self.places[position]
        lane = place - (shape.dim - shape.lanes)
        if lane < 0:
            return f"x{place}"
        row = lane * shape.tiles
        return f"load(lane_nodes, {f'({row} + tile)' if shape.tiles > 1 else row} * WIDTH, WIDTH)"


def source(graph: Graph, shape: Shape) -> str:
    """The module whose ``sums`` leaves the sums over each block."""
    order = digit_order(graph, shape.dim)
    made = arranged(graph, order, shape.lanes)
    body = Writer(made, shape, order, graph.n_inputs - shape.dim).body()
    modules = (arithmetic, circular, functions, quotients, _lane_tables, types)
    imports = "\n".join(line for line in (imports_of(body, module, ()) for module in modules) if line)
    # a name of both is that of lanes: numbers then call the library under another name
    scalar = [name for name in SCALAR_FUNCTIONS if re.search(rf"\b{name}\(", body)]
    on_lanes = {name for module in modules for name in module.__all__}
    body, names = renamed(body, made, [name for name in scalar if name in on_lanes], scalar)
    return HEAD.format(width=shape.width, tables=tables(made.graph), body=body, imports=imports, functions=names)


def renamed(body: str, made: Arranged, both: list[str], scalar: list[str]) -> tuple[str, str]:
    """The lines of numbers with ``scalar_<name>`` for functions that lanes have, too; the names to import."""
    numbers = {f"t{k}" for k in range(len(made.levels)) if not made.wide[k]}
    lines = []
    for line in body.split("\n"):
        if line.strip().split(" = ")[0] in numbers:
            for name in both:
                line = re.sub(rf"\b{name}\(", f"scalar_{name}(", line)
        lines.append(line)
    names = [f"{name} as scalar_{name}" if name in both else name for name in scalar]
    return "\n".join(lines), ", ".join(names or ["sign"])


@functools.lru_cache(maxsize=256)
def compiled_sums(graph: Graph, shape: Shape) -> Any:
    return load_module(source(graph, shape)).sums


def tensor_sums(graph: Graph, dim: int, nodes: np.ndarray, weights: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    """The weighted sums of the graph's outputs over all tuples of nodes, shape (n_outputs, n_samples).

    `parameters` has shape (n_parameters, n_samples).
    """
    dtype = nodes.dtype
    shape = shape_of(dim, nodes.size, dtype.name)
    run = compiled_sums(graph, shape)
    lane_nodes, lane_weights = lane_tables(nodes, weights, shape)
    n_blocks, n_outputs, n_samples = nodes.size**shape.blocks, len(graph.outputs), parameters.shape[1]
    at_once = max(1, MOST_PARTIALS // (n_blocks * n_outputs * shape.width))
    result = np.empty((n_outputs, n_samples), dtype)
    points = nodes.size**dim

    def whole() -> np.ndarray:
        for first in range(0, n_samples, at_once):
            given = np.ascontiguousarray(parameters[:, first : first + at_once], dtype)
            partials = np.empty((given.shape[1], n_blocks, n_outputs, shape.width), dtype)
            with threads_for(points * given.shape[1] // 8):
                run(given.shape[1] * n_blocks, nodes, lane_nodes, weights, lane_weights, given, partials.reshape(-1))
            result[:, first : first + at_once] = added(partials, weights, shape)
        return result

    return heard(whole, points * n_samples * len(graph.nodes))


def lane_tables(nodes: np.ndarray, weights: np.ndarray, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """The nodes of the lanes' digits, one row for each, and the products of their weights; lanes left over weigh 0."""
    size, count = shape.tiles * shape.width, nodes.size**shape.lanes
    places = np.minimum(np.arange(size), count - 1)
    rows, product = [], (np.arange(size) < count).astype(nodes.dtype)
    for j in range(shape.lanes):
        digits = places // nodes.size ** (shape.lanes - 1 - j) % nodes.size
        rows.append(nodes[digits])
        product = product * weights[digits]
    return np.concatenate(rows), product


def added(partials: np.ndarray, weights: np.ndarray, shape: Shape) -> np.ndarray:
    """The sums over lanes and blocks, digit by digit: shape (n_outputs, n_samples)."""
    n_samples, _, n_outputs, _ = partials.shape
    if shape.tiles == 1:
        lanes = partials[..., : weights.size**shape.lanes].reshape(*partials.shape[:3], *[weights.size] * shape.lanes)
        for _ in range(shape.lanes):
            lanes = weighted(lanes, weights)
    else:
        lanes = partials
        while lanes.shape[-1] > 1:
            lanes = lanes[..., 0::2] + lanes[..., 1::2]
        lanes = lanes[..., 0]
    total = np.moveaxis(lanes.reshape(n_samples, *[weights.size] * shape.blocks, n_outputs), -1, 0)
    for _ in range(shape.blocks):
        total = weighted(total, weights)
    return total


def weighted(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The sum over the last axis, in order."""
    total = weights[0] * values[..., 0]
    for d in range(1, weights.size):
        total = total + weights[d] * values[..., d]
    return total
