"""Orders in which rows that lie near each other follow each other, for blocks of a device that share what they read.

Points are split at the median of their longest axis, halves again, and so on. Each run of rows is then a compact piece
of space: 128 rows of a mesh of tetrahedra have 1150 elements, where pieces of reverse Cuthill-McKee levels have 1660.
Rows of a graph alone get points first: their distances to a few rows far apart, averaged over neighbours.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled_procedure

__all__ = ["compact_order", "graph_points"]

LANDMARKS = 6
"""Rows from which distances in a graph are counted."""

SWEEPS = 8
"""Averages over neighbours: distances are whole numbers, which say little about near rows."""

AXES = 3
"""The directions in which such points differ most, which are kept."""


def compact_order(points: np.ndarray, run: int = 1) -> np.ndarray:
    """The points in an order in which those of each `run` places, from a multiple of `run` on, are near: int32 (n,)."""
    points = np.ascontiguousarray(points, dtype=np.float64)
    order = np.arange(len(points), dtype=np.int32)
    _halve(points, run, order, np.empty(len(points)))
    return order


def graph_points(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Points for the rows of a symmetric graph, shape (n, 3): rows with few entries between them are near.

    Rows without a way between them are as far apart as the distances within their parts together.
    """
    n = indptr.size - 1
    distances, queue = np.empty(n, np.int32), np.empty(n, np.int32)
    points, nearest = np.empty((n, LANDMARKS)), np.full(n, np.iinfo(np.int32).max, np.int32)
    start = _distances(indptr, indices, 0, distances, queue) if n else 0
    for axis in range(LANDMARKS if n else 0):
        _distances(indptr, indices, start, distances, queue)
        points[:, axis] = distances
        np.minimum(nearest, distances, out=nearest)
        start = int(nearest.argmax())
    other = np.empty_like(points)
    for _ in range(SWEEPS // 2):
        _average(indptr, indices, points, other)
        _average(indptr, indices, other, points)
    points -= points.mean(axis=0) if n else 0.0
    return np.asarray(points @ np.linalg.eigh(points.T @ points)[1][:, -AXES:])


@compiled_procedure
def _distances(indptr, indices, start, distances, queue):
    """Fill the distances from `start`; the row that was found last. Parts of the graph follow each other."""
    n, begin, end, after = distances.size, 0, 1, 0
    distances[:] = -1
    distances[start] = 0
    queue[0] = start
    while end < n or begin < end:
        if begin == end:  # a part that cannot be reached
            while distances[after] >= 0:
                after += 1
            distances[after] = distances[queue[end - 1]] + 1
            queue[end] = after
            end += 1
        row = queue[begin]
        begin += 1
        for t in range(indptr[row], indptr[row + 1]):
            column = indices[t]
            if distances[column] < 0:
                distances[column] = distances[row] + 1
                queue[end] = column
                end += 1
    return queue[n - 1]


@compiled_procedure
def _average(indptr, indices, points, out):
    """The mean of the points of the neighbours of each row, its own among them; a row without any keeps its own."""
    for row in range(indptr.size - 1):
        begin, end = indptr[row], indptr[row + 1]
        for axis in range(points.shape[1]):
            total = points[row, axis] if begin == end else 0.0
            for t in range(begin, end):
                total += points[indices[t], axis]
            out[row, axis] = total / max(end - begin, 1)


@compiled_procedure
def _halve(points, run, order, keys):
    """Permute `order` so that halves, halves of halves and so on are apart along their longest axis."""
    begins, ends, depth = np.empty(64, np.int64), np.empty(64, np.int64), 1
    begins[0], ends[0] = 0, order.size
    while depth > 0:
        depth -= 1
        begin, end = begins[depth], ends[depth]
        if end - begin <= run:
            continue
        longest, axis = -1.0, 0
        for a in range(points.shape[1]):
            low = high = points[order[begin], a]
            for i in range(begin + 1, end):
                low, high = min(low, points[order[i], a]), max(high, points[order[i], a])
            if high - low > longest:
                longest, axis = high - low, a
        for i in range(begin, end):
            keys[i] = points[order[i], axis]
        middle = begin + ((end - begin + run - 1) // run) // 2 * run
        left, right = begin, end - 1  # the order's element at `middle` comes to its place
        while left < right:
            pivot, i, j = keys[(left + right) // 2], left, right
            while i <= j:
                while keys[i] < pivot:
                    i += 1
                while pivot < keys[j]:
                    j -= 1
                if i <= j:
                    keys[i], keys[j] = keys[j], keys[i]
                    order[i], order[j] = order[j], order[i]
                    i, j = i + 1, j - 1
            if middle <= j:
                right = j
            elif middle >= i:
                left = i
            else:
                break
        begins[depth], ends[depth] = begin, middle
        begins[depth + 1], ends[depth + 1] = middle, end
        depth += 2
