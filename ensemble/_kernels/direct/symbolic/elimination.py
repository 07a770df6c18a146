"""What elimination without exchanges does to a graph: elimination tree, fill, and nested rows.

Graphs are in elimination order. Sources: Liu (1990), SIAM J. Matrix Anal. 11, 134, for the tree and row subtrees.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.allocation import new, new_full
from ensemble._compile.numba import compiled_procedure, inner
from ensemble._kernels.direct.symbolic.supernodes import Supernodes

__all__ = [
    "Elimination",
    "count_multiply_adds",
    "elimination_tree",
    "excess_storage",
    "filled",
    "nested_rows",
    "postorder",
    "reached",
    "row_lengths",
]

NONE = -1


def elimination_tree(indptr: Any, indices: Any) -> np.ndarray:
    """The parent of each row of a symmetric graph, -1 for a root."""
    parent = np.full(indptr.size - 1, NONE, np.int64)
    _elimination_tree(indptr, indices, parent)
    return parent


@compiled_procedure
def _elimination_tree(indptr, indices, parent):
    """Paths are compressed by `ancestor`."""
    ancestor = new_full(parent.size, NONE, np.int64)
    for i in range(parent.size):
        for p in range(indptr[i], indptr[i + 1]):
            k = np.int64(indices[p])
            while k != NONE and k < i:
                above = ancestor[k]
                ancestor[k] = i
                if above == NONE:
                    parent[k] = i
                k = above


def postorder(parent: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rows in an order in which each subtree is a run of rows, children in descending order of their weights."""
    order = np.empty(parent.size, np.int64)
    _postorder(parent, np.argsort(weights, kind="stable"), order)
    return order


@compiled_procedure
def _postorder(parent, by_weight, order):
    n = parent.size
    child, sibling = new_full(n, NONE, np.int64), new_full(n, NONE, np.int64)
    for i in range(n):
        v = by_weight[i]
        if parent[v] != NONE:
            sibling[v] = child[parent[v]]
            child[parent[v]] = v
    stack, count = new(n, np.int64), 0
    for root in range(n):
        if parent[root] != NONE:
            continue
        depth = 0
        stack[0] = root
        while depth >= 0:
            v = stack[depth]
            if child[v] != NONE:
                depth += 1
                stack[depth] = child[v]
                child[v] = sibling[child[v]]
            else:
                order[count] = v
                count += 1
                depth -= 1


@inner
def _sort_descending(items, count, keys, free):
    """Sort the first `count` items by their keys, equal ones in their order; NumPy's sort compiles for two seconds."""
    width = 1
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            i, j = low, middle
            for k in range(low, high):
                if i < middle and (j >= high or keys[items[i]] >= keys[items[j]]):
                    free[k] = items[i]
                    i += 1
                else:
                    free[k] = items[j]
                    j += 1
        for k in range(count):
            items[k] = free[k]
        width *= 2


def excess_storage(parent: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The sums that a subtree needs at one time, more than those that it leaves: `lengths` are those of its rows.

    With children in descending order of it a tree needs fewest at one time: Liu (1986), ACM TOMS 12, 249.
    """
    excess = np.empty(parent.size, np.int64)
    _excess_storage(parent, lengths, excess)
    return excess


@compiled_procedure
def _excess_storage(parent, lengths, excess):
    n = parent.size
    child, sibling = new_full(n, NONE, np.int64), new_full(n, NONE, np.int64)
    for v in range(n - 1, -1, -1):  # children in ascending order
        if parent[v] != NONE:
            sibling[v] = child[parent[v]]
            child[parent[v]] = v
    own, free = new(n, np.int64), new(n, np.int64)
    for v in range(n):  # children come before their parents
        count, c = 0, child[v]
        while c != NONE:
            own[count] = c
            count, c = count + 1, sibling[c]
        _sort_descending(own, count, excess, free)
        kept, most = 0, 0
        for k in range(count):
            c = own[k]
            left = lengths[c] * lengths[c]
            most = max(most, kept + left + excess[c])
            kept += left
        excess[v] = max(most, kept + (lengths[v] + 1) * (lengths[v] + 1)) - lengths[v] * lengths[v]


@compiled_procedure
def _row_subtrees(indptr, indices, parent, fill, places, columns):
    """Count the entries right of the diagonal, ``places[k + 1]`` in row k, or write their columns with `fill`.

    With `fill`, the columns of row k begin at ``places[k]``, which is moved behind them.
    """
    n = parent.size
    met = new_full(n, NONE, np.int64)
    for i in range(n):
        met[i] = i
        for p in range(indptr[i], indptr[i + 1]):
            k = np.int64(indices[p])
            while k < i and met[k] != i:
                met[k] = i
                if fill:
                    columns[places[k]] = i
                    places[k] += 1
                else:
                    places[k + 1] += 1
                k = parent[k]


def row_lengths(indptr: Any, indices: Any, parent: Any) -> np.ndarray:
    """Entries right of the diagonal in each row once a symmetric graph is filled."""
    counts = np.zeros(parent.size + 1, np.int64)
    _row_subtrees(indptr, indices, parent, False, counts, np.empty(0, np.int32))
    return counts[1:]


def filled(indptr: Any, indices: Any, parent: Any) -> tuple[np.ndarray, np.ndarray]:
    """(indptr, indices) of the entries right of the diagonal once a symmetric graph is filled, columns ascending."""
    starts = np.zeros(parent.size + 1, np.int64)
    _row_subtrees(indptr, indices, parent, False, starts, np.empty(0, np.int32))
    starts = np.cumsum(starts)
    columns = np.empty(int(starts[-1]), np.int32)
    _row_subtrees(indptr, indices, parent, True, starts.copy(), columns)
    return starts, columns


@compiled_procedure
def count_multiply_adds(lower_columns, upper_starts, symmetric):
    """Multiply-adds of a factorisation; of a symmetric one, those of the upper triangle (an upper bound for LU)."""
    total = np.int64(0)
    for k in range(upper_starts.size - 1):
        length = upper_starts[k + 1] - upper_starts[k]
        total += length * (length + 1) // 2 if symmetric else 0
    if not symmetric:
        for p in range(lower_columns.size):
            k = lower_columns[p]
            total += upper_starts[k + 1] - upper_starts[k]
    return total


def reached(
    indptr: Any, indices: Any, full_lower_starts: Any, full_lower: Any, full_upper_starts: Any, full_upper: Any
) -> tuple[Any, Any]:
    """Which entries of a symmetric filled graph the elimination of an unsymmetric one inside of it reaches.

    Returns one mark for each entry left, and one for each entry right of the diagonal.
    """
    in_lower, in_upper = np.zeros(full_lower.size, np.bool_), np.zeros(full_upper.size, np.bool_)
    _reached(indptr, indices, full_lower_starts, full_lower, full_upper_starts, full_upper, in_lower, in_upper)
    return in_lower, in_upper


@compiled_procedure
def _reached(indptr, indices, full_lower_starts, full_lower, full_upper_starts, full_upper, in_lower, in_upper):
    n = indptr.size - 1
    met = new_full(n, NONE, np.int64)
    for i in range(n):
        for p in range(indptr[i], indptr[i + 1]):
            met[indices[p]] = i
        for p in range(full_lower_starts[i], full_lower_starts[i + 1]):
            k = full_lower[p]
            if met[k] == i:
                in_lower[p] = True
                for t in range(full_upper_starts[k], full_upper_starts[k + 1]):
                    if in_upper[t]:
                        met[full_upper[t]] = i
        for t in range(full_upper_starts[i], full_upper_starts[i + 1]):
            in_upper[t] = met[full_upper[t]] == i


def nested_rows(starts: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """1 where rows k to k + 3 are nested: each has the next one as its first column, and then that one's columns."""
    nested = np.zeros(starts.size - 1, np.int32)
    _nested_rows(starts, columns, nested)
    return nested


@compiled_procedure
def _nested_rows(starts, columns, nested):
    n = nested.size
    run = 0  # rows from k on that are nested in the one before
    for k in range(n - 2, -1, -1):
        low, above, high = starts[k], starts[k + 1], starts[k + 2]
        same = above - low == high - above + 1 and columns[low] == k + 1
        if same:
            for t in range(high - above):
                if columns[low + 1 + t] != columns[above + t]:
                    same = False
                    break
        run = run + 1 if same else 0
        nested[k] = 1 if run >= 3 else 0


class Elimination(NamedTuple):
    """What a factorisation of a square graph without exchanges does, for every sample alike.

    Row i of the eliminated matrix is row ``rows[i]`` of the given one, column j its column ``columns[j]``. The values
    of a factorisation lie row by row: of LU those left of the diagonal (L, unit diagonal), the reciprocal pivot, those
    right of it (U); of LDL^T the reciprocal pivot and U = D L^T. Value e begins as entry ``sources[e]`` of the given
    matrix, as zero where that is -1.
    """

    symmetric: bool
    rows: np.ndarray
    columns: np.ndarray
    lower_starts: np.ndarray
    lower: np.ndarray
    across: np.ndarray
    """For LDL^T, the place in `upper` of the entry across the diagonal from each one of `lower`."""
    upper_starts: np.ndarray
    upper: np.ndarray
    first: np.ndarray
    """Place of the first value of each row."""
    diagonal: np.ndarray
    """Place of each reciprocal pivot."""
    sources: np.ndarray
    multiply_adds: int
    nested: np.ndarray
    """`nested_rows` of the entries right of the diagonal."""
    supernodes: Supernodes | None = None
    """The runs of rows that are treated as one, where the count of operations is in favour of that form."""
    flat: np.ndarray | None = None
    """The list of `flat.flat_list`, where there are few multiply-adds."""
    lists: dict[Any, Any] | None = None
    """Where lists of a device's tasks are kept."""

    @property
    def n_values(self) -> int:
        """Values of one sample's factorisation."""
        return self.sources.size
