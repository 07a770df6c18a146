"""Sums of element matrices and vectors on a device, where sums have few numbers.

The bits of `gather_sums`, which reads a number where it is added: here a block copies pieces, the row of an element
matrix or an element vector, into shared memory and adds from there. Rows are taken in an order in which neighbours
follow each other: those of one block read the same element vectors, and blocks that run at once the same element
matrices.

Bytes that must move (float64, P pieces of K numbers, T places, M sums, W numbers each): ``8 K P W + 4 P + 2 T + 4 M +
8 M W``, where T counts eight places, or a multiple, for each sum. A mesh of 554,394 tetrahedra with one sample moves
71 + 9 + 26 + 6 + 12 MB so for a matrix. For a vector a piece is copied by each block that reads it: an element
2.3 times less than its unknowns are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile import cuda
from ensemble._compile.numba import compiled_procedure
from ensemble._kernels.sparse.element_map import ElementMap
from ensemble._kernels.sparse.gather import Gather, permuted

__all__ = ["StagedTables", "matrix_tables", "staged_sums", "vector_tables"]

WIDTHS = (1, 2, 4, 8)
"""Numbers per sum that the kernel supports."""

COPY_BYTES = 16
"""Bytes of one copy."""

EIGHT = 8
"""Places that are read at once."""

MOST_PLACES = 1 << 16

MATRIX_BYTES, VECTOR_BYTES = 20480, 40960
"""Bytes of pieces in the shared memory of a block; more where one row needs them."""

MOST_BYTES = 96 << 10
"""Bytes of shared memory of a block, at most."""


class Plan(NamedTuple):
    """Threads of a block, and what each reads before it waits: slices of sums, eights of places of each."""

    threads: int
    slices: int
    rounds: int


MATRIX, VECTOR = Plan(256, 2, 1), Plan(512, 1, 4)


def options(plan: Plan, k: int, width: int) -> tuple[str, ...]:
    """The compiler's options for pieces of `k` times `width` numbers."""
    ahead = f"-DBLOCK={plan.threads}", f"-DSLICES_AHEAD={plan.slices}", f"-DROUNDS_AHEAD={plan.rounds}"
    return (f"-DUNKNOWNS={k}", f"-DWIDTH={width}", *ahead)


CUDA = cuda.KernelModule(
    "sparse/staged_sums",
    ["staged_sums"],
    headers=("../_compile/include/async_copies.cuh",),
    extras=(options(MATRIX, 4, 1), options(MATRIX, 8, 8), options(VECTOR, 4, 1)),
    of_complex=("staged_sums",),
)


class StagedTables(NamedTuple):
    """Tables of `staged_sums` on the host.

    Attributes
    ----------
    heads : array of int32, shape (n_blocks, 4)
        The first piece of each block, their number, its first slice and the number of slices.
    pieces : array of int32
        The pieces of each block, ascending.
    slice_starts : array of int32, shape (n_slices + 1,)
        Where the places of each slice begin, counted in eights of a slice.
    places : array of uint16
        By slices, eights, sums and places: the numbers that sums add, ``k * piece + column``, pieces counted within
        the block.
    targets : array of int32
        Where each sum of a slice is written, -1 where there is none.
    capacity : int
        Pieces of a block at most.
    plan : Plan
    k, width : int
        Sums that a piece has numbers of, and numbers of each.
    """

    heads: np.ndarray
    pieces: np.ndarray
    slice_starts: np.ndarray
    places: np.ndarray
    targets: np.ndarray
    capacity: int
    plan: Plan
    k: int
    width: int


def matrix_tables(made: ElementMap, order: np.ndarray, width: int, itemsize: int) -> StagedTables | None:
    """The tables for entries of `width` numbers of `itemsize` bytes, rows in `order`; None where they do not suit."""
    k = made.slots.shape[1]
    gather = _gather(made, order, k, width, itemsize)
    if gather is None:
        return None
    capacity = max(MATRIX_BYTES // (k * width * itemsize), gather.longest)
    entry_starts, starts, sources, targets = gather.entries(capacity)
    numbers = gather.incidences[sources // k] * np.int32(k) + sources % k
    return _tables(entry_starts, starts, numbers, targets, MATRIX, k, width, itemsize)


def vector_tables(made: ElementMap, order: np.ndarray, width: int, itemsize: int) -> StagedTables | None:
    """The tables for rows of `width` numbers of `itemsize` bytes, taken in `order`; None where they do not suit."""
    k = made.slots.shape[1]
    gather = _gather(made, order, k, width, itemsize)
    if gather is None:
        return None
    bounds = np.empty(gather.rows.size + 1, np.int32)
    capacity = max(VECTOR_BYTES // (k * width * itemsize), gather.longest)
    seen = np.full(made.slots.size // k**2, -1, np.int32)
    n = _row_blocks(gather.starts, gather.incidences, k, capacity, seen, bounds)
    return _tables(bounds[:n], gather.starts, gather.incidences, gather.rows, VECTOR, k, width, itemsize)


def _gather(made: ElementMap, order: np.ndarray, k: int, width: int, itemsize: int) -> Gather | None:
    """The rows in `order`, where pieces are whole copies and numbers have 32 bits."""
    small = made.indptr[-1] < 2**31 and made.incidences.size * k * width < 2**31
    suits = width in WIDTHS and k * width * itemsize % COPY_BYTES == 0 and small and order.size
    return Gather(made, lambda: order) if suits else None


def _tables(
    blocks: np.ndarray, starts: np.ndarray, numbers: np.ndarray, targets: np.ndarray, plan: Plan, k: int, width: int,
    itemsize: int,
) -> StagedTables | None:  # fmt: skip
    """The tables of sums m over ``numbers[starts[m]:starts[m + 1]]``, block b those from ``blocks[b]`` on."""
    n_pieces = int(numbers.max(initial=-1)) // k + 1
    seen, place = np.full(n_pieces, -1, np.int32), np.empty(n_pieces, np.int32)
    piece_starts, pieces = np.zeros(blocks.size, np.int32), np.empty(numbers.size, np.int32)
    local = np.empty(numbers.size, np.int32)
    n_chosen = _places(blocks, starts, numbers, k, seen, place, piece_starts, pieces, local)
    capacity = int(np.diff(piece_starts).max(initial=1))
    if shared_bytes(capacity, k, width, itemsize) > MOST_BYTES or (capacity + 1) * k > MOST_PLACES:
        return None
    n_sums = np.diff(blocks)
    block, eights = np.repeat(np.arange(n_sums.size), n_sums), -(-np.diff(starts) // EIGHT)
    order = np.lexsort((targets, -eights, block))
    starts, chosen = permuted(starts, order)
    per_slice = 32 // width
    n_slices = -(-n_sums // per_slice)
    first = np.concatenate([[0], np.cumsum(n_slices)])
    at = first[block] * per_slice + np.arange(order.size) - np.repeat(blocks[:-1], n_sums)  # the place of each sum
    rounds = np.zeros(first[-1] * per_slice, np.int32)
    rounds[at] = eights[order]
    slice_starts = np.concatenate([[0], np.cumsum(rounds[::per_slice])]).astype(np.int32)
    placed = np.full(slice_starts[-1] * per_slice * EIGHT, capacity * k, np.uint16)
    _fill(starts, local[chosen], at, slice_starts, per_slice, placed)
    written = np.full(rounds.size, -1, np.int32)
    written[at] = targets[order]
    heads = np.stack([piece_starts[:-1], np.diff(piece_starts), first[:-1], n_slices], axis=1).astype(np.int32)
    return StagedTables(heads, pieces[:n_chosen].copy(), slice_starts, placed, written, capacity, plan, k, width)


@compiled_procedure
def _row_blocks(starts, incidences, k, capacity, seen, bounds):
    """Fill where blocks of rows begin that have at most `capacity` elements each; how many bounds. `seen` holds -1."""
    block, count = 0, 0
    bounds[0] = 0
    for row in range(starts.size - 1):
        more = 0
        for t in range(starts[row], starts[row + 1]):
            more += seen[incidences[t] // k] != block
        if count + more > capacity and row > bounds[block]:
            block += 1
            bounds[block] = row
            count = 0
        for t in range(starts[row], starts[row + 1]):
            element = incidences[t] // k
            if seen[element] != block:
                seen[element] = block
                count += 1
    bounds[block + 1] = starts.size - 1
    return block + 2


@compiled_procedure
def _places(blocks, starts, numbers, k, seen, place, piece_starts, pieces, local):
    """Fill the pieces of each block, ascending, and the places of numbers among theirs; how many. `seen` holds -1."""
    count = 0
    for b in range(blocks.size - 1):
        first, begin, end = count, starts[blocks[b]], starts[blocks[b + 1]]
        for t in range(begin, end):
            piece = numbers[t] // k
            if seen[piece] != b:
                seen[piece] = b
                pieces[count] = piece
                count += 1
        pieces[first:count].sort()
        for i in range(first, count):
            place[pieces[i]] = i - first
        for t in range(begin, end):
            local[t] = place[numbers[t] // k] * k + numbers[t] % k
        piece_starts[b + 1] = count
    return count


@compiled_procedure
def _fill(starts, local, at, slice_starts, per_slice, placed):
    """Write the places of each sum into its slice."""
    for m in range(at.size):
        begin, lane = slice_starts[at[m] // per_slice], at[m] % per_slice
        for t in range(starts[m], starts[m + 1]):
            i = t - starts[m]
            placed[((begin + i // EIGHT) * per_slice + lane) * EIGHT + i % EIGHT] = local[t]


def shared_bytes(capacity: int, k: int, width: int, itemsize: int) -> int:
    """Shared memory of a block: its pieces and a zero of each number."""
    return (capacity * k + 1) * width * itemsize


def staged_sums(arrays: tuple[Any, ...], n_sums: int, tables: StagedTables, values: Any, out: Any) -> Any:
    """The sums, shape (n_sums, W), of numbers that lie as pieces, shape (n_pieces * k, W).

    `arrays` are the first five of `tables`, where `values` live.
    """
    k, width = tables.k, tables.width
    out = cuda.output(out, values, (n_sums, width))
    layout = cuda.single_layout(values)
    shared = shared_bytes(tables.capacity, k, width, values.dtype.itemsize)
    arguments = (*arrays, cuda.aligned(values), out, np.int32(tables.capacity))
    grid = (arrays[0].shape[0],)
    CUDA.launch(
        "staged_sums", layout, grid, tables.plan.threads, arguments, False, options(tables.plan, k, width), shared
    )
    return out
