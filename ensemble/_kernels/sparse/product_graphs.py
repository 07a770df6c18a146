"""Graphs of products of sparse matrices, worked out once for all samples and all later values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.allocation import new
from ensemble._compile.numba import compiled, compiled_procedure, heard, prange

__all__ = [
    "ROW_CHUNK", "SLAB_ROWS", "by_rows", "entries_between", "order_within_rows", "product_graph", "slab_tasks",
    "transpose_graph",
]  # fmt: skip

SLAB_ROWS = 1024
"""Fine rows of one slab of A P on the CPU."""

ROW_CHUNK = 128
"""Rows that share one work array."""

COLUMNS_PER_ROW = 32
"""Columns that are marked as not met in about the time in which one row of a product is worked out."""

PAIR_WORK = 5
"""Multiply-adds that take as long as one pair of entries in the graph of a product, about."""

U = np.uint64  # an unsigned index needs no test for a negative one
NO_ROW = np.uint64(2**64 - 1)


def transpose_graph(indptr: Any, indices: Any, n_columns: int) -> tuple[Any, Any, Any]:
    """The graph of the transpose: (indptr, indices, entries), entry k of it being entry ``entries[k]`` of the graph."""
    new_indptr, place = np.zeros(n_columns + 1, indptr.dtype), np.empty(n_columns, indptr.dtype)
    new_indices, entries = np.empty(indices.size, indices.dtype), np.empty(indices.size, indptr.dtype)
    _transpose_graph(indptr, indices, new_indptr, place, new_indices, entries)
    return new_indptr, new_indices, entries


@compiled_procedure
def _transpose_graph(indptr, indices, new_indptr, place, new_indices, entries):
    for k in range(indices.size):
        new_indptr[indices[k] + 1] += 1
    for j in range(place.size):
        place[j] = new_indptr[j]
        new_indptr[j + 1] += new_indptr[j]
    for i in range(indptr.size - 1):
        for k in range(indptr[i], indptr[i + 1]):
            t = place[indices[k]]
            place[indices[k]] += 1
            new_indices[t] = i
            entries[t] = k


def by_rows(rows: np.ndarray, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(indptr, order): entries sorted by their `rows`, each row's in the order in which they are given."""
    wide = np.int32 if rows.size < 2**31 else np.int64
    indptr, _, order = transpose_graph(np.arange(rows.size + 1, dtype=wide), rows, n_rows)
    return indptr, order


def order_within_rows(indptr: np.ndarray, columns: np.ndarray, n_columns: int) -> np.ndarray:
    """The entries row by row, each row's in ascending order of `columns`: transposed twice."""
    starts, rows, order = transpose_graph(indptr, columns, n_columns)
    found: np.ndarray = order[transpose_graph(starts, rows, indptr.size - 1)[2]]
    return found


def entries_between(indptr: Any, indices: Any, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The graph of the entries of row i whose column is from ``low[i]`` to below ``high[i]``."""
    new_indptr, new_indices = np.zeros_like(indptr), np.empty_like(indices)
    _entries_between(indptr, indices, low, high, new_indptr, new_indices)
    return new_indptr, new_indices[: new_indptr[-1]]


@compiled_procedure
def _entries_between(indptr, indices, low, high, new_indptr, new_indices):
    place = 0
    for i in range(indptr.size - 1):
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] >= low[i] and indices[k] < high[i]:
                new_indices[place] = indices[k]
                place += 1
        new_indptr[i + 1] = place


@compiled
def _count_product(indptr_a, indices_a, indptr_b, indices_b, n_columns, rows, length):
    n_rows = indptr_a.size - 1
    for chunk in prange((n_rows + rows - 1) // rows):
        marker = new(n_columns, np.uint64)  # the last row in which a column was met
        for c in range(n_columns):
            marker[c] = NO_ROW
        for i in range(U(chunk * rows), U(min((chunk + 1) * rows, n_rows))):
            count = 0
            for k in range(U(indptr_a[i]), U(indptr_a[i + U(1)])):
                row = U(indices_a[k])
                for m in range(U(indptr_b[row]), U(indptr_b[row + U(1)])):
                    j = U(indices_b[m])
                    if marker[j] != i:
                        marker[j] = i
                        count += 1
            length[i] = count


@compiled
def _fill_product(indptr_a, indices_a, indptr_b, indices_b, n_columns, rows, indptr, indices):
    n_rows = indptr_a.size - 1
    for chunk in prange((n_rows + rows - 1) // rows):
        marker = new(n_columns, np.uint64)
        for c in range(n_columns):
            marker[c] = NO_ROW
        for i in range(U(chunk * rows), U(min((chunk + 1) * rows, n_rows))):
            place = U(indptr[i])
            for k in range(U(indptr_a[i]), U(indptr_a[i + U(1)])):
                row = U(indices_a[k])
                for t in range(U(indptr_b[row]), U(indptr_b[row + U(1)])):
                    j = U(indices_b[t])
                    if marker[j] != i:
                        marker[j] = i
                        indices[place] = j
                        place += U(1)
            for n in range(np.int64(indptr[i]) + 1, np.int64(place)):  # insertion sort: rows are short
                column, m = indices[n], n - 1
                while m >= indptr[i] and indices[m] > column:
                    indices[m + 1] = indices[m]
                    m -= 1
                indices[m + 1] = column


def product_graph(indptr_a, indices_a, indptr_b, indices_b, n_columns) -> tuple[Any, Any]:
    """The graph (indptr, indices) of a product A B, columns ascending in each row."""
    rows = max(ROW_CHUNK, n_columns // COLUMNS_PER_ROW)  # that share the marks of all columns
    given = indptr_a, indices_a, indptr_b, indices_b, n_columns, rows
    work = PAIR_WORK * indices_a.size * (indices_b.size // max(indptr_b.size - 1, 1) + 1)
    length = np.empty(indptr_a.size - 1, np.int64)
    heard(lambda: _count_product(*given, length), work)
    indptr = np.zeros(indptr_a.size, np.int64)
    np.cumsum(length, out=indptr[1:])
    if indptr[-1] < 2**31:
        indptr = indptr.astype(np.int32)
    indices = np.empty(int(indptr[-1]), indices_b.dtype)
    heard(lambda: _fill_product(*given, indptr, indices), work)
    return indptr, indices


def slab_tasks(indptr_r: Any, indices_r: Any, n_fine: int) -> tuple[np.ndarray, ...]:
    """Cut the rows of P^T into runs that stay within one slab of fine rows.

    Returns (starts, rows, begins, ends): slab b has the tasks ``starts[b]:starts[b + 1]``; task t adds the entries
    ``begins[t]:ends[t]`` of P^T into coarse row ``rows[t]``.
    """
    starts = np.zeros((n_fine + SLAB_ROWS - 1) // SLAB_ROWS + 1, np.int64)
    _count_tasks(indptr_r, indices_r, starts)
    starts = np.cumsum(starts)
    rows, begins, ends = np.empty((3, starts[-1]), np.int64)
    _slab_tasks(indptr_r, indices_r, starts[:-1].copy(), rows, begins, ends)
    return starts, rows, begins, ends


@compiled_procedure
def _count_tasks(indptr_r, indices_r, starts):
    for i in range(indptr_r.size - 1):
        last = -1
        for k in range(indptr_r[i], indptr_r[i + 1]):
            slab = indices_r[k] // SLAB_ROWS
            if slab != last:
                starts[slab + 1] += 1
                last = slab


@compiled_procedure
def _slab_tasks(indptr_r, indices_r, place, rows, begins, ends):
    for i in range(indptr_r.size - 1):
        last = -1
        task = 0
        for k in range(indptr_r[i], indptr_r[i + 1]):
            slab = indices_r[k] // SLAB_ROWS
            if slab != last:
                task = place[slab]
                place[slab] += 1
                rows[task] = i
                begins[task] = k
                last = slab
            ends[task] = k + 1
