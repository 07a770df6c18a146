"""The grid of a GBEES run on the CPU: cells in flat arrays, found by their keys, linked to their neighbours.

A cell is a position from `BASE` on in all arrays; position 0 is a cell that is not there: it holds nothing and nothing
flows in it, so that a missing neighbour needs no branch. Arrays with one entry a cell and dimension are flat, dimension
after dimension. After a prune cells stand in the order of their keys; cells made since stand behind them.

``grid`` is the tuple (keys, p, q, v, links, up, down, growing, kept, table): keys; probabilities and a second buffer of
them; velocities through upper faces; positions of all lower and then of all upper neighbours; what flows out of a cell
through its upper and lower faces; whether a cell may still have to grow; a mark; the hash table of positions by key.
``frame`` has one row a name of `FRAME`. What runs here is scalar; the loops over all cells are written by
`generated.py`, which has them in lanes.

Functions called for single cells take arrays one by one: each that is taken out of a tuple counts its owners.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile.numba import array_at, c_function, compiled_serial, inner

__all__ = [
    "BASE",
    "FRAME",
    "FULL",
    "GOOD",
    "KEY_OVERFLOW",
    "PADDING",
    "UNIT",
    "address_of_prune",
    "attach",
    "bytes_per_cell",
    "capacity_for",
    "clear",
    "find",
    "flows",
    "fresh_table",
    "link",
    "make_arrays",
    "neighbour_key",
    "prune",
    "room_for",
]  # fmt: skip

BASE = 16
"""The first cell: a cache line's worth of the smallest number that there is one of in each cell."""

PADDING = 64
"""Positions behind the last cell that always hold nothing, so that lanes may run over the end."""

FRAME = ("shift", "mask", "low", "stride", "period", "spreads")
"""Rows of ``frame``, (6, n) int64: how keys are packed, periods (0: none), and whether probability diffuses."""

SHIFT, MASK, LOW, STRIDE, PERIOD, SPREADS = range(6)

GOOD, FULL, KEY_OVERFLOW = 0, 1, 2
"""How growing ends: well; no room for another cell; a cell at the rim of what keys can hold."""

UNIT = 2.0**-58
"""What masses are counted in: sums of whole numbers are the same in every order."""

GROUP = 2
"""Bits of a key that say where in a line of the table it belongs: neighbours along the last dimension share a line."""


@inner
def place(key, table):
    """Where the search for `key` starts in the table, whose size is a power of two."""
    line = np.uint64(key >> GROUP) * np.uint64(0x9E3779B97F4A7C15)
    line ^= line >> np.uint64(29)
    line *= np.uint64(0xBF58476D1CE4E5B9)
    line ^= line >> np.uint64(32)
    return np.int64((line << np.uint64(GROUP)) & np.uint64(table.size - 1)) | (key & ((1 << GROUP) - 1))


@inner
def find(key, keys, table):
    """The position of the cell with this key, 0 where there is none."""
    at = place(key, table)
    while table[at] != 0 and keys[table[at]] != key:
        at = (at + 1) & (table.size - 1)
    return table[at]


@inner
def enter(cell, keys, table):
    """Make a cell known by its key."""
    at = place(keys[cell], table)
    while table[at] != 0:
        at = (at + 1) & (table.size - 1)
    table[at] = cell


@inner
def neighbour_key(key, i, step, frame):
    """The key of the cell one `step` along dimension `i`."""
    stride, period = step * frame[STRIDE, i], frame[PERIOD, i]
    if period and ((key >> frame[SHIFT, i]) & frame[MASK, i]) == (period - 1 if step > 0 else 0):
        return key - (period - 1) * stride
    return key + stride


@inner
def at_rim(key, n, frame):
    """Whether a neighbour of the cell would have no key of its own."""
    for i in range(n):
        s = (key >> frame[SHIFT, i]) & frame[MASK, i]
        if frame[PERIOD, i] == 0 and (s < 1 or s > frame[MASK, i] - 1):
            return True
    return False


@inner
def attach(key, end, parent, along, step, n, keys, links, growing, table, frame):
    """Write a new cell at position `end`, with nothing in it, and link it with its neighbours.

    It lies one `step` from `parent` along dimension `along`; 0 is a parent that is not there. What lies beside a cell
    that is there is known without a search.
    """
    size = keys.size
    upper = n * size
    keys[end] = key
    growing[end] = True
    enter(end, keys, table)
    onward = along * size + (upper if step > 0 else 0)
    for i in range(n):
        for side in (-1, 1):
            to, back = i * size + (upper if side > 0 else 0), i * size + (0 if side > 0 else upper)
            beyond = links[to + parent]
            if i == along:
                beyond = 0
            if beyond:
                found = links[onward + beyond]
            elif i == along and side != step and parent:
                found = parent
            else:
                found = find(neighbour_key(key, i, side, frame), keys, table)
            links[to + end] = found
            if found:
                links[back + found] = end


@inner
def flows(v, i, step, frame):
    """Whether a cell with velocity `v` through its upper face `i` may give probability to that side."""
    return frame[SPREADS, i] != 0 or (v > 0 if step > 0 else v < 0)


@inner
def room_for(key, end, n, keys, frame):
    if end >= keys.size - PADDING:
        return FULL
    return KEY_OVERFLOW if at_rim(key, n, frame) else GOOD


@compiled_serial
def fresh_table(keys, end, table):
    """Enter all cells anew."""
    table[:] = 0
    for cell in range(BASE, end):
        enter(cell, keys, table)


@compiled_serial
def link(n, keys, links, frame, end):
    """The neighbours of all cells, which must stand in the order of their keys.

    The keys of the neighbours along one dimension ascend as the keys do, so one walk finds them all; where the
    dimension closes upon itself, a second walk finds those beyond the seam.
    """
    size = keys.size
    for i in range(n):
        lower, upper = i * size, (n + i) * size
        links[lower + BASE : lower + end] = 0
        stride, period = frame[STRIDE, i], frame[PERIOD, i]
        last = period - 1 if period else -1
        ahead, beyond = BASE, BASE
        for cell in range(BASE, end):
            key = keys[cell]
            found = 0
            if period and ((key >> frame[SHIFT, i]) & frame[MASK, i]) == last:
                wanted = key - last * stride
                while beyond < end and keys[beyond] < wanted:
                    beyond += 1
                if beyond < end and keys[beyond] == wanted:
                    found = beyond
            else:
                wanted = key + stride
                while ahead < end and keys[ahead] < wanted:
                    ahead += 1
                if ahead < end and keys[ahead] == wanted:
                    found = ahead
            links[upper + cell] = found
            if found:
                links[lower + found] = cell


@inner
def mark_fed(n, p, v, links, growing, kept, frame, end, limit):
    """Mark active cells and what they may flow into, over faces and, past a face neighbour, over edges.

    An active cell has all these around it, but for those made active by the last step, so it need not grow again.
    """
    kept[BASE:end] = False
    for cell in range(BASE, end):
        if p[cell] >= limit:
            kept[cell] = True
            if not mark_targets(cell, n, v, links, kept, frame, False):
                # an edge may be there behind another face; and where bounds refused a face, it may go unseen later
                mark_targets(cell, n, v, links, kept, frame, True)
                growing[cell] = True


@inner
def mark_targets(cell, n, v, links, kept, frame, every):
    """Mark what `cell` flows into; gives whether all faces are there. `every`: look for edges behind both faces."""
    size = kept.size
    complete = True
    for i in range(n):
        for step in (1, -1):
            if not flows(v[i * size + cell], i, step, frame):
                continue
            face = links[(i + (n if step > 0 else 0)) * size + cell]
            if face == 0:
                complete = False
                continue
            kept[face] = True
            for j in range(0 if every else i + 1, n):
                for side in (1, -1):
                    if j != i and flows(v[j * size + cell], j, side, frame):
                        edge = links[(j + (n if side > 0 else 0)) * size + face]
                        kept[edge] = True
    kept[0] = False
    return complete


@inner
def units(p):
    return np.int64(np.rint(np.float64(p) / UNIT))


@inner
def keep_largest(p, kept, end, threshold, mass):
    """Mark those candidates that are too much to lose: all from the first, in ascending order, that would count.

    Losing k cells scales the others up; the next is lost while it stays below the threshold even so. Cells below the
    threshold that would hold if all candidates were lost go unseen: only the few close to it are sorted.
    """
    total, n_close = 0.0, 0
    for cell in range(BASE, end):
        if not kept[cell]:
            total += p[cell]
    sure = threshold * (1.0 - total / mass) * (1.0 - 1e-9) * mass
    gone = np.int64(0)
    for cell in range(BASE, end):
        if not kept[cell]:
            if p[cell] < sure:
                gone += units(p[cell])
            else:
                n_close += 1
    close, values = np.empty(n_close, np.int64), np.empty(n_close, np.float64)
    n_close = 0
    for cell in range(BASE, end):
        if not kept[cell] and not p[cell] < sure:
            close[n_close], values[n_close] = cell, p[cell]
            n_close += 1
    lost = True
    for k in np.argsort(values, kind="mergesort"):
        gone += units(values[k])
        lost = lost and values[k] / mass / (1.0 - gone * UNIT / mass) < threshold
        if not lost:
            kept[close[k]] = True


@inner
def ascending(keys, kept, end, sorted_end):
    """Positions of the cells to keep in the order of their keys; cells before `sorted_end` are in order already."""
    n_kept, n_late = 0, 0
    for cell in range(BASE, end):
        n_kept += kept[cell]
        n_late += kept[cell] and cell >= sorted_end
    late, late_keys = np.empty(n_late, np.int32), np.empty(n_late, np.int64)
    k = 0
    for cell in range(sorted_end, end):
        if kept[cell]:
            late[k], late_keys[k] = cell, keys[cell]
            k += 1
    order = np.empty(n_kept, np.int32)
    at, cell = 0, BASE
    for k in np.argsort(late_keys, kind="mergesort"):
        while cell < sorted_end and keys[cell] < late_keys[k]:
            order[at] = cell
            at += kept[cell]
            cell += 1
        order[at] = late[k]
        at += 1
    while at < n_kept:
        order[at] = cell
        at += kept[cell]
        cell += 1
    return order


@inner
def taken(values, room, first, order):
    """``values[first + BASE:]`` = ``values[first + order]``, by way of `room`."""
    for k in range(order.size):
        room[k] = values[first + order[k]]
    for k in range(order.size):  # slices would compile messages about shapes that differ
        values[first + BASE + k] = room[k]


@compiled_serial
def clear(grid, n, first, last):
    """Nothing at positions from `first` up to `last`."""
    size = grid[0].size
    grid[1][first:last] = 0
    grid[2][first:last] = 0
    for i in range(n):
        for part in (grid[3], grid[5], grid[6]):
            part[i * size + first : i * size + last] = 0
    for i in range(2 * n):
        grid[4][i * size + first : i * size + last] = 0


@compiled_serial
def prune(n, grid, frame, end, sorted_end, threshold, mass, sequential):
    """Give up cells with little probability, and put the others in the order of their keys, their sum at 1.

    Gives the new end; -1, and nothing is changed, if no cell would be left.
    """
    keys, p, room, v, links, growing, kept, table = (
        grid[0], grid[1], grid[2], grid[3], grid[4], grid[7], grid[8], grid[9],
    )  # fmt: skip
    limit = p.dtype.type(threshold * mass)
    mark_fed(n, p, v, links, growing, kept, frame, end, limit)
    if sequential:
        keep_largest(p, kept, end, threshold, mass)
    order = ascending(keys, kept, end, sorted_end)
    if order.size == 0:
        return -1
    for cell in range(BASE, end):
        # what an active cell flows into is kept, what another one flows into may be given up
        if not p[cell] >= limit:
            growing[cell] = True
    taken(growing, kept, 0, order)
    late = np.empty(order.size, np.int64)
    taken(keys, late, 0, order)
    counted = np.int64(0)
    for cell in order:
        counted += units(p[cell])
    left = counted * UNIT
    for k in range(order.size):
        room[k] = p[order[k]] / left
    for k in range(order.size):
        p[BASE + k] = room[k]
    for i in range(n):
        taken(v, room, i * keys.size, order)
    new_end = BASE + order.size
    clear(grid, n, new_end, min(end + PADDING, keys.size))
    room[:BASE] = 0
    link(n, keys, links, frame, new_end)
    fresh_table(keys, new_end, table)
    return new_end


def _prune_there(
    n, size, table_size, end, sorted_end, threshold, mass, sequential, frame,
    keys, p, room, v, links, up, down, growing, kept, table,
):  # fmt: skip
    grid = (
        array_at(keys, size), array_at(p, size), array_at(room, size), array_at(v, n * size),
        array_at(links, 2 * n * size), array_at(up, n * size), array_at(down, n * size), array_at(growing, size),
        array_at(kept, size), array_at(table, table_size),
    )  # fmt: skip
    return prune(n, grid, array_at(frame, (6, n)), end, sorted_end, threshold, mass, sequential != 0)


@functools.cache
def address_of_prune(dtype: str) -> int:
    """Where `prune` lies as a C function: it is compiled once for all dimensions, limiters and drifts."""
    numbers = "int64, int64, int64, int64, int64, float64, float64, int64"
    arrays = [f"CPointer({kind})" for kind in ("int64", "int64", *[dtype] * 3, "int32", dtype, dtype, *["bool_"] * 2,
                                               "int32")]  # fmt: skip
    return int(c_function(f"int64({numbers}, {', '.join(arrays)})")(_prune_there).address)


def bytes_per_cell(n: int, itemsize: int) -> int:
    """Memory of one cell in all arrays of ``grid``, the table at its fullest, and in a prune."""
    return 8 + 2 * itemsize + n * (3 * itemsize + 8) + 2 + 8 + 12


def table_size(capacity: int) -> int:
    """Entries of the table for so many positions: at most half of them are taken."""
    return max(1 << 6, 1 << int(2 * capacity - 1).bit_length())


def capacity_for(n_cells: int) -> int:
    """Positions for so many cells: an odd number of lines, so that no two dimensions share a set of a cache."""
    return ((BASE + n_cells + PADDING + 63) // 64 | 1) * 64


def make_arrays(n: int, capacity: int, dtype: Any) -> tuple[Any, ...]:
    """The arrays of ``grid`` with nothing in them, for cells at positions below ``capacity - PADDING``."""

    def zeros(size: int, kind: Any) -> np.ndarray:
        # from a cache line's start, and of pages that are only taken when they are written to
        n_bytes = size * np.dtype(kind).itemsize
        raw = np.zeros(n_bytes + 64, np.uint8)
        start = -raw.ctypes.data % 64
        return raw[start : start + n_bytes].view(kind)

    keys, v = zeros(capacity, np.int64), zeros(n * capacity, dtype)
    p, q = zeros(capacity, dtype), zeros(capacity, dtype)
    links = zeros(2 * n * capacity, np.int32)
    up, down = zeros(n * capacity, dtype), zeros(n * capacity, dtype)
    growing, kept = zeros(capacity, np.bool_), zeros(capacity, np.bool_)
    return keys, p, q, v, links, up, down, growing, kept, zeros(table_size(capacity), np.int32)
