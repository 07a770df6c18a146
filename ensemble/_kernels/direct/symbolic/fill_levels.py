"""The entries of an incomplete elimination by levels of fill.

Source: Saad (2003), Iterative Methods for Sparse Linear Systems, 2nd ed., section 10.3.3: an entry of the matrix has
level 0, one that a product of entries (i, k) and (k, j) makes has the sum of their levels and 1, the least of all
products.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled_procedure

__all__ = ["levels_of_fill"]


@compiled_procedure
def _levels(indptr, indices, most, starts, columns, levels, diagonal, following, level_of):
    """Rows one after another, each a list of ascending columns; returns the number of entries, 0 for lack of room."""
    n = indptr.size - 1
    end, head, at = n, n + 1, 0
    for i in range(n):
        before = head
        for p in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[p])
            following[before] = j
            level_of[j] = 0
            before = j
        following[before] = end
        k = following[head]
        while k < i:
            before = k
            own = level_of[k] + 1
            for t in range(diagonal[k] + 1, starts[k + 1]):
                level = own + levels[t]
                if level <= most:
                    j = columns[t]
                    while following[before] < j:
                        before = following[before]
                    if following[before] != j:
                        following[j] = following[before]
                        following[before] = j
                        level_of[j] = level
                    elif level < level_of[j]:
                        level_of[j] = level
            k = following[k]
        k = following[head]
        while k != end:
            if at == columns.size:
                return 0
            if k == i:
                diagonal[i] = at
            columns[at] = k
            levels[at] = level_of[k]
            at += 1
            k = following[k]
        starts[i + 1] = at
    return at


def levels_of_fill(indptr: np.ndarray, indices: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """(indptr, indices) of L and U together with the fill up to level `most`, of a graph with all diagonal entries."""
    n, capacity = indptr.size - 1, 2 * indices.size + 1
    indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
    while True:
        starts, diagonal, following = np.zeros(n + 1, np.int64), np.zeros(n, np.int64), np.zeros(n + 2, np.int64)
        columns, levels, level_of = np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.zeros(n, np.int64)
        count = _levels(indptr, indices, most, starts, columns, levels, diagonal, following, level_of)
        if count or not n:
            return starts, columns[:count]
        capacity *= 2
