"""Sums of element matrices of four unknowns on a device, where entries have few numbers.

The bits of `gather_sums`, which reads a number of an element matrix where it is added: here a block copies rows of
element matrices, each one piece, into shared memory. Rows of the matrix are taken in an order in which neighbours
follow each other, so that blocks that run at once read the same element matrices.

Bytes that must move (float64, P rows of element matrices, M entries, W numbers each): ``32 P W + 12 P + 8 M + 8 M W``.
A mesh of 554,394 tetrahedra with one sample (P = 2.2e6, M = 1.4e6) moves 71 + 27 + 12 + 12 MB so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile import cuda
from ensemble._kernels.sparse.element_map import ElementMap
from ensemble._kernels.sparse.gather import Gather, permuted

__all__ = ["RowTables", "row_sums", "row_tables"]

WIDTHS = (1, 2, 4, 8)
"""Numbers per entry that the kernel knows."""

UNKNOWNS = 4
THREADS = 256

STAGED_BYTES = 22528
"""Rows of element matrices in the shared memory of a block; more where one row of the matrix needs them."""

MOST_BYTES = 48 << 10
"""Shared memory of a block."""

PLACES = 8
"""Places that are copied at once: those of a block begin at a multiple."""

HEAVY = 14
"""Entries of so many elements come first in a block, the others in the order of memory."""

CUDA = cuda.KernelModule(
    "sparse/row_sums",
    ["row_sums"],
    headers=("../_compile/include/staged_copies.cuh",),
    extras=(("-DWIDTH=1",), ("-DWIDTH=8",)),
)


class RowTables(NamedTuple):
    """Tables of `row_sums` on the host.

    Attributes
    ----------
    pair_starts : array of int32, shape (n_blocks + 1,)
        Where the pairs of each block begin.
    pairs : array of int32
        The rows of element matrices of each block, ``element * 4 + local row``.
    place_starts : array of int32, shape (n_blocks + 1,)
        Where the places of each block begin, multiples of 8.
    places : array of uint16
        The numbers that entries add, ``4 * pair + column``, pairs counted within the block.
    entry_starts : array of int32, shape (n_blocks + 1,)
        Where the entries of each block begin.
    entries : array of int32, shape (n_entries, 2)
        Of each entry its first place within the block and, times 65536, their number; where it is written.
    capacity, place_capacity : int
        Pairs and places of a block at most.
    """

    pair_starts: np.ndarray
    pairs: np.ndarray
    place_starts: np.ndarray
    places: np.ndarray
    entry_starts: np.ndarray
    entries: np.ndarray
    capacity: int
    place_capacity: int


def row_tables(made: ElementMap, order: np.ndarray, width: int, itemsize: int) -> RowTables | None:
    """The tables for entries of `width` numbers of `itemsize` bytes, rows in `order`; None where they do not suit."""
    k = made.slots.shape[1]
    small = made.indptr[-1] < 2**31 and made.incidences.size * UNKNOWNS * width < 2**31
    if width not in WIDTHS or k != UNKNOWNS or not small:
        return None
    gather, row_bytes = Gather(made, order), UNKNOWNS * width * itemsize
    wanted = max(STAGED_BYTES // row_bytes, gather.longest)
    if shared_bytes(wanted, UNKNOWNS * wanted + PLACES, row_bytes) > MOST_BYTES:
        return None
    blocks = gather.blocks(wanted)
    entry_starts, starts, sources, targets = gather.entries(wanted)
    counts, block = np.diff(starts), np.repeat(np.arange(blocks.size - 1), np.diff(entry_starts))
    order = np.lexsort((targets, counts < HEAVY, block))
    starts, chosen = permuted(starts, order)
    pair_starts = gather.starts[blocks]
    local = sources[chosen] - np.repeat(UNKNOWNS * pair_starts[:-1], np.diff(starts[entry_starts]))
    n_places = np.diff(starts[entry_starts])
    place_starts = np.zeros(blocks.size, np.int32)
    np.cumsum(-(-n_places // PLACES) * PLACES, out=place_starts[1:])
    shift = place_starts[:-1] - starts[entry_starts[:-1]]
    places = np.zeros(place_starts[-1], np.uint16)
    places[np.arange(local.size) + np.repeat(shift, n_places)] = local
    within = starts[:-1] - starts[entry_starts[:-1]][block]
    entries = np.stack([within + (counts[order] << 16), targets[order]], axis=1).astype(np.int32)
    capacity, place_capacity = (int(np.diff(each).max(initial=1)) for each in (pair_starts, place_starts))
    return RowTables(
        pair_starts, gather.incidences, place_starts, places, entry_starts, entries, capacity, place_capacity
    )


def shared_bytes(capacity: int, place_capacity: int, row_bytes: int) -> int:
    """Shared memory of a block."""
    return capacity * row_bytes + 2 * place_capacity


def row_sums(arrays: tuple[Any, ...], n_entries: int, tables: RowTables, values: Any, out: Any) -> Any:
    """The entries of a sparse matrix, shape (n_entries, W), from element matrices, shape (n_elements * 16, W).

    `arrays` are the first six of `tables`, where `values` live.
    """
    width = values.shape[1]
    out = cuda.output(out, values, (n_entries, width))
    layout = cuda.Layout("double" if values.dtype.itemsize == 8 else "float", 1, 1, 1)
    shared = shared_bytes(tables.capacity, tables.place_capacity, UNKNOWNS * width * values.dtype.itemsize)
    arguments = (*arrays, cuda.aligned(values), out, np.int32(tables.capacity))
    n_blocks = arrays[0].shape[0] - 1
    CUDA.launch("row_sums", layout, (n_blocks,), THREADS, arguments, False, (f"-DWIDTH={width}",), shared)
    return out
