"""Numbers of a factorisation without exchanges, all samples at once.

Every entry is ``a_ij - l_i0 u_0j - l_i1 u_1j - ...``, products subtracted in ascending order and never fused. A dense
row of one tile of samples is reduced by the rows above. No index but the columns is read.

Operations: a multiply-add loads one value, and a fourth of a load and a store of the dense row where four rows are
nested. Graphs with few multiply-adds are treated in `flat`, those with many for each value in `supernodal`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile.lanes.types import load, store, zeros
from ensemble._compile.numba import compiled, inner, output, per_width, prange
from ensemble._compile.registry import into, kernel
from ensemble._kernels.direct.by_tiles import factorized_tiles
from ensemble._kernels.direct.elimination import Elimination
from ensemble._kernels.direct.tiles import aligned, reciprocal, runs_of_tiles, tiles_by_width

__all__ = ["factorized"]

WIDEST = 32
"""Samples of a tile."""

LARGE = 1 << 25
"""Bytes of the values of a tile that count as large."""

U = np.uint64  # an unsigned index needs no test for a negative one


@kernel
def factorized(values, plan, out):
    """The values of the factorisation, shape (n_values, n_samples), and a zero for each sample, NaN where it broke."""
    xp = array_namespace(values)
    zero = xp.zeros(values.shape[1:], dtype=values.dtype)
    start = [values[s, ...] if s >= 0 else zero for s in plan.sources.tolist()]
    rows, made, broken = [], [], zero
    for i, diagonal in enumerate(plan.diagonal.tolist()):
        left = plan.lower[plan.lower_starts[i] : plan.lower_starts[i + 1]].tolist()
        right = plan.upper[plan.upper_starts[i] : plan.upper_starts[i + 1]].tolist()
        stored = [*([] if plan.symmetric else left), i, *right]
        first = diagonal - (0 if plan.symmetric else len(left))
        row = dict(zip(stored, start[first:], strict=False))
        for k in left:
            factor = (rows[k][i] if plan.symmetric else row[k]) * rows[k][k]
            if not plan.symmetric:
                row[k] = factor
            for j, above in rows[k].items():
                if j in row and (j >= i or (j > k and not plan.symmetric)):
                    row[j] = row[j] - factor * above
        inverse = 1.0 / row[i]
        row[i] = xp.where((inverse - inverse == 0.0) & (inverse != 0.0), inverse, xp.full_like(inverse, xp.nan))
        for j in stored:
            broken = broken + (row[j] - row[j])
        rows.append(row)
        made += [row[j] for j in stored]
    return into(out, xp.stack(made) if made else xp.zeros((0, *zero.shape), dtype=values.dtype)), broken


@inner
def _subtract_one(row, out, upper, low, high, shift, factor, width, n_samples, first):
    """Subtract a multiple of a row above, whose columns are those of `upper` from `low` to `high`."""
    for t in range(U(low), U(high)):
        place = np.int64(upper[t]) * width
        above = load(out, (np.int64(t) + shift) * n_samples + first, factor)
        store(row, place, load(row, place, factor) - factor * above)


@inner
def _subtract_four(row, out, upper, low, high, shifts, factors, width, n_samples, first):
    """Subtract multiples of four rows above in their order; the columns of the last one are columns of all."""
    f0, f1, f2, f3 = factors
    s0, s1, s2, s3 = shifts
    for t in range(U(low), U(high)):
        place, at = np.int64(upper[t]) * width, np.int64(t) * n_samples + first
        total = load(row, place, f0)
        total = total - f0 * load(out, s0 * n_samples + at, f0)
        total = total - f1 * load(out, s1 * n_samples + at, f0)
        total = total - f2 * load(out, s2 * n_samples + at, f0)
        total = total - f3 * load(out, s3 * n_samples + at, f0)
        store(row, place, total)


@inner
def _reduce_by_one(row, out, graph, p, e, width, n_samples, first, symmetric, nothing):
    """Reduce a dense row by the row above of entry `p`; returns the factor."""
    lower, across, diagonal, upper_starts, upper = graph
    k = np.int64(lower[p])
    shift = diagonal[k] + 1 - upper_starts[k]
    if symmetric:
        low = across[p]
        factor = load(out, (low + shift) * n_samples + first, nothing)
    else:
        low = upper_starts[k]
        factor = load(row, k * width, nothing)
    factor = factor * load(out, diagonal[k] * n_samples + first, nothing)
    if not symmetric:
        store(out, e * n_samples + first, factor)
    _subtract_one(row, out, upper, low, upper_starts[k + 1], shift, factor, width, n_samples, first)
    return factor


@inner
def _four_factors(row, out, graph, p, e, width, n_samples, first, symmetric, nothing):
    """Factors of the four nested rows of the entries from `p` on."""
    lower, across, diagonal, upper_starts, _ = graph
    k = np.int64(lower[p])
    d0, d1, d2, d3 = diagonal[k], diagonal[k + 1], diagonal[k + 2], diagonal[k + 3]
    if symmetric:
        place = across[p + 3] - upper_starts[k + 3]
        f0 = load(out, (d0 + 4 + place) * n_samples + first, nothing)
        f1 = load(out, (d1 + 3 + place) * n_samples + first, nothing)
        f2 = load(out, (d2 + 2 + place) * n_samples + first, nothing)
        f3 = load(out, (d3 + 1 + place) * n_samples + first, nothing)
        f0 = f0 * load(out, d0 * n_samples + first, nothing)
        f1 = f1 * load(out, d1 * n_samples + first, nothing)
        f2 = f2 * load(out, d2 * n_samples + first, nothing)
        f3 = f3 * load(out, d3 * n_samples + first, nothing)
    else:
        f0 = load(row, k * width, nothing) * load(out, d0 * n_samples + first, nothing)
        f1 = load(row, (k + 1) * width, nothing) - f0 * load(out, (d0 + 1) * n_samples + first, nothing)
        f1 = f1 * load(out, d1 * n_samples + first, nothing)
        f2 = load(row, (k + 2) * width, nothing) - f0 * load(out, (d0 + 2) * n_samples + first, nothing)
        f2 = f2 - f1 * load(out, (d1 + 1) * n_samples + first, nothing)
        f2 = f2 * load(out, d2 * n_samples + first, nothing)
        f3 = load(row, (k + 3) * width, nothing) - f0 * load(out, (d0 + 3) * n_samples + first, nothing)
        f3 = f3 - f1 * load(out, (d1 + 2) * n_samples + first, nothing)
        f3 = f3 - f2 * load(out, (d2 + 1) * n_samples + first, nothing)
        f3 = f3 * load(out, d3 * n_samples + first, nothing)
        store(out, e * n_samples + first, f0)
        store(out, (e + 1) * n_samples + first, f1)
        store(out, (e + 2) * n_samples + first, f2)
        store(out, (e + 3) * n_samples + first, f3)
    return f0, f1, f2, f3


@inner
def _run_of_four(graph, p, symmetric):
    """(first, end, shifts): the columns of the four nested rows of the entries from `p` on, and their values."""
    lower, across, diagonal, upper_starts, _ = graph
    k = np.int64(lower[p])
    low = upper_starts[k + 3]
    s0, s1, s2, s3 = (
        diagonal[k] + 4 - low,
        diagonal[k + 1] + 3 - low,
        diagonal[k + 2] + 2 - low,
        diagonal[k + 3] + 1 - low,
    )
    return across[p + 3] if symmetric else low, upper_starts[k + 4], (s0, s1, s2, s3)


@inner
def _reduce_by_four(row, out, graph, p, e, width, n_samples, first, symmetric, nothing):
    """Reduce a dense row by the four nested rows of the entries from `p` on; returns the sum of the factors."""
    factors = _four_factors(row, out, graph, p, e, width, n_samples, first, symmetric, nothing)
    low, high, shifts = _run_of_four(graph, p, symmetric)
    _subtract_four(row, out, graph[4], low, high, shifts, factors, width, n_samples, first)
    return factors[0] + factors[1] + factors[2] + factors[3]


@inner
def _load_columns(values, sources, row, columns, low, high, e, width, n_samples, first, nothing):
    """Entries of the matrix in the columns of a run, from value `e` of the factorisation on, to a dense row."""
    for p in range(U(low), U(high)):
        source = np.int64(sources[U(e) + p - U(low)])
        value = load(values, source * n_samples + first, nothing) if source >= 0 else nothing
        store(row, np.int64(columns[p]) * width, value)


@inner
def _load_row(values, plan, row, i, width, n_samples, first, symmetric, nothing):
    """Row i of the matrix to a dense row."""
    sources, lower_starts, graph, first_value, _ = plan
    lower, _, diagonal, upper_starts, upper = graph
    own = diagonal[i]
    if not symmetric:
        low, high = lower_starts[i], lower_starts[i + 1]
        _load_columns(
            values, sources, row, lower, low, high, first_value[i], width, n_samples, first, nothing
        )  # fmt: skip
    source = np.int64(sources[own])
    value = load(values, source * n_samples + first, nothing) if source >= 0 else nothing
    store(row, i * width, value)
    low, high = upper_starts[i], upper_starts[i + 1]
    _load_columns(values, sources, row, upper, low, high, own + 1, width, n_samples, first, nothing)


@inner
def _finish_row(row, out, plan, i, width, stride, start, symmetric, nothing):
    """Reduce a dense row by the rows above and store it; NaN where a value is not finite."""
    _, lower_starts, graph, first_value, four = plan
    lower, _, diagonal, upper_starts, upper = graph
    check, p, e, end = nothing, lower_starts[i], first_value[i], lower_starts[i + 1]
    while p < end:
        if four[lower[p]] and p + 3 < end and lower[p + 3] == lower[p] + 3:
            total = _reduce_by_four(row, out, graph, p, e, width, stride, start, symmetric, nothing)
            p, e = p + 4, e + 4
        else:
            total = _reduce_by_one(row, out, graph, p, e, width, stride, start, symmetric, nothing)
            p, e = p + 1, e + 1
        check = check + (total - total)
    own = diagonal[i]
    pivot = reciprocal(load(row, i * width, nothing))
    check = check + (pivot - pivot)
    store(out, own * stride + start, pivot)
    for t in range(upper_starts[i], upper_starts[i + 1]):
        value = load(row, np.int64(upper[t]) * width, nothing)
        check = check + (value - value)
        store(out, (own + 1 + t - upper_starts[i]) * stride + start, value)
    return check


@per_width
def _factorized(width, symmetric, staged):
    """Dense rows are reduced by the rows above, four at once where their columns are nested.

    With `staged`, the values of a tile are worked out in a buffer that the cache holds.
    """

    @compiled
    def loop(values, plan, out, broken, n_samples, begin, n_tiles):
        run = runs_of_tiles(n_tiles)
        for r in prange((n_tiles + run - 1) // run):
            n, n_values = plan[4].size, plan[0].size
            row = aligned(n * width, values)
            row[:] = 0  # without fill, entries that no row stores are reduced too
            work = aligned(n_values * width, values) if staged else out
            nothing = zeros(values, width)
            for tile in range(np.int64(r) * run, min((np.int64(r) + 1) * run, n_tiles)):
                first = begin + tile * width
                stride, start = (width, 0) if staged else (n_samples, first)
                check = nothing
                for i in range(n):
                    _load_row(values, plan, row, i, width, n_samples, first, symmetric, nothing)
                    check = check + _finish_row(row, work, plan, i, width, stride, start, symmetric, nothing)
                store(broken, first, check)
                if staged:
                    for v in range(n_values):
                        store(out, v * n_samples + first, load(work, v * width, nothing))

    return loop


@factorized.register("numba")
def _(values: np.ndarray, plan: Elimination, out: Any) -> Any:
    n_samples = values.shape[1]
    if plan.flat is not None or plan.supernodes is not None:
        tiles, broken = factorized_tiles(values, plan)
        return into(out, tiles.rows(slice(None))), broken
    out = output(out, (plan.n_values, n_samples), values.dtype)
    broken = np.zeros(n_samples, values.dtype)
    graph = (plan.lower, plan.across, plan.diagonal, plan.upper_starts, plan.upper)
    arrays = (plan.sources, plan.lower_starts, graph, plan.first, plan.nested)
    for first, width, count in tiles_by_width(n_samples, WIDEST):
        staged = width < n_samples and plan.n_values * width * values.itemsize <= LARGE
        loop = _factorized(width, plan.symmetric, staged)
        loop(values.reshape(-1), arrays, out.reshape(-1), broken, n_samples, first, count)
    return out, broken
