"""Breadth-first search inside a part of a symmetric graph."""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled_serial, inner

__all__ = ["breadth_first_rows", "far_vertex", "levels"]


@inner
def levels(indptr, indices, start, part_of, part, level, queue):
    """Breadth-first search inside one part; returns the number of vertices met, and of levels."""
    queue[0] = start
    level[start] = 0
    count, at = 1, 0
    while at < count:
        v = queue[at]
        at += 1
        for p in range(indptr[v], indptr[v + 1]):
            w = indices[p]
            if part_of[w] == part and level[w] < 0:
                level[w] = level[v] + 1
                queue[count] = w
                count += 1
    return count, level[queue[count - 1]] + 1


@inner
def far_vertex(indptr, indices, start, part_of, part, level, queue):
    """A vertex at an end of a long path; its levels are in `level`. Returns it with what `levels` returns."""
    count, depth = levels(indptr, indices, start, part_of, part, level, queue)
    for _ in range(8):
        end, least = queue[count - 1], np.int64(1) << 60
        for k in range(count - 1, -1, -1):
            v = queue[k]
            if level[v] < depth - 1:
                break
            if indptr[v + 1] - indptr[v] <= least:
                end, least = v, indptr[v + 1] - indptr[v]
        for k in range(count):
            level[queue[k]] = -1
        _, deeper = levels(indptr, indices, end, part_of, part, level, queue)
        if deeper <= depth:
            return end, count, deeper
        depth = deeper
    return queue[0], count, depth


@compiled_serial
def breadth_first_rows(indptr, indices, rows, part, part_of, level, queue, out):
    """The rows of a part in the order of a search from an end of a long path, one component after the other.

    `part` is a number that `part_of`, of all rows, does not contain yet; `level`, `queue` and `out` are work space.
    """
    for k in range(rows.size):
        part_of[rows[k]], level[rows[k]] = part, -1
    done = 0
    for k in range(rows.size):
        if level[rows[k]] < 0:
            _, count, _ = far_vertex(indptr, indices, rows[k], part_of, part, level, queue)
            for t in range(count):
                out[done + t] = queue[t]
            done += count
