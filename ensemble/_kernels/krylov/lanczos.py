"""The vector work of one step of Lanczos' process with full orthogonalisation, in one call for all vectors.

A basis has shape (capacity, n_rows, n_samples); its rows are padded with zeros to a multiple of `INTERLEAVED`. Sums
over rows have `INTERLEAVED` partial sums, of rows that far apart, in each block of `BLOCK` rows. One sample alone has
neighbouring rows in the lanes of a register, many samples have a register for each partial sum: the bits are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.types import load, load_some, store, store_some, zeros
from ensemble._compile.numba import compiled, empty, per_width, prange
from ensemble._kernels.krylov.basis import block_add
from ensemble._kernels.krylov.lanczos_steps import (
    INTERLEAVED,
    end_of_step,
    many_samples_step,
    one_sample_step,
    row_product,
)
from ensemble._kernels.krylov.ritz_pairs import ritz_pairs

__all__ = ["Basis", "width_of"]


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
            one_sample_step(
                v, given, diagonal, c, sums, n_rows, width, 0, 0, 0, j, begin, local, zeros(v, width), zeros(v, 1)
            )
            for i in range(n_used):
                store(y, i, load(v, w + i, 1))

    return loop


@per_width
def _by_products(width: int, alone: bool) -> Any:
    @compiled
    def loop(v, indptr, indices, values, given, diagonal, c, sums, n_rows, first, last, capacity, n_tiles):
        for t in prange(n_tiles):
            many, length, tile = zeros(v, width), np.int64(n_rows) * width, np.int64(t)
            one, rows = zeros(v, 1), zeros(v, INTERLEAVED)
            base, own, at = tile * capacity * length, tile * capacity * width, tile * indices.size * width
            for j in range(first, last):
                here, w = base + j * length, base + (j + 1) * length
                for i in range(indptr.size - 1):
                    start, stop = np.int64(indptr[i]), np.int64(indptr[i + 1])
                    total = row_product(indices, values, v, here, start, stop, at, width, many)
                    store(v, w + np.int64(i) * width, total)
                end_of_step(
                    v, given, diagonal, c, sums, n_rows, width, alone, base, own, tile, j, first, many, rows, one
                )

    return loop


def width_of(n_samples: int) -> int:
    """Samples of a tile, those included that are not there."""
    return min(INTERLEAVED, 1 << (n_samples - 1).bit_length())


class Basis:
    """Orthonormal vectors of Lanczos' process, samples by tiles.

    Parameters
    ----------
    capacity, n, n_samples : int
        Vectors, their rows, samples.
    dtype : data type
    width : int
        Samples of a tile: 1, or a power of two up to 8.

    Attributes
    ----------
    vectors : array, shape (n_tiles, capacity, n_rows, width)
        Rows that are not there are zero.
    diagonal, given : arrays, shape (n_tiles, capacity, width)
        Inner product of each vector with the operator times it, and norm by which the next one was divided.
    flat : tuple of arrays, shape (size,)
        `vectors`, `given`, `diagonal`, and memory of a step.
    partial : array, shape (n_tiles * INTERLEAVED,)
        Partial sums of a step.
    """

    def __init__(self, capacity: int, n: int, n_samples: int, dtype: Any, width: int) -> None:
        self.n, self.n_samples, self.capacity, self.width = n, n_samples, capacity, width
        self.n_tiles = -(-n_samples // width)
        n_rows = -(-n // INTERLEAVED) * INTERLEAVED
        self.vectors = empty((self.n_tiles, capacity, n_rows, self.width), dtype)
        self.vectors[:, :, n:] = 0
        self.diagonal, self.given, self._rest = np.zeros((3, self.n_tiles, capacity, self.width), dtype)
        arrays = self.vectors, self.given, self.diagonal, self._rest
        self.flat = tuple(array.reshape(-1) for array in arrays)
        self.partial = np.empty(self.n_tiles * INTERLEAVED, dtype)

    def step(self, x: np.ndarray, y: np.ndarray, j: int, begin: int) -> None:
        """Vector ``j + 1`` is `x`, the operator times vector j, made orthonormal to those before it; `y` is a copy.

        `given[k]`, for k from `begin` to j - 1, are inner products with vectors before it that are known: they are
        subtracted first, with that of vector j. Then what is left of the inner products with all vectors is worked out
        and subtracted. With `begin` -1 all is left to that second sweep. Moves ``(2 j + 10) n S`` values.
        """
        v, given, diagonal, rest = self.flat
        local, begin, n_rows = begin >= 0, max(begin, 0), self.vectors.shape[2]
        ends = x.reshape(-1), y.reshape(-1)
        if self.n_samples == 1:
            _one_sample(INTERLEAVED)(v, *ends, given, diagonal, rest, self.partial, n_rows, self.n, j, begin, local)
        else:
            _many_samples(self.width)(
                v, *ends, given, diagonal, rest, n_rows, self.n_samples, self.n, self.capacity, j, begin, local
            )

    def extend_by_products(
        self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, first: int, last: int
    ) -> None:
        """Vectors after `first` up to `last`, by products with a matrix of values (n_tiles, nnz, width), in one call.

        Each tile goes through all of them before the next one does: its values are in cache where it is small enough.
        """
        v, given, diagonal, rest = self.flat
        _by_products(self.width, self.width == 1)(
            v, indptr, indices, values.reshape(-1), given, diagonal, rest, self.partial, self.vectors.shape[2], first,
            last, self.capacity, self.n_tiles,
        )  # fmt: skip

    def last(self, j: int, out: np.ndarray) -> None:
        """Write vector j, the last of a basis, shape (n, n_samples)."""
        out[...] = self.usual(self.vectors[:, j : j + 1])[0]

    def ritz_pairs(
        self, count: int, first: int, which: str, offsets: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """`ritz_pairs` of the first `count` vectors, `first` of which have no product with each other, by samples."""
        found = ritz_pairs(self.diagonal, self.given, count, first, which, offsets)
        # mypy takes what a generator gives for a tuple of any length
        return tuple(each[: self.n_samples] for each in found)  # type: ignore[return-value]

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
