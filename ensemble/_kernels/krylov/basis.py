"""Inner products with a Krylov basis and sums of its vectors, fused so that every basis vector is read once.

A basis has shape (n_vectors, n, n_samples), vectors (n, n_samples); coefficients have one value for each vector and
sample. A coefficient of zero leaves its sample untouched by its vector, even where that vector holds NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.lanes.types import load, select, store, zeros
from ensemble._compile.numba import compiled, per_width, prange, tiles, widest
from ensemble._compile.registry import into, kernel
from ensemble._kernels.krylov.basis_passes import ROWS_AT_ONCE, RUN, add, dots, squared
from ensemble._kernels.sparse.complex_numbers import conjugated, times
from ensemble._kernels.sparse.row_sums import block_sums, chunk_sums, ordered_sum, row_blocks
from ensemble._typing import Array

__all__ = ["TOGETHER", "basis_add", "basis_dots", "block_add", "block_dots", "scale"]

TOGETHER, ROWS, NARROW = 3, 16, 32
"""Vectors of a block that read a basis together, their rows that the first-level cache holds, samples of a tile."""

CUDA = cuda.KernelModule(
    "krylov/basis",
    [
        "basis_dots", "basis_add", "scale", "append", "keep", "gmres_left", "gmres_rotate",
        *(f"{name}<{which}>" for name in ("arnoldi_dots", "arnoldi_add", "gmres_dots") for which in ("false", "true")),
        *(f"{name}<{which}>" for name in ("cycle_sum", "gmres_solve", "gmres_verify") for which in ("false", "true")),
    ],
    ("krylov/statuses.cuh",),
    of_complex=("basis_dots", "basis_add", "scale"),
)  # fmt: skip


@kernel
def basis_dots(basis: Array, w: Array, out: Array) -> Array:
    """sum over i of basis[k, i, s] * w[i, s] for every vector k. Moves (n_vectors + 1) n S values.

    Complex numbers of the basis are conjugated.
    """
    xp = array_namespace(w)
    return into(out, xp.stack([block_sums(times(conjugated(basis[k, :, :]), w)) for k in range(basis.shape[0])]))


@per_width
def _basis_dots(width: int, alone: bool) -> Any:
    @compiled
    def loop(basis, w, partials, bounds, n_rows, n_samples, first):
        n_vectors = partials.shape[1] // n_samples
        for block in prange(partials.shape[0]):
            at = np.int64(block) * n_vectors * n_samples + first
            dots(
                basis, w, partials.reshape(-1), at, n_samples, n_vectors, n_rows, n_samples, first, bounds[block],
                bounds[block + 1], width, alone, zeros(w, width),
            )  # fmt: skip

    return loop


@basis_dots.register("numba", complex_numbers=True)
def _(basis: Array, w: Array, out: Array) -> Array:
    n_vectors, n_rows, n_samples = basis.shape
    partials, bounds = row_blocks(n_rows, n_vectors * n_samples, w.dtype)
    for first, width in tiles(n_samples, widest(w)):
        loop = _basis_dots(width, n_samples == 1)
        loop(basis.reshape(-1), w.reshape(-1), partials, bounds, n_rows, n_samples, first)
    return into(out, ordered_sum(partials).reshape(n_vectors, n_samples))


@basis_dots.register("cuda", complex_numbers=True)
def _(basis: Array, w: Array, out: Array) -> Array:
    n_vectors, n_rows, n_samples = basis.shape
    arguments, layout = (basis, w, np.int32(n_vectors)), cuda.layout_of(n_samples, basis, w)
    partials = cuda.chunked(CUDA, "basis_dots", n_rows, arguments, layout, False, n_samples, n_vectors, True)
    return into(out, chunk_sums(partials))


@kernel
def basis_add(h: Array, basis: Array, w: Array) -> Array:
    """w += h[0] basis[0] + h[1] basis[1] + ... in place; returns the new w . w. Moves (n_vectors + 2) n S values."""
    xp = array_namespace(w)
    for k in range(basis.shape[0]):
        w[...] = xp.where(h[k, :] != 0, w + times(h[k, :], basis[k, :, :]), w)
    return block_sums(times(conjugated(w), w))


@per_width
def _basis_add(width: int, alone: bool) -> Any:
    @compiled
    def loop(h, basis, w, partials, bounds, n_rows, n_samples, first):
        for block in prange(partials.shape[0]):
            nothing, wide, square = zeros(w, width), zeros(w, ROWS_AT_ONCE), zeros(w, width)
            stop = bounds[block + 1]
            for low in range(bounds[block], stop, RUN // width):
                high = min(low + RUN // width, stop)
                add(
                    h, first, n_samples, h.size // n_samples, basis, w, n_rows, n_samples, first, low, high, width,
                    alone, nothing, wide,
                )  # fmt: skip
                square = squared(square, w, n_samples, first, low, high, nothing)
            store(partials.reshape(-1), block * n_samples + first, square)

    return loop


@basis_add.register("numba", complex_numbers=True)
def _(h: Array, basis: Array, w: Array) -> Array:
    n_rows, n_samples = w.shape
    partials, bounds = row_blocks(n_rows, n_samples, w.dtype)
    for first, width in tiles(n_samples, widest(w)):
        loop = _basis_add(width, n_samples == 1)
        loop(h.reshape(-1), basis.reshape(-1), w.reshape(-1), partials, bounds, n_rows, n_samples, first)
    return ordered_sum(partials)


@basis_add.register("cuda", complex_numbers=True)
def _(h: Array, basis: Array, w: Array) -> Array:
    return chunk_sums(basis_add_partials(h, basis, w))[0]


def basis_add_partials(h: Array, basis: Array, w: Array) -> Array:
    """On a device: the sum, and the partial sums of the new w . w."""
    n_vectors, n_rows, n_samples = basis.shape
    arguments, layout = (h, basis, w, np.int32(n_vectors)), cuda.layout_of(n_samples, h, basis, w)
    return cuda.chunked(CUDA, "basis_add", n_rows, arguments, layout, False, n_samples, 1)


# --- several vectors at once
@kernel
def block_dots(basis: Array, block: Array, out: Array) -> Array:
    """sum over i of basis[k, i, s] * block[q, i, s], shape (n_vectors, n_block, n_samples).

    Moves ``(n_vectors / 3 + 1) n_block n S`` values.
    """
    xp = array_namespace(block)
    sums = [[block_sums(basis[k, :, :] * w) for w in block] for k in range(basis.shape[0])]
    return into(out, xp.stack([xp.stack(row) for row in sums]))


@per_width
def _block_dots(width: int) -> Any:
    @compiled
    def loop(basis, w, partials, bounds, n_vectors, n_block, q, n_rows, n_samples, first):
        for block in prange(bounds.size - 1):
            length, q1, q2 = n_rows * n_samples, min(q + 1, n_block - 1), min(q + 2, n_block - 1)
            end = bounds[block + 1]
            for start in range(bounds[block], end, ROWS):
                stop = min(start + ROWS, end)
                for k in range(n_vectors):
                    row = (np.int64(block) * n_vectors + k) * n_block
                    p0, p1 = (row + q) * n_samples + first, (row + q1) * n_samples + first
                    p2 = (row + q2) * n_samples + first
                    s0, s1, s2 = load(partials, p0, width), load(partials, p1, width), load(partials, p2, width)
                    for i in range(start, stop):
                        here = i * n_samples + first
                        v = load(basis, k * length + here, width)
                        s0 = s0 + v * load(w, q * length + here, width)
                        s1 = s1 + v * load(w, q1 * length + here, width)
                        s2 = s2 + v * load(w, q2 * length + here, width)
                    store(partials, p0, s0)
                    store(partials, p1, s1)
                    store(partials, p2, s2)

    return loop


@block_dots.register("numba")
def _(basis: Array, block: Array, out: Array) -> Array:
    n_vectors, n_rows, n_samples = basis.shape
    partials, bounds = row_blocks(n_rows, n_vectors * block.shape[0] * n_samples, block.dtype)
    for q in range(0, block.shape[0], TOGETHER):
        for first, width in tiles(n_samples, NARROW):
            _block_dots(width)(
                basis.reshape(-1), block.reshape(-1), partials.reshape(-1), bounds, n_vectors, block.shape[0], q,
                n_rows, n_samples, first,
            )  # fmt: skip
    return into(out, ordered_sum(partials).reshape(n_vectors, block.shape[0], n_samples))


@kernel
def block_add(h: Array, basis: Array, block: Array) -> Array:
    """block[q] += h[0, q] basis[0] + h[1, q] basis[1] + ... in place. Moves ``(n_vectors / 3 + 2) n_block n S`` values.

    As `basis_add` of each vector.
    """
    xp = array_namespace(block)
    for q in range(block.shape[0]):
        for k in range(basis.shape[0]):
            block[q, ...] = xp.where(h[k, q, :] != 0, block[q, ...] + h[k, q, :] * basis[k, :, :], block[q, ...])
    return block


@per_width
def _block_add(width: int) -> Any:
    @compiled
    def loop(h, basis, w, n_vectors, n_block, q, n_rows, n_samples, first):
        for part in prange((n_rows + ROWS - 1) // ROWS):
            length, nothing = n_rows * n_samples, zeros(w, width)
            q1, q2 = min(q + 1, n_block - 1), min(q + 2, n_block - 1)
            start = np.int64(part) * ROWS
            stop = min(start + ROWS, n_rows)
            for k in range(n_vectors):
                at = k * n_block * n_samples + first
                h0, h1 = load(h, at + q * n_samples, width), load(h, at + q1 * n_samples, width)
                h2 = load(h, at + q2 * n_samples, width)
                moving0, moving1, moving2 = h0 != nothing, h1 != nothing, h2 != nothing
                for i in range(start, stop):
                    here = i * n_samples + first
                    v = load(basis, k * length + here, width)
                    old = load(w, q * length + here, width)
                    store(w, q * length + here, select(moving0, old + h0 * v, old))
                    if q1 > q:
                        old = load(w, q1 * length + here, width)
                        store(w, q1 * length + here, select(moving1, old + h1 * v, old))
                    if q2 > q1:
                        old = load(w, q2 * length + here, width)
                        store(w, q2 * length + here, select(moving2, old + h2 * v, old))

    return loop


@block_add.register("numba")
def _(h: Array, basis: Array, block: Array) -> Array:
    n_vectors, n_rows, n_samples = basis.shape
    flat = np.ascontiguousarray(h).reshape(-1), basis.reshape(-1), block.reshape(-1)
    for q in range(0, block.shape[0], TOGETHER):
        for first, width in tiles(n_samples, NARROW):
            _block_add(width)(*flat, n_vectors, block.shape[0], q, n_rows, n_samples, first)
    return block


@kernel
def scale(alpha: Array, x: Array) -> Array:
    """x *= alpha in place, except where alpha is zero: that sample is left as it is. Moves 2 n S values."""
    xp = array_namespace(x)
    x[...] = xp.where(alpha != 0, times(x, alpha), x)
    return x


@per_width
def _scale(width: int) -> Any:
    @compiled
    def loop(alpha, x, n_rows, n_samples, first):
        for i in prange(n_rows):
            here = np.int64(i) * n_samples + first
            factor, old = load(alpha, first, width), load(x, here, width)
            store(x, here, select(factor != zeros(alpha, width), old * factor, old))

    return loop


@scale.register("numba", complex_numbers=True)
def _(alpha: Array, x: Array) -> Array:
    n_rows, n_samples = x.shape
    for first, width in tiles(n_samples, widest(x)):
        _scale(width)(alpha, x.reshape(-1), n_rows, n_samples, first)
    return x


@scale.register("cuda", complex_numbers=True)
def _(alpha: Array, x: Array) -> Array:
    CUDA.rows("scale", x.shape[0], x.shape[1], (alpha, x), cuda.layout_of(x.shape[1], x, alpha))
    return x
