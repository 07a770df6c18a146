"""Graphs of products of sparse matrices, worked out once for all samples and all later values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.allocation import new
from ensemble._compile.numba import compiled, compiled_procedure, heard, prange, procedure_unrolled, spliced

__all__ = [
    "ROW_CHUNK", "SLAB_ROWS", "by_rows", "entries_between", "order_within_rows", "product_graph", "slab_tasks",
    "transpose_graph",
]  # fmt: skip

SLAB_ROWS = 1024
"""Fine rows of one slab of A P on the CPU, for each thread."""

ROW_CHUNK = 128
"""Rows that share one work array."""

WORDS_PER_ROW = 32
"""Words that are zeroed in about the time in which one row of a product is worked out."""

ENTRIES_PER_UNION = 8
"""Entries of A for each row of B from which on three rows of B are united once for all rows of A."""

SCRATCH = 1 << 23
"""Columns of the memory into which graphs of products are made piece by piece."""

SAMPLED = 1 << 16
"""Entries of A, the first ones, that tell whether columns stand in threes: it changes no graph."""

PAIR_WORK = 5
"""Multiply-adds that take as long as one pair of entries in the graph of a product, about (`benchmarks multigrid`)."""

U = np.uint64  # an unsigned index needs no test for a negative one
NO_WORD = np.uint64(2**64 - 1)


def transpose_graph(indptr: Any, indices: Any, n_columns: int) -> tuple[Any, Any, Any]:
    """The graph of the transpose: (indptr, indices, entries), entry k of it being entry ``entries[k]`` of the graph."""
    new_indptr, place = np.zeros(n_columns + 1, indptr.dtype), np.empty(n_columns, indptr.dtype)
    new_indices, entries = np.empty(indices.size, indices.dtype), np.empty(indices.size, indptr.dtype)
    _transpose_graph(indptr, indices, new_indptr, place, new_indices, entries)
    return new_indptr, new_indices, entries


@compiled_procedure
def _transpose_graph(indptr, indices, new_indptr, place, new_indices, entries):
    for n in range(indices.size):
        new_indptr[U(indices[n]) + U(1)] += 1
    for m in range(place.size):
        place[m] = new_indptr[m]
        new_indptr[m + 1] += new_indptr[m]
    for i in range(indptr.size - 1):
        for k in range(U(indptr[i]), U(indptr[i + 1])):
            j = U(indices[k])
            t = U(place[j])
            place[j] = t + U(1)
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


class _Unions(NamedTuple):
    """Sets of columns as bits of words of 64: of the rows of a matrix, and of three consecutive rows together.

    Item i is row i; item n_rows + i are the rows i, i + 1 and i + 2, which a row of a mesh couples to at once.
    """

    starts: np.ndarray
    """Item i has the words ``starts[i]`` to ``starts[i + 1]``."""
    words: np.ndarray
    masks: np.ndarray
    n_rows: int
    by_threes: bool
    n_words: int


def _unions(indptr: Any, indices: Any, n_columns: int, by_threes: bool) -> _Unions:
    n_rows, n_words = indptr.size - 1, -(-n_columns // 64)
    n_threes = max(n_rows - 2, 0) if by_threes else 0
    starts = np.zeros(n_rows + n_threes + 1, np.int64)
    size = (4 if by_threes else 1) * indices.size  # a bound, of which little is touched
    words, masks = np.empty(size, np.int32), np.empty(size, np.uint64)
    _words_of_rows(indptr, indices, starts, words, masks)
    if n_threes:
        bits, met = np.zeros(n_words, np.uint64), np.empty(n_words + 1, np.int64)
        _words_of_threes(n_rows, bits, met, starts, words, masks)
    return _Unions(starts, words, masks, n_rows, by_threes, n_words)


@procedure_unrolled
def _words_of_rows(indptr, indices, starts, words, masks):
    place = U(0)
    for i in range(indptr.size - 1):
        last, mask = NO_WORD, U(0)
        for k in range(U(indptr[i]), U(indptr[i + 1])):
            j = U(indices[k])
            word = j >> U(6)
            begins = U(word != last)  # without branches, which would be guessed wrong
            mask = (mask & (begins - U(1))) | (U(1) << (j & U(63)))
            place += begins
            words[place - U(1)] = word
            masks[place - U(1)] = mask
            last = word
        starts[i + 1] = place


@compiled_procedure
def _words_of_threes(n_rows, bits, met, starts, words, masks):
    place = U(starts[n_rows])
    for i in range(n_rows - 2):
        count = U(0)
        for m in range(U(starts[i]), U(starts[i + 3])):
            count = _set_bits(U(words[m]), masks[m], bits, met, count)
        for n in range(count):
            word = U(met[n])
            words[place] = word
            masks[place] = bits[word]
            bits[word] = U(0)
            place += U(1)
        starts[n_rows + i + 1] = place


@spliced
def _set_bits(word, mask, bits, met, count):
    """Set bits of a word, and append it to the words met if it is new; returns how many those are."""
    old = bits[word]
    met[count] = word
    bits[word] = old | mask
    return count + U(old == U(0))


@spliced
def _bits_of_row(indptr_a, indices_a, i, starts, words, masks, n_rows, by_threes, bits, met):
    """Set the bits of the columns of row `i` of the product; returns how many words were met."""
    count, k, end = U(0), U(indptr_a[i]), U(indptr_a[i + U(1)])
    while k < end:
        item, step = U(indices_a[k]), U(1)
        if by_threes and k + U(2) < end:
            one, two = U(indices_a[k + U(1)]), U(indices_a[k + U(2)])
            if one == item + U(1) and two == item + U(2):
                item, step = item + U(n_rows), U(3)
        k += step
        for m in range(U(starts[item]), U(starts[item + U(1)])):
            count = _set_bits(U(words[m]), masks[m], bits, met, count)
    return count


@spliced
def _ones(word):
    """How many bits of a word are set."""
    pairs = word - ((word >> U(1)) & U(0x5555555555555555))
    fours = (pairs & U(0x3333333333333333)) + ((pairs >> U(2)) & U(0x3333333333333333))
    return (((fours + (fours >> U(4))) & U(0x0F0F0F0F0F0F0F0F)) * U(0x0101010101010101)) >> U(56)


@compiled
def _count_product(indptr_a, indices_a, unions, rows, length):
    n_rows = indptr_a.size - 1
    for chunk in prange((n_rows + rows - 1) // rows):
        starts, words, masks, n_items, by_threes, n_words = unions
        bits, met = new(n_words, np.uint64), new(n_words + 1, np.int64)
        for c in range(n_words):
            bits[c] = U(0)
        for i in range(U(chunk * rows), U(min((chunk + 1) * rows, n_rows))):
            count = _bits_of_row(indptr_a, indices_a, i, starts, words, masks, n_items, by_threes, bits, met)
            total = U(0)
            for n in range(count):
                word = U(met[n])
                total += _ones(bits[word])
                bits[word] = U(0)
            length[i] = total


@compiled
def _fill_product(indptr_a, indices_a, unions, rows, first_chunk, places, length, indices):
    """Write the columns of some chunks of rows, those of each from its place in `indices` on, and their numbers."""
    n_rows = indptr_a.size - 1
    for c in prange(places.size):
        starts, words, masks, n_items, by_threes, n_words = unions
        bits, met = new(n_words, np.uint64), new(n_words + 1, np.int64)
        for word in range(n_words):
            bits[word] = U(0)
        place = U(places[c])
        begin = (first_chunk + c) * rows
        for i in range(U(begin), U(min(begin + rows, n_rows))):
            count = _bits_of_row(indptr_a, indices_a, i, starts, words, masks, n_items, by_threes, bits, met)
            for n in range(1, np.int64(count)):  # insertion sort: a row meets few words
                this, m = met[n], n - 1
                while m >= 0 and met[m] > this:
                    met[m + 1] = met[m]
                    m -= 1
                met[m + 1] = this
            before = place
            for each in range(count):
                here = U(met[each])
                left = bits[here]
                bits[here] = U(0)
                while left != U(0):
                    rest = left & (left - U(1))
                    indices[place] = (here << U(6)) + _ones((left ^ rest) - U(1))
                    left = rest
                    place += U(1)
            length[i] = place - before


def product_graph(indptr_a, indices_a, indptr_b, indices_b, n_columns) -> tuple[Any, Any]:
    """The graph (indptr, indices) of a product A B, columns ascending in each row."""
    unions = _unions(indptr_b, indices_b, n_columns, _has_threes(indices_a, indptr_b.size - 1))
    rows = max(ROW_CHUNK, unions.n_words // WORDS_PER_ROW)  # of a chunk, which share the bits of all columns
    given = indptr_a, indices_a, tuple(unions), rows
    edges = np.append(np.arange(0, indptr_a.size - 1, rows), indptr_a.size - 1)
    longest = int(np.diff(indptr_b).max(initial=0))
    most = np.minimum(np.diff(indptr_a[edges].astype(np.int64)) * longest, np.diff(edges) * n_columns)
    work = PAIR_WORK * indices_a.size * (indices_b.size // max(indptr_b.size - 1, 1) + 1)
    way = _counted if most.max(initial=0) > SCRATCH else _in_pieces
    length, indices = heard(lambda: way(given, edges, most, indices_b.dtype), work)
    indptr = np.zeros(indptr_a.size, np.int64)
    np.cumsum(length, out=indptr[1:])
    return indptr.astype(np.int32) if indptr[-1] < 2**31 else indptr, indices


def _counted(given: Any, edges: np.ndarray, most: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of columns and columns, in two passes."""
    length = np.empty(edges[-1], np.int64)
    _count_product(*given, length)
    places = np.concatenate([[0], np.cumsum(length)])[edges]
    indices = np.empty(int(places[-1]), dtype)
    _fill_product(*given, 0, places[:-1].copy(), length, indices)
    return length, indices


def _in_pieces(given: Any, edges: np.ndarray, most: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """The same in one pass: chunks of rows, `most` columns in each, go to scratch memory, of which few pages are used.

    Counting first takes nearly as long as finding the columns.
    """
    length, pieces = np.empty(edges[-1], np.int64), [np.empty(0, dtype)]
    scratch = np.empty(min(int(most.sum()), SCRATCH), dtype)
    places = np.concatenate([[0], np.cumsum(most)])
    first = 0
    while first < most.size:
        last = int(np.searchsorted(places, places[first] + SCRATCH, side="right")) - 1
        begins = places[first:last] - places[first]
        _fill_product(*given, first, begins, length, scratch)
        found = np.add.reduceat(length[edges[first] : edges[last]], edges[first:last] - edges[first])
        pieces.append(
            np.concatenate([scratch[a : a + n] for a, n in zip(begins.tolist(), found.tolist(), strict=True)])
        )
        first = last
    return length, np.concatenate(pieces)


def _has_threes(indices: Any, n_rows: int) -> bool:
    """Whether most entries of A stand in threes of consecutive columns, and often enough to unite such rows of B."""
    first = indices[:SAMPLED]
    threes = np.count_nonzero(first[2:] - first[:-2] == 2)
    return bool(indices.size > ENTRIES_PER_UNION * n_rows and 6 * threes > first.size)  # NumPy's bools go to Numba


def slab_tasks(indptr_r: Any, indices_r: Any, n_fine: int, slab_rows: int) -> tuple[np.ndarray, ...]:
    """Cut the rows of P^T into runs that stay within one slab of `slab_rows` fine rows.

    Returns (starts, rows, begins, ends): slab b has the tasks ``starts[b]:starts[b + 1]``; task t adds the entries
    ``begins[t]:ends[t]`` of P^T into coarse row ``rows[t]``.
    """
    starts = np.zeros((n_fine + slab_rows - 1) // slab_rows + 1, np.int64)
    _count_tasks(indptr_r, indices_r, slab_rows, starts)
    starts = np.cumsum(starts)
    rows, begins, ends = np.empty((3, starts[-1]), np.int64)
    _slab_tasks(indptr_r, indices_r, slab_rows, starts[:-1].copy(), rows, begins, ends)
    return starts, rows, begins, ends


@compiled_procedure
def _count_tasks(indptr_r, indices_r, slab_rows, starts):
    for i in range(indptr_r.size - 1):
        last = -1
        for k in range(indptr_r[i], indptr_r[i + 1]):
            slab = indices_r[k] // slab_rows
            if slab != last:
                starts[slab + 1] += 1
                last = slab


@compiled_procedure
def _slab_tasks(indptr_r, indices_r, slab_rows, place, rows, begins, ends):
    for i in range(indptr_r.size - 1):
        last = -1
        task = 0
        for k in range(indptr_r[i], indptr_r[i + 1]):
            slab = indices_r[k] // slab_rows
            if slab != last:
                task = place[slab]
                place[slab] += 1
                rows[task] = i
                begins[task] = k
                last = slab
            ends[task] = k + 1
