"""Sums of element matrices of four unknowns on a device, where entries have few numbers.

The bits of `gather_sums`, which reads a number of an element matrix where it is added and a source for each: here
neighbouring threads read a row of an element matrix as one piece, and its four places in the row of the matrix are the
bytes of one word. Rows of a block stand in the order of their number of elements; the rows of a warp lie side by side
in a table.

Bytes that must move (float64, P rows of element matrices, M entries, W numbers each): ``32 P W + 8 P + 8 M W``. A mesh
of 554,394 tetrahedra with one sample (P = 2.2e6, M = 1.4e6) moves 71 + 18 + 12 MB so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile import cuda
from ensemble._kernels.sparse.element_map import ElementMap

__all__ = ["RowTables", "row_sums", "row_tables"]

WIDTHS = (1, 2, 4, 8)
"""Numbers per entry that the kernel knows."""

UNKNOWNS = 4
THREADS = 128
WARP = 32

MOST_BYTES = 48 << 10
"""Shared memory of a block."""

LONGEST = 255
"""Entries of a row, at most: a place in it is a byte."""

ROUND = 256
"""The entries of a block are rounded up to a multiple of this number, so that few kernels are compiled."""

CUDA = cuda.KernelModule(
    "sparse/row_sums", ["row_sums"], extras=(("-DWIDTH=1", "-DCAPACITY=512"), ("-DWIDTH=8", "-DCAPACITY=256"))
)


class RowTables(NamedTuple):
    """Tables of `row_sums` on the host.

    Attributes
    ----------
    slices : array of int32, shape (n_warps + 1,)
        Where the table of each warp begins.
    table : array of int32, shape (n, 2)
        The row of element matrices, ``element * 4 + local row`` or -1, and its four places in the row of the matrix, a
        byte each.
    offsets : array of int32
        The first entry of the row of each group of lanes, counted from that of its block.
    bases : array of int32, shape (n_blocks + 1,)
        The first entry of each block.
    capacity : int
        Entries of a block at most.
    """

    slices: np.ndarray
    table: np.ndarray
    offsets: np.ndarray
    bases: np.ndarray
    capacity: int


def row_tables(made: ElementMap, width: int, itemsize: int) -> RowTables | None:
    """The tables for entries of `width` numbers of `itemsize` bytes; None where the kernel does not suit."""
    n_rows, k = made.indptr.size - 1, made.slots.shape[1]
    lengths = np.diff(made.indptr)
    small = made.indptr[-1] < 2**31 and made.incidences.size * UNKNOWNS * width < 2**31
    if width not in WIDTHS or k != UNKNOWNS or not small or lengths.max(initial=0) > LONGEST:
        return None
    here, side = THREADS // (UNKNOWNS * width), WARP // (UNKNOWNS * width)
    n_blocks = -(-n_rows // here)
    bases = made.indptr[np.minimum(np.arange(n_blocks + 1) * here, n_rows)].astype(np.int32)
    capacity = -(-int(np.diff(bases).max(initial=1)) // ROUND) * ROUND
    if capacity * width * itemsize > MOST_BYTES:
        return None
    counts = np.zeros(n_blocks * here, np.int64)
    counts[:n_rows] = np.diff(made.first)
    order = np.argsort(-counts.reshape(n_blocks, here), axis=1, kind="stable")
    rows = (order + np.arange(n_blocks)[:, None] * here).reshape(-1)
    length = counts[rows]
    slices = np.zeros(rows.size // side + 1, np.int32)
    np.cumsum(length.reshape(-1, side).max(axis=1) * side, out=slices[1:])
    group = np.repeat(np.arange(rows.size), length)
    step = np.arange(group.size) - np.repeat(np.cumsum(length) - length, length)
    first = np.minimum(rows, n_rows)
    pair = made.incidences[made.first[first][group] + step]
    table = np.zeros((slices[-1], 2), np.int32)
    table[:, 0] = -1
    places = made.slots.reshape(-1, UNKNOWNS)[pair].astype(np.uint8)
    table[slices[group // side] + step * side + group % side] = np.stack([pair, places.view(np.int32)[:, 0]], axis=1)
    offsets = made.indptr[first] - np.repeat(bases[:-1], here)
    return RowTables(slices, table, offsets.astype(np.int32), bases, capacity)


def row_sums(arrays: tuple[Any, ...], n_entries: int, capacity: int, values: Any, out: Any) -> Any:
    """The entries of a sparse matrix, shape (n_entries, W), from element matrices, shape (n_elements * 16, W).

    `arrays` are the first four of `RowTables`, where `values` live.
    """
    width = values.shape[1]
    out = cuda.output(out, values, (n_entries, width))
    layout = cuda.Layout("double" if values.dtype.itemsize == 8 else "float", 1, 1, 1)
    extra = (f"-DWIDTH={width}", f"-DCAPACITY={capacity}")
    n_blocks = arrays[3].shape[0] - 1
    CUDA.launch("row_sums", layout, (n_blocks,), THREADS, (*arrays, values, out), False, extra)
    return out
