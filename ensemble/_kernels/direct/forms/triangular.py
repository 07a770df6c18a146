"""Solution with a factorisation: forward and backward substitution of all samples, right-hand sides in columns.

Bytes that must move, float64: ``8 S n_values``, twice for LDL^T, which reads U in both passes, and ``16 n k S`` for
k columns.
Values of another type are converted as they are loaded: sums are in the type of the right-hand side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.lanes.types import zeros
from ensemble._compile.numba import compiled, per_width, prange
from ensemble._compile.plain_code import (
    LANES,
    Indices,
    Integers,
    Numbers,
    Register,
    Stored,
    behind,
    entry,
    inlined,
    load,
    plain,
    prefetch,
    spread,
    store,
)
from ensemble._compile.registry import into, kernel
from ensemble._kernels.direct.forms.flat import LU, SYMMETRIC, TRANSPOSED
from ensemble._kernels.direct.forms.tiles import aligned, runs_of_tiles, tiles_by_width
from ensemble._kernels.direct.symbolic.elimination import Elimination

__all__ = ["ahead_of", "factor_solve", "graph_arrays", "order_of", "solve_tile", "solve_tiles"]

WIDEST, VECTOR_BYTES = 32, 1 << 26
"""Samples of a tile, and bytes of its vectors above which it has fewer."""

AHEAD, NARROW = 3072, 128
"""Bytes of the values before the present one that are prefetched on the way back through the rows of a narrow tile.

Measured again by `benchmarks direct`.
"""


@kernel
def factor_solve(factors, plan, b, transposed, out):
    """x in ``A x = b`` or ``A^T x = b``: `factors` of shape (n_values, n_samples or 1), b and x (n, k, n_samples)."""
    xp = array_namespace(b)
    factors = xp.astype(factors, b.dtype, copy=False)
    rows, columns = (plan.columns, plan.rows) if transposed else (plan.rows, plan.columns)
    y = [b[i, ...] for i in rows.tolist()]
    by_columns = transposed or plan.symmetric
    left, right = (_triangle(plan, above) for above in (False, True))
    n, pivots = len(y), [factors[d, ...] for d in plan.diagonal.tolist()]
    for i in range(n):
        if by_columns:
            scaled = y[i] * pivots[i]
            y[i] = scaled if transposed and not plan.symmetric else y[i]
            for j, e in right[i]:
                y[j] = y[j] - factors[e, ...] * scaled
        else:
            for j, e in left[i]:
                y[i] = y[i] - factors[e, ...] * y[j]
    for i in reversed(range(n)):
        if transposed and not plan.symmetric:
            for j, e in left[i]:
                y[j] = y[j] - factors[e, ...] * y[i]
        else:
            for j, e in right[i]:
                y[i] = y[i] - factors[e, ...] * y[j]
            y[i] = y[i] * pivots[i]
    order = np.argsort(columns).tolist()
    return into(out, xp.stack([y[i] for i in order]) if n else b)


def _triangle(plan: Elimination, above: bool) -> list[list[tuple[int, int]]]:
    """(column, place of the value) of the entries of each row right or left of the diagonal, as they are stored."""
    starts, columns = (plan.upper_starts, plan.upper) if above else (plan.lower_starts, plan.lower)
    first = plan.diagonal + 1 if above else plan.first[:-1]
    cut = lambda i: columns[starts[i] : starts[i + 1]].tolist()
    return [list(zip(cut(i), range(f, f + len(cut(i))), strict=True)) for i, f in enumerate(first.tolist())]


# --- one tile of samples
@inlined
def _value(factors: Stored, e: int, stride: int, shared: bool) -> Register:
    """Value e of the factorisation, in the type of the right-hand side."""
    return spread(factors[e]) if shared else load(factors, e * stride)


@inlined
def _gather(
    factors: Stored, stride: int, shared: bool, columns: Indices, low: int, high: int, shift: int, y: Numbers, row: int,
    k: int, c: int, ahead: int,
) -> Register:  # fmt: skip
    """y of one row and column less the products of a run of entries with the y of other rows."""
    total = load(y, (row * k + c) * LANES)
    for p in range(low, high):
        if ahead > 0:
            prefetch(factors, (p + shift - ahead) * stride)
        total = total - _value(factors, p + shift, stride, shared) * load(y, (columns[p] * k + c) * LANES)
    return total


@inlined
def _scatter(
    factors: Stored, stride: int, shared: bool, columns: Indices, low: int, high: int, shift: int, y: Numbers,
    source: Register, k: int, c: int,
) -> None:  # fmt: skip
    """Subtract multiples of `source` from the y of a run of entries' columns."""
    for p in range(low, high):
        place = (columns[p] * k + c) * LANES
        store(y, place, load(y, place) - _value(factors, p + shift, stride, shared) * source)


@inlined
def _source(
    factors: Stored, stride: int, shared: bool, diagonal: Integers, i: int, y: Numbers, k: int, c: int,
    transposed: bool,
) -> Register:  # fmt: skip
    """y of a row times the reciprocal pivot; stored where the matrix is transposed."""
    at = (i * k + c) * LANES
    scaled = load(y, at) * _value(factors, diagonal[i], stride, shared)
    if transposed:
        store(y, at, scaled)
    return scaled


@plain
def _forward_four(
    factors: Stored, stride: int, shared: bool, starts: Integers, upper: Indices, diagonal: Integers, y: Numbers,
    i: int, k: int, c: int, transposed: bool,
) -> None:  # fmt: skip
    """Forward substitution with the nested rows i to i + 3 by columns; beyond, y is loaded and stored once."""
    d0, d1, d2, d3 = diagonal[i] + 1, diagonal[i + 1] + 1, diagonal[i + 2] + 1, diagonal[i + 3] + 1
    low, high = starts[i + 3], starts[i + 4]
    s0 = _source(factors, stride, shared, diagonal, i, y, k, c, transposed)
    _scatter(factors, stride, shared, upper, starts[i], starts[i] + 3, d0 - starts[i], y, s0, k, c)
    s1 = _source(factors, stride, shared, diagonal, i + 1, y, k, c, transposed)
    _scatter(factors, stride, shared, upper, starts[i + 1], starts[i + 1] + 2, d1 - starts[i + 1], y, s1, k, c)
    s2 = _source(factors, stride, shared, diagonal, i + 2, y, k, c, transposed)
    _scatter(factors, stride, shared, upper, starts[i + 2], starts[i + 2] + 1, d2 - starts[i + 2], y, s2, k, c)
    s3 = _source(factors, stride, shared, diagonal, i + 3, y, k, c, transposed)
    d0, d1, d2, d3 = d0 + 3, d1 + 2, d2 + 1, d3
    for p in range(high - low):
        place = (upper[low + p] * k + c) * LANES
        total = load(y, place) - _value(factors, d0 + p, stride, shared) * s0
        total = total - _value(factors, d1 + p, stride, shared) * s1
        total = total - _value(factors, d2 + p, stride, shared) * s2
        store(y, place, total - _value(factors, d3 + p, stride, shared) * s3)


@plain
def _forward(
    factors: Stored, stride: int, shared: bool, lower_starts: Integers, lower: Indices, upper_starts: Integers,
    upper: Indices, first_value: Integers, diagonal: Integers, nested: Indices, n: int, y: Numbers, k: int, order: int,
) -> None:  # fmt: skip
    i = 0
    while i < n:
        if order != LU and nested[i] > 0:
            for c in range(k):
                _forward_four(
                    factors, stride, shared, upper_starts, upper, diagonal, y, i, k, c, order == TRANSPOSED
                )  # fmt: skip
            i += 4
        else:
            for c in range(k):
                if order == LU:
                    low = lower_starts[i]
                    total = _gather(
                        factors, stride, shared, lower, low, lower_starts[i + 1], first_value[i] - low, y, i, k, c, 0
                    )  # fmt: skip
                    store(y, (i * k + c) * LANES, total)
                else:
                    low = upper_starts[i]
                    scaled = _source(factors, stride, shared, diagonal, i, y, k, c, order == TRANSPOSED)
                    _scatter(
                        factors, stride, shared, upper, low, upper_starts[i + 1], diagonal[i] + 1 - low, y, scaled, k, c
                    )  # fmt: skip
            i += 1


@plain
def _backward(
    factors: Stored, stride: int, shared: bool, lower_starts: Integers, lower: Indices, upper_starts: Integers,
    upper: Indices, first_value: Integers, diagonal: Integers, n: int, y: Numbers, k: int, order: int, ahead: int,
) -> None:  # fmt: skip
    for i in range(n - 1, -1, -1):
        for c in range(k):
            at = (i * k + c) * LANES
            if order == TRANSPOSED:
                low = lower_starts[i]
                _scatter(
                    factors, stride, shared, lower, low, lower_starts[i + 1], first_value[i] - low, y, load(y, at), k, c
                )  # fmt: skip
            else:
                low = upper_starts[i]
                total = _gather(
                    factors, stride, shared, upper, low, upper_starts[i + 1], diagonal[i] + 1 - low, y, i, k, c, ahead
                )  # fmt: skip
                store(y, at, total * _value(factors, diagonal[i], stride, shared))


@plain
def _solve_tile(
    factors: Stored, at: int, stride: int, shared: bool, lower_starts: Integers, lower: Indices, upper_starts: Integers,
    upper: Indices, first_value: Integers, diagonal: Integers, nested: Indices, rows: Integers, columns: Integers,
    n: int, b: Numbers, x: Numbers, k: int, n_samples: int, first: int, y: Numbers, order: int, ahead: int,
    nothing: Register,
) -> None:  # fmt: skip
    """The solutions of one tile: samples from `first` on, values from number `at` on; `y` is free."""
    values, given, found = behind(factors, at), behind(b, first), behind(x, first)
    for i in range(n):
        for c in range(k):
            store(y, (i * k + c) * LANES, load(given, (rows[i] * k + c) * n_samples))
    _forward(
        values, stride, shared, lower_starts, lower, upper_starts, upper, first_value, diagonal, nested, n, y, k, order
    )  # fmt: skip
    _backward(
        values, stride, shared, lower_starts, lower, upper_starts, upper, first_value, diagonal, n, y, k, order, ahead
    )  # fmt: skip
    for i in range(n):
        for c in range(k):
            store(found, (columns[i] * k + c) * n_samples, load(y, (i * k + c) * LANES))


solve_tile = entry(_solve_tile)


# --- all samples
@per_width
def _solve(width):
    @compiled
    def loop(factors, place, graph, b, x, k, n_samples, begin, n_tiles, order):
        run = runs_of_tiles(n_tiles)
        for r in prange((n_tiles + run - 1) // run):
            lower_starts, lower, upper_starts, upper, first_value, diagonal, nested, rows, columns = graph
            stride, step, shared, ahead = place
            n = diagonal.size
            y = aligned(n * k * width, b)
            for tile in range(np.int64(r) * run, min((np.int64(r) + 1) * run, n_tiles)):
                first = begin + tile * width
                solve_tile(
                    factors, 0 if shared else first if step == 0 else tile * step, stride, shared, lower_starts, lower,
                    upper_starts, upper, first_value, diagonal, nested, rows, columns, n, b, x, k, n_samples, first, y,
                    order, ahead, zeros(b, width),
                )  # fmt: skip

    return loop


def graph_arrays(plan: Elimination, transposed: bool) -> tuple[np.ndarray, ...]:
    """Return the arrays of an elimination that `solve_tile` reads, for the matrix or its transpose."""
    rows, columns = (plan.columns, plan.rows) if transposed else (plan.rows, plan.columns)
    lower, upper = (plan.lower_starts, plan.lower), (plan.upper_starts, plan.upper)
    return *lower, *upper, plan.first, plan.diagonal, plan.nested, rows, columns


def order_of(plan: Elimination, transposed: bool) -> int:
    """The kind of the elimination and of the system."""
    return SYMMETRIC if plan.symmetric else TRANSPOSED if transposed else LU


def ahead_of(row: int) -> int:
    """Values that lie `AHEAD` bytes apart, `row` bytes each, where tiles are narrow; else 0."""
    return AHEAD // row if row <= NARROW else 0


def solve_tiles(tiles: np.ndarray, plan: Elimination, b: np.ndarray, transposed: bool, out: np.ndarray) -> np.ndarray:
    """`factor_solve` with values of shape (n_tiles, n_values, width); b and out have as many samples."""
    (n_tiles, n_values, width), (_, k, n_samples) = tiles.shape, b.shape
    place = width, n_values * width, False, ahead_of(width * tiles.itemsize)
    _solve(width)(
        tiles.reshape(-1), place, graph_arrays(plan, transposed), b.reshape(-1), out.reshape(-1), k, n_samples, 0,
        n_tiles, order_of(plan, transposed),
    )  # fmt: skip
    return out


@factor_solve.register("numba", complex_numbers=True)
def _(factors: np.ndarray, plan: Elimination, b: np.ndarray, transposed: bool, out: Any) -> Any:
    n, k, n_samples = b.shape
    out = empty_like(b) if out is None else out
    if not out.size:
        return out
    graph, shared = graph_arrays(plan, transposed), factors.shape[1] != n_samples
    fits = VECTOR_BYTES // (n * k * b.itemsize)
    widest = max(8, min(WIDEST, 1 << max(fits.bit_length() - 1, 0)))
    for first, width, count in tiles_by_width(n_samples, widest):
        place = n_samples, 0, shared, 0 if shared else ahead_of(width * factors.itemsize)
        _solve(width)(
            factors.reshape(-1), place, graph, b.reshape(-1), out.reshape(-1), k, n_samples, first, count,
            order_of(plan, transposed),
        )  # fmt: skip
    return out
