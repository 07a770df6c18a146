"""Rows of graphs: where the diagonal stands, rows that stay, entries of a row in a range of columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.numba import compiled_procedure, procedure_unrolled

__all__ = ["diagonal_entries", "kept_rows", "spans_between", "transposed_part"]


def diagonal_entries(indptr: Any, columns: Any, first: int = 0) -> np.ndarray:
    """The entry of each row i in column ``first + i``, -1 where none is stored."""
    position = np.empty(indptr.size - 1, indptr.dtype)
    _diagonal_entries(indptr, columns, first, position)
    return position


@procedure_unrolled
def _diagonal_entries(indptr, columns, first, position):
    for i in range(position.size):
        found = -1
        for k in range(indptr[i], indptr[i + 1]):
            if columns[k] == first + i:
                found = k
        position[i] = found


def kept_rows(indptr: Any, indices: Any, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The graph in which rows that are not `kept` have no entries."""
    new_indptr, new_indices = np.zeros_like(indptr), np.empty_like(indices)
    _kept_rows(indptr, indices, kept, new_indptr, new_indices)
    return new_indptr, new_indices[: new_indptr[-1]]


@compiled_procedure
def _kept_rows(indptr, indices, kept, new_indptr, new_indices):
    place = 0
    for i in range(kept.size):
        if kept[i]:
            for k in range(indptr[i], indptr[i + 1]):
                new_indices[place] = indices[k]
                place += 1
        new_indptr[i + 1] = place


def spans_between(indptr: Any, columns: Any, bounds: np.ndarray, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Where the entries of each row begin and end whose columns are in the range of the row, columns ascending.

    Rows are cut at `bounds`; those between two bounds have the range of ``first`` plus the same bounds.
    """
    begins, ends = np.empty(indptr.size - 1, indptr.dtype), np.empty(indptr.size - 1, indptr.dtype)
    _spans_between(indptr, columns, bounds, first, begins, ends)
    return begins, ends


@compiled_procedure
def _spans_between(indptr, columns, bounds, first, begins, ends):
    for d in range(bounds.size - 1):
        low, high = bounds[d] + first, bounds[d + 1] + first
        for i in range(bounds[d], bounds[d + 1]):
            begin, end = indptr[i], indptr[i + 1]
            while begin < end and columns[begin] < low:
                begin += 1
            while end > begin and columns[end - 1] >= high:
                end -= 1
            begins[i] = begin
            ends[i] = end


def transposed_part(begins: Any, ends: Any, columns: Any, low: int, high: int) -> tuple[Any, Any, Any]:
    """The transpose of the part of a graph in the columns from `low` to below `high`: (indptr, rows, entries).

    Row i has the entries ``begins[i]`` to ``ends[i]`` of `columns`.
    """
    starts = np.zeros(high - low + 1, begins.dtype)
    _count_columns(begins, ends, columns, low, high, starts)
    rows, entries = np.empty(starts[-1], np.int32), np.empty(starts[-1], begins.dtype)
    _transposed_part(begins, ends, columns, low, high, starts[:-1].copy(), rows, entries)
    return starts, rows, entries


@compiled_procedure
def _count_columns(begins, ends, columns, low, high, starts):
    for i in range(begins.size):
        for k in range(begins[i], ends[i]):
            if columns[k] >= low and columns[k] < high:
                starts[columns[k] - low + 1] += 1
    for j in range(high - low):
        starts[j + 1] += starts[j]


@compiled_procedure
def _transposed_part(begins, ends, columns, low, high, place, rows, entries):
    for i in range(begins.size):
        for k in range(begins[i], ends[i]):
            if columns[k] >= low and columns[k] < high:
                t = place[columns[k] - low]
                place[columns[k] - low] += 1
                rows[t] = i
                entries[t] = k
