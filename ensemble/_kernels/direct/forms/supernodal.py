"""Numbers of a factorisation by supernodes: products of small blocks whose sums stay in registers.

The rows of a supernode are a dense panel, `upper`, of rows of `ld` registers; of LU the columns of L are the rows of
another one, `lower`. Multiples of the supernodes above are subtracted in ascending order, four rows by four columns at
a time, then those of the supernode's own rows: every entry subtracts its products in the order of `factors.factorized`,
and has the same bits. Rows above that serve several blocks of rows are copied first, so that the cache holds them.

Operations: a multiply-add takes half a load; an entry of the panel is loaded and stored once for each supernode above.
"""

from __future__ import annotations

from ensemble._compile.plain_code import LANES, Integers, Numbers, Register, behind, entry, inlined, load, plain, store
from ensemble._kernels.direct.forms.sample_blocks import pack_lower, pack_upper, subtract_four, subtract_rows
from ensemble._kernels.direct.forms.tiles import reciprocal

__all__ = ["BLOCK", "FACTORS", "factor_tile"]

BLOCK = 1 << 15
"""Numbers of rows above that are copied together: a part of the second-level cache."""

SHARED = 6
"""Rows from which on it pays to copy the rows above that are subtracted from them (`benchmarks direct`)."""

FACTORS = 10
"""Numbers kept for four rows of a panel: reciprocal pivots, factors (1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (3, 2)."""


# --- the supernodes above
@plain
def _subtract_above(
    panel: Numbers, ld: int, spare: int, places: Integers, count: int, high: int, factors: Numbers, out: Numbers,
    rows: Integers, left: Integers, packed: Numbers, packed_rows: Integers, depth: int, of_upper: bool,
) -> None:  # fmt: skip
    """Subtract from `count` rows of a panel multiples of rows of U above, or of columns of L."""
    if of_upper and count < SHARED:
        subtract_rows(panel, ld, spare, places, count, 0, high, factors, out, rows, LANES, LANES, depth)
        return
    low, block = 0, max(16, BLOCK // (depth * LANES) // 4 * 4)
    while low < high:
        end = min(low + block, high)
        if of_upper:
            pack_upper(out, rows, rows, low, end, depth, False, packed)
        else:
            pack_lower(out, left, low, end, depth, packed)
        for k in range(depth):
            packed_rows[k] = (4 * k - low * depth) * LANES
        subtract_rows(
            panel, ld, spare, places, count, low, end, factors, packed, packed_rows, depth * LANES, LANES, depth
        )  # fmt: skip
        low = end


@plain
def _update(
    upper: Numbers, lower: Numbers, ld: int, spare: int, out: Numbers, pivots: Integers, depth: int, skipped: int,
    columns: Integers, left: Integers, count: int, high: int, place: Integers, integers: Integers, longest: int,
    factors: Numbers, packed: Numbers, symmetric: bool,
) -> None:  # fmt: skip
    """Subtract the multiples of one supernode above, of `depth` rows: from its column `skipped` on, `high` columns."""
    places, rows, packed_rows = behind(integers, 0), behind(integers, longest), behind(integers, longest + depth)
    own_pivots = behind(integers, longest + 2 * depth)
    for c in range(high):
        places[c] = place[columns[c]] * LANES
    for k in range(depth):
        own_pivots[k] = pivots[k] * LANES
        rows[k] = (pivots[k] + depth - k + skipped) * LANES
    if symmetric:
        pack_upper(out, rows, own_pivots, 0, count, depth, True, factors)
    else:
        pack_lower(out, left, 0, count, depth, factors)
    _subtract_above(
        upper, ld, spare, places, count, high, factors, out, rows, left, packed, packed_rows, depth, True
    )  # fmt: skip
    if not symmetric:
        pack_upper(out, rows, own_pivots, 0, count, depth, False, factors)
        _subtract_above(
            lower, ld, spare, places, count, high, factors, out, rows, left, packed, packed_rows, depth, False
        )  # fmt: skip


# --- the rows of a supernode among themselves
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
        pivot = reciprocal(load(upper, row + k * LANES))
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
            subtract_four(
                upper, r0, r0 + step, r0 + 2 * step, r0 + 3 * step, line, begin, high, of_upper, upper, rows, LANES,
                LANES, i,
            )  # fmt: skip
            if not symmetric:
                subtract_four(
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
    out: Numbers, pivots: Integers, left: Integers, n_rows: int, n_columns: int, ld: int, upper: Numbers,
    lower: Numbers, kept: Numbers, nothing: Register, symmetric: bool,
) -> Register:  # fmt: skip
    """The values of a supernode; returns what is NaN where one is not finite."""
    check = nothing
    for i in range(n_rows):
        pivot = load(kept, (i // 4 * FACTORS + i % 4) * LANES)
        check = check + (pivot - pivot)
        store(out, pivots[i] * LANES, pivot)
        for c in range(i + 1, n_columns):
            value = load(upper, (i * ld + c) * LANES)
            check = check + (value - value)
            store(out, (pivots[i] + c - i) * LANES, value)
    if not symmetric:
        for c in range(1, n_columns):
            low = pivots[c] - c if c < n_rows else left[c - n_rows]
            for k in range(min(c, n_rows)):
                value = load(lower, (k * ld + c) * LANES)
                check = check + (value - value)
                store(out, (low + k) * LANES, value)
    return check


@plain
def _factor_tile(
    values: Numbers, start: int, stride: int, out: Numbers, at: int, broken: Numbers, first: int, begins: Integers,
    pivots: Integers, nodes: Integers, n_nodes: int, starts: Integers, columns: Integers, left: Integers,
    updates: Integers, sources: Integers, widest: int, longest: int, area: int, work: Numbers, integers: Integers,
    nothing: Register, symmetric: bool,
) -> None:  # fmt: skip
    """The factorisation of one tile of samples; `work` and `integers` are free."""
    upper, factors = behind(work, 0), behind(work, 2 * area * LANES)
    lower = upper if symmetric else behind(work, area * LANES)
    other = behind(factors, widest * widest * LANES)
    kept = behind(other, widest * widest * LANES)
    packed = behind(kept, widest // 4 * FACTORS * LANES)
    of_tile, given = behind(out, at), behind(values, start)
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
                upper, lower, ld, spare, of_tile, behind(pivots, nodes[k]), nodes[k + 1] - nodes[k],
                low - starts[k], behind(columns, low), behind(left, 0 if symmetric else low), high - low,
                starts[k + 1] - low, place, free, longest, factors, packed, symmetric,
            )  # fmt: skip
        _eliminate(upper, lower, n_rows, n_columns, ld, free, kept, factors, other, symmetric)
        check = check + _store_panels(
            of_tile, own, right, n_rows, n_columns, ld, upper, lower, kept, nothing, symmetric
        )  # fmt: skip
    store(broken, first, check)


factor_tile = entry(_factor_tile)
