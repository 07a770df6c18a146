"""Vector updates and inner products of the Krylov methods, fused so that each vector passes through memory once.

Vectors have shape (n, n_samples); `alpha`, `beta` and inner products have one value per sample. A coefficient of zero
freezes its sample: nothing of that sample is written, not even a NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.lanes.arithmetic import conjugate
from ensemble._compile.lanes.types import load, select, store, zeros
from ensemble._compile.numba import compiled, output, per_width, prange, tiles, widest
from ensemble._compile.registry import KERNELS, into, kernel
from ensemble._kernels.sparse.complex_numbers import conjugated, times
from ensemble._kernels.sparse.row_sums import block_sums, chunk_sums, ordered_sum, row_blocks
from ensemble._typing import Array

__all__ = ["cg_direction", "cg_update", "copy_chosen", "dot", "put_samples", "take_samples"]


CUDA = cuda.KernelModule(
    "krylov/vectors",
    [
        "dot", "cg_update", "cg_direction", "cg_direction_keep", "take_samples", "put_samples", "largest", "units_from",
        "cg_alpha", "cg_norm", "cg_change", "cg_beta", "cg_verify", "copy_chosen",
    ],
    ("krylov/statuses.cuh",),
    of_complex=("dot", "cg_update", "cg_direction", "take_samples", "put_samples", "copy_chosen"),
)  # fmt: skip


@kernel
def dot(x: Array, y: Array, out: Array) -> Array:
    """sum over i of x[i, s] * y[i, s]: one value per sample, in an order that depends on nothing but n.

    Complex numbers of x are conjugated.
    """
    return into(out, block_sums(times(conjugated(x), y)))


@per_width
def _dot(width: int) -> Any:
    @compiled
    def loop(x, y, partials, bounds, n_samples, first):
        for block in prange(partials.shape[0]):
            inner = zeros(x, width)
            for i in range(bounds[block], bounds[block + 1]):
                here = np.int64(i) * n_samples + first
                inner = inner + conjugate(load(x, here, width)) * load(y, here, width)
            store(partials.reshape(-1), block * n_samples + first, inner)

    return loop


@dot.register("numba", complex_numbers=True)
def _(x: Array, y: Array, out: Array) -> Array:
    n_rows, n_samples = x.shape
    if x.dtype != y.dtype or x.dtype.kind not in "fc":
        return dot.reference(x, y, out)
    partials, bounds = row_blocks(n_rows, n_samples, x.dtype)
    for first, width in tiles(n_samples, widest(x)):
        _dot(width)(x.reshape(-1), y.reshape(-1), partials, bounds, n_samples, first)
    return into(out, ordered_sum(partials))


@dot.register("cuda", complex_numbers=True)
def _(x: Array, y: Array, out: Array) -> Array:
    if x.dtype != y.dtype or x.dtype.kind not in "fc":
        return dot.reference(x, y, out)
    return into(out, chunk_sums(dot_partials(x, y))[0])


def dot_partials(x: Array, y: Array) -> Array:
    """On a device: the partial sums of x . y."""
    n_rows, n_samples = x.shape
    return cuda.chunked(CUDA, "dot", n_rows, (x, y), cuda.layout_of(n_samples, x, y), False, n_samples, 1)


@kernel
def cg_update(alpha: Array, p: Array, q: Array, x: Array, r: Array) -> Array:
    """x += alpha p, r -= alpha q in place; returns the inner product of the new r with itself. Moves 6 n S values."""
    xp = array_namespace(x)
    moving = alpha != 0
    x[...] = xp.where(moving, x + times(alpha, p), x)
    r[...] = xp.where(moving, r - times(alpha, q), r)
    return block_sums(times(conjugated(r), r))


@per_width
def _cg_update(width: int) -> Any:
    @compiled
    def loop(alpha, p, q, x, r, partials, bounds, n_samples, first):
        for block in prange(partials.shape[0]):
            step = load(alpha, first, width)
            moving = step != zeros(alpha, width)
            inner = zeros(x, width)
            for i in range(bounds[block], bounds[block + 1]):
                here = np.int64(i) * n_samples + first
                old_x, old_r = load(x, here, width), load(r, here, width)
                store(x, here, select(moving, old_x + step * load(p, here, width), old_x))
                new_r = select(moving, old_r - step * load(q, here, width), old_r)
                store(r, here, new_r)
                inner = inner + conjugate(new_r) * new_r
            store(partials.reshape(-1), block * n_samples + first, inner)

    return loop


@cg_update.register("numba", complex_numbers=True)
def _(alpha: Array, p: Array, q: Array, x: Array, r: Array) -> Array:
    n_rows, n_samples = x.shape
    partials, bounds = row_blocks(n_rows, n_samples, x.dtype)
    flat = [array.reshape(-1) for array in (p, q, x, r)]
    for first, width in tiles(n_samples, widest(x)):
        _cg_update(width)(alpha, *flat, partials, bounds, n_samples, first)
    return ordered_sum(partials)


@cg_update.register("cuda", complex_numbers=True)
def _(alpha: Array, p: Array, q: Array, x: Array, r: Array) -> Array:
    return chunk_sums(cg_update_partials(alpha, p, q, x, r))[0]


def cg_update_partials(alpha: Array, p: Array, q: Array, x: Array, r: Array) -> Array:
    """On a device: the update, and the partial sums of r . r."""
    n_rows, n_samples = x.shape
    arguments = (alpha, p, q, x, r)
    layout = cuda.layout_of(n_samples, x, r, p, q, alpha)
    return cuda.chunked(CUDA, "cg_update", n_rows, arguments, layout, False, n_samples, 1)


@kernel
def cg_direction(beta: Array, z: Array, p: Array) -> Array:
    """p = z + beta p in place; where beta is zero, p = z whatever p was. Moves 3 n S values."""
    xp = array_namespace(p)
    p[...] = xp.where(beta != 0, z + times(beta, p), z)
    return p


@per_width
def _cg_direction(width: int) -> Any:
    @compiled
    def loop(beta, z, p, n_rows, n_samples, first):
        for i in prange(n_rows):
            here = np.int64(i) * n_samples + first
            factor = load(beta, first, width)
            new = load(z, here, width)
            store(p, here, select(factor != zeros(beta, width), new + factor * load(p, here, width), new))

    return loop


@cg_direction.register("numba", complex_numbers=True)
def _(beta: Array, z: Array, p: Array) -> Array:
    n_rows, n_samples = p.shape
    for first, width in tiles(n_samples, widest(p)):
        _cg_direction(width)(beta, z.reshape(-1), p.reshape(-1), n_rows, n_samples, first)
    return p


@cg_direction.register("cuda", complex_numbers=True)
def _(beta: Array, z: Array, p: Array) -> Array:
    CUDA.rows("cg_direction", p.shape[0], p.shape[1], (beta, z, p), cuda.layout_of(p.shape[1], p, z, beta))
    return p


@kernel
def copy_chosen(chosen: Array, source: Array, out: Array) -> Array:
    """out = source for the samples whose `chosen` is not zero, in place."""
    out[...] = array_namespace(out).where(chosen != 0, source, out)
    return out


@compiled
def _copy_chosen(chosen, source, out):
    for i in prange(out.shape[0]):
        for s in range(out.shape[1]):
            if chosen[s] != 0:
                out[i, s] = source[i, s]


@copy_chosen.register("numba", complex_numbers=True)
def _(chosen: Array, source: Array, out: Array) -> Array:
    _copy_chosen(chosen, source, out)
    return out


@copy_chosen.register("cuda", complex_numbers=True)
def _(chosen: Array, source: Array, out: Array) -> Array:
    n_rows, n_samples = out.shape
    layout = cuda.layout_of(n_samples, source, out, chosen)
    CUDA.rows("copy_chosen", n_rows, n_samples, (chosen, source, out), layout)
    return out


def cg_direction_keep(beta: Array, z: Array, p: Array, keep: Array, alpha: Array, x: Array, kept: Array) -> None:
    """On a device: `cg_direction`, except that p stays where beta is no number; before it ``kept = x - alpha p`` for
    the samples whose `keep` is not zero.
    """
    arguments = (beta, z, p, keep, alpha, x, kept)
    n_rows, n_samples = p.shape
    layout = cuda.layout_of(n_samples, p, z, beta, keep, alpha, x, kept)
    CUDA.rows("cg_direction_keep", n_rows, n_samples, arguments, layout)


@kernel
def take_samples(array: Array, samples: Array, out: Array) -> Array:
    """array[i, samples[t]] for all rows i: a narrower ensemble of the samples named."""
    xp = array_namespace(array)
    return into(out, xp.take(array, samples, axis=1))


@compiled
def _take_samples(array, samples, out):
    for i in prange(array.shape[0]):
        for t in range(samples.size):
            out[i, t] = array[i, samples[t]]


@take_samples.register("numba", complex_numbers=True)
def _(array: Array, samples: Array, out: Array) -> Array:
    out = output(out, (array.shape[0], samples.shape[0]), array.dtype)
    _take_samples(array, samples, out)
    return out


@take_samples.register("cuda", complex_numbers=True)
def _(array: Array, samples: Array, out: Array) -> Array:
    return _move_samples("take_samples", array, samples, cuda.output(out, array, (array.shape[0], samples.shape[0])))


def _move_samples(name: str, array: Array, samples: Array, out: Array) -> Array:
    """Queue a kernel with one thread for each row and sample that moves."""
    xp = array_namespace(array)
    if array.dtype.kind not in "fc":
        out[...] = KERNELS[name].reference(array, samples, out)
        return out
    samples = xp.astype(xp.asarray(samples), xp.int64)
    layout = cuda.single_layout(array)
    n_moved = samples.shape[0]
    widths = (np.int32(array.shape[1]), np.int32(out.shape[1]), np.int32(n_moved))
    blocks = -(-array.shape[0] * n_moved // cuda.THREADS)
    CUDA.launch(name, layout, (blocks,), cuda.THREADS, (array, samples, out, np.int64(array.shape[0]), *widths))
    return out


@kernel
def put_samples(array: Array, samples: Array, out: Array) -> Array:
    """out[i, samples[t]] = array[i, t]: a narrow ensemble back into the wide one it was taken from."""
    for t in range(samples.shape[0]):
        out[:, int(samples[t])] = array[:, t]
    return out


@compiled
def _put_samples(array, samples, out):
    for i in prange(array.shape[0]):
        for t in range(samples.size):
            out[i, samples[t]] = array[i, t]


@put_samples.register("numba", complex_numbers=True)
def _(array: Array, samples: Array, out: Array) -> Array:
    _put_samples(array, samples, out)
    return out


@put_samples.register("cuda", complex_numbers=True)
def _(array: Array, samples: Array, out: Array) -> Array:
    return _move_samples("put_samples", array, samples, out)
