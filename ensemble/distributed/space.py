"""Vectors over ranks: sums, maxima and truth values of all rows, and memory with space for rows of other ranks."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._compile.cuda import CHUNK
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.numba import ROW_BLOCK
from ensemble._compile.streams import stream_number
from ensemble._kernels.sparse.crs import spmv
from ensemble._kernels.sparse.exact_sums import (
    ROW_LENGTH,
    add_domain_sums,
    domain_digits,
    exact_totals,
    rounded,
    rounded_digits,
)
from ensemble._kernels.sparse.row_sums import Space
from ensemble._typing import Array
from ensemble.distributed.messages import all_largest, all_sum, from_first, gathered
from ensemble.distributed.offsets import offsets_of

__all__ = ["RankSpace"]


class RankSpace(Space):
    """The vectors of one problem over the ranks of a communicator.

    Rows are summed domain by domain, in blocks of `ROW_BLOCK` rows from the first row of the domain on. The sums of the
    domains are added exactly and rounded once, so that the number of ranks changes no bit. A reduction is one
    all-reduce of `ROW_LENGTH` int64 numbers per sum. On a device a domain is summed in chunks of `CHUNK` rows, which
    must not hold rows of two domains.

    Parameters
    ----------
    comm : communicator
    first : int
        The first row of this rank.
    domain_offsets : array of int64, shape (local domains + 1,)
        The first row of each domain of this rank, and the number of its rows.

    Attributes
    ----------
    first_blocks : array of int64, shape (local domains + 1,)
        The first block of rows of each domain, and the number of blocks.
    """

    def __init__(self, comm: Any, first: int, domain_offsets: np.ndarray) -> None:
        self.comm, self.first = comm, first
        self.n_local = int(domain_offsets[-1])
        self._ghosts = 0
        starts = [np.arange(a, b, ROW_BLOCK) for a, b in itertools.pairwise(domain_offsets)]
        self.first_blocks = offsets_of([s.size for s in starts])
        self._bounds = np.concatenate([*starts, [self.n_local]]).astype(np.int64)
        self._domain_offsets = domain_offsets
        self._chunk_starts: dict[Any, Array] = {}
        self._by_domain: dict[Any, list[Array]] = {}
        self._digits: dict[Any, tuple[Array, Array]] = {}  # zeros, except while sums are taken
        self._wholes: dict[int, tuple[Any, Array]] = {}

    # --- sums
    def bounds(self, n_rows: int) -> np.ndarray:
        """The first row of each block and the number of rows."""
        if n_rows != self.n_local:
            raise RuntimeError(f"a sum over {n_rows} rows in a space of {self.n_local} rows: a fault of this library.")
        return self._bounds

    def total(self, partials: np.ndarray) -> np.ndarray:
        """The exact sum of the domains' sums over all ranks, rounded to the type of `partials`."""
        digits = np.zeros((partials.shape[1], ROW_LENGTH), np.int64)
        add_domain_sums(partials, self.first_blocks, digits)
        total = rounded(all_sum(self.comm, digits))
        if total.dtype == partials.dtype:
            return total
        with np.errstate(over="ignore"):
            return total.astype(partials.dtype, copy=False)

    def chunk_total(self, partials: Array) -> Array:
        """On a device: the exact sums of the domains' sums over all ranks, rounded to the type of `partials`."""
        return self._exact_total(partials, self._starts_of_chunks(partials))

    def domain_total(self, x: Array) -> Array:
        """On a device: the exact sum over all ranks of the domains' sums of `x`, shape (n_samples,).

        A domain is summed row after row, and may begin at any row: for coarse levels, whose domains are small.
        """
        key = type(x), x.dtype
        if key not in self._by_domain:
            offsets = self._domain_offsets
            graph = offsets.astype(np.int32), np.arange(self.n_local, dtype=np.int32)
            ones, starts = np.ones((self.n_local, 1), x.dtype), np.arange(offsets.size, dtype=np.int64)
            self._by_domain[key] = [asarray_like(array, x) for array in (*graph, ones, starts)]
        *domains, starts = self._by_domain[key]
        return self._exact_total(spmv(*domains, x, None)[None], starts)[0]

    def _exact_total(self, partials: Array, starts: Array) -> Array:
        """The exact sum over all ranks of domains' sums of partial sums; domain k has those from ``starts[k]`` on."""
        n_sums, _, n_samples = partials.shape
        out = empty_like(partials, (n_sums, n_samples))
        key = type(partials), stream_number(partials), n_sums, n_samples
        if key not in self._digits:
            xp = array_namespace(partials)
            shapes = ((n_sums, n_samples, ROW_LENGTH), xp.int64), ((n_sums,), xp.int32)
            self._digits[key] = tuple(xp.zeros(shape, dtype=dtype) for shape, dtype in shapes)
        digits, turns = self._digits[key]
        if self.comm.size == 1:
            return exact_totals(partials, starts, digits, turns, out)
        try:
            domain_digits(partials, starts, digits)
            return rounded_digits(all_sum(self.comm, digits), out)
        except BaseException:  # what is left in the digits would be added to the next sums
            self._digits.pop(key, None)
            raise

    def chunk_partials(self, partials: Array) -> Array:
        """On a device: those sums as partial sums of one chunk, shape (n_sums, 1, n_samples)."""
        return self.chunk_total(partials)[:, None, :]

    @property
    def queues_kernels(self) -> bool:  # type: ignore[override]
        """Whether messages between devices are queued as kernels are."""
        messages = getattr(self.comm, "device_messages", None)
        return self.comm.size == 1 or (messages is not None and bool(messages.can_be_recorded))

    def _starts_of_chunks(self, like: Array) -> Array:
        """The first chunk of each domain of this rank, and their number, on the device of `like`."""
        key = type(like)  # a rank has one device
        if key not in self._chunk_starts:
            if (self._domain_offsets[:-1] % CHUNK).any():
                raise RuntimeError("a sum on a device over domains that share chunks of rows: a fault of this library.")
            starts = -(-self._domain_offsets // CHUNK)
            self._chunk_starts[key] = asarray_like(starts.astype(np.int64), like)
        return self._chunk_starts[key]

    def chunk_largest(self, partials: Array) -> Array:
        """On a device: the largest of partial maxima, zero or above, over all ranks, shape (1, 1, n_samples)."""
        if self.comm.size == 1:
            return partials
        xp, (_, n_chunks, n_samples) = array_namespace(partials), partials.shape
        shape = (1, 1, n_samples)
        most = xp.max(partials, axis=1, keepdims=True) if n_chunks else xp.zeros(shape, dtype=partials.dtype)
        return all_largest(self.comm, most)

    def largest(self, values: np.ndarray) -> np.ndarray:
        """The largest of `values` over all ranks; NaN counts as infinity."""
        kept = np.where(np.isnan(values), np.inf, values).astype(values.dtype, copy=False)
        most: np.ndarray = all_largest(self.comm, np.ascontiguousarray(kept))
        return most

    def any(self, flags: np.ndarray) -> np.ndarray:
        """Which of `flags` are true on some rank."""
        some: np.ndarray = all_largest(self.comm, np.array(flags, np.uint8)).astype(bool)
        return some

    def gathered(self, x: np.ndarray) -> np.ndarray:
        """The rows of all ranks, in domain order, on every rank."""
        whole: np.ndarray = gathered(self.comm, x)
        return whole

    def agreed(self, values: Any) -> Any:
        """`values` of rank 0."""
        return from_first(self.comm, values)

    # --- vectors
    def reserve(self, n_ghosts: int) -> None:
        """Let the vectors made from now on have space for `n_ghosts` ghost rows at least."""
        self._ghosts = max(self._ghosts, n_ghosts)

    def vector(self, like: Array) -> Array:
        """Memory for a vector like `like`, shape (n_local, n_samples), followed by space for ghost rows."""
        whole = empty_like(like, (self.n_local + self._ghosts, like.shape[1]))
        x = whole[: self.n_local]
        key = id(x)
        wholes = self._wholes
        wholes[key] = weakref.ref(x, lambda _: wholes.pop(key, None)), whole
        return x

    def with_ghosts(self, x: Array, n_ghosts: int) -> Array:
        """The array of `x` and its space for `n_ghosts` ghost rows; a copy where `x` was not made by `vector`."""
        if not n_ghosts:
            return x
        whole = self.space_behind(x, n_ghosts)
        if whole is None:
            whole = empty_like(x, (self.n_local + n_ghosts, x.shape[1]))
            whole[: self.n_local] = x
        return whole

    def space_behind(self, x: Array, n_ghosts: int) -> Array:
        """The array of `x` and of the space for `n_ghosts` ghost rows behind it; None where there is no such space."""
        found = self._wholes.get(id(x))
        if found is not None and found[0]() is x and found[1].shape[0] >= self.n_local + n_ghosts:
            return found[1][: self.n_local + n_ghosts]
        return None
