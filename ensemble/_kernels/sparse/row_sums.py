"""Sums, maxima and truth values over the rows of vectors, shape (n, n_samples): one value per sample.

A kernel adds the terms of a block of rows, on a device of a chunk; the sums of the blocks are added here. `SERIAL`
cuts rows into blocks of `ROW_BLOCK` and adds the blocks in order, so that the sum depends on nothing but the number of
rows. Where vectors are distributed over processes, another `Space` is in force: it cuts blocks that do not depend on
the number of processes and combines the blocks of all of them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.numba import ROW_BLOCK, compiled_procedure
from ensemble._typing import Array

__all__ = [
    "SERIAL", "Space", "block_sums", "chunk_sums", "in_space", "largest_of_blocks", "largest_of_chunks", "ordered_sum",
    "partials_of_all", "row_blocks", "space_in_force",
]  # fmt: skip


def added_in_order(partials):
    """The sum of the rows of `partials`, first to last, whatever the number of columns."""
    total = np.empty(partials.shape[1], partials.dtype)
    _add_in_order(np.ascontiguousarray(partials), total)
    return total


@compiled_procedure
def _add_in_order(partials, total):
    for s in range(total.size):
        total[s] = 0.0
    for block in range(partials.shape[0]):
        for s in range(partials.shape[1]):
            total[s] += partials[block, s]


@functools.lru_cache(maxsize=64)
def _even_bounds(n_rows: int) -> np.ndarray:
    bounds = np.minimum(np.arange(0, n_rows + ROW_BLOCK, ROW_BLOCK, dtype=np.int64), n_rows)
    bounds.flags.writeable = False
    return bounds


class Space:
    """The vectors of one problem: how their rows are cut into blocks, and what combines the sums of the blocks.

    This one is that of vectors which one process holds whole.
    """

    first = 0
    """Number of the first row that this process holds."""

    queues_kernels = True
    """Whether sums and products on a device do nothing but queue work, so that a CUDA graph may record it."""

    def bounds(self, n_rows: int) -> np.ndarray:
        """The first row of each block and the number of rows, int64, shape (n_blocks + 1,)."""
        return _even_bounds(n_rows)

    def total(self, partials: np.ndarray) -> np.ndarray:
        """The sum over all blocks of `partials`, shape (n_blocks, n_columns), for each column."""
        return added_in_order(partials)

    def chunk_total(self, partials: Array) -> Array:
        """On a device: the sums over all chunks of `partials`, shape (n_sums, n_chunks, n_samples)."""
        return cuda.sums(partials)

    def chunk_partials(self, partials: Array) -> Array:
        """On a device: partial sums, shape (n_sums, any number, n_samples), whose sums are those of all processes."""
        return partials

    def chunk_largest(self, partials: Array) -> Array:
        """On a device: partial maxima, shape (1, n_chunks, n_samples), whose largest is that of all processes."""
        return partials

    def largest(self, values: np.ndarray) -> np.ndarray:
        """The largest of `values` over all processes, entry by entry; NaN does not count."""
        return values

    def smallest(self, values: np.ndarray) -> np.ndarray:
        """The smallest of `values` over all processes, entry by entry; NaN does not count."""
        return -self.largest(-values)

    def any(self, flags: np.ndarray) -> np.ndarray:
        """Which of `flags` are true on some process."""
        return flags

    def vector(self, like: Array) -> Array:
        """Unwritten memory for a vector of the shape, type and library of `like`, and space for what products need."""
        return empty_like(like)

    def gathered(self, x: np.ndarray) -> np.ndarray:
        """The rows of all processes of an array of which each has its rows."""
        return x

    def agreed(self, values: Any) -> Any:
        """`values` of the first process: what decides must be the same everywhere, whatever the processors round."""
        return values


SERIAL = Space()

_IN_FORCE: ContextVar[Space] = ContextVar("space", default=SERIAL)


def space_in_force() -> Space:
    """The space of the vectors whose rows this thread sums."""
    return _IN_FORCE.get()


@contextmanager
def in_space(space: Space) -> Iterator[None]:
    """Sum rows over `space` in this thread until the block ends."""
    token = _IN_FORCE.set(space)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)


def row_blocks(n_rows: int, n_columns: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Zeros for one partial sum of each block of rows, and the bounds of the blocks."""
    bounds = _IN_FORCE.get().bounds(n_rows)
    return np.zeros((bounds.size - 1, n_columns), dtype), bounds


def ordered_sum(partials: np.ndarray) -> np.ndarray:
    """The sum of the partial sums of all blocks, one value for each column."""
    if partials.dtype.kind != "c":
        return _IN_FORCE.get().total(partials)
    parts = partials.real.dtype  # what adds numbers adds real and imaginary parts
    return _IN_FORCE.get().total(partials.view(parts)).view(partials.dtype)


def largest_of_blocks(partials: np.ndarray) -> np.ndarray:
    """The largest of the partial maxima of all blocks, zero or above, one value for each column."""
    most: np.ndarray = partials.max(axis=0, initial=0)
    return _IN_FORCE.get().largest(most)


def chunk_sums(partials: Array) -> Array:
    """On a device: the sums of partial sums of chunks, shape (n_sums, n_chunks, n_samples), for each sum and sample."""
    return _IN_FORCE.get().chunk_total(partials)


def partials_of_all(partials: Array) -> Array:
    """On a device: partial sums, for a kernel that adds them up, whose sums are those over the space in force."""
    return _IN_FORCE.get().chunk_partials(partials)


def largest_of_chunks(partials: Array) -> Array:
    """On a device: partial maxima, zero or above, of which the largest is that of all chunks."""
    return _IN_FORCE.get().chunk_largest(partials)


def block_sums(terms: Array) -> Array:
    """The sum over rows in blocks, as kernels add them: one value a sample."""
    xp, space = array_namespace(terms), _IN_FORCE.get()
    n_rows, n_samples = terms.shape
    if space is not SERIAL and not isinstance(terms, np.ndarray):
        return space.chunk_total(_sums_of_blocks(terms, cuda.CHUNK)[None, :, :])[0, :]
    if space is not SERIAL:
        parts = [added_in_order(terms[a:b, :]) for a, b in itertools.pairwise(space.bounds(n_rows))]
        return space.total(np.reshape(parts, (len(parts), n_samples)).astype(terms.dtype))
    partials = _sums_of_blocks(terms, ROW_BLOCK)
    total = xp.zeros((n_samples,), dtype=terms.dtype)
    for block in range(partials.shape[0]):
        total = total + partials[block, :]
    return total


def _sums_of_blocks(terms: Array, rows: int) -> Array:
    """The sums of blocks of `rows` rows, first row to last in each, shape (n_blocks, n_samples)."""
    xp, (n_rows, n_samples) = array_namespace(terms), terms.shape
    n_blocks = -(-n_rows // rows)
    padding = xp.zeros((n_blocks * rows - n_rows, n_samples), dtype=terms.dtype)
    blocks = xp.reshape(xp.concat([terms, padding]), (n_blocks, rows, n_samples))
    partials = xp.zeros((n_blocks, n_samples), dtype=terms.dtype)
    for i in range(min(n_rows, rows)):
        partials = partials + blocks[:, i, :]
    return partials
