"""Switching times of a graph: when conditions and tables that depend on the time alone change over.

A value that follows from the time and from parameters is a line in t on pieces of the interval, constant there, or
smooth. Comparisons, `floor` and its like, `remainder`, `abs`, extremes and tables end pieces where their operands pass
a level. Of lines these times are exact to rounding, however short a piece is; of other functions of t they are found
on a grid, with 32 points in a period of `sin`, `cos` and `tan`, and by bisection.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from ensemble._compile.trace.graph import Graph, Node, ancestors
from ensemble._compile.trace.operations import Table
from ensemble._compile.trace.replay import value_of
from ensemble._typing import Array

__all__ = ["Switches", "changes_over_time", "switching_times"]

COMPARING = ("less", "less_equal", "greater", "greater_equal")
ROUNDING = ("floor", "ceil", "trunc", "round")
ENDING = (*COMPARING, *ROUNDING, "floor_divide", "remainder", "sign", "abs", "maximum", "minimum", "interp")
"""Operations of which the result jumps, or its slope does, where operands pass a level."""

GRID, PER_PERIOD, MOST_POINTS, BISECTIONS = 512, 32, 1 << 18, 64


class Switches(NamedTuple):
    """Switching times of samples, one entry each."""

    samples: Array
    times: Array
    complete: bool
    """False where there were too many to find."""


class _TooManyError(Exception):
    """More switching times than are looked for."""


@functools.lru_cache(maxsize=256)
def _nodes(graph: Graph, n: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The nodes to evaluate and, among them, those that end pieces: functions of t and of parameters alone."""
    known: list[bool] = []
    moving: list[bool] = []
    for node in graph.nodes:
        here = [known[i] for i in node.inputs]
        known.append(not 1 <= node.value <= n if node.operation == "input" else all(here))
        moving.append(node.value == 0 if node.operation == "input" else any(moving[i] for i in node.inputs))
    read = ancestors(graph.nodes, graph.outputs)
    whole = [node.operation == "cast" and not node.dtype.startswith("float") for node in graph.nodes]
    end = tuple(
        k for k, node in enumerate(graph.nodes)
        if k in read and known[k] and moving[k] and (node.operation in ENDING or whole[k])
    )  # fmt: skip
    return tuple(sorted(ancestors(graph.nodes, end))), end


def changes_over_time(graph: Graph, n: int) -> list[int]:
    """The positions of the inputs that the switching times depend on, t at 0 among them; none where there are none."""
    nodes, end = _nodes(graph, n)
    return sorted(graph.nodes[k].value for k in nodes if graph.nodes[k].operation == "input") if end else []


class _Value(NamedTuple):
    """A node on each piece: ``slope t + value``, or a constant `value` (no slope), or another function (neither)."""

    slope: Array | None
    value: Array | None
    rate: Array | None = None
    """The largest rate of the phase of a periodic function in another one."""

    @property
    def is_constant(self) -> bool:
        return self.slope is None and self.value is not None

    @property
    def is_line(self) -> bool:
        return self.value is not None

    def taken(self, index: Array) -> _Value:
        return _Value(*(None if part is None else part[index] for part in self))


class _Pieces:
    """The pieces of all samples so far, and the values of the nodes on them."""

    def __init__(self, graph: Graph, n: int, low: Array, high: Array, inputs: Mapping[int, Array], most: int) -> None:
        self.graph, self.inputs, self.most = graph, inputs, most
        self.sample, self.start, self.end = np.arange(low.size), low, high
        self.values: dict[int, _Value] = {}
        self.found: list[tuple[Array, Array]] = []
        self.order, self.ending = _nodes(graph, n)

    @property
    def middle(self) -> Array:
        return self.start + 0.5 * (self.end - self.start)

    # --- pieces
    def split(self, pieces: Array, times: Array) -> None:
        """End some pieces at times within them."""
        inside = (times > self.start[pieces]) & (times < self.end[pieces])
        pieces, times = pieces[inside], times[inside]
        if not pieces.size:
            return
        self.found.append((self.sample[pieces], times))
        every = np.concatenate([np.arange(self.sample.size), pieces])
        starts = np.concatenate([self.start, times])
        order = np.lexsort((starts, every))
        every, starts = every[order], starts[order]
        last = np.append(every[1:] != every[:-1], True)
        ends = np.where(last, self.end[every], np.append(starts[1:], 0.0))
        self.sample, self.start, self.end = self.sample[every], starts, ends
        self.values = {k: value.taken(every) for k, value in self.values.items()}

    def at_levels(self, line: _Value, first: Array, last: Array, level: Callable[[Array], Array]) -> None:
        """Split where a line passes the levels with the numbers `first` to `last` - 1, by piece."""
        assert line.slope is not None and line.value is not None
        counts = np.where(line.slope != 0.0, np.maximum(last - first, 0.0), 0.0)
        per_sample = np.bincount(self.sample, counts)
        if per_sample.max(initial=0.0) > self.most:
            raise _TooManyError
        counts = counts.astype(np.int64)
        pieces = np.repeat(np.arange(counts.size), counts)
        number = np.arange(pieces.size) - np.repeat(np.cumsum(counts) - counts, counts) + first[pieces]
        self.split(pieces, (level(number) - line.value[pieces]) / line.slope[pieces])

    def ends_of(self, line: _Value) -> tuple[Array, Array]:
        """The smallest and the largest value of a line on each piece."""
        assert line.slope is not None and line.value is not None
        a, b = line.slope * self.start + line.value, line.slope * self.end + line.value
        return np.minimum(a, b), np.maximum(a, b)

    # --- nodes
    def run(self) -> None:
        """Find all switching times."""
        for k in self.order:
            self.values[k] = self.of_node(k)

    def of_node(self, k: int) -> _Value:
        node = self.graph.nodes[k]
        if node.operation == "input":
            if node.value == 0:
                return _Value(np.ones_like(self.start), np.zeros_like(self.start))
            given = self.inputs[node.value]
            return _Value(None, given[self.sample] if given.size > 1 else np.repeat(given, self.sample.size))
        if node.operation == "constant":
            return _Value(None, np.full(self.sample.size, node.value, np.dtype(node.dtype)))
        operands = [self.values[i] for i in node.inputs]
        if all(operand.is_constant for operand in operands):
            return _Value(None, np.asarray(value_of(node, [operand.value for operand in operands], np)))
        if k in self.ending:
            return self.of_ending(k, node, operands)
        made = _line(node, operands) if all(operand.is_line for operand in operands) else None
        if node.operation == "where" and operands[0].is_constant:
            made = _chosen(operands[0].value, operands[1], operands[2])
        return made if made is not None else _Value(None, None, self.rate_of(node, operands))

    def rate_of(self, node: Node, operands: list[_Value]) -> Array:
        """The rate of the phase of a function that is no line."""
        rate = np.zeros_like(self.start)
        for operand in operands:
            if operand.slope is not None and node.operation in ("sin", "cos", "tan"):
                rate = np.maximum(rate, np.abs(operand.slope))
            elif operand.rate is not None:
                rate = np.maximum(rate, operand.rate)
        return rate

    def of_ending(self, k: int, node: Node, operands: list[_Value]) -> _Value:
        """The value of a node that ends pieces, on its pieces."""
        if not all(operand.is_line for operand in operands):
            return self.on_grid(k, node)
        name = node.operation
        x, *others = (_as_line(operand) for operand in operands)
        if name == "interp":
            self.at_knots(x, node.value)
        elif name in (*COMPARING, "maximum", "minimum"):
            self.at_whole_numbers(_difference(x, others[0]), zero=True)
        elif name in ("sign", "abs"):
            self.at_whole_numbers(x, zero=True)
        elif name in ("floor_divide", "remainder"):
            if not operands[1].is_constant:
                return self.on_grid(k, node)
            self.at_whole_numbers(_scaled(x, 1.0 / others[0].value))  # type: ignore[operator]
        else:
            half = 0.5 if name == "round" else 0.0
            self.at_whole_numbers(_Value(x.slope, x.value + half))  # type: ignore[operator]
        return self.after(node)

    def at_whole_numbers(self, line: _Value, zero: bool = False) -> None:
        """Split where a line passes whole numbers, or `zero` alone."""
        low, high = self.ends_of(line)
        first, last = np.floor(low) + 1.0, np.ceil(high)
        if zero:
            crosses = (low < 0.0) & (high > 0.0)
            first, last = np.zeros_like(low), np.where(crosses, 1.0, 0.0)
        good = np.isfinite(low) & np.isfinite(high)
        self.at_levels(line, np.where(good, first, 0.0), np.where(good, last, 0.0), lambda number: number)

    def at_knots(self, line: _Value, table: Table) -> None:
        """Split where a line passes the points at which a table bends."""
        points = _bends(table)
        low, high = self.ends_of(line)
        first = np.searchsorted(points, low, "right").astype(float)
        last = np.searchsorted(points, high, "left").astype(float)
        self.at_levels(line, first, last, lambda number: points[number.astype(np.int64)])

    def after(self, node: Node) -> _Value:
        """The value of a node whose operands pass no level within a piece any more."""
        operands = [self.values[i] for i in node.inputs]
        middle = self.middle
        x, *others = (_as_line(operand) for operand in operands)
        at = [_at(operand, middle) for operand in operands]
        with np.errstate(all="ignore"):
            if node.operation == "interp":
                slope = np.interp(at[0], node.value.slopes().points, node.value.slopes().values)
                there = np.interp(at[0], node.value.points, node.value.values)
                return _Value(slope * x.slope, there - slope * x.slope * middle)
            if node.operation == "remainder":
                return _Value(x.slope, x.value - np.floor(at[0] / at[1]) * others[0].value)
            if node.operation in ("maximum", "minimum"):
                first = (at[0] > at[1]) if node.operation == "maximum" else (at[0] < at[1])
                chosen = _chosen(first, x, others[0])
                assert chosen is not None
                return chosen
            if node.operation == "abs":
                return _scaled(x, np.sign(at[0]))
            return _Value(None, np.asarray(value_of(node, at, np)))

    # --- functions that are no lines
    def on_grid(self, k: int, node: Node) -> _Value:
        """Split where what a node reads passes levels, looked for on a grid; the value of the node."""
        rates = [self.values[i].rate for i in node.inputs]
        rate = functools.reduce(np.maximum, [rate for rate in rates if rate is not None])
        length = self.end - self.start
        whole = np.bincount(self.sample, length)[self.sample]
        counts = np.ceil(GRID * length / np.where(whole > 0.0, whole, 1.0)) + 2.0
        counts = np.maximum(counts, np.ceil(PER_PERIOD * rate * length / (2.0 * np.pi)) + 2.0)
        if not np.bincount(self.sample, counts).max() <= MOST_POINTS:
            raise _TooManyError
        counts = counts.astype(np.int64)
        pieces = np.repeat(np.arange(counts.size), counts)
        place = np.arange(pieces.size) - np.repeat(np.cumsum(counts) - counts, counts)
        fraction = place / (counts[pieces] - 1)
        times = self.start[pieces] + fraction * length[pieces]
        marks = self.marks(node, pieces, times)
        change = np.flatnonzero((pieces[1:] == pieces[:-1]) & (marks[1:] != marks[:-1]))
        low, high, own, mark = times[change], times[change + 1], pieces[change], marks[change]
        for _ in range(BISECTIONS):
            inner = low + 0.5 * (high - low)
            same = self.marks(node, own, inner) == mark
            low, high = np.where(same, inner, low), np.where(same, high, inner)
        self.split(own, high)
        smooth = node.operation in ("abs", "maximum", "minimum", "remainder", "interp")
        if smooth:
            return _Value(None, None, self.rate_of(node, [self.values[i] for i in node.inputs]))
        everywhere = np.arange(self.sample.size)
        return _Value(None, self.evaluated(k, everywhere, self.middle))

    def marks(self, node: Node, pieces: Array, times: Array) -> Array:
        """A number that changes where the node's operands pass a level."""
        at = [self.evaluated(i, pieces, times) for i in node.inputs]
        with np.errstate(all="ignore"):
            if node.operation == "interp":
                return np.searchsorted(_bends(node.value), at[0])
            if node.operation in ("maximum", "minimum"):
                return at[0] > at[1]
            if node.operation == "remainder":
                return np.floor(at[0] / at[1])
            return np.sign(at[0]) if node.operation == "abs" else np.asarray(value_of(node, at, np))

    def evaluated(self, k: int, pieces: Array, times: Array) -> Array:
        """Node `k` at times in some pieces."""
        known: dict[int, Array] = {}
        for i in sorted(ancestors(self.graph.nodes, [k])):
            node, value = self.graph.nodes[i], self.values.get(i)
            if value is not None and value.is_line:
                known[i] = _at(value.taken(pieces), times)
            else:
                with np.errstate(all="ignore"):
                    known[i] = np.asarray(value_of(node, [known[j] for j in node.inputs], np))
        return known[k]


# --- lines
def _as_line(value: _Value) -> _Value:
    """A constant as a line of slope zero."""
    if value.is_constant:
        assert value.value is not None
        return _Value(np.zeros(value.value.shape), value.value.astype(np.float64))
    return value


def _at(value: _Value, times: Array) -> Array:
    assert value.value is not None
    return value.value if value.slope is None else value.slope * times + value.value


def _difference(a: _Value, b: _Value) -> _Value:
    return _Value(a.slope - b.slope, a.value - b.value)  # type: ignore[operator]


def _scaled(a: _Value, factor: Array) -> _Value:
    return _Value(a.slope * factor, a.value * factor)


def _chosen(condition: Array | None, a: _Value, b: _Value) -> _Value | None:
    """The chosen one of two lines by piece."""
    if not (a.is_line and b.is_line):
        return None
    if a.is_constant and b.is_constant:
        return _Value(None, np.where(condition, a.value, b.value))  # type: ignore[arg-type]
    a, b = _as_line(a), _as_line(b)
    return _Value(*(np.where(condition, x, y) for x, y in ((a.slope, b.slope), (a.value, b.value))))  # type: ignore


def _line(node: Node, operands: list[_Value]) -> _Value | None:
    """The value of an operation on lines; None where it is no line."""
    name, lines = node.operation, [_as_line(operand) for operand in operands]
    constant = [operand.is_constant for operand in operands]
    with np.errstate(all="ignore"):
        if name == "add":
            return _Value(*(a + b for a, b in zip(*(line[:2] for line in lines), strict=True)))
        if name == "subtract":
            return _difference(*lines)
        if name == "multiply" and any(constant):
            return _scaled(lines[0], lines[1].value) if constant[1] else _scaled(lines[1], lines[0].value)
        if name == "divide" and constant[1]:
            return _Value(lines[0].slope / lines[1].value, lines[0].value / lines[1].value)  # type: ignore[operator]
        if name == "negative":
            return _scaled(lines[0], np.float64(-1.0))
        if name == "positive" or (name == "cast" and node.dtype.startswith("float")):
            return lines[0]
    return None


def _bends(table: Table) -> Array:
    """The points of a table at which its slope changes by more than rounding."""
    points, values = table.points, table.values
    width = np.diff(points)
    slopes = np.concatenate([[0.0], np.diff(values) / width, [0.0]])
    size = np.abs(values)
    rounding = 8.0 * np.finfo(np.float64).eps * (size[1:] + size[:-1]) / width
    rounding = np.concatenate([[0.0], rounding, [0.0]])
    chosen: Array = points[np.abs(np.diff(slopes)) > rounding[1:] + rounding[:-1]]
    return chosen


def switching_times(
    graph: Graph, n: int, low: Array, high: Array, inputs: Mapping[int, Array], most: int
) -> Switches:  # fmt: skip
    """The times within an interval at which values of a right-hand side that depend on the time alone switch.

    Parameters
    ----------
    graph : Graph
        Inputs t, `n` unknowns, parameters.
    n : int
    low, high : arrays of float64, shape (S,)
        The ends, low <= high.
    inputs : mapping
        The parameters by position of the input, arrays of shape (S,) or (1,).
    most : int
        Times of a sample, at most, that are looked for.
    """
    pieces = _Pieces(graph, n, low, high, inputs, most)
    try:
        pieces.run()
    except _TooManyError:
        return Switches(np.zeros(0, np.int64), np.zeros(0), False)
    samples = np.concatenate([np.zeros(0, np.int64), *(s for s, _ in pieces.found)])
    times = np.concatenate([np.zeros(0), *(t for _, t in pieces.found)])
    return Switches(samples, times, not times.size or np.bincount(samples).max() <= most)
