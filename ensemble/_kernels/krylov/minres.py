"""The vector work of MINRES: one step of Lanczos' process, and the update of direction, solution and residual.

Vectors have shape (n, n_samples), coefficients one value per sample; a coefficient of zero omits its vector, even where
that holds NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile.lanes.arithmetic import conjugate
from ensemble._compile.lanes.types import load, select, store, zeros
from ensemble._compile.numba import compiled, per_width, prange, tiles, widest
from ensemble._compile.registry import kernel
from ensemble._kernels.sparse.complex_numbers import conjugated, times
from ensemble._kernels.sparse.row_sums import block_sums, ordered_sum, row_blocks
from ensemble._typing import Array

__all__ = ["lanczos_step", "minres_update"]


@kernel
def lanczos_step(h: Array, q: Array, v: Array, u: Array) -> Array:
    """u = h[0] q - h[1] v - h[2] u in place: the next Lanczos vector. Moves 4 n S values."""
    xp = array_namespace(u)
    new = times(h[0, :], q) - times(h[1, :], v)
    u[...] = xp.where(h[2, :] != 0, new - times(h[2, :], u), new)
    return u


@per_width
def _lanczos_step(width: int) -> Any:
    @compiled
    def loop(h, q, v, u, n_rows, n_samples, first):
        for i in prange(n_rows):
            here = np.int64(i) * n_samples + first
            last = load(h, 2 * n_samples + first, width)
            new = load(h, first, width) * load(q, here, width)
            new = new - load(h, n_samples + first, width) * load(v, here, width)
            store(u, here, select(last != zeros(u, width), new - last * load(u, here, width), new))

    return loop


@lanczos_step.register("numba", complex_numbers=True)
def _(h: Array, q: Array, v: Array, u: Array) -> Array:
    n_rows, n_samples = u.shape
    flat = [array.reshape(-1) for array in (h, q, v, u)]
    for first, width in tiles(n_samples, widest(u)):
        _lanczos_step(width)(*flat, n_rows, n_samples, first)
    return u


@kernel
def minres_update(h: Array, z: Array, w: Array, p: Array, x: Array, v: Array, r: Array) -> Array:
    """p = h[0] z - h[1] w - h[2] p, x += h[3] p, r = h[4] r + h[5] v in place; returns the new r . r.

    Where h[3] is zero x and r stay. Moves 9 n S values.
    """
    xp = array_namespace(x)
    new = times(h[0, :], z)
    new = xp.where(h[1, :] != 0, new - times(h[1, :], w), new)
    p[...] = xp.where(h[2, :] != 0, new - times(h[2, :], p), new)
    moving = h[3, :] != 0
    x[...] = xp.where(moving, x + times(h[3, :], p), x)
    r[...] = xp.where(moving, times(h[4, :], r) + times(h[5, :], v), r)
    return block_sums(times(conjugated(r), r))


@per_width
def _minres_update(width: int) -> Any:
    @compiled
    def loop(h, z, w, p, x, v, r, partials, bounds, n_samples, first):
        for block in prange(partials.shape[0]):
            nothing = zeros(x, width)
            scale, second = load(h, first, width), load(h, n_samples + first, width)
            third, step = load(h, 2 * n_samples + first, width), load(h, 3 * n_samples + first, width)
            shrink, share = load(h, 4 * n_samples + first, width), load(h, 5 * n_samples + first, width)
            inner = nothing
            for i in range(bounds[block], bounds[block + 1]):
                here = np.int64(i) * n_samples + first
                new = scale * load(z, here, width)
                new = select(second != nothing, new - second * load(w, here, width), new)
                new = select(third != nothing, new - third * load(p, here, width), new)
                store(p, here, new)
                old_x, old_r = load(x, here, width), load(r, here, width)
                store(x, here, select(step != nothing, old_x + step * new, old_x))
                new_r = select(step != nothing, shrink * old_r + share * load(v, here, width), old_r)
                store(r, here, new_r)
                inner = inner + conjugate(new_r) * new_r
            store(partials.reshape(-1), block * n_samples + first, inner)

    return loop


@minres_update.register("numba", complex_numbers=True)
def _(h: Array, z: Array, w: Array, p: Array, x: Array, v: Array, r: Array) -> Array:
    n_rows, n_samples = x.shape
    partials, bounds = row_blocks(n_rows, n_samples, x.dtype)
    flat = [array.reshape(-1) for array in (h, z, w, p, x, v, r)]
    for first, width in tiles(n_samples, widest(x)):
        _minres_update(width)(*flat, partials, bounds, n_samples, first)
    return ordered_sum(partials)
