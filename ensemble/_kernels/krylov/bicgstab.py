"""The vector work of BiCGSTAB: its inner products in pairs, its updates with the products that follow.

Vectors have shape (n, n_samples), coefficients one value per sample; a coefficient of zero freezes its sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.lanes.arithmetic import conjugate
from ensemble._compile.lanes.types import load, select, store, zeros
from ensemble._compile.numba import compiled, per_width, prange, tiles, widest
from ensemble._compile.registry import kernel
from ensemble._kernels.sparse.complex_numbers import conjugated, times
from ensemble._kernels.sparse.row_sums import block_sums, chunk_sums, ordered_sum, row_blocks
from ensemble._typing import Array

__all__ = ["bicgstab_direction", "bicgstab_update", "dot_and_square"]


CUDA = cuda.KernelModule(
    "krylov/bicgstab",
    [
        "dot_and_square", "bicgstab_update", "bicgstab_direction", "bicgstab_direction_keep",
        "bicgstab_alpha", "bicgstab_half", "bicgstab_omega", "bicgstab_beta", "bicgstab_verify",
    ],
    ("krylov/statuses.cuh",),
    of_complex=("dot_and_square", "bicgstab_update", "bicgstab_direction"),
)  # fmt: skip


@kernel
def dot_and_square(x: Array, y: Array) -> tuple[Array, Array]:
    """x . y and y . y, one value per sample each, in one pass. Moves 2 n S values.

    Of complex numbers the first ones of a product are conjugated, as in all inner products.
    """
    return block_sums(times(conjugated(x), y)), block_sums(times(conjugated(y), y))


@per_width
def _dot_and_square(width: int) -> Any:
    @compiled
    def loop(x, y, partials, bounds, n_samples, first):
        for block in prange(partials.shape[0]):
            inner, square = zeros(x, width), zeros(x, width)
            for i in range(bounds[block], bounds[block + 1]):
                here = np.int64(i) * n_samples + first
                a, b = load(x, here, width), load(y, here, width)
                inner = inner + conjugate(a) * b
                square = square + conjugate(b) * b
            store(partials.reshape(-1), 2 * block * n_samples + first, inner)
            store(partials.reshape(-1), (2 * block + 1) * n_samples + first, square)

    return loop


@dot_and_square.register("numba", complex_numbers=True)
def _(x: Array, y: Array) -> tuple[Array, Array]:
    n_rows, n_samples = x.shape
    partials, bounds = row_blocks(n_rows, 2 * n_samples, x.dtype)
    for first, width in tiles(n_samples, widest(x)):
        _dot_and_square(width)(x.reshape(-1), y.reshape(-1), partials, bounds, n_samples, first)
    sums = ordered_sum(partials)
    return sums[:n_samples], sums[n_samples:]


@dot_and_square.register("cuda", complex_numbers=True)
def _(x: Array, y: Array) -> tuple[Array, Array]:
    inner, square = chunk_sums(dot_and_square_partials(x, y))
    return inner, square


def dot_and_square_partials(x: Array, y: Array) -> Array:
    """On a device: the partial sums of x . y and of y . y."""
    n_rows, n_samples = x.shape
    layout = cuda.layout_of(n_samples, x, y)
    return cuda.chunked(CUDA, "dot_and_square", n_rows, (x, y), layout, False, n_samples, 2)


@kernel
def bicgstab_update(omega: Array, shadow: Array, z: Array, t: Array, x: Array, r: Array) -> tuple[Array, Array]:
    """x += omega z, r -= omega t in place; returns r . r and shadow . r of the new r. Moves 7 n S values."""
    xp = array_namespace(x)
    moving = omega != 0
    x[...] = xp.where(moving, x + times(omega, z), x)
    r[...] = xp.where(moving, r - times(omega, t), r)
    return block_sums(times(conjugated(r), r)), block_sums(times(conjugated(shadow), r))


@per_width
def _bicgstab_update(width: int) -> Any:
    @compiled
    def loop(omega, shadow, z, t, x, r, partials, bounds, n_samples, first):
        for block in prange(partials.shape[0]):
            step = load(omega, first, width)
            moving = step != zeros(omega, width)
            square, inner = zeros(x, width), zeros(x, width)
            for i in range(bounds[block], bounds[block + 1]):
                here = np.int64(i) * n_samples + first
                old_x, old_r = load(x, here, width), load(r, here, width)
                store(x, here, select(moving, old_x + step * load(z, here, width), old_x))
                new_r = select(moving, old_r - step * load(t, here, width), old_r)
                store(r, here, new_r)
                square = square + conjugate(new_r) * new_r
                inner = inner + conjugate(load(shadow, here, width)) * new_r
            store(partials.reshape(-1), 2 * block * n_samples + first, square)
            store(partials.reshape(-1), (2 * block + 1) * n_samples + first, inner)

    return loop


@bicgstab_update.register("numba", complex_numbers=True)
def _(omega: Array, shadow: Array, z: Array, t: Array, x: Array, r: Array) -> tuple[Array, Array]:
    n_rows, n_samples = x.shape
    partials, bounds = row_blocks(n_rows, 2 * n_samples, x.dtype)
    flat = [array.reshape(-1) for array in (shadow, z, t, x, r)]
    for first, width in tiles(n_samples, widest(x)):
        _bicgstab_update(width)(omega, *flat, partials, bounds, n_samples, first)
    sums = ordered_sum(partials)
    return sums[:n_samples], sums[n_samples:]


@bicgstab_update.register("cuda", complex_numbers=True)
def _(omega: Array, shadow: Array, z: Array, t: Array, x: Array, r: Array) -> tuple[Array, Array]:
    square, inner = chunk_sums(bicgstab_update_partials(omega, shadow, z, t, x, r))
    return square, inner


def bicgstab_update_partials(omega: Array, shadow: Array, z: Array, t: Array, x: Array, r: Array) -> Array:
    """On a device: the update, and the partial sums of r . r and shadow . r."""
    n_rows, n_samples = x.shape
    arguments = (omega, shadow, z, t, x, r)
    layout = cuda.layout_of(n_samples, x, r, z, t, shadow, omega)
    return cuda.chunked(CUDA, "bicgstab_update", n_rows, arguments, layout, False, n_samples, 2)


@kernel
def bicgstab_direction(beta: Array, omega: Array, r: Array, v: Array, p: Array) -> Array:
    """p = r + beta (p - omega v) in place; where beta is zero, p = r whatever p was. Moves 4 n S values."""
    xp = array_namespace(p)
    p[...] = xp.where(beta != 0, r + times(beta, p - times(omega, v)), r)
    return p


@per_width
def _bicgstab_direction(width: int) -> Any:
    @compiled
    def loop(beta, omega, r, v, p, n_rows, n_samples, first):
        for i in prange(n_rows):
            here = np.int64(i) * n_samples + first
            factor, step = load(beta, first, width), load(omega, first, width)
            new = load(r, here, width)
            moved = new + factor * (load(p, here, width) - step * load(v, here, width))
            store(p, here, select(factor != zeros(beta, width), moved, new))

    return loop


@bicgstab_direction.register("numba", complex_numbers=True)
def _(beta: Array, omega: Array, r: Array, v: Array, p: Array) -> Array:
    n_rows, n_samples = p.shape
    for first, width in tiles(n_samples, widest(r)):
        flat = (r.reshape(-1), v.reshape(-1), p.reshape(-1))
        _bicgstab_direction(width)(beta, omega, *flat, n_rows, n_samples, first)
    return p


@bicgstab_direction.register("cuda", complex_numbers=True)
def _(beta: Array, omega: Array, r: Array, v: Array, p: Array) -> Array:
    n_rows, n_samples = p.shape
    layout = cuda.layout_of(n_samples, p, r, v, beta, omega)
    CUDA.rows("bicgstab_direction", n_rows, n_samples, (beta, omega, r, v, p), layout)
    return p


def bicgstab_direction_keep(
    beta: Array,
    omega: Array,
    renew: Array,
    r: Array,
    v: Array,
    p: Array,
    shadow: Array,
    keep: Array,
    x: Array,
    kept: Array,
) -> None:
    """On a device: `bicgstab_direction`, shadow = r where `renew` is not zero, kept = x where `keep` is not zero."""
    arguments = (beta, omega, renew, r, v, p, shadow, keep, x, kept)
    layout = cuda.layout_of(p.shape[1], p, r, v, shadow, beta, omega, renew, keep, x, kept)
    CUDA.rows("bicgstab_direction_keep", p.shape[0], p.shape[1], arguments, layout)
