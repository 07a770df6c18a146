"""Nested dissection: a separator comes after the parts that it separates (George 1973, SIAM J. Numer. Anal. 10, 345).

A separator begins as a level of breadth-first search from a vertex at the end of a longest path (George, Liu 1978,
SIAM J. Numer. Anal. 15, 1053). Vertices then move out of it one by one, the ones that they are bound to into it
(Ashcraft, Liu 1998, SIAM J. Matrix Anal. 19, 325; the search is that of Fiduccia and Mattheyses 1982).
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.allocation import new_full
from ensemble._compile.numba import compiled_procedure, inner
from ensemble._kernels.direct.symbolic.minimum_degree import minimum_degree
from ensemble._kernels.sparse.breadth_first import far_vertex, levels

__all__ = ["nested_dissection"]

LEAF = 120
"""Vertices of a part that is cut no further."""

LARGEST_SHARE = 0.6
"""The larger side of a separator has at most this share of the vertices, or what it has at the level it begins as."""

PASSES, PATIENCE = 6, 60
"""Searches for a smaller separator, and moves of one without success."""

FIRST, SECOND, BETWEEN = 0, 1, 2


@inner
def _cut_at_level(indptr, indices, count, depth, level, queue, side):
    """Sides by the level that makes the separator small and the sides alike; vertices with one side only leave it."""
    sizes = np.zeros(depth, np.int64)
    for k in range(count):
        sizes[level[queue[k]]] += 1
    best, chosen, before = np.inf, np.int64(1), np.int64(0)
    for d in range(depth):
        after = count - before - sizes[d]
        if before > 0 and after > 0:
            cost = sizes[d] * (1.0 / before + 1.0 / after)
            if cost < best:
                best, chosen = cost, np.int64(d)
        before += sizes[d]
    for k in range(count):
        v = queue[k]
        d = level[v]
        side[v] = FIRST if d < chosen else SECOND if d > chosen else BETWEEN
    for k in range(count):
        v = queue[k]
        if level[v] == chosen:
            alone = True
            for p in range(indptr[v], indptr[v + 1]):
                w = indices[p]
                if level[w] == chosen + 1:
                    alone = False
                    break
            if alone:
                side[v] = FIRST


@inner
def _recount(indptr, indices, v, part_of, part, side, bound):
    """Neighbours of a vertex on either side."""
    bound[0, v], bound[1, v] = 0, 0
    for p in range(indptr[v], indptr[v + 1]):
        w = indices[p]
        if part_of[w] == part and side[w] != BETWEEN:
            bound[side[w], v] += 1


@inner
def _best_move(between, n_between, locked, stamp, bound, sizes, most):
    """(place, side) of the vertex whose move to a side leaves the smallest separator, -1 for none."""
    place, to, best, lightest = np.int64(-1), np.int64(0), np.int64(1) << 40, np.int64(1) << 40
    for k in range(n_between):
        v = between[k]
        if locked[v] == stamp:
            continue
        for s in range(2):
            pulled = bound[1 - s, v]
            if pulled <= best and sizes[s] + 1 <= most and (pulled < best or sizes[s] < lightest):
                place, to, best, lightest = np.int64(k), np.int64(s), pulled, sizes[s]
    return place, to


@inner
def _move(indptr, indices, v, to, part_of, part, side, bound, between, n_between, sizes, moved, was, n_moved):
    """Move a vertex of the separator to a side; what it is bound to on the other side follows into the separator."""
    side[v] = to
    sizes[to] += 1
    moved[n_moved], was[n_moved] = v, BETWEEN
    n_moved += 1
    for p in range(indptr[v], indptr[v + 1]):
        w = indices[p]
        if part_of[w] != part:
            continue
        if side[w] == 1 - to:
            side[w] = BETWEEN
            sizes[1 - to] -= 1
            moved[n_moved], was[n_moved] = w, 1 - to
            n_moved += 1
            between[n_between] = w
            n_between += 1
            _recount(indptr, indices, w, part_of, part, side, bound)
            for q in range(indptr[w], indptr[w + 1]):
                x = indices[q]
                if part_of[x] == part and side[x] == BETWEEN and x != w:
                    bound[1 - to, x] -= 1
        if side[w] == BETWEEN:
            bound[to, w] += 1
    return n_between, n_moved


@inner
def _refine(indptr, indices, count, queue, part_of, part, side, work):
    """Make the separator smaller: passes of moves, each undone back to its best state."""
    bound, between, locked, moved, was = work
    sizes = np.zeros(3, np.int64)
    for k in range(count):
        sizes[side[queue[k]]] += 1
    most = max(np.int64(LARGEST_SHARE * count), max(sizes[0], sizes[1]))
    for turn in range(PASSES):
        n_between = np.int64(0)
        for k in range(count):
            v = queue[k]
            locked[v] = -1
            if side[v] == BETWEEN:
                between[n_between] = v
                n_between += 1
                _recount(indptr, indices, v, part_of, part, side, bound)
        start, best, apart = n_between, n_between, abs(sizes[0] - sizes[1])
        n_moved, kept, idle = np.int64(0), np.int64(0), 0
        while idle < PATIENCE and n_moved + 1 < moved.size // 2:
            place, to = _best_move(between, n_between, locked, np.int64(turn), bound, sizes, most)
            if place < 0:
                break
            v = between[place]
            n_between -= 1
            between[place] = between[n_between]
            locked[v] = turn
            n_between, n_moved = _move(
                indptr, indices, v, to, part_of, part, side, bound, between, n_between, sizes, moved, was, n_moved
            )
            idle += 1
            difference = abs(sizes[0] - sizes[1])
            if n_between < best or (n_between == best and difference < apart):
                best, apart, kept, idle = n_between, difference, n_moved, 0
        for k in range(n_moved - 1, kept - 1, -1):
            v = moved[k]
            if side[v] != BETWEEN:
                sizes[side[v]] -= 1
            side[v] = was[k]
            if was[k] != BETWEEN:
                sizes[was[k]] += 1
        most = max(np.int64(LARGEST_SHARE * count), max(sizes[0], sizes[1]))
        if best >= start:
            break


@inner
def _apart(indptr, indices, low, high, order, part_of, part, level, queue, side):
    """Sides of a part that is not connected, component by component to the smaller one."""
    sizes = np.zeros(2, np.int64)
    for k in range(low, high):
        level[order[k]] = -1
    for k in range(low, high):
        if level[order[k]] < 0:
            count, _ = levels(indptr, indices, order[k], part_of, part, level, queue)
            to = FIRST if sizes[0] <= sizes[1] else SECOND
            sizes[to] += count
            for t in range(count):
                side[queue[t]] = to


def _separators(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """For every vertex the number of its separator, in the order in which they are found; -1 inside of leaves."""
    separator = np.full(indptr.size - 1, -1, np.int64)
    _dissect(indptr, indices, separator)
    return separator


@compiled_procedure
def _dissect(indptr, indices, separator):
    n = indptr.size - 1
    order, part_of = np.empty(n, np.int64), np.zeros(n, np.int64)
    for k in range(n):
        order[k] = k
    level, queue, side = new_full(n, -1, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64)
    work = (
        np.zeros((2, n), np.int64), np.empty(2 * n + 2, np.int64), new_full(n, -1, np.int64),
        np.empty(4 * n + 4, np.int64), np.empty(4 * n + 4, np.int64),
    )  # fmt: skip
    lows, highs = np.zeros(n + 1, np.int64), new_full(n + 1, n, np.int64)
    depth, part, found = 1, np.int64(0), np.int64(0)
    while depth:
        depth -= 1
        low, high = lows[depth], highs[depth]
        if high - low <= LEAF:
            continue
        part += 1
        for k in range(low, high):
            part_of[order[k]], level[order[k]] = part, -1
        _, count, n_levels = far_vertex(indptr, indices, order[low], part_of, part, level, queue)
        if count < high - low:
            _apart(indptr, indices, low, high, order, part_of, part, level, queue, side)
        elif n_levels < 4:
            continue
        else:
            _cut_at_level(indptr, indices, count, n_levels, level, queue, side)
            _refine(indptr, indices, count, queue, part_of, part, side, work)
        sizes = np.zeros(3, np.int64)
        for k in range(low, high):
            queue[k - low] = order[k]
            sizes[side[order[k]]] += 1
        ends = np.empty(3, np.int64)
        ends[0], ends[1], ends[2] = low, low + sizes[0], low + sizes[0] + sizes[1]
        for k in range(high - low):
            v = queue[k]
            order[ends[side[v]]] = v
            ends[side[v]] += 1
            if side[v] == BETWEEN:
                separator[v] = found
                part_of[v] = -1
        found += 1
        if sizes[0] and sizes[1]:
            lows[depth], highs[depth] = low, low + sizes[0]
            lows[depth + 1], highs[depth + 1] = low + sizes[0], low + sizes[0] + sizes[1]
            depth += 2


def nested_dissection(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The elimination order, shape (n,), of a symmetric graph without diagonal entries.

    Parts of at most `LEAF` vertices come first, in the order of minimum degree; separators follow, the last found
    first. Rows with more than ``10 sqrt(n)`` entries come last and are left out of the graph.
    """
    n = indptr.size - 1
    length = np.diff(indptr).astype(np.int64)
    rows = np.repeat(np.arange(n), length)
    dense = length > max(16, 10 * np.sqrt(n))
    starts, columns = _kept(rows, indices, ~dense)
    separator = _separators(starts, columns)
    separator[dense] = -2
    inside = separator == -1
    order = minimum_degree(*_kept(rows, indices, inside))
    last = np.flatnonzero(~inside)
    last = last[np.lexsort((last, -separator[last]))]
    return np.concatenate([order[inside[order]], last])


def _kept(rows: np.ndarray, columns: np.ndarray, vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The graph between some vertices."""
    kept = vertices[rows] & vertices[columns]
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=vertices.size))])
    return starts, columns[kept].astype(np.int64)
