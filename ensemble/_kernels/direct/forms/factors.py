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
from ensemble._compile.lanes.types import zeros
from ensemble._compile.numba import compiled, output, per_width, prange
from ensemble._compile.plain_code import (
    LANES,
    Indices,
    Integers,
    Numbers,
    Register,
    behind,
    entry,
    inlined,
    load,
    plain,
    store,
)
from ensemble._compile.registry import into, kernel
from ensemble._kernels.direct.forms.by_tiles import factorized_tiles, has_tiles
from ensemble._kernels.direct.forms.tiles import aligned, begun, reciprocal, runs_of_tiles, tiles_by_width
from ensemble._kernels.direct.symbolic.elimination import Elimination

__all__ = ["factorized"]

WIDEST = 32
"""Samples of a tile."""

LARGE = 1 << 25
"""Bytes of the values of a tile that count as large."""


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


# --- one tile
@plain
def _load_columns(given: Numbers, stride: int, sources: Integers, columns: Indices, count: int, row: Numbers) -> None:
    """Entries of the matrix in a run of columns to a dense row."""
    for t in range(count):
        store(row, columns[t] * LANES, begun(given, stride, sources[t]))


@inlined
def _subtract_one(row: Numbers, columns: Indices, count: int, above: Numbers, stride: int, factor: Register) -> None:
    """Subtract a multiple of values of a row above in a run of columns."""
    for t in range(count):
        place = columns[t] * LANES
        store(row, place, load(row, place) - factor * load(above, t * stride))


@inlined
def _subtract_four(
    row: Numbers, columns: Indices, count: int, above: Numbers, s1: int, s2: int, s3: int, stride: int, f0: Register,
    f1: Register, f2: Register, f3: Register,
) -> None:  # fmt: skip
    """Subtract multiples of four rows above in their order; those of the last three begin at `s1`, `s2` and `s3`."""
    u1, u2, u3 = behind(above, s1), behind(above, s2), behind(above, s3)
    for t in range(count):
        place, at = columns[t] * LANES, t * stride
        total = load(row, place)
        total = total - f0 * load(above, at)
        total = total - f1 * load(u1, at)
        total = total - f2 * load(u2, at)
        total = total - f3 * load(u3, at)
        store(row, place, total)


@inlined
def _reduce_by_one(
    row: Numbers, made: Numbers, stride: int, k: int, across: int, e: int, diagonal: Integers, starts: Integers,
    upper: Indices, symmetric: bool,
) -> Register:  # fmt: skip
    """Reduce a dense row by row k, from its entry `across` on; returns the factor, of LU value `e`."""
    pivot, low = diagonal[k], across if symmetric else starts[k]
    above = behind(made, (pivot + 1 + low - starts[k]) * stride)
    factor = load(made, pivot * stride)
    if symmetric:
        factor = load(above, 0) * factor
    else:
        factor = load(row, k * LANES) * factor
        store(made, e * stride, factor)
    _subtract_one(row, behind(upper, low), starts[k + 1] - low, above, stride, factor)
    return factor


@inlined
def _four_of_upper(
    made: Numbers, above: Numbers, s1: int, s2: int, s3: int, d0: int, d1: int, d2: int, d3: int
) -> tuple[Register, Register, Register, Register]:
    """Factors of four nested rows of LDL^T, whose entries in the column of the dense row are the first of `above`."""
    f0, f1, f2, f3 = load(above, 0), load(above, s1), load(above, s2), load(above, s3)
    return f0 * load(made, d0), f1 * load(made, d1), f2 * load(made, d2), f3 * load(made, d3)


@inlined
def _four_of_lower(
    row: Numbers, made: Numbers, stride: int, d0: int, d1: int, d2: int, d3: int, e: int
) -> tuple[Register, Register, Register, Register]:
    """Factors of four nested rows of LU: `row` begins with their columns. They are the values from `e` on."""
    f0 = load(row, 0) * load(made, d0)
    f1 = (load(row, LANES) - f0 * load(made, d0 + stride)) * load(made, d1)
    f2 = load(row, 2 * LANES) - f0 * load(made, d0 + 2 * stride) - f1 * load(made, d1 + stride)
    f2 = f2 * load(made, d2)
    f3 = load(row, 3 * LANES) - f0 * load(made, d0 + 3 * stride) - f1 * load(made, d1 + 2 * stride)
    f3 = (f3 - f2 * load(made, d2 + stride)) * load(made, d3)
    store(made, e, f0)
    store(made, e + stride, f1)
    store(made, e + 2 * stride, f2)
    store(made, e + 3 * stride, f3)
    return f0, f1, f2, f3


@inlined
def _reduce_by_four(
    row: Numbers, made: Numbers, stride: int, k: int, across: int, e: int, diagonal: Integers, starts: Integers,
    upper: Indices, symmetric: bool,
) -> Register:  # fmt: skip
    """As `_reduce_by_one`, of the nested rows k to k + 3; returns the sum of the factors."""
    d0, d1, d2, d3 = diagonal[k], diagonal[k + 1], diagonal[k + 2], diagonal[k + 3]
    low = across if symmetric else starts[k + 3]
    first = d0 + 4 + low - starts[k + 3]
    above = behind(made, first * stride)
    s1, s2, s3 = (d1 - d0 - 1) * stride, (d2 - d0 - 2) * stride, (d3 - d0 - 3) * stride
    d0, d1, d2, d3 = d0 * stride, d1 * stride, d2 * stride, d3 * stride
    if symmetric:
        f0, f1, f2, f3 = _four_of_upper(made, above, s1, s2, s3, d0, d1, d2, d3)
    else:
        f0, f1, f2, f3 = _four_of_lower(behind(row, k * LANES), made, stride, d0, d1, d2, d3, e * stride)
    _subtract_four(row, behind(upper, low), starts[k + 4] - low, above, s1, s2, s3, stride, f0, f1, f2, f3)
    return f0 + f1 + f2 + f3


@plain
def _store_row(row: Numbers, i: int, columns: Indices, count: int, made: Numbers, stride: int) -> Register:
    """A reciprocal pivot and the values right of it from a dense row; returns what is NaN where one is not finite."""
    pivot = reciprocal(load(row, i * LANES))
    check = pivot - pivot
    store(made, 0, pivot)
    for t in range(count):
        value = load(row, columns[t] * LANES)
        check = check + (value - value)
        store(made, (t + 1) * stride, value)
    return check


@plain
def _factor_tile(
    values: Numbers, out: Numbers, broken: Numbers, first: int, n_samples: int, sources: Integers,
    lower_starts: Integers, lower: Indices, across: Integers, places: Integers, diagonal: Integers, starts: Integers,
    upper: Indices, nested: Indices, n: int, row: Numbers, work: Numbers, nothing: Register, symmetric: bool,
    staged: bool,
) -> None:  # fmt: skip
    """The factorisation of one tile of samples; with `staged` it is worked out in `work`."""
    given, own = behind(values, first), behind(out, first)
    made, stride = work if staged else own, LANES if staged else n_samples
    check = nothing
    for i in range(n):
        p, end, e, pivot = lower_starts[i], lower_starts[i + 1], places[i], diagonal[i]
        columns, count = behind(upper, starts[i]), starts[i + 1] - starts[i]
        if not symmetric:
            _load_columns(given, n_samples, behind(sources, e), behind(lower, p), end - p, row)
        store(row, i * LANES, begun(given, n_samples, sources[pivot]))
        _load_columns(given, n_samples, behind(sources, pivot + 1), columns, count, row)
        while p < end:
            k = lower[p]
            if nested[k] != 0 and p + 3 < end and lower[p + 3] == k + 3:
                to = across[p + 3] if symmetric else 0
                total = _reduce_by_four(row, made, stride, k, to, e, diagonal, starts, upper, symmetric)
                p, e = p + 4, e + 4
            else:
                to = across[p] if symmetric else 0
                total = _reduce_by_one(row, made, stride, k, to, e, diagonal, starts, upper, symmetric)
                p, e = p + 1, e + 1
            check = check + (total - total)
        check = check + _store_row(row, i, columns, count, behind(made, pivot * stride), stride)
    store(broken, first, check)
    if staged:
        for v in range(places[n]):
            store(own, v * n_samples, load(work, v * LANES))


_factor_one = entry(_factor_tile)


@per_width
def _factorized(width):
    """Dense rows are reduced by the rows above, four at once where their columns are nested.

    With `staged`, the values of a tile are worked out in a buffer that the cache holds.
    """

    @compiled
    def loop(values, plan, graph, out, broken, n_samples, begin, n_tiles, symmetric, staged):
        run = runs_of_tiles(n_tiles)
        for r in prange((n_tiles + run - 1) // run):
            sources, lower_starts, lower, across = plan
            places, diagonal, starts, upper, nested = graph
            row = aligned(diagonal.size * width, values)
            row[:] = 0  # without fill, entries that no row stores are reduced too
            work = aligned(sources.size * width if staged else 0, values)
            for tile in range(np.int64(r) * run, min((np.int64(r) + 1) * run, n_tiles)):
                _factor_one(
                    values, out, broken, begin + tile * width, n_samples, sources, lower_starts, lower, across, places,
                    diagonal, starts, upper, nested, diagonal.size, row, work, zeros(values, width), symmetric, staged,
                )  # fmt: skip

    return loop


@factorized.register("numba", complex_numbers=True)
def _(values: np.ndarray, plan: Elimination, out: Any) -> Any:
    n_samples = values.shape[1]
    if has_tiles(plan):
        tiles, broken = factorized_tiles(values, plan)
        return into(out, tiles.rows(slice(None))), broken
    out = output(out, (plan.n_values, n_samples), values.dtype)
    broken = np.zeros(n_samples, values.dtype)
    graph = (plan.first, plan.diagonal, plan.upper_starts, plan.upper, plan.nested)
    arrays = (plan.sources, plan.lower_starts, plan.lower, plan.across)
    for first, width, count in tiles_by_width(n_samples, WIDEST):
        staged = width < n_samples and plan.n_values * width * values.itemsize <= LARGE
        _factorized(width)(
            values.reshape(-1), arrays, graph, out.reshape(-1), broken, n_samples, first, count, plan.symmetric, staged
        )  # fmt: skip
    return out, broken
