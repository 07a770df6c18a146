"""Numbers of a factorisation by supernodes: products of small blocks whose sums stay in registers.

The rows of a supernode are a dense panel, `upper`, of rows of `ld` registers; of LU the columns of L are the rows of
another one, `lower`. Multiples of the supernodes above are subtracted in ascending order, four rows by four columns at
a time, then those of the supernode's own rows: every entry subtracts its products in the order of `factors.factorized`,
and has the same bits. Rows above that serve several blocks of rows are copied first, so that the cache holds them.

Operations: a multiply-add takes half a load; an entry of the panel is loaded and stored once for each supernode above.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.types import zeros
from ensemble._compile.numba import compiled, per_width, prange
from ensemble._compile.plain_code import LANES, Integers, Numbers, Register, behind, entry, inlined, load, plain, store
from ensemble._kernels.direct.tiles import runs_of_tiles

__all__ = ["factorized_panels"]

BLOCK = 1 << 15
"""Numbers of rows above that are copied together: a part of the second-level cache."""

SHARED = 6
"""Rows from which on it pays to copy the rows above that are subtracted from them."""

FACTORS = 10
"""Numbers kept for four rows of a panel: reciprocal pivots, factors (1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (3, 2)."""


# --- products
@plain
def _subtract_four(
    panel: Numbers, r0: int, r1: int, r2: int, r3: int, places: Integers, low: int, high: int, factors: Numbers,
    above: Numbers, rows: Integers, far: int, step: int, depth: int,
) -> None:  # fmt: skip
    """Subtract from four rows of a panel, in the columns `low` to `high`, multiples of `depth` rows above.

    Column c of the panel lies at ``places[c]``. Of row k above, four columns from c on lie at ``rows[k] + c * far``, in
    steps of `step`. Four factors of row k are followed by those of the next row.
    """
    c = low
    while c + 4 <= high:
        p0, p1, p2, p3 = places[c], places[c + 1], places[c + 2], places[c + 3]
        a0, a1, a2, a3 = load(panel, r0 + p0), load(panel, r0 + p1), load(panel, r0 + p2), load(panel, r0 + p3)
        b0, b1, b2, b3 = load(panel, r1 + p0), load(panel, r1 + p1), load(panel, r1 + p2), load(panel, r1 + p3)
        c0, c1, c2, c3 = load(panel, r2 + p0), load(panel, r2 + p1), load(panel, r2 + p2), load(panel, r2 + p3)
        d0, d1, d2, d3 = load(panel, r3 + p0), load(panel, r3 + p1), load(panel, r3 + p2), load(panel, r3 + p3)
        for k in range(depth):
            at, from_row = 4 * k * LANES, rows[k] + c * far
            u0, u1 = load(above, from_row), load(above, from_row + step)
            u2, u3 = load(above, from_row + 2 * step), load(above, from_row + 3 * step)
            f = load(factors, at)
            a0, a1, a2, a3 = a0 - f * u0, a1 - f * u1, a2 - f * u2, a3 - f * u3
            f = load(factors, at + LANES)
            b0, b1, b2, b3 = b0 - f * u0, b1 - f * u1, b2 - f * u2, b3 - f * u3
            f = load(factors, at + 2 * LANES)
            c0, c1, c2, c3 = c0 - f * u0, c1 - f * u1, c2 - f * u2, c3 - f * u3
            f = load(factors, at + 3 * LANES)
            d0, d1, d2, d3 = d0 - f * u0, d1 - f * u1, d2 - f * u2, d3 - f * u3
        _store_four(panel, r0, p0, p1, p2, p3, a0, a1, a2, a3)
        _store_four(panel, r1, p0, p1, p2, p3, b0, b1, b2, b3)
        _store_four(panel, r2, p0, p1, p2, p3, c0, c1, c2, c3)
        _store_four(panel, r3, p0, p1, p2, p3, d0, d1, d2, d3)
        c += 4
    first = c
    while c < high:
        p0, from_block = places[c], first * far + (c - first) * step
        a0, b0, c0, d0 = load(panel, r0 + p0), load(panel, r1 + p0), load(panel, r2 + p0), load(panel, r3 + p0)
        for k in range(depth):
            at, u0 = 4 * k * LANES, load(above, rows[k] + from_block)
            a0, b0 = a0 - load(factors, at) * u0, b0 - load(factors, at + LANES) * u0
            c0, d0 = c0 - load(factors, at + 2 * LANES) * u0, d0 - load(factors, at + 3 * LANES) * u0
        store(panel, r0 + p0, a0)
        store(panel, r1 + p0, b0)
        store(panel, r2 + p0, c0)
        store(panel, r3 + p0, d0)
        c += 1


@inlined
def _store_four(
    panel: Numbers, row: int, p0: int, p1: int, p2: int, p3: int, a: Register, b: Register, c: Register, d: Register
) -> None:
    store(panel, row + p0, a)
    store(panel, row + p1, b)
    store(panel, row + p2, c)
    store(panel, row + p3, d)


@plain
def _subtract_one(
    panel: Numbers, row: int, places: Integers, low: int, high: int, factors: Numbers, above: Numbers, rows: Integers,
    far: int, step: int, depth: int,
) -> None:  # fmt: skip
    """As `_subtract_four`, from one row; its factors are every fourth number."""
    c = low
    while c + 4 <= high:
        p0, p1, p2, p3 = row + places[c], row + places[c + 1], row + places[c + 2], row + places[c + 3]
        a0, a1, a2, a3 = load(panel, p0), load(panel, p1), load(panel, p2), load(panel, p3)
        for k in range(depth):
            f, from_row = load(factors, 4 * k * LANES), rows[k] + c * far
            a0, a1 = a0 - f * load(above, from_row), a1 - f * load(above, from_row + step)
            a2, a3 = a2 - f * load(above, from_row + 2 * step), a3 - f * load(above, from_row + 3 * step)
        _store_four(panel, 0, p0, p1, p2, p3, a0, a1, a2, a3)
        c += 4
    first = c
    while c < high:
        a0 = load(panel, row + places[c])
        for k in range(depth):
            a0 = a0 - load(factors, 4 * k * LANES) * load(above, rows[k] + first * far + (c - first) * step)
        store(panel, row + places[c], a0)
        c += 1


@plain
def _subtract_rows(
    panel: Numbers, ld: int, spare: int, places: Integers, count: int, low: int, high: int, factors: Numbers,
    above: Numbers, rows: Integers, far: int, step: int, depth: int,
) -> None:  # fmt: skip
    """Subtract from the rows of the first `count` columns, right of the diagonal; nothing reads the row `spare`."""
    for r in range(0, min(count, high), 4):
        begin, own = max(r, low), behind(factors, r * depth * LANES)
        if count - r == 1:
            _subtract_one(panel, places[r] * ld, places, begin, high, own, above, rows, far, step, depth)
        else:
            r2 = places[r + 2] * ld if r + 2 < count else spare
            r3 = places[r + 3] * ld if r + 3 < count else spare
            _subtract_four(
                panel, places[r] * ld, places[r + 1] * ld, r2, r3, places, begin, high, own, above, rows, far, step,
                depth,
            )  # fmt: skip


# --- the supernodes above
@plain
def _pack_upper(
    out: Numbers, stride: int, rows: Integers, pivots: Integers, low: int, high: int, depth: int, scaled: bool,
    packed: Numbers,
) -> None:  # fmt: skip
    """The columns `low` to `high` of `depth` rows of U, four and four, times the reciprocal pivots if `scaled`."""
    to = 0
    for r in range(low, high, 4):
        for k in range(depth):
            place = rows[k] + r * stride
            u0 = load(out, place)
            u1 = load(out, place + stride) if r + 1 < high else u0
            u2 = load(out, place + 2 * stride) if r + 2 < high else u0
            u3 = load(out, place + 3 * stride) if r + 3 < high else u0
            if scaled:
                pivot = load(out, pivots[k])
                u0, u1, u2, u3 = u0 * pivot, u1 * pivot, u2 * pivot, u3 * pivot
            _store_four(packed, to, 0, LANES, 2 * LANES, 3 * LANES, u0, u1, u2, u3)
            to += 4 * LANES


@plain
def _pack_lower(out: Numbers, stride: int, left: Integers, low: int, high: int, depth: int, packed: Numbers) -> None:
    """The rows of L that start at ``left[low:high]``, four and four."""
    to = 0
    for r in range(low, high, 4):
        p0 = left[r] * stride
        p1 = left[r + 1] * stride if r + 1 < high else p0
        p2 = left[r + 2] * stride if r + 2 < high else p0
        p3 = left[r + 3] * stride if r + 3 < high else p0
        for k in range(depth):
            at = k * stride
            u0, u1, u2, u3 = load(out, p0 + at), load(out, p1 + at), load(out, p2 + at), load(out, p3 + at)
            _store_four(packed, to, 0, LANES, 2 * LANES, 3 * LANES, u0, u1, u2, u3)
            to += 4 * LANES


@plain
def _subtract_above(
    panel: Numbers, ld: int, spare: int, places: Integers, count: int, high: int, factors: Numbers, out: Numbers,
    stride: int, rows: Integers, left: Integers, packed: Numbers, packed_rows: Integers, depth: int, of_upper: bool,
) -> None:  # fmt: skip
    """Subtract from `count` rows of a panel multiples of rows of U above, or of columns of L."""
    if of_upper and count < SHARED:
        _subtract_rows(panel, ld, spare, places, count, 0, high, factors, out, rows, stride, stride, depth)
        return
    low, block = 0, max(16, BLOCK // (depth * LANES) // 4 * 4)
    while low < high:
        end = min(low + block, high)
        if of_upper:
            _pack_upper(out, stride, rows, rows, low, end, depth, False, packed)
        else:
            _pack_lower(out, stride, left, low, end, depth, packed)
        for k in range(depth):
            packed_rows[k] = (4 * k - low * depth) * LANES
        _subtract_rows(
            panel, ld, spare, places, count, low, end, factors, packed, packed_rows, depth * LANES, LANES, depth
        )  # fmt: skip
        low = end


@plain
def _update(
    upper: Numbers, lower: Numbers, ld: int, spare: int, out: Numbers, stride: int, pivots: Integers, depth: int,
    skipped: int, columns: Integers, left: Integers, count: int, high: int, place: Integers, integers: Integers,
    longest: int, factors: Numbers, packed: Numbers, symmetric: bool,
) -> None:  # fmt: skip
    """Subtract the multiples of one supernode above, of `depth` rows: from its column `skipped` on, `high` columns."""
    places, rows, packed_rows = behind(integers, 0), behind(integers, longest), behind(integers, longest + depth)
    own_pivots = behind(integers, longest + 2 * depth)
    for c in range(high):
        places[c] = place[columns[c]] * LANES
    for k in range(depth):
        own_pivots[k] = pivots[k] * stride
        rows[k] = (pivots[k] + depth - k + skipped) * stride
    if symmetric:
        _pack_upper(out, stride, rows, own_pivots, 0, count, depth, True, factors)
    else:
        _pack_lower(out, stride, left, 0, count, depth, factors)
    _subtract_above(
        upper, ld, spare, places, count, high, factors, out, stride, rows, left, packed, packed_rows, depth, True
    )  # fmt: skip
    if not symmetric:
        _pack_upper(out, stride, rows, own_pivots, 0, count, depth, False, factors)
        _subtract_above(
            lower, ld, spare, places, count, high, factors, out, stride, rows, left, packed, packed_rows, depth, False
        )  # fmt: skip


# --- the rows of a supernode among themselves
@inlined
def _reciprocal(pivot: Register) -> Register:
    """1 / pivot; NaN where that is zero or not finite."""
    inverse = 1.0 / pivot
    return inverse + (pivot - pivot) + (inverse - inverse)


@inlined
def _multiples(panel: Numbers, at: int, row: int, factor: Register, low: int) -> None:
    """Subtract in the columns `low` to 3 of a block the multiple of one of its rows from another."""
    for c in range(low, 4):
        store(panel, at + c * LANES, load(panel, at + c * LANES) - factor * load(panel, row + c * LANES))


@plain
def _factor_block(upper: Numbers, lower: Numbers, step: int, kept: Numbers, symmetric: bool) -> None:
    """The factorisation of a block of four rows and columns, `step` from row to row, and its numbers in `kept`."""
    for k in range(4):
        row = k * step
        pivot = _reciprocal(load(upper, row + k * LANES))
        store(kept, k * LANES, pivot)
        for r in range(k + 1, 4):
            at = (r + 3 if k == 0 else r + 5 if k == 1 else 9) * LANES
            if symmetric:
                store(kept, at, load(upper, row + r * LANES) * pivot)
            else:
                factor = load(lower, row + r * LANES) * pivot
                store(lower, row + r * LANES, factor)
                store(kept, at, factor)
        for r in range(k + 1, 4):
            at = (r + 3 if k == 0 else r + 5 if k == 1 else 9) * LANES
            _multiples(upper, r * step, row, load(kept, at), r)
            if not symmetric:
                _multiples(lower, r * step, row, load(upper, row + r * LANES), r + 1)


@plain
def _finish_upper(panel: Numbers, step: int, low: int, high: int, kept: Numbers) -> None:
    """Subtract from four rows of U, in a run of columns, the multiples of each other."""
    f10, f20, f30 = load(kept, 4 * LANES), load(kept, 5 * LANES), load(kept, 6 * LANES)
    f21, f31, f32 = load(kept, 7 * LANES), load(kept, 8 * LANES), load(kept, 9 * LANES)
    for c in range(low, high):
        at = c * LANES
        u0 = load(panel, at)
        u1 = load(panel, at + step) - f10 * u0
        u2 = load(panel, at + 2 * step) - f20 * u0 - f21 * u1
        u3 = load(panel, at + 3 * step) - f30 * u0 - f31 * u1 - f32 * u2
        store(panel, at + step, u1)
        store(panel, at + 2 * step, u2)
        store(panel, at + 3 * step, u3)


@plain
def _finish_lower(panel: Numbers, block: Numbers, step: int, low: int, high: int, kept: Numbers) -> None:
    """As `_finish_upper`, of four columns of L; `block` is the diagonal block of U."""
    p0, p1, p2, p3 = load(kept, 0), load(kept, LANES), load(kept, 2 * LANES), load(kept, 3 * LANES)
    u01, u02, u03 = load(block, LANES), load(block, 2 * LANES), load(block, 3 * LANES)
    u12, u13 = load(block, step + 2 * LANES), load(block, step + 3 * LANES)
    u23 = load(block, 2 * step + 3 * LANES)
    for c in range(low, high):
        at = c * LANES
        f0 = load(panel, at) * p0
        f1 = (load(panel, at + step) - u01 * f0) * p1
        f2 = (load(panel, at + 2 * step) - u02 * f0 - u12 * f1) * p2
        f3 = (load(panel, at + 3 * step) - u03 * f0 - u13 * f1 - u23 * f2) * p3
        store(panel, at, f0)
        store(panel, at + step, f1)
        store(panel, at + 2 * step, f2)
        store(panel, at + 3 * step, f3)


@plain
def _pack_own(panel: Numbers, step: int, i: int, kept: Numbers, scaled: bool, packed: Numbers) -> None:
    """Columns i to i + 3 of the rows above row i of a panel, times the reciprocal pivots if `scaled`."""
    for k in range(i):
        pivot = load(kept, (k // 4 * FACTORS + k % 4) * LANES)
        for r in range(4):
            value = load(panel, k * step + (i + r) * LANES)
            if scaled:
                value = value * pivot
            store(packed, (4 * k + r) * LANES, value)


@plain
def _eliminate(
    upper: Numbers, lower: Numbers, n_rows: int, n_columns: int, ld: int, integers: Integers, kept: Numbers,
    factors: Numbers, other: Numbers, symmetric: bool,
) -> None:  # fmt: skip
    """Subtract from the rows of a panel the multiples of each other, first in their own columns, then in blocks."""
    step, square = ld * LANES, (n_rows + 3) // 4 * 4
    line, rows = behind(integers, 0), behind(integers, n_columns + 4)
    for c in range(n_columns):
        line[c] = c * LANES
    for k in range(n_rows):
        rows[k] = k * step
    low, high, block = 0, min(square, n_columns), max(16, BLOCK // (n_rows * LANES) // 4 * 4)
    while low < n_columns:
        for i in range(0, n_rows, 4):
            begin, r0, own = max(i, low), i * step, behind(kept, i // 4 * FACTORS * LANES)
            of_upper, of_lower = behind(factors, i * square * LANES), behind(other, i * square * LANES)
            if low == 0:
                _pack_own(upper if symmetric else lower, step, i, kept, symmetric, of_upper)
                if not symmetric:
                    _pack_own(upper, step, i, kept, False, of_lower)
            _subtract_four(
                upper, r0, r0 + step, r0 + 2 * step, r0 + 3 * step, line, begin, high, of_upper, upper, rows, LANES,
                LANES, i,
            )  # fmt: skip
            if not symmetric:
                _subtract_four(
                    lower, r0, r0 + step, r0 + 2 * step, r0 + 3 * step, line, begin, high, of_lower, lower, rows, LANES,
                    LANES, i,
                )  # fmt: skip
            diagonal = r0 + i * LANES
            if low == 0:
                _factor_block(behind(upper, diagonal), behind(lower, diagonal), step, own, symmetric)
            _finish_upper(behind(upper, r0), step, max(begin, i + 4), high, own)
            if not symmetric:
                _finish_lower(behind(lower, r0), behind(upper, diagonal), step, max(begin, i + 4), high, own)
        low, high = high, min(high + block, n_columns)


# --- from the matrix and to the values
@plain
def _load_panels(
    values: Numbers, stride: int, sources: Integers, pivots: Integers, left: Integers, n_rows: int, n_columns: int,
    ld: int, upper: Numbers, lower: Numbers, nothing: Register, symmetric: bool,
) -> None:  # fmt: skip
    """The entries of the matrix in the rows of a supernode, of LU those in its columns, too; empty rows after them."""
    for i in range(n_rows):
        for c in range(i, n_columns):
            source = sources[pivots[i] + c - i]
            at = (i * ld + c) * LANES
            if source >= 0:
                store(upper, at, load(values, source * stride))
            else:
                store(upper, at, nothing)
    for at in range(n_rows * ld, (n_rows + 3) // 4 * 4 * ld):
        store(upper, at * LANES, nothing)
        store(lower, at * LANES, nothing)
    if symmetric:
        return
    for c in range(1, n_columns):
        low = pivots[c] - c if c < n_rows else left[c - n_rows]
        for k in range(min(c, n_rows)):
            source = sources[low + k]
            at = (k * ld + c) * LANES
            if source >= 0:
                store(lower, at, load(values, source * stride))
            else:
                store(lower, at, nothing)


@plain
def _store_panels(
    out: Numbers, stride: int, pivots: Integers, left: Integers, n_rows: int, n_columns: int, ld: int, upper: Numbers,
    lower: Numbers, kept: Numbers, nothing: Register, symmetric: bool,
) -> Register:  # fmt: skip
    """The values of a supernode; returns what is NaN where one is not finite."""
    check = nothing
    for i in range(n_rows):
        pivot = load(kept, (i // 4 * FACTORS + i % 4) * LANES)
        check = check + (pivot - pivot)
        store(out, pivots[i] * stride, pivot)
        for c in range(i + 1, n_columns):
            value = load(upper, (i * ld + c) * LANES)
            check = check + (value - value)
            store(out, (pivots[i] + c - i) * stride, value)
    if not symmetric:
        for c in range(1, n_columns):
            low = pivots[c] - c if c < n_rows else left[c - n_rows]
            for k in range(min(c, n_rows)):
                value = load(lower, (k * ld + c) * LANES)
                check = check + (value - value)
                store(out, (low + k) * stride, value)
    return check


@plain
def _factor_tile(
    values: Numbers, out: Numbers, broken: Numbers, first: int, stride: int, begins: Integers, pivots: Integers,
    nodes: Integers, n_nodes: int, starts: Integers, columns: Integers, left: Integers, updates: Integers,
    sources: Integers, widest: int, longest: int, area: int, work: Numbers, integers: Integers, nothing: Register,
    symmetric: bool,
) -> None:  # fmt: skip
    """The factorisation of one tile of samples; `work` and `integers` are free."""
    upper, factors = behind(work, 0), behind(work, 2 * area * LANES)
    lower = upper if symmetric else behind(work, area * LANES)
    other = behind(factors, widest * widest * LANES)
    kept = behind(other, widest * widest * LANES)
    packed = behind(kept, widest // 4 * FACTORS * LANES)
    of_tile, given = behind(out, first), behind(values, first)
    n = nodes[n_nodes]
    place, free = behind(integers, 0), behind(integers, n)
    check = nothing
    for s in range(n_nodes):
        begin, n_rows, right = nodes[s], nodes[s + 1] - nodes[s], behind(left, 0 if symmetric else starts[s])
        n_columns = n_rows + starts[s + 1] - starts[s]
        ld = max(n_columns, (n_rows + 3) // 4 * 4)
        spare = (area // ld - 1) * ld * LANES
        own = behind(pivots, begin)
        for c in range(n_columns):
            place[begin + c if c < n_rows else columns[starts[s] + c - n_rows]] = c
        _load_panels(
            given, stride, begins, own, right, n_rows, n_columns, ld, upper, lower, nothing, symmetric
        )  # fmt: skip
        for u in range(updates[s], updates[s + 1]):
            k, low, high = sources[3 * u], sources[3 * u + 1], sources[3 * u + 2]
            _update(
                upper, lower, ld, spare, of_tile, stride, behind(pivots, nodes[k]), nodes[k + 1] - nodes[k],
                low - starts[k], behind(columns, low), behind(left, 0 if symmetric else low), high - low,
                starts[k + 1] - low, place, free, longest, factors, packed, symmetric,
            )  # fmt: skip
        _eliminate(upper, lower, n_rows, n_columns, ld, free, kept, factors, other, symmetric)
        check = check + _store_panels(
            of_tile, stride, own, right, n_rows, n_columns, ld, upper, lower, kept, nothing, symmetric
        )  # fmt: skip
    store(broken, first, check)


_factor_one = entry(_factor_tile)


@per_width
def _panel_loop(width):
    @compiled
    def loop(values, plan, nodes, sizes, out, broken, n_samples, begin, n_tiles, symmetric):
        run = runs_of_tiles(n_tiles)
        for r in prange((n_tiles + run - 1) // run):
            begins, pivots = plan
            rows, starts, columns, updates, sources, left = nodes
            widest, longest, area = sizes
            count = 2 * area + 2 * widest * widest + widest // 4 * FACTORS + 16 * widest
            work = np.zeros(count * width + BLOCK, values.dtype)
            integers = np.empty(rows[rows.size - 1] + longest + 4 + 3 * widest, np.int64)
            for tile in range(np.int64(r) * run, min((np.int64(r) + 1) * run, n_tiles)):
                _factor_one(
                    values, out, broken, begin + tile * width, n_samples, begins, pivots, rows, rows.size - 1, starts,
                    columns, left, updates, sources, widest, longest, area, work, integers, zeros(values, width),
                    symmetric,
                )  # fmt: skip

    return loop


def factorized_panels(values: Any, plan: Any, out: Any, broken: Any, tile: tuple[int, int, int]) -> None:
    """`factors.factorized` of the tiles ``(first sample, width, number)`` by supernodes."""
    *nodes, sizes = plan.supernodes
    first, width, count = tile
    _panel_loop(width)(
        values.reshape(-1), (plan.sources, plan.diagonal), tuple(nodes), sizes, out.reshape(-1), broken,
        values.shape[1], first, count, plan.symmetric,
    )  # fmt: skip
