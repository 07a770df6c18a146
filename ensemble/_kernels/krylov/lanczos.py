"""The vector work of one step of Lanczos' process with full orthogonalisation, in one call for all vectors.

A basis has shape (capacity, n_rows, n_samples); its rows are padded with zeros to a multiple of `INTERLEAVED`. Sums
over rows have `INTERLEAVED` partial sums, of rows that far apart, in each block of `BLOCK` rows. One sample alone has
neighbouring rows in the lanes of a register, many samples have a register for each partial sum: the bits are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.types import load, load_some, splat, sqrt, store, store_some, zeros
from ensemble._compile.numba import compiled, empty, inner, per_width, prange
from ensemble._kernels.krylov.basis import block_add

__all__ = ["Basis"]

INTERLEAVED = 8
"""Partial sums of a block of rows; also the most samples of a tile."""

BLOCK = 128
"""Rows of a block, which the first-level cache holds for the samples of a tile."""


@inner(forceinline=True)
def of_all(s0, s1, s2, s3, s4, s5, s6, s7):
    """The sum of the partial sums."""
    return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))


@inner(forceinline=True)
def many_samples_dot(v, p, q, start, stop, width, nothing):
    """The inner product of the vectors at `p` and `q` over rows of a block, a register for each partial sum."""
    s0, s1, s2, s3, s4, s5, s6, s7 = nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing
    for i in range(start * width, stop * width, 8 * width):
        s0 = s0 + load(v, p + i + 0 * width, nothing) * load(v, q + i + 0 * width, nothing)
        s1 = s1 + load(v, p + i + 1 * width, nothing) * load(v, q + i + 1 * width, nothing)
        s2 = s2 + load(v, p + i + 2 * width, nothing) * load(v, q + i + 2 * width, nothing)
        s3 = s3 + load(v, p + i + 3 * width, nothing) * load(v, q + i + 3 * width, nothing)
        s4 = s4 + load(v, p + i + 4 * width, nothing) * load(v, q + i + 4 * width, nothing)
        s5 = s5 + load(v, p + i + 5 * width, nothing) * load(v, q + i + 5 * width, nothing)
        s6 = s6 + load(v, p + i + 6 * width, nothing) * load(v, q + i + 6 * width, nothing)
        s7 = s7 + load(v, p + i + 7 * width, nothing) * load(v, q + i + 7 * width, nothing)
    return of_all(s0, s1, s2, s3, s4, s5, s6, s7)


@inner(forceinline=True)
def one_sample_dot(v, p, q, start, stop, sums, nothing):
    """The same for one sample, whose rows are the lanes of `nothing`; a register of one lane."""
    total = nothing
    for i in range(start, stop, 8):
        total = total + load(v, p + i, nothing) * load(v, q + i, nothing)
    store(sums, 0, total)
    return of_all(
        load(sums, 0, 1), load(sums, 1, 1), load(sums, 2, 1), load(sums, 3, 1), load(sums, 4, 1), load(sums, 5, 1),
        load(sums, 6, 1), load(sums, 7, 1),
    )  # fmt: skip


@inner(forceinline=True)
def many_samples_step(v, given, diagonal, c, n_rows, width, base, own, j, begin, local, nothing):
    """Make vector ``j + 1`` of a tile orthonormal to those before it."""
    length = np.int64(n_rows) * width
    here, w = base + j * length, base + (j + 1) * length
    alpha = nothing
    if local:
        for start in range(0, n_rows, BLOCK):
            stop = min(start + BLOCK, n_rows)
            alpha = alpha + many_samples_dot(v, here, w, start, stop, width, nothing)
    for k in range(j + 1):
        store(c, own + k * width, nothing)
    for start in range(0, n_rows, BLOCK):
        stop = min(start + BLOCK, n_rows)
        if local:
            for k in range(begin, j):
                factor, u = load(given, own + k * width, nothing), base + k * length
                for i in range(start * width, stop * width, width):
                    store(v, w + i, load(v, w + i, nothing) - factor * load(v, u + i, nothing))
            for i in range(start * width, stop * width, width):
                store(v, w + i, load(v, w + i, nothing) - alpha * load(v, here + i, nothing))
        for k in range(j + 1):
            at = own + k * width
            part = many_samples_dot(v, base + k * length, w, start, stop, width, nothing)
            store(c, at, load(c, at, nothing) + part)
    square = nothing
    for start in range(0, n_rows, BLOCK):
        stop = min(start + BLOCK, n_rows)
        k = 0
        while k < j + 1:
            factor, u = load(c, own + k * width, nothing), base + k * length
            if k + 1 < j + 1:
                second, u1 = load(c, own + (k + 1) * width, nothing), u + length
                for i in range(start * width, stop * width, width):
                    less = load(v, w + i, nothing) - factor * load(v, u + i, nothing)
                    store(v, w + i, less - second * load(v, u1 + i, nothing))
            else:
                for i in range(start * width, stop * width, width):
                    store(v, w + i, load(v, w + i, nothing) - factor * load(v, u + i, nothing))
            k += 2
        square = square + many_samples_dot(v, w, w, start, stop, width, nothing)
    size = sqrt(square)
    if j >= 0:
        store(diagonal, own + j * width, alpha + load(c, own + j * width, nothing))
        store(given, own + j * width, size)
    for i in range(0, length, width):
        store(v, w + i, load(v, w + i, nothing) / size)


@inner(forceinline=True)
def one_sample_step(v, given, diagonal, c, sums, n_rows, width, j, begin, local, nothing, alone):
    """The same for one sample, whose rows are the lanes of `nothing`."""
    length = np.int64(n_rows)
    here, w = j * length, (j + 1) * length
    alpha = alone
    if local:
        for start in range(0, n_rows, BLOCK):
            stop = min(start + BLOCK, n_rows)
            alpha = alpha + one_sample_dot(v, here, w, start, stop, sums, nothing)
    store(c, j + 1, alpha)
    every = splat(c[j + 1], v, nothing)
    for k in range(j + 1):
        store(c, k, alone)
    for start in range(0, n_rows, BLOCK):
        stop = min(start + BLOCK, n_rows)
        if local:
            for k in range(begin, j):
                factor, u = splat(given[k], v, nothing), k * length
                for i in range(start, stop, width):
                    store(v, w + i, load(v, w + i, nothing) - factor * load(v, u + i, nothing))
            for i in range(start, stop, width):
                store(v, w + i, load(v, w + i, nothing) - every * load(v, here + i, nothing))
        for k in range(j + 1):
            part = one_sample_dot(v, k * length, w, start, stop, sums, nothing)
            store(c, k, load(c, k, 1) + part)
    square = alone
    for start in range(0, n_rows, BLOCK):
        stop = min(start + BLOCK, n_rows)
        k = 0
        while k < j + 1:
            factor, u = splat(c[k], v, nothing), k * length
            if k + 1 < j + 1:
                second, u1 = splat(c[k + 1], v, nothing), u + length
                for i in range(start, stop, width):
                    less = load(v, w + i, nothing) - factor * load(v, u + i, nothing)
                    store(v, w + i, less - second * load(v, u1 + i, nothing))
            else:
                for i in range(start, stop, width):
                    store(v, w + i, load(v, w + i, nothing) - factor * load(v, u + i, nothing))
            k += 2
        square = square + one_sample_dot(v, w, w, start, stop, sums, nothing)
    size = sqrt(square)
    store(c, j + 1, size)
    divisor = splat(c[j + 1], v, nothing)
    if j >= 0:
        store(diagonal, j, alpha + load(c, j, 1))
        store(given, j, size)
    for i in range(0, n_rows, width):
        store(v, w + i, load(v, w + i, nothing) / divisor)


@per_width
def _many_samples(width: int) -> Any:
    @compiled
    def loop(v, x, y, given, diagonal, c, n_rows, n_samples, n_used, capacity, j, begin, local):
        for t in prange((n_samples + width - 1) // width):
            nothing, length = zeros(v, width), np.int64(n_rows) * width
            first, lanes = np.int64(t) * width, min(width, n_samples - np.int64(t) * width)
            base, own = np.int64(t) * capacity * length, np.int64(t) * capacity * width
            w = base + (j + 1) * length
            for i in range(n_used):
                if lanes == width:
                    store(v, w + i * width, load(x, i * n_samples + first, width))
                else:
                    store(v, w + i * width, load_some(x, i * n_samples + first, lanes, width))
            many_samples_step(v, given, diagonal, c, n_rows, width, base, own, j, begin, local, nothing)
            for i in range(n_used):
                if lanes == width:
                    store(y, i * n_samples + first, load(v, w + i * width, width))
                else:
                    store_some(y, i * n_samples + first, lanes, load(v, w + i * width, width))

    return loop


@per_width
def _one_sample(width: int) -> Any:
    @compiled
    def loop(v, x, y, given, diagonal, c, sums, n_rows, n_used, j, begin, local):
        for t in prange(1):
            w = (np.int64(t) + j + 1) * n_rows
            for i in range(n_used):
                store(v, w + i, load(x, i, 1))
            one_sample_step(v, given, diagonal, c, sums, n_rows, width, j, begin, local, zeros(v, width), zeros(v, 1))
            for i in range(n_used):
                store(y, i, load(v, w + i, 1))

    return loop


@per_width
def _by_products(width: int, alone: bool) -> Any:
    @compiled
    def loop(v, indptr, indices, values, given, diagonal, c, sums, n_rows, first, capacity):
        for _ in prange(1):
            many, length = zeros(v, width), np.int64(n_rows) * width
            one, rows = zeros(v, 1), zeros(v, INTERLEAVED)
            for j in range(first, capacity - 1):
                here, w = j * length, (j + 1) * length
                for i in range(indptr.size - 1):
                    total = many
                    for k in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
                        x = load(v, here + np.int64(indices[k]) * width, width)
                        total = total + load(values, np.int64(k) * width, width) * x
                    store(v, w + np.int64(i) * width, total)
                begin = 0 if j == first else j - 1
                if alone:
                    one_sample_step(v, given, diagonal, c, sums, n_rows, INTERLEAVED, j, begin, True, rows, one)
                else:
                    many_samples_step(v, given, diagonal, c, n_rows, width, 0, 0, j, begin, True, many)

    return loop


class Basis:
    """Orthonormal vectors of Lanczos' process, samples by tiles.

    Parameters
    ----------
    capacity, n, n_samples : int
        Vectors, their rows, samples.
    dtype : data type

    Attributes
    ----------
    vectors : array, shape (n_tiles, capacity, n_rows, width)
        Rows that are not there are zero.
    diagonal, given : arrays, shape (n_tiles, capacity, width)
        Inner product of each vector with the operator times it, and norm by which the next one was divided.
    """

    def __init__(self, capacity: int, n: int, n_samples: int, dtype: Any) -> None:
        self.n, self.n_samples, self.capacity = n, n_samples, capacity
        self.width = min(INTERLEAVED, 1 << (n_samples - 1).bit_length())
        self.n_tiles = -(-n_samples // self.width)
        n_rows = -(-n // INTERLEAVED) * INTERLEAVED
        self.vectors = empty((self.n_tiles, capacity, n_rows, self.width), dtype)
        self.vectors[:, :, n:] = 0
        self.diagonal, self.given, self._rest = np.zeros((3, self.n_tiles, capacity, self.width), dtype)
        arrays = self.vectors, self.given, self.diagonal, self._rest
        self._flat = tuple(array.reshape(-1) for array in arrays)
        self._sums = np.empty(INTERLEAVED, dtype)

    def step(self, x: np.ndarray, y: np.ndarray, j: int, begin: int) -> None:
        """Vector ``j + 1`` is `x`, the operator times vector j, made orthonormal to those before it; `y` is a copy.

        `given[k]`, for k from `begin` to j - 1, are inner products with vectors before it that are known: they are
        subtracted first, with that of vector j. Then what is left of the inner products with all vectors is worked out
        and subtracted. With `begin` -1 all is left to that second sweep. Moves ``(2 j + 10) n S`` values.
        """
        v, given, diagonal, rest = self._flat
        local, begin, n_rows = begin >= 0, max(begin, 0), self.vectors.shape[2]
        ends = x.reshape(-1), y.reshape(-1)
        if self.n_samples == 1:
            _one_sample(INTERLEAVED)(v, *ends, given, diagonal, rest, self._sums, n_rows, self.n, j, begin, local)
        else:
            _many_samples(self.width)(
                v, *ends, given, diagonal, rest, n_rows, self.n_samples, self.n, self.capacity, j, begin, local
            )

    def extend_by_products(
        self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, first: int, last: int
    ) -> None:
        """Vectors after `first` up to `last`, by products with a matrix of values (nnz, width), in one call."""
        assert self.n_tiles == 1
        v, given, diagonal, rest = self._flat
        _by_products(self.width, self.width == 1)(
            v, indptr, indices, values.reshape(-1), given, diagonal, rest, self._sums, self.vectors.shape[2], first,
            last + 1,
        )  # fmt: skip

    def last(self, j: int, out: np.ndarray) -> None:
        """Write vector j, the last of a basis of products, shape (n, n_samples)."""
        out[...] = self.vectors[0, j, : self.n, : self.n_samples]

    def by_sample(self, numbers: np.ndarray, count: int) -> np.ndarray:
        """The first `count` of `diagonal` or `given` of each sample, shape (n_samples, count)."""
        rows = numbers[:, :count].transpose(0, 2, 1).reshape(-1, count)
        chosen: np.ndarray = rows[: self.n_samples]
        return chosen

    def put(self, numbers: np.ndarray, of_samples: np.ndarray) -> None:
        """Write numbers of samples, shape (n_samples, count), to the first of `diagonal` or `given`."""
        wide = np.zeros((self.n_tiles * self.width, of_samples.shape[1]), numbers.dtype)
        wide[: self.n_samples] = of_samples
        numbers[:, : of_samples.shape[1]] = wide.reshape(self.n_tiles, self.width, -1).transpose(0, 2, 1)

    def sums(self, coefficients: np.ndarray) -> np.ndarray:
        """Sums of vectors by coefficients (n_samples, n_vectors, n_sums), shape (n_tiles, n_sums, n_rows, width)."""
        _, m, count = coefficients.shape
        n_rows = self.vectors.shape[2]
        out = np.zeros((self.n_tiles, count, n_rows, self.width), self.vectors.dtype)
        for t in range(self.n_tiles):
            some = coefficients[t * self.width : (t + 1) * self.width].astype(self.vectors.dtype, copy=False)
            h = np.zeros((m, count, self.width), self.vectors.dtype)
            h[:, :, : len(some)] = some.transpose(1, 2, 0)
            if self.width == 1:  # neighbouring rows in the lanes
                wide = (n_rows // INTERLEAVED, INTERLEAVED)
                h = np.repeat(h, INTERLEAVED, axis=2)
                block_add(h, self.vectors[t, :m].reshape(m, *wide), out[t].reshape(count, *wide))
            else:
                block_add(h, self.vectors[t, :m], out[t])
        return out

    def usual(self, by_tiles: np.ndarray) -> np.ndarray:
        """Vectors of shape (n_tiles, count, n_rows, width) in the usual order, shape (count, n, n_samples)."""
        count = by_tiles.shape[1]
        if self.n_tiles == 1:
            found = by_tiles[0, :, : self.n, : self.n_samples]
        else:
            found = by_tiles[:, :, : self.n].transpose(1, 2, 0, 3).reshape(count, self.n, -1)[:, :, : self.n_samples]
        return np.ascontiguousarray(found)

    def restart(
        self, kept: np.ndarray, values: np.ndarray, couplings: np.ndarray, x: np.ndarray, y: np.ndarray
    ) -> None:
        """Begin with vectors `kept` of `sums`, their values and couplings (n_samples, count) to `x`, the next one."""
        count = kept.shape[1]
        self.vectors[:, :count] = kept
        self.step(x, y, count - 1, -1)
        self.put(self.diagonal, values)
        self.put(self.given, couplings)
