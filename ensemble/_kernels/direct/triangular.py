"""Solution with a factorisation: forward and backward substitution of all samples, right-hand sides in columns.

Bytes that must move, float64: ``8 S n_values``, twice for LDL^T, which reads U in both passes, and ``16 n k S`` for
k columns.
Values of another type are converted as they are loaded: sums are in the type of the right-hand side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile.lanes.arithmetic import convert
from ensemble._compile.lanes.types import load, prefetch, splat, store, zeros
from ensemble._compile.memory import empty_like
from ensemble._compile.numba import compiled, inner, per_width, prange
from ensemble._compile.registry import into, kernel
from ensemble._kernels.direct.elimination import Elimination
from ensemble._kernels.direct.flat import LU, SYMMETRIC, TRANSPOSED
from ensemble._kernels.direct.tiles import aligned, runs_of_tiles, tiles_by_width

__all__ = ["factor_solve"]

WIDEST, VECTOR_BYTES = 32, 1 << 26
"""Samples of a tile, and bytes of its vectors above which it has fewer."""

AHEAD, NARROW = 3072, 128
"""Bytes of the values before the present one that are prefetched on the way back through the rows of a narrow tile."""

U = np.uint64  # an unsigned index needs no test for a negative one


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


@inner
def _value(factors, e, n_samples, first, shared, y, nothing):
    """Value e of the factorisation, in the type of `y`."""
    if shared:
        return convert(splat(factors[e], factors, nothing), y)
    return convert(load(factors, e * n_samples + first, nothing), y)


@inner
def _gather(factors, columns, low, high, shift, y, row, k, c, width, n_samples, first, shared, back, nothing):
    """y of one row and column less the products of a run of entries with the y of other rows."""
    total = load(y, (row * k + c) * width, nothing)
    for p in range(U(low), U(high)):
        if back and not shared and width * factors.itemsize <= NARROW:  # rows in descending order: not foreseen
            ahead = AHEAD // (width * factors.itemsize)
            prefetch(factors, (np.int64(p) + shift - ahead) * n_samples + first, nothing)
        value = _value(factors, np.int64(p) + shift, n_samples, first, shared, y, nothing)
        total = total - value * load(y, (np.int64(columns[p]) * k + c) * width, nothing)
    return total


@inner
def _scatter(factors, columns, low, high, shift, y, source, k, c, width, n_samples, first, shared, nothing):
    """Subtract multiples of `source` from the y of a run of entries' columns."""
    for p in range(U(low), U(high)):
        value = _value(factors, np.int64(p) + shift, n_samples, first, shared, y, nothing)
        place = (np.int64(columns[p]) * k + c) * width
        store(y, place, load(y, place, nothing) - value * source)


@inner
def _scatter_four(factors, upper, low, high, shifts, y, sources, k, c, width, n_samples, first, shared, nothing):
    """The same for four nested rows in their order, the columns of the last one: y is loaded and stored once."""
    s0, s1, s2, s3 = sources
    t0, t1, t2, t3 = shifts
    for p in range(U(low), U(high)):
        place, t = (np.int64(upper[p]) * k + c) * width, np.int64(p)
        total = load(y, place, nothing)
        total = total - _value(factors, t + t0, n_samples, first, shared, y, nothing) * s0
        total = total - _value(factors, t + t1, n_samples, first, shared, y, nothing) * s1
        total = total - _value(factors, t + t2, n_samples, first, shared, y, nothing) * s2
        total = total - _value(factors, t + t3, n_samples, first, shared, y, nothing) * s3
        store(y, place, total)


@inner
def _source(factors, diagonal, i, y, k, c, width, n_samples, first, transposed, shared, nothing):
    """y of a row times the reciprocal pivot; stored where the matrix is transposed."""
    at = (i * k + c) * width
    scaled = load(y, at, nothing) * _value(factors, diagonal[i], n_samples, first, shared, y, nothing)
    if transposed:
        store(y, at, scaled)
    return scaled


@inner
def _forward_four(factors, upper_starts, upper, diagonal, y, i, k, c, width, n_samples, first, transposed, shared, nothing):  # fmt: skip  # noqa: E501
    """Forward substitution with the nested rows i to i + 3 by columns."""
    s0 = _source(factors, diagonal, i, y, k, c, width, n_samples, first, transposed, shared, nothing)
    low = upper_starts[i]
    _scatter(
        factors, upper, low, low + 3, diagonal[i] + 1 - low, y, s0, k, c, width, n_samples, first, shared, nothing
    )  # fmt: skip
    s1 = _source(factors, diagonal, i + 1, y, k, c, width, n_samples, first, transposed, shared, nothing)
    low = upper_starts[i + 1]
    _scatter(
        factors, upper, low, low + 2, diagonal[i + 1] + 1 - low, y, s1, k, c, width, n_samples, first, shared, nothing
    )  # fmt: skip
    s2 = _source(factors, diagonal, i + 2, y, k, c, width, n_samples, first, transposed, shared, nothing)
    low = upper_starts[i + 2]
    _scatter(
        factors, upper, low, low + 1, diagonal[i + 2] + 1 - low, y, s2, k, c, width, n_samples, first, shared, nothing
    )  # fmt: skip
    s3 = _source(factors, diagonal, i + 3, y, k, c, width, n_samples, first, transposed, shared, nothing)
    low = upper_starts[i + 3]
    shifts = diagonal[i] + 4 - low, diagonal[i + 1] + 3 - low, diagonal[i + 2] + 2 - low, diagonal[i + 3] + 1 - low
    _scatter_four(
        factors, upper, low, upper_starts[i + 4], shifts, y, (s0, s1, s2, s3), k, c, width, n_samples, first, shared,
        nothing,
    )  # fmt: skip


@inner
def _forward(factors, lower_starts, lower, upper_starts, upper, first_value, diagonal, nested, y, k, width, n_samples, first, order, shared, nothing):  # fmt: skip  # noqa: E501
    i, left = 0, diagonal.size
    while i < left:
        if order != LU and nested[i]:
            for c in range(k):
                _forward_four(
                    factors, upper_starts, upper, diagonal, y, i, k, c, width, n_samples, first, order == TRANSPOSED,
                    shared, nothing,
                )  # fmt: skip
            i += 4
            continue
        for c in range(k):
            if order == LU:
                low, high = lower_starts[i], lower_starts[i + 1]
                total = _gather(
                    factors, lower, low, high, first_value[i] - low, y, i, k, c, width, n_samples, first, shared,
                    False, nothing,
                )  # fmt: skip
                store(y, (i * k + c) * width, total)
            else:
                scaled = _source(
                    factors, diagonal, i, y, k, c, width, n_samples, first, order == TRANSPOSED, shared, nothing
                )  # fmt: skip
                low, high = upper_starts[i], upper_starts[i + 1]
                _scatter(
                    factors, upper, low, high, diagonal[i] + 1 - low, y, scaled, k, c, width, n_samples, first, shared,
                    nothing,
                )  # fmt: skip
        i += 1


@inner
def _backward(factors, lower_starts, lower, upper_starts, upper, first_value, diagonal, y, k, width, n_samples, first, order, shared, nothing):  # fmt: skip  # noqa: E501
    for i in range(diagonal.size - 1, -1, -1):
        for c in range(k):
            if order == TRANSPOSED:
                low, high = lower_starts[i], lower_starts[i + 1]
                source = load(y, (i * k + c) * width, nothing)
                _scatter(
                    factors, lower, low, high, first_value[i] - low, y, source, k, c, width, n_samples, first, shared,
                    nothing,
                )  # fmt: skip
            else:
                low, high = upper_starts[i], upper_starts[i + 1]
                total = _gather(
                    factors, upper, low, high, diagonal[i] + 1 - low, y, i, k, c, width, n_samples, first, shared,
                    True, nothing,
                )  # fmt: skip
                total = total * _value(factors, diagonal[i], n_samples, first, shared, y, nothing)
                store(y, (i * k + c) * width, total)


@per_width
def _solve(width, order, shared):
    @compiled
    def loop(
        factors, lower_starts, lower, upper_starts, upper, first_value, diagonal, nested, rows, columns, b, x, k,
        n_samples, begin, n_tiles,
    ):  # fmt: skip
        run = runs_of_tiles(n_tiles)
        for r in prange((n_tiles + run - 1) // run):
            y = aligned(diagonal.size * k * width, b)
            nothing = zeros(b, width)
            for tile in range(np.int64(r) * run, min((np.int64(r) + 1) * run, n_tiles)):
                first = begin + tile * width
                for i in range(diagonal.size):
                    for c in range(k):
                        value = load(b, (np.int64(rows[i]) * k + c) * n_samples + first, nothing)
                        store(y, (i * k + c) * width, value)
                _forward(
                    factors, lower_starts, lower, upper_starts, upper, first_value, diagonal, nested, y, k, width,
                    n_samples, first, order, shared, nothing,
                )  # fmt: skip
                _backward(
                    factors, lower_starts, lower, upper_starts, upper, first_value, diagonal, y, k, width, n_samples,
                    first, order, shared, nothing,
                )  # fmt: skip
                for i in range(diagonal.size):
                    for c in range(k):
                        value = load(y, (i * k + c) * width, nothing)
                        store(x, (np.int64(columns[i]) * k + c) * n_samples + first, value)

    return loop


@factor_solve.register("numba")
def _(factors: np.ndarray, plan: Elimination, b: np.ndarray, transposed: bool, out: Any) -> Any:
    order = SYMMETRIC if plan.symmetric else TRANSPOSED if transposed else LU
    n, k, n_samples = b.shape
    out = empty_like(b) if out is None else out
    if not out.size:
        return out
    rows, columns = (plan.columns, plan.rows) if transposed else (plan.rows, plan.columns)
    graph = (plan.lower_starts, plan.lower, plan.upper_starts, plan.upper, plan.first, plan.diagonal, plan.nested)
    fits = VECTOR_BYTES // (n * k * b.itemsize)
    widest = max(8, min(WIDEST, 1 << max(fits.bit_length() - 1, 0)))
    for first, width, count in tiles_by_width(n_samples, widest):
        loop = _solve(width, order, factors.shape[1] != n_samples)
        loop(factors.reshape(-1), *graph, rows, columns, b.reshape(-1), out.reshape(-1), k, n_samples, first, count)
    return out
