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
from ensemble._compile.numba import ROW_BLOCK, compiled, per_width, prange, tiles
from ensemble._compile.registry import into, kernel
from ensemble._kernels.sparse.crs import block_sums, ordered_sum, partial_sums
from ensemble._typing import Array

__all__ = ["basis_add", "basis_dots", "scale"]


CUDA = cuda.KernelModule(
    "krylov/basis",
    [
        "basis_dots", "basis_add", "scale", "append", "keep", "gmres_left", "gmres_rotate",
        *(f"{name}<{which}>" for name in ("arnoldi_dots", "arnoldi_add", "gmres_dots") for which in ("false", "true")),
        *(f"{name}<{which}>" for name in ("cycle_sum", "gmres_solve", "gmres_verify") for which in ("false", "true")),
    ],
    ("krylov/statuses.cuh",),
)  # fmt: skip


@kernel
def basis_dots(basis: Array, w: Array, out: Array) -> Array:
    """sum over i of basis[k, i, s] * w[i, s] for every vector k. Moves (n_vectors + 1) n S values."""
    xp = array_namespace(w)
    return into(out, xp.stack([block_sums(basis[k, :, :] * w) for k in range(basis.shape[0])]))


@per_width
def _basis_dots(width: int) -> Any:
    @compiled
    def loop(basis, w, partials, n_rows, n_samples, first):
        n_vectors = partials.shape[1] // n_samples
        for block in prange(partials.shape[0]):
            for k in range(n_vectors):  # a block of w stays in cache for all vectors
                inner = zeros(w, width)
                vector = np.int64(k) * n_rows * n_samples
                for i in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, n_rows)):
                    here = np.int64(i) * n_samples + first
                    inner = inner + load(basis, vector + here, width) * load(w, here, width)
                store(partials.reshape(-1), (block * n_vectors + k) * n_samples + first, inner)

    return loop


@basis_dots.register("numba")
def _(basis: Array, w: Array, out: Array) -> Array:
    n_vectors, n_rows, n_samples = basis.shape
    partials = partial_sums(n_rows, n_vectors * n_samples, w.dtype)
    for first, width in tiles(n_samples):
        _basis_dots(width)(basis.reshape(-1), w.reshape(-1), partials, n_rows, n_samples, first)
    return into(out, ordered_sum(partials).reshape(n_vectors, n_samples))


@basis_dots.register("cuda")
def _(basis: Array, w: Array, out: Array) -> Array:
    n_vectors, n_rows, n_samples = basis.shape
    arguments, layout = (basis, w, np.int32(n_vectors)), cuda.layout_of(n_samples, basis, w)
    partials = cuda.chunked(CUDA, "basis_dots", n_rows, arguments, layout, False, n_samples, n_vectors, True)
    return into(out, cuda.sums(partials))


@kernel
def basis_add(h: Array, basis: Array, w: Array) -> Array:
    """w += h[0] basis[0] + h[1] basis[1] + ... in place; returns the new w . w. Moves (n_vectors + 2) n S values."""
    xp = array_namespace(w)
    for k in range(basis.shape[0]):
        w[...] = xp.where(h[k, :] != 0, w + h[k, :] * basis[k, :, :], w)
    return block_sums(w * w)


@per_width
def _basis_add(width: int) -> Any:
    @compiled
    def loop(h, basis, w, partials, n_rows, n_samples, first):
        for block in prange(partials.shape[0]):
            start, stop = block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, n_rows)
            for k in range(h.size // n_samples):
                factor = load(h, k * n_samples + first, width)
                moving = factor != zeros(h, width)
                vector = np.int64(k) * n_rows * n_samples
                for i in range(start, stop):
                    here = np.int64(i) * n_samples + first
                    old = load(w, here, width)
                    store(w, here, select(moving, old + factor * load(basis, vector + here, width), old))
            inner = zeros(w, width)
            for i in range(start, stop):
                here = np.int64(i) * n_samples + first
                inner = inner + load(w, here, width) * load(w, here, width)
            store(partials.reshape(-1), block * n_samples + first, inner)

    return loop


@basis_add.register("numba")
def _(h: Array, basis: Array, w: Array) -> Array:
    n_rows, n_samples = w.shape
    partials = partial_sums(n_rows, n_samples, w.dtype)
    for first, width in tiles(n_samples):
        _basis_add(width)(h.reshape(-1), basis.reshape(-1), w.reshape(-1), partials, n_rows, n_samples, first)
    return ordered_sum(partials)


@basis_add.register("cuda")
def _(h: Array, basis: Array, w: Array) -> Array:
    return cuda.sums(basis_add_partials(h, basis, w))[0]


def basis_add_partials(h: Array, basis: Array, w: Array) -> Array:
    """On a device: the sum, and the partial sums of the new w . w."""
    n_vectors, n_rows, n_samples = basis.shape
    arguments, layout = (h, basis, w, np.int32(n_vectors)), cuda.layout_of(n_samples, h, basis, w)
    return cuda.chunked(CUDA, "basis_add", n_rows, arguments, layout, False, n_samples, 1)


@kernel
def scale(alpha: Array, x: Array) -> Array:
    """x *= alpha in place, except where alpha is zero: that sample is left as it is. Moves 2 n S values."""
    xp = array_namespace(x)
    x[...] = xp.where(alpha != 0, x * alpha, x)
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


@scale.register("numba")
def _(alpha: Array, x: Array) -> Array:
    n_rows, n_samples = x.shape
    for first, width in tiles(n_samples):
        _scale(width)(alpha, x.reshape(-1), n_rows, n_samples, first)
    return x


@scale.register("cuda")
def _(alpha: Array, x: Array) -> Array:
    CUDA.rows("scale", x.shape[0], x.shape[1], (alpha, x), cuda.layout_of(x.shape[1], x, alpha))
    return x
