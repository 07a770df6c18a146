"""Factorisations and solutions of all samples by a flat list, tile by tile.

Bytes that must move, float64: ``8 S n_values`` written by a factorisation beside the entries of the matrix, read once
by a solution, twice for LDL^T. The values of a tile are neighbours, so that a tile's memory is read as one stream
whatever the number of samples.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.lanes.types import zeros
from ensemble._compile.memory import empty
from ensemble._compile.numba import compiled, inner, prange
from ensemble._compile.work_sharing import ALL_THREADS, ONE_THREAD
from ensemble._kernels.direct.flat import LU, SYMMETRIC, TRANSPOSED, factor_one, solve_one
from ensemble._kernels.direct.tiles import runs_of_tiles

__all__ = ["Tiles", "empty_tiles", "factorized_tiles", "solved_tiles"]

WIDE = 32
"""Samples of a wide tile; a narrow one has 64 bytes of them."""

SMALL = 1 << 17
"""Numbers of the values of all samples below which one thread works."""


class Tiles(NamedTuple):
    """Values of a factorisation, shape (n_tiles, n_values, width): those of a tile of samples are neighbours.

    The last tile may have lanes without a sample.
    """

    data: np.ndarray
    n_samples: int

    def rows(self, places: Any) -> np.ndarray:
        """Some of the values, shape (n_places, n_samples)."""
        chosen = self.data[:, places, :].transpose(1, 0, 2)
        lanes = self.data.shape[0] * self.data.shape[2]
        return np.ascontiguousarray(chosen.reshape(chosen.shape[0], lanes)[:, : self.n_samples])

    def fill(self, samples: np.ndarray, value: float) -> None:
        """Set all values of some samples."""
        tile, lane = np.divmod(np.asarray(samples), self.data.shape[2])
        self.data[tile, :, lane] = value


@inner
def _read(source, n_samples, first, count, tile, width):
    """Rows of a tile: `count` samples from `first` on, the last one again in the lanes that are left."""
    for row in range(tile.size // width):
        for lane in range(width):
            tile[row * width + lane] = source[row * n_samples + first + min(lane, count - 1)]


@functools.cache
def _factor(width: int) -> Any:
    @compiled
    def loop(values, tiles, broken, program, n_values, symmetric, n_samples, n_tiles):
        run = runs_of_tiles(n_tiles)
        for r in prange((n_tiles + run - 1) // run):
            entries, w = values.size // n_samples, np.int64(width)
            scaled, nothing = np.empty(n_values * w if symmetric else 0, values.dtype), zeros(values, width)
            for tile in range(np.int64(r) * run, min((np.int64(r) + 1) * run, n_tiles)):
                first = tile * w
                given, stride, start = values, n_samples, first
                if first + w > n_samples:
                    given, stride, start = np.empty(entries * w, values.dtype), w, np.int64(0)
                    _read(values, n_samples, first, n_samples - first, given, width)
                factor_one(
                    given, start, stride, tiles, first * n_values, scaled, broken, first, program, symmetric, nothing
                )  # fmt: skip

    return loop


@functools.cache
def _solve(width: int) -> Any:
    @compiled
    def loop(tiles, program, n_values, b, x, n, k, shared, order, n_samples, n_tiles):
        run = runs_of_tiles(n_tiles)
        for r in prange((n_tiles + run - 1) // run):
            y, w, nothing = np.empty(n * width, b.dtype), np.int64(width), zeros(b, width)
            for tile in range(np.int64(r) * run, min((np.int64(r) + 1) * run, n_tiles)):
                first = tile * w
                rest = n_samples - first
                given, made, own, start = b, x, n_samples, first
                if rest < w:  # the lanes of other samples belong to nobody here
                    made, own, start = np.empty(n * k * w, b.dtype), w, np.int64(0)
                    if not shared:
                        given = np.empty(n * k * w, b.dtype)
                        _read(b, n_samples, first, rest, given, width)
                for c in range(k):
                    at, far = (c, k) if shared else (c * own + start, k * own)
                    solve_one(
                        tiles, first * n_values, w, program, given, at, far, shared, made, c * own + start, k * own, y,
                        order, nothing,
                    )  # fmt: skip
                if rest < w:
                    for row in range(n * k):
                        for lane in range(rest):
                            x[row * n_samples + first + lane] = made[row * w + lane]

    return loop


def _width(n_samples: int, itemsize: int) -> int:
    """Samples of a tile: a wide one takes twice the time of a narrow one."""
    narrow = 64 // itemsize
    return WIDE if 2 * -(-n_samples // WIDE) < -(-n_samples // narrow) else narrow


def empty_tiles(n_samples: int, n_values: int, dtype: Any) -> Tiles:
    """Tiles without numbers."""
    width = _width(n_samples, np.dtype(dtype).itemsize)
    return Tiles(empty((-(-n_samples // width), n_values, width), dtype), n_samples)


def factorized_tiles(values: Any, plan: Any) -> tuple[Tiles, np.ndarray]:
    """`factors.factorized` by the plan's list."""
    n_samples = values.shape[1]
    tiles = empty_tiles(n_samples, plan.n_values, values.dtype)
    n_tiles, _, width = tiles.data.shape
    broken = np.empty(n_tiles * width, values.dtype)
    _factor(width)(
        values.reshape(-1), tiles.data.reshape(-1), broken, plan.flat, plan.n_values, plan.symmetric, n_samples,
        n_tiles, threads=ONE_THREAD if tiles.data.size <= SMALL else ALL_THREADS,
    )  # fmt: skip
    return tiles, broken[:n_samples]


def solved_tiles(tiles: Tiles, plan: Any, b: Any, transposed: bool, out: Any) -> Any:
    """`triangular.factor_solve` by the plan's list; `b` may have one sample for all."""
    (n_tiles, n_values, width), n_samples, (n, k, given) = tiles.data.shape, tiles.n_samples, b.shape
    order = SYMMETRIC if plan.symmetric else TRANSPOSED if transposed else LU
    out = empty((n, k, n_samples), b.dtype) if out is None else out
    _solve(width)(
        tiles.data.reshape(-1), plan.flat, n_values, b.reshape(-1), out.reshape(-1), n, k, given != n_samples, order,
        n_samples, n_tiles, threads=ONE_THREAD if tiles.data.size <= SMALL else ALL_THREADS,
    )  # fmt: skip
    return out
