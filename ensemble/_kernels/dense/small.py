"""Solution of many small dense systems, matrix axes first: entry (i, j) of all matrices is one contiguous vector.

A thread of the device, or a lane of a SIMD register, carries one matrix. Pivots are chosen in each by itself: row i is
exchanged with row c where its entry in column c is the larger, for i = c + 1, c + 2, ... in turn. After the last, the
largest entry of the column is on top, and no index differs between lanes.

Bytes that must move, N systems of n unknowns with k right-hand sides, float64: ``8 N (n n + 2 n k)``.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.lanes.arithmetic import absolute
from ensemble._compile.lanes.types import load, select, store
from ensemble._compile.numba import compiled, output, per_width, prange
from ensemble._compile.registry import into, kernel

__all__ = ["BLOCK_TILES", "one_layout", "small_solve", "tile_width"]

BLOCK_TILES = 32
"""Tiles of SIMD width that a thread goes through with one piece of memory."""

IN_REGISTERS = 8
"""Unknowns up to which a thread of the device holds its matrix in registers."""

CUDA = cuda.KernelModule(
    "dense/small",
    [*(f"small_solve<{n}>" for n in range(1, IN_REGISTERS + 1)), "small_solve_in_memory"],
    only=cuda.Layout("double", 1, 1, 1),
    apart=True,
)


def one_layout(array):
    """The layout of kernels whose threads carry one value of one sample."""
    return cuda.Layout("double" if array.dtype.itemsize == 8 else "float", 1, 1, 1)


def tile_width(count):
    """Lanes of a tile: tiles cover `count` values, the last one overlaps the one before it."""
    return next(width for width in (8, 4, 2, 1) if width <= count)


@kernel
def small_solve(A, b, out):
    """x in ``A x = b``: A (n, n, N), b and x (n, k, N); NaN where a pivot is zero."""
    xp = array_namespace(A)
    n, k = A.shape[0], b.shape[1]
    rows = [[A[i, j, :] for j in range(n)] + [b[i, j, :] for j in range(k)] for i in range(n)]
    for c in range(n):
        for i in range(c + 1, n):
            larger = xp.abs(rows[i][c]) > xp.abs(rows[c][c])
            for j in range(c, n + k):
                top, low = rows[c][j], rows[i][j]
                rows[c][j], rows[i][j] = xp.where(larger, low, top), xp.where(larger, top, low)
        pivot = rows[c][c]
        rows[c][c] = xp.where(pivot == 0, xp.full_like(pivot, xp.nan), pivot)
        for i in range(c + 1, n):
            factor = rows[i][c] / rows[c][c]
            for j in range(c + 1, n + k):
                rows[i][j] = rows[i][j] - factor * rows[c][j]
    for i in reversed(range(n)):
        for j in range(n, n + k):
            for c in range(i + 1, n):
                rows[i][j] = rows[i][j] - rows[i][c] * rows[c][j]
            rows[i][j] = rows[i][j] / rows[i][i]
    return into(out, xp.stack([xp.stack(row[n:]) for row in rows]))


@per_width
def _solve(width):
    @compiled
    def loop(A, b, x, n, k, count):
        n_tiles = (count + width - 1) // width
        for block in prange((n_tiles + BLOCK_TILES - 1) // BLOCK_TILES):
            work = np.empty(n * (n + k) * width, A.dtype)
            row = (n + k) * width
            for tile in range(block * BLOCK_TILES, min((block + 1) * BLOCK_TILES, n_tiles)):
                first = min(tile * width, count - width)
                for i in range(n):
                    for j in range(n):
                        store(work, i * row + j * width, load(A, (i * n + j) * count + first, width))
                    for j in range(k):
                        store(work, i * row + (n + j) * width, load(b, (i * k + j) * count + first, width))
                for c in range(n):
                    top = c * row
                    for i in range(c + 1, n):
                        low = i * row
                        larger = absolute(load(work, low + c * width, width)) > absolute(
                            load(work, top + c * width, width)
                        )
                        for j in range(c * width, row, width):
                            upper, lower = load(work, top + j, width), load(work, low + j, width)
                            store(work, top + j, select(larger, lower, upper))
                            store(work, low + j, select(larger, upper, lower))
                    pivot = load(work, top + c * width, width)
                    pivot = select(pivot == 0.0, np.nan, pivot)
                    store(work, top + c * width, pivot)
                    for i in range(c + 1, n):
                        low = i * row
                        factor = load(work, low + c * width, width) / pivot
                        for j in range((c + 1) * width, row, width):
                            store(work, low + j, load(work, low + j, width) - factor * load(work, top + j, width))
                for i in range(n - 1, -1, -1):
                    for j in range(n * width, row, width):
                        value = load(work, i * row + j, width)
                        for c in range(i + 1, n):
                            value = value - load(work, i * row + c * width, width) * load(work, c * row + j, width)
                        value = value / load(work, i * row + i * width, width)
                        store(work, i * row + j, value)
                        store(x, i * k * count + (j // width - n) * count + first, value)

    return loop


@small_solve.register("numba")
def _(A, b, out):
    n, k, count = b.shape
    out = output(out, b.shape, b.dtype)
    if out.size:
        _solve(tile_width(count))(A.reshape(-1), b.reshape(-1), out.reshape(-1), n, k, count)
    return out


@small_solve.register("cuda")
def _(A, b, out):
    n, k, count = b.shape
    out = cuda.output(out, b, b.shape)
    extent = (np.int32(k), np.int64(count))
    grid = (-(-count // cuda.THREADS),)
    if n <= IN_REGISTERS:
        CUDA.launch(f"small_solve<{n}>", one_layout(b), grid, cuda.THREADS, (A, b, out, *extent))
    else:
        out[...] = b
        arguments = (A.copy(), out, np.int32(n), *extent)
        CUDA.launch("small_solve_in_memory", one_layout(b), grid, cuda.THREADS, arguments)
    return out
