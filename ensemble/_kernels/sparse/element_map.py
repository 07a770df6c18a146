"""Where the entries of element matrices go in a sparse matrix: worked out once per mesh, on the host.

Rows are worked out in an order in which neighbours follow each other, and are numbered by it meanwhile: what a row
reads and writes then lies near what the row before did. On a mesh with scattered numbers that takes half the time.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from ensemble._compile.kept_memory import empty
from ensemble._compile.lanes.types import prefetch
from ensemble._compile.numba import compiled, compiled_serial, prange, thread_count

__all__ = ["ElementMap", "element_map"]

LONGEST = 32767
"""Entries of a row, at most: places in it are 16-bit numbers."""

PARTS = 4
"""Ranges of rows per thread that have a marker array of their own."""

BLOCK = 16
"""Columns that are compared at a time."""

AHEAD = 32
"""Elements of rows by which their unknowns and places are prefetched (`benchmarks forms`)."""

NONE, LARGEST = np.int32(-1), np.int32(2**31 - 1)

U = np.uint64  # an unsigned index needs no test for a negative one


@dataclass(frozen=True, eq=False)
class ElementMap:
    """The graph of unknowns that share an element, and the places of element matrices in it.

    Attributes
    ----------
    indptr, indices : arrays of int, shapes (n_unknowns + 1,) and (nnz,)
        The graph; columns ascend within a row.
    slots : array of int16, shape (n_elements, k, k)
        Entry (a, b) of element e is added to entry ``slots[e, a, b]`` of row ``unknowns[e, a]``.
    order : array of int32, shape (n_unknowns,)
        The order in which rows were worked out.
    ordered_first, ordered_incidences : arrays of int, shapes (n_unknowns + 1,) and (n_elements * k,)
        Row ``order[m]`` receives row ``a = p % k`` of element ``e = p // k`` for each p of
        ``ordered_incidences[ordered_first[m]:ordered_first[m + 1]]``; elements ascend.
    """

    indptr: np.ndarray
    indices: np.ndarray
    slots: np.ndarray
    order: np.ndarray
    ordered_first: np.ndarray
    ordered_incidences: np.ndarray

    @functools.cached_property
    def first(self) -> np.ndarray:
        """As `ordered_first`, for the rows as they are numbered."""
        first = np.zeros_like(self.ordered_first)
        first[1:][self.order] = np.diff(self.ordered_first)
        return np.cumsum(first, out=first)

    @functools.cached_property
    def incidences(self) -> np.ndarray:
        """As `ordered_incidences`, for the rows as they are numbered."""
        incidences = np.empty_like(self.ordered_incidences)
        _scatter_rows(self.order, self.ordered_first, self.ordered_incidences, self.first, incidences)
        return incidences


@compiled_serial
def _incidences(unknowns, order, ranks, first, incidences):
    """Number the rows by `order`; then the entries of `ranks`, which is filled, by the row that they name.

    The entries of each row ascend; `first` is filled.
    """
    n_rows = order.size
    rank = np.empty(n_rows, np.int32)
    for m in range(n_rows):
        rank[U(order[m])] = m
    for p in range(unknowns.size):
        m = rank[U(unknowns[U(p)])]
        ranks[U(p)] = m
        first[U(m) + U(1)] += 1
    for m in range(n_rows):
        first[U(m) + U(1)] += first[U(m)]
    place = first[:-1].copy()
    for p in range(unknowns.size):
        m = U(ranks[U(p)])
        incidences[U(place[m])] = p
        place[m] += 1


@compiled
def _fill_rows(order, first, incidences, ranks, corners, rows, longest, begins, columns, offset, length, slots):
    """The sorted columns of each row from ``columns[offset[m]]`` on, and the places of element matrices in them.

    `first`, `incidences` and `ranks` number the rows by `order`, the columns are those before.
    """
    n_rows, k = first.size - 1, len(corners)  # a constant of the compiled loop
    end = first[n_rows] - 1
    for part in prange((n_rows + rows - 1) // rows):
        seen = np.empty(n_rows, np.int32)  # the last row in which a column was met
        for row in range(n_rows):
            seen[row] = NONE
        position = np.empty(n_rows, np.int16)
        met, found = np.empty(longest * k + 1, np.int32), np.empty(longest * k + BLOCK, np.int32)
        start = U(begins[part])
        for i in range(part * rows, min((part + 1) * rows, n_rows)):
            m = np.int32(i)
            count = U(0)
            for t in range(first[m], first[m + 1]):
                e = U(incidences[min(t + AHEAD, end)]) // U(k) * U(k)
                prefetch(ranks, np.int64(e), 16)
                prefetch(slots, np.int64(e * U(k)), 32)
                e = U(incidences[t]) // U(k) * U(k)
                for b in range(k):
                    j = U(ranks[e + U(b)])
                    met[count] = j
                    count += U(seen[j] != m)
                    seen[j] = m
            for c in range(count):
                found[U(c)] = order[U(met[U(c)])]
            for c in range(count, count + U(BLOCK)):
                found[U(c)] = LARGEST
            for c in range(count):  # the place of a column is the number of smaller ones: no branch depends on them
                column, smaller = found[U(c)], 0
                for d in range(0, count, BLOCK):
                    for b in range(BLOCK):
                        smaller += found[U(d) + U(b)] < column
                columns[start + U(smaller)] = column
                position[U(met[U(c)])] = smaller
            for t in range(first[m], first[m + 1]):
                p = U(incidences[t])
                e = p // U(k) * U(k)
                for b in range(k):
                    slots[p * U(k) + U(b)] = position[U(ranks[e + U(b)])]
            offset[m], length[m] = start, count
            start += count


@compiled
def _scatter_rows(order, offset, entries, first, out):
    """Row m of `entries`, which begins at ``offset[m]``, becomes row ``order[m]`` of `out`, which begins at `first`."""
    for m in prange(order.size):
        i, start = U(order[m]), U(offset[m])
        begin = U(first[i])
        for t in range(U(first[i + U(1)]) - begin):
            out[begin + U(t)] = entries[start + U(t)]


def element_map(unknowns: np.ndarray, n_unknowns: int, order: np.ndarray | None = None) -> ElementMap:
    """The graph and the places of element matrices, for `unknowns` of shape (n_elements, k), int32.

    `order`, a permutation of the rows, is the order in which they are worked out.
    """
    order = np.arange(n_unknowns, dtype=np.int32) if order is None else order
    n_elements, k = unknowns.shape
    flat, corners = np.ascontiguousarray(unknowns).reshape(-1), (0,) * k
    first = np.zeros(n_unknowns + 1, dtype=np.int32 if n_elements * k < 2**31 else np.int64)
    ranks, incidences = empty((flat.size,), np.int32), empty((flat.size,), first.dtype)
    _incidences(flat, order, ranks, first, incidences)
    offset, length = np.zeros((2, n_unknowns), np.int64)
    slots = empty((n_elements, k, k), np.int16)
    rows, longest = max(128, -(-n_unknowns // (PARTS * thread_count()))), int(np.diff(first).max(initial=0))
    begins = first[:-1:rows].astype(np.int64) * k  # each part at its upper bound
    columns = empty((n_elements * k * k,), np.int32)
    _fill_rows(
        order, first, incidences, ranks, corners, rows, longest, begins, columns, offset, length, slots.reshape(-1)
    )
    if length.max(initial=0) > LONGEST:
        raise ValueError(f"element_map: a row must hold at most {LONGEST} entries; got {length.max()}.")
    indptr = np.zeros(n_unknowns + 1, np.int64)
    indptr[1:][order] = length
    np.cumsum(indptr, out=indptr)
    if indptr[-1] < 2**31:
        indptr = indptr.astype(np.int32)
    indices = empty((int(indptr[-1]),), np.int32)
    _scatter_rows(order, offset, columns, indptr, indices)
    return ElementMap(indptr, indices, slots, order, first, incidences)
