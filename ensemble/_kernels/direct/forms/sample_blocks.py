"""Products of blocks of four by four entries, each entry the samples of a tile, whose sums stay in registers.

In `plain_code`: all places count numbers, and a register holds the samples of one entry.
"""

from __future__ import annotations

from ensemble._compile.plain_code import (
    LANES,
    PART,
    REGISTERS,
    Integers,
    Numbers,
    Register,
    behind,
    inlined,
    load,
    narrow,
    plain,
    store,
)

__all__ = ["pack_lower", "pack_upper", "subtract_four", "subtract_rows"]


@narrow
def subtract_four(
    panel: Numbers, r0: int, r1: int, r2: int, r3: int, places: Integers, low: int, high: int, factors: Numbers,
    above: Numbers, rows: Integers, far: int, step: int, depth: int,
) -> None:  # fmt: skip
    """Subtract from four rows of a panel, in the columns `low` to `high`, multiples of `depth` rows above.

    Column c of the panel lies at ``places[c]``. Of row k above, four columns from c on lie at ``rows[k] + c * far``, in
    steps of `step`. Four factors of row k are followed by those of the next row.
    """
    c = low
    while c + 4 <= high:
        p0, p1, p2, p3, first = places[c], places[c + 1], places[c + 2], places[c + 3], c * far
        for part in range(0, LANES, PART):
            numbers, own, of_above = behind(panel, part), behind(factors, part), behind(above, part + first)
            if REGISTERS == 32:
                _four_columns(numbers, r0, r1, r2, r3, p0, p1, p2, p3, own, of_above, rows, step, depth)
            else:
                _two_columns(numbers, r0, r1, r2, r3, p0, p1, own, of_above, rows, step, depth)
                _two_columns(numbers, r0, r1, r2, r3, p2, p3, own, behind(of_above, 2 * step), rows, step, depth)
        c += 4
    first = c
    while c < high:
        from_block, p0 = first * far + (c - first) * step, places[c]
        for part in range(0, LANES, PART):
            numbers, own, of_above = behind(panel, part), behind(factors, part), behind(above, part + from_block)
            a0, b0 = load(numbers, r0 + p0), load(numbers, r1 + p0)
            c0, d0 = load(numbers, r2 + p0), load(numbers, r3 + p0)
            for k in range(depth):
                at, u0 = 4 * k * LANES, load(of_above, rows[k])
                a0, b0 = a0 - load(own, at) * u0, b0 - load(own, at + LANES) * u0
                c0, d0 = c0 - load(own, at + 2 * LANES) * u0, d0 - load(own, at + 3 * LANES) * u0
            store(numbers, r0 + p0, a0)
            store(numbers, r1 + p0, b0)
            store(numbers, r2 + p0, c0)
            store(numbers, r3 + p0, d0)
        c += 1


@inlined
def _four_columns(
    panel: Numbers, r0: int, r1: int, r2: int, r3: int, p0: int, p1: int, p2: int, p3: int, factors: Numbers,
    above: Numbers, rows: Integers, step: int, depth: int,
) -> None:  # fmt: skip
    """Four rows by four columns: 16 sums, five registers of factors."""
    a0, a1, a2, a3 = load(panel, r0 + p0), load(panel, r0 + p1), load(panel, r0 + p2), load(panel, r0 + p3)
    b0, b1, b2, b3 = load(panel, r1 + p0), load(panel, r1 + p1), load(panel, r1 + p2), load(panel, r1 + p3)
    c0, c1, c2, c3 = load(panel, r2 + p0), load(panel, r2 + p1), load(panel, r2 + p2), load(panel, r2 + p3)
    d0, d1, d2, d3 = load(panel, r3 + p0), load(panel, r3 + p1), load(panel, r3 + p2), load(panel, r3 + p3)
    for k in range(depth):
        at, from_row = 4 * k * LANES, rows[k]
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


@inlined
def _less_row(
    a0: Register, a1: Register, b0: Register, b1: Register, c0: Register, c1: Register, d0: Register, d1: Register,
    factors: Numbers, at: int, above: Numbers, row: int, step: int,
) -> tuple[Register, Register, Register, Register, Register, Register, Register, Register]:  # fmt: skip
    """Four rows by two columns less the multiples of one row above."""
    u0, u1 = load(above, row), load(above, row + step)
    f = load(factors, at)
    a0, a1 = a0 - f * u0, a1 - f * u1
    f = load(factors, at + LANES)
    b0, b1 = b0 - f * u0, b1 - f * u1
    f = load(factors, at + 2 * LANES)
    c0, c1 = c0 - f * u0, c1 - f * u1
    f = load(factors, at + 3 * LANES)
    d0, d1 = d0 - f * u0, d1 - f * u1
    return a0, a1, b0, b1, c0, c1, d0, d1


@inlined
def _two_columns(
    panel: Numbers, r0: int, r1: int, r2: int, r3: int, p0: int, p1: int, factors: Numbers, above: Numbers,
    rows: Integers, step: int, depth: int,
) -> None:  # fmt: skip
    """Four rows by two columns, where 16 registers hold no more: eight sums, three factors, products."""
    a0, a1, b0, b1 = load(panel, r0 + p0), load(panel, r0 + p1), load(panel, r1 + p0), load(panel, r1 + p1)
    c0, c1, d0, d1 = load(panel, r2 + p0), load(panel, r2 + p1), load(panel, r3 + p0), load(panel, r3 + p1)
    k = 0
    while k + 2 <= depth:  # a counter for two rows: the processor issues little more than the products themselves
        a0, a1, b0, b1, c0, c1, d0, d1 = _less_row(
            a0, a1, b0, b1, c0, c1, d0, d1, factors, 4 * k * LANES, above, rows[k], step
        )  # fmt: skip
        a0, a1, b0, b1, c0, c1, d0, d1 = _less_row(
            a0, a1, b0, b1, c0, c1, d0, d1, factors, 4 * (k + 1) * LANES, above, rows[k + 1], step
        )  # fmt: skip
        k += 2
    if k < depth:
        a0, a1, b0, b1, c0, c1, d0, d1 = _less_row(
            a0, a1, b0, b1, c0, c1, d0, d1, factors, 4 * k * LANES, above, rows[k], step
        )  # fmt: skip
    _store_four(panel, 0, r0 + p0, r0 + p1, r1 + p0, r1 + p1, a0, a1, b0, b1)
    _store_four(panel, 0, r2 + p0, r2 + p1, r3 + p0, r3 + p1, c0, c1, d0, d1)


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
    """As `subtract_four`, from one row; its factors are every fourth number."""
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
def subtract_rows(
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
            subtract_four(
                panel, places[r] * ld, places[r + 1] * ld, r2, r3, places, begin, high, own, above, rows, far, step,
                depth,
            )  # fmt: skip


@plain
def pack_upper(
    out: Numbers, rows: Integers, pivots: Integers, low: int, high: int, depth: int, scaled: bool, packed: Numbers
) -> None:  # fmt: skip
    """The columns `low` to `high` of `depth` rows of U, four and four, times the reciprocal pivots if `scaled`."""
    for k in range(depth):  # along the rows, which lie apart in memory
        to, row, pivot = 4 * k * LANES, behind(out, rows[k]), load(out, pivots[k])
        for r in range(low, high, 4):
            place = r * LANES
            u0 = load(row, place)
            u1 = load(row, place + LANES) if r + 1 < high else u0
            u2 = load(row, place + 2 * LANES) if r + 2 < high else u0
            u3 = load(row, place + 3 * LANES) if r + 3 < high else u0
            if scaled:
                u0, u1, u2, u3 = u0 * pivot, u1 * pivot, u2 * pivot, u3 * pivot
            _store_four(packed, to, 0, LANES, 2 * LANES, 3 * LANES, u0, u1, u2, u3)
            to += 4 * depth * LANES


@plain
def pack_lower(out: Numbers, left: Integers, low: int, high: int, depth: int, packed: Numbers) -> None:
    """The rows of L that start at ``left[low:high]``, four and four."""
    to = 0
    for r in range(low, high, 4):
        p0 = left[r] * LANES
        p1 = left[r + 1] * LANES if r + 1 < high else p0
        p2 = left[r + 2] * LANES if r + 2 < high else p0
        p3 = left[r + 3] * LANES if r + 3 < high else p0
        for k in range(depth):
            at = k * LANES
            u0, u1, u2, u3 = load(out, p0 + at), load(out, p1 + at), load(out, p2 + at), load(out, p3 + at)
            _store_four(packed, to, 0, LANES, 2 * LANES, 3 * LANES, u0, u1, u2, u3)
            to += 4 * LANES
