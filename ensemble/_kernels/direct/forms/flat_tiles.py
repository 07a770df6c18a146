"""Factorisations and solutions of all samples by a flat list, tile by tile.

Bytes that must move, float64: ``8 S n_values`` written by a factorisation beside the entries of the matrix, read once
by a solution, twice for LDL^T. The values of a tile are neighbours, so that a tile's memory is read as one stream
whatever the number of samples.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile.allocation import new
from ensemble._compile.kept_memory import empty
from ensemble._compile.lanes.types import zeros
from ensemble._compile.numba import compiled, compiled_unrolled, prange, thread_count
from ensemble._compile.work_sharing import ALL_THREADS, ONE_THREAD
from ensemble._kernels.direct.forms.flat import LU, SYMMETRIC, TRANSPOSED, factor_one, factor_solve_one, solve_one
from ensemble._kernels.direct.forms.tiles import Tiles, aligned, fill_broken, read_tile, runs_of_tiles, write_tile

__all__ = ["empty_tiles", "factorized_tiles", "solved_at_once", "solved_tiles"]

WIDE = 32
"""Samples of a wide tile, at most; a narrow one has 64 bytes of them."""

WIDE_BYTES = 256
"""Bytes of a number of all samples of a wide tile, at most: half as many complex samples."""

SMALL = 1 << 17
"""Numbers of the values of all samples below which one thread works (`benchmarks direct`)."""


@functools.cache
def _factor(width: int) -> Any:
    @compiled
    def loop(values, tiles, broken, program, n_values, symmetric, n_samples, n_tiles):
        run = runs_of_tiles(n_tiles)
        for r in prange((n_tiles + run - 1) // run):
            entries, w = values.size // n_samples, np.int64(width)
            scaled, nothing = aligned(n_values * w if symmetric else 0, values), zeros(values, width)
            for tile in range(np.int64(r) * run, min((np.int64(r) + 1) * run, n_tiles)):
                first = tile * w
                given, stride, start = values, n_samples, first
                if first + w > n_samples:
                    padded = new(entries * w, values.dtype)
                    read_tile(values, n_samples, first, n_samples - first, padded, width)
                    given, stride, start = padded, w, np.int64(0)
                factor_one(
                    given, start, stride, tiles, first * n_values, scaled, broken, first, program, symmetric, nothing
                )  # fmt: skip

    return loop


@functools.cache
def _factor_solve(width: int) -> Any:
    """Both in one pass; the values of a tile are kept in `tiles` if `kept`, else until the next tile."""

    @compiled_unrolled
    def loop(
        values, b, shared, x, tiles, kept, broken, free, program, n, n_values, symmetric, n_samples, n_tiles, n_runs
    ):  # fmt: skip
        for r in prange(n_runs):
            entries, w, nothing = values.size // n_samples, np.int64(width), zeros(b, width)
            size = (n + n_values * ((0 if kept else 1) + (1 if symmetric else 0))) * w
            work = free if free.size else aligned(size, b)
            y = np.int64(r) * size
            scaled = y + n * w
            own = scaled + (n_values * w if symmetric else 0)
            for tile in range(np.int64(r) * n_tiles // n_runs, (np.int64(r) + 1) * n_tiles // n_runs):
                first = tile * w
                rest = min(n_samples - first, w)
                given, stride, start = values, n_samples, first
                right, at, far = b, 0 if shared else first, 1 if shared else n_samples
                made, x_first, x_far = x, first, n_samples
                if rest < w:
                    padded = new(entries * w, values.dtype)
                    read_tile(values, n_samples, first, rest, padded, width)
                    given, stride, start = padded, w, np.int64(0)
                    made, x_first, x_far = new(n * w, b.dtype), np.int64(0), w
                    if not shared:
                        padded_b = new(n * w, b.dtype)
                        read_tile(b, n_samples, first, rest, padded_b, width)
                        right, at, far = padded_b, 0, w
                factors, to = (tiles, first * n_values) if kept else (work, own)
                factor_solve_one(
                    given, start, stride, factors, to, work, scaled, broken, first, program, symmetric, right, at, far,
                    shared, made, x_first, x_far, work, y, nothing,
                )  # fmt: skip
                if rest < w:
                    write_tile(x, n_samples, first, rest, made, width)
                fill_broken(x, n_samples, first, rest, broken)

    return loop


@functools.cache
def _solve(width: int) -> Any:
    @compiled
    def loop(tiles, program, n_values, b, x, n, k, shared, order, n_samples, n_tiles):
        run = runs_of_tiles(n_tiles)
        for r in prange((n_tiles + run - 1) // run):
            y, w, nothing = aligned(n * width, b), np.int64(width), zeros(b, width)
            for tile in range(np.int64(r) * run, min((np.int64(r) + 1) * run, n_tiles)):
                first = tile * w
                rest = n_samples - first
                given, made, own, start = b, x, n_samples, first
                if rest < w:  # the lanes of other samples belong to nobody here
                    made, own, start = new(n * k * w, b.dtype), w, np.int64(0)
                    if not shared:
                        padded = new(n * k * w, b.dtype)
                        read_tile(b, n_samples, first, rest, padded, width)
                        given = padded
                for c in range(k):
                    at, far = (c, k) if shared else (c * own + start, k * own)
                    solve_one(
                        tiles, first * n_values, w, program, given, at, far, shared, made, c * own + start, k * own, y,
                        order, nothing,
                    )  # fmt: skip
                if rest < w:
                    write_tile(x, n_samples, first, rest, made, width)

    return loop


def _width(n_samples: int, itemsize: int) -> int:
    """Samples of a tile: a wide one takes twice the time of a narrow one."""
    narrow, wide = 64 // itemsize, min(WIDE, WIDE_BYTES // itemsize)
    return wide if 2 * -(-n_samples // wide) < -(-n_samples // narrow) else narrow


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


def solved_at_once(
    values: Any, plan: Any, b: Any, shared: bool, keep: bool
) -> tuple[np.ndarray, Tiles | None, np.ndarray]:
    """x in ``A x = b``, the values of the factorisation if `keep`, and what is NaN for a sample that broke.

    b has shape (n, n_samples), or (n,) if `shared`. x has shape (n, n_samples), and is NaN for a sample that broke.
    """
    n_samples, n, n_values = values.shape[1], plan.diagonal.size, plan.n_values
    width = _width(n_samples, values.itemsize)
    n_tiles, small = -(-n_samples // width), n_values * n_samples <= SMALL
    n_runs = 1 if small else min(n_tiles, thread_count())
    x = empty((n, n_samples), values.dtype)
    tiles = Tiles(empty((n_tiles, n_values, width), values.dtype), n_samples) if keep else None
    broken = np.empty(n_tiles * width, values.dtype)
    size = 0 if small else n_runs * (n + n_values * (1 - keep + plan.symmetric)) * width
    _factor_solve(width)(
        values.reshape(-1), b.reshape(-1), shared, x.reshape(-1), broken if tiles is None else tiles.data.reshape(-1),
        keep, broken, empty((size,), values.dtype), plan.flat, n, n_values, plan.symmetric, n_samples, n_tiles, n_runs,
        threads=ONE_THREAD if small else ALL_THREADS,
    )  # fmt: skip
    return x, tiles, broken[:n_samples]


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
