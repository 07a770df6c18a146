"""Which elements and entries the blocks of a device take of a symmetric matrix: tables for `form_symmetric`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ensemble._compile.numba import compiled_arrays, compiled_procedure
from ensemble._kernels.sparse.gather import Gather

__all__ = ["SymmetricBlocks", "symmetric_blocks"]

COPY = 8
"""Sources that are copied at once: those of a block begin at a multiple."""


class SymmetricBlocks(NamedTuple):
    """Blocks of rows with the elements around them, and the entries on and after their diagonal.

    Attributes
    ----------
    element_starts : array of int32, shape (n_blocks + 1,)
    elements, numbers : arrays of int32
        The elements of each block, each once, and their numbers in fields.
    entry_starts : array of int32, shape (n_blocks + 1,)
    entries : array of int32, shape (n_entries, 4)
        The first source of an entry within its block, their number, and where it is written: (i, j) and (j, i). Those
        with most sources come first in a block.
    source_starts : array of int32, shape (n_blocks + 1,)
    sources : array of uint16
        Elements of a block times the pairs of their functions, plus the pair.
    most_sources : int
        Of a block.
    """

    element_starts: np.ndarray
    elements: np.ndarray
    numbers: np.ndarray
    entry_starts: np.ndarray
    entries: np.ndarray
    source_starts: np.ndarray
    sources: np.ndarray
    most_sources: int


def symmetric_blocks(
    gather: Gather, unknowns: np.ndarray, elements: np.ndarray, indptr: np.ndarray, slots: np.ndarray, capacity: int
) -> SymmetricBlocks:
    """The tables for blocks of at most `capacity` elements, no fewer than those of a row; arguments as `ElementTables`.

    The sources of an entry stand in the order in which the row adds its elements.
    """
    k, n = unknowns.shape[1], gather.rows.size
    pairs = np.zeros((k, k), np.int32)
    pairs[np.triu_indices(k)] = np.arange(k * (k + 1) // 2)
    pairs = np.maximum(pairs, pairs.T)
    place_of_row = np.empty(n, np.int32)
    place_of_row[gather.rows] = np.arange(n, dtype=np.int32)
    bounds, element_starts = np.zeros(n + 1, np.int32), np.zeros(n + 1, np.int32)
    chosen, local = np.empty(gather.incidences.size, np.int32), np.empty(gather.incidences.size, np.int32)
    seen, place = np.full(len(unknowns), -1, np.int32), np.empty(len(unknowns), np.int32)
    n_blocks = _elements_of_blocks(
        gather.starts, gather.incidences, k, capacity, seen, place, bounds, element_starts, chosen, local
    )
    element_starts, bounds = element_starts[: n_blocks + 1].copy(), bounds[: n_blocks + 1]
    chosen = chosen[: element_starts[-1]].copy()
    counts, mirrors = np.zeros(indptr[-1], np.int32), np.zeros(indptr[-1], np.int32)
    flat = slots.reshape(-1)
    given = gather.rows, gather.starts, gather.incidences, unknowns.reshape(-1), indptr, flat, place_of_row
    _count_sources(*given, k, counts, mirrors)
    targets = np.flatnonzero(counts)
    block_of_row = np.empty(n, np.int32)
    block_of_row[gather.rows] = np.repeat(np.arange(n_blocks, dtype=np.int32), np.diff(bounds))
    block = np.repeat(block_of_row, np.diff(indptr))[targets]
    order = np.lexsort((targets, -counts[targets], block))
    targets, block = targets[order], block[order]
    lengths = counts[targets]
    total = np.bincount(block, weights=lengths, minlength=n_blocks).astype(np.int64)
    source_starts = np.concatenate([[0], np.cumsum(-(-total // COPY) * COPY)]).astype(np.int32)
    first = np.cumsum(lengths) - lengths - (np.cumsum(total) - total)[block]  # within the block
    next_of = np.zeros(counts.size, np.int32)
    next_of[targets] = source_starts[block] + first
    sources = np.zeros(source_starts[-1], np.uint16)
    _fill_sources(*given, k, local, pairs, k * (k + 1) // 2, next_of, sources)
    entries = np.stack([first, lengths, targets, mirrors[targets]], axis=1).astype(np.int32)
    entry_starts = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=n_blocks))]).astype(np.int32)
    most = int(np.diff(source_starts).max(initial=COPY))
    numbers = elements[chosen].astype(np.int32)
    return SymmetricBlocks(element_starts, chosen, numbers, entry_starts, entries, source_starts, sources, most)


@compiled_arrays
def _elements_of_blocks(starts, incidences, k, capacity, seen, place, bounds, element_starts, chosen, local):
    """Fill where blocks of rows and their elements begin, the elements, ascending, and the place of each pair's.

    How many blocks; `seen` holds -1.
    """
    n, block, begin, count = starts.size - 1, 0, 0, 0
    for row in range(n + 1):
        more = 0
        if row < n:
            for t in range(starts[row], starts[row + 1]):
                more += seen[incidences[t] // k] != block
        if row == n or (count + more - element_starts[block] > capacity and row > begin):
            chosen[element_starts[block] : count].sort()
            for i in range(element_starts[block], count):
                place[chosen[i]] = i - element_starts[block]
            for t in range(starts[begin], starts[row]):
                local[t] = place[incidences[t] // k]
            block, begin = block + 1, row
            bounds[block], element_starts[block] = row, count
        if row < n:
            for t in range(starts[row], starts[row + 1]):
                element = incidences[t] // k
                if seen[element] != block:
                    seen[element] = block
                    chosen[count] = element
                    count += 1
    return block


@compiled_procedure
def _count_sources(rows, starts, incidences, unknowns, indptr, slots, place_of_row, k, counts, mirrors):
    """Count the sources of each entry on or after the diagonal, and tell where (j, i) stands for (i, j)."""
    for r in range(rows.size):
        row = rows[r]
        for t in range(starts[r], starts[r + 1]):
            pair = incidences[t]
            element, a = pair // k, pair % k
            for j in range(k):
                column = unknowns[element * k + j]
                if place_of_row[column] >= r:
                    entry = indptr[row] + slots[pair * k + j]
                    counts[entry] += 1
                    mirrors[entry] = indptr[column] + slots[(element * k + j) * k + a]


@compiled_procedure
def _fill_sources(
    rows, starts, incidences, unknowns, indptr, slots, place_of_row, k, local, pairs, n_pairs, next_of, sources
):
    """Write the sources of each entry, from `next_of` on."""
    for r in range(rows.size):
        row = rows[r]
        for t in range(starts[r], starts[r + 1]):
            pair = incidences[t]
            element, a = pair // k, pair % k
            for j in range(k):
                if place_of_row[unknowns[element * k + j]] >= r:
                    entry = indptr[row] + slots[pair * k + j]
                    sources[next_of[entry]] = local[t] * n_pairs + pairs[a, j]
                    next_of[entry] += 1
