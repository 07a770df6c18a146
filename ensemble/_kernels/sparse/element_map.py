"""Where the entries of element matrices go in a sparse matrix: worked out once per mesh, on the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ensemble._compile.numba import compiled, compiled_serial, prange, thread_count

__all__ = ["ElementMap", "element_map"]

LONGEST = 32767
"""Entries of a row, at most: places in it are 16-bit numbers."""

PARTS = 4
"""Ranges of rows per thread that have a marker array of their own."""

BLOCK = 16
"""Columns that are compared at a time."""

NONE, LARGEST = np.int32(-1), np.int32(2**31 - 1)

U = np.uint64  # an unsigned index needs no test for a negative one


class ElementMap(NamedTuple):
    """The graph of unknowns that share an element, and the places of element matrices in it.

    Attributes
    ----------
    indptr, indices : arrays of int, shapes (n_unknowns + 1,) and (nnz,)
        The graph; columns ascend within a row.
    slots : array of int16, shape (n_elements, k, k)
        Entry (a, b) of element e is added to entry ``slots[e, a, b]`` of row ``unknowns[e, a]``.
    first, incidences : arrays of int, shapes (n_unknowns + 1,) and (n_elements * k,)
        Row i receives row ``a = p % k`` of element ``e = p // k`` for each p of ``incidences[first[i]:first[i + 1]]``;
        elements ascend.
    """

    indptr: np.ndarray
    indices: np.ndarray
    slots: np.ndarray
    first: np.ndarray
    incidences: np.ndarray


@compiled_serial
def _incidences(unknowns, n_unknowns, first):
    """The entries of `unknowns` by the unknown that they name, in ascending order; `first` is filled."""
    for p in range(unknowns.size):
        first[U(unknowns[U(p)]) + U(1)] += 1
    for i in range(n_unknowns):
        first[U(i) + U(1)] += first[U(i)]
    place = first[:-1].copy()
    incidences = np.empty(unknowns.size, first.dtype)
    for p in range(unknowns.size):
        i = U(unknowns[U(p)])
        incidences[U(place[i])] = p
        place[i] += 1
    return incidences


@compiled
def _fill_rows(order, first, incidences, unknowns, corners, rows, longest, begins, columns, offset, length, slots):
    n_rows, k = first.size - 1, len(corners)  # a constant of the compiled loop
    for part in prange((n_rows + rows - 1) // rows):
        seen = np.empty(n_rows, np.int32)  # the last row in which a column was met
        for j in range(n_rows):
            seen[j] = NONE
        position = np.empty(n_rows, np.int16)
        met = np.empty(longest * k + BLOCK, np.int32)
        start = U(begins[part])
        for m in range(part * rows, min((part + 1) * rows, n_rows)):
            i = np.int32(order[m])
            count = U(0)
            for t in range(first[i], first[i + 1]):
                p = U(incidences[t])
                e = p // U(k) * U(k)
                for b in range(k):
                    j = U(unknowns[e + U(b)])
                    met[count] = j
                    count += U(seen[j] != i)
                    seen[j] = i
            for c in range(count, count + U(BLOCK)):
                met[U(c)] = LARGEST
            for c in range(count):  # the place of a column is the number of smaller ones: no branch depends on them
                column, smaller = met[U(c)], 0
                for d in range(0, count, BLOCK):
                    for b in range(BLOCK):
                        smaller += met[U(d) + U(b)] < column
                columns[start + U(smaller)] = column
                position[U(column)] = smaller
            for t in range(first[i], first[i + 1]):
                p = U(incidences[t])
                e = p // U(k) * U(k)
                for b in range(k):
                    slots[p * U(k) + U(b)] = position[U(unknowns[e + U(b)])]
            offset[i], length[i] = start, count
            start += count


@compiled
def _sort_rows(offset, columns, indptr, indices):
    for i in prange(indptr.size - 1):
        start = offset[i]
        for m in range(indptr[i], indptr[i + 1]):
            indices[m] = columns[start + m - indptr[i]]


def element_map(unknowns: np.ndarray, n_unknowns: int, order: np.ndarray | None = None) -> ElementMap:
    """The graph and the places of element matrices, for `unknowns` of shape (n_elements, k), int32.

    `order`, a permutation of the rows, is the order in which they are worked out.
    """
    order = np.arange(n_unknowns, dtype=np.int32) if order is None else order
    n_elements, k = unknowns.shape
    flat, corners = np.ascontiguousarray(unknowns).reshape(-1), (0,) * k
    first = np.zeros(n_unknowns + 1, dtype=np.int32 if n_elements * k < 2**31 else np.int64)
    incidences = _incidences(flat, n_unknowns, first)
    offset, length = np.zeros((2, n_unknowns), np.int64)
    slots = np.empty((n_elements, k, k), np.int16)
    touching = np.diff(first)
    rows, longest = max(128, -(-n_unknowns // (PARTS * thread_count()))), int(touching.max(initial=0))
    begins = np.add.reduceat(np.take(touching, order), np.arange(0, n_unknowns, rows), dtype=np.int64)
    begins = np.concatenate([[0], np.cumsum(begins)[:-1]]) * k  # each part at its upper bound
    columns = np.empty(n_elements * k * k, np.int32)
    _fill_rows(
        order, first, incidences, flat, corners, rows, longest, begins, columns, offset, length, slots.reshape(-1)
    )
    if length.max(initial=0) > LONGEST:
        raise ValueError(f"element_map: a row must hold at most {LONGEST} entries; got {length.max()}.")
    indptr = np.zeros(n_unknowns + 1, np.int64)
    np.cumsum(length, out=indptr[1:])
    if indptr[-1] < 2**31:
        indptr = indptr.astype(np.int32)
    indices = np.empty(int(indptr[-1]), np.int32)
    _sort_rows(offset, columns, indptr, indices)
    return ElementMap(indptr, indices, slots, first, incidences)
