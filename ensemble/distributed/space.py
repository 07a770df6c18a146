"""Vectors over ranks: sums, maxima and truth values of all rows, and memory with room for rows of other ranks."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np

from ensemble._compile.memory import empty
from ensemble._compile.numba import ROW_BLOCK
from ensemble._kernels.sparse.exact_sums import ROW_LENGTH, add_numbers, domain_sums, rounded
from ensemble._kernels.sparse.row_sums import Space
from ensemble._typing import Array
from ensemble.distributed.messages import all_largest, all_sum, from_first, gathered

__all__ = ["RankSpace"]


class RankSpace(Space):
    """The vectors of one problem over the ranks of a communicator.

    Rows are summed domain by domain, in blocks of `ROW_BLOCK` rows from the first row of the domain on. The sums of the
    domains are added exactly and rounded once, so that the number of ranks changes no bit. A reduction is one
    all-reduce of `ROW_LENGTH` int64 numbers per sum.

    Parameters
    ----------
    comm : communicator
    first : int
        The first row of this rank.
    domain_offsets : array of int64, shape (local domains + 1,)
        The first row of each domain of this rank, and the number of its rows.
    """

    def __init__(self, comm: Any, first: int, domain_offsets: np.ndarray) -> None:
        self.comm, self.first = comm, first
        self.n_local = int(domain_offsets[-1])
        self._ghosts = 0
        starts = [np.arange(a, b, ROW_BLOCK) for a, b in itertools.pairwise(domain_offsets)]
        self._starts = np.concatenate([[0], np.cumsum([s.size for s in starts])]).astype(np.int64)
        self._bounds = np.concatenate([*starts, [self.n_local]]).astype(np.int64)
        self._rooms: dict[int, tuple[Any, Array]] = {}

    # --- sums
    def bounds(self, n_rows: int) -> np.ndarray:
        """The first row of each block and the number of rows."""
        if n_rows != self.n_local:
            raise RuntimeError(f"a sum over {n_rows} rows in a space of {self.n_local} rows: a fault of this library.")
        return self._bounds

    def total(self, partials: np.ndarray) -> np.ndarray:
        """The exact sum of the domains' sums over all ranks, rounded to the type of `partials`."""
        sums = np.empty((self._starts.size - 1, partials.shape[1]), partials.dtype)
        domain_sums(partials, self._starts, sums)
        digits = np.zeros((partials.shape[1], ROW_LENGTH), np.int64)
        add_numbers(sums.astype(np.float64, copy=False).view(np.int64), digits)
        total = rounded(all_sum(self.comm, digits))
        with np.errstate(over="ignore"):
            return total.astype(partials.dtype, copy=False)

    def largest(self, values: np.ndarray) -> np.ndarray:
        """The largest of `values` over all ranks; NaN counts as infinity."""
        kept = np.where(np.isnan(values), np.inf, values).astype(values.dtype, copy=False)
        return all_largest(self.comm, np.ascontiguousarray(kept))

    def any(self, flags: np.ndarray) -> np.ndarray:
        """Which of `flags` are true on some rank."""
        return all_largest(self.comm, np.array(flags, np.uint8)).astype(bool)

    def gathered(self, x: np.ndarray) -> np.ndarray:
        """The rows of all ranks, in domain order, on every rank."""
        return gathered(self.comm, x)

    def agreed(self, values: Any) -> Any:
        """`values` of rank 0."""
        return from_first(self.comm, values)

    # --- vectors
    def make_room(self, n_ghosts: int) -> None:
        """Give the vectors made from now on room for `n_ghosts` rows of other ranks at least."""
        self._ghosts = max(self._ghosts, n_ghosts)

    def vector(self, like: Array) -> Array:
        """Memory for a vector like `like`, shape (n_local, n_samples), followed in memory by room for ghost rows."""
        whole = empty((self.n_local + self._ghosts, like.shape[1]), like.dtype)
        x = whole[: self.n_local]
        key = id(x)
        rooms = self._rooms
        rooms[key] = weakref.ref(x, lambda _: rooms.pop(key, None)), whole
        return x

    def with_ghosts(self, x: Array, n_ghosts: int) -> Array:
        """The array of `x` and its room for `n_ghosts` rows; a copy where `x` was not made by `vector`."""
        if not n_ghosts:
            return x
        found = self._rooms.get(id(x))
        if found is not None and found[0]() is x and found[1].shape[0] >= self.n_local + n_ghosts:
            return found[1][: self.n_local + n_ghosts]
        whole = empty((self.n_local + n_ghosts, x.shape[1]), x.dtype)
        whole[: self.n_local] = x
        return whole
