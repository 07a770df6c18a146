"""Entry to and exit from a V-cycle that works in scaled variables, in another precision, or both.

The V-cycle solves for ``b = scale * r`` in the type of `scale`, and its answer x goes out as ``scale * x`` in the type
of r: conversion and scaling ride on the first and on the last pass over the finest level. `scale`, of shape
(n, n_samples), may be None: no scaling.

Bytes (r of 8, the V-cycle of 4, n rows, S samples): `scaled_start` 20 n S, `scaled_finish` 36 n S and the matrix.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._kernels import _cuda
from ensemble._kernels._compile import ROW_BLOCK, compiled, per_width, prange, streams, tiles
from ensemble._kernels._lane_arithmetic import convert
from ensemble._kernels._lanes import load, splat, store, stream, zeros
from ensemble._kernels._registry import into, kernel
from ensemble._kernels.krylov import dot
from ensemble._kernels.sparse import block_sums, ordered_sum, partial_sums, row_product, row_sum

__all__ = ["scaled_finish", "scaled_start"]


CUDA = _cuda.Family(
    "scaling",
    [
        f"{name}<{shared}, {scaled}>"
        for name in ("scaled_start", "scaled_finish")
        for shared in ("false", "true")
        for scaled in ("false", "true")
    ],
    headers=("rows.cuh",),
    extras=(("-DWIDE=double",), ("-DWIDE=float",)),
)


def _on_device(name, scale, shared, arguments, n_rows, n_samples, samples, outer, wide=False):
    """Queue a kernel; `samples` are its arrays with a column a sample, `outer` one of the other precision."""
    layout = _cuda.layout_of(n_samples, *samples, *(() if scale is None else (scale,)))
    extra = (f"-DWIDE={'double' if outer.dtype.itemsize == 8 else 'float'}",)
    instance = f"{name}<{str(shared).lower()}, {str(scale is not None).lower()}>"
    CUDA.rows(instance, n_rows, n_samples, arguments, layout, wide, extra)


@kernel
def scaled_start(scale, r, dinv, c, b, out):
    """b = scale * r, and the first Chebyshev step from zero, c * dinv * b, to `out`; both must be given."""
    xp = array_namespace(b)
    entered = xp.astype(r, b.dtype)
    if scale is not None:
        entered = scale * entered
    return into(b, entered), into(out, c * (dinv * entered))


@per_width
def _start(width, shared, scaled):
    @compiled
    def loop(scale, r, dinv, c, b, x, past_cache, n_rows, n_samples, first):
        for i in prange(n_rows):
            here = np.int64(i) * n_samples + first
            entered = convert(load(r, here, width), b)
            if scaled:
                entered = load(scale, here, width) * entered
            inverse = splat(dinv[i], dinv, width) if shared else load(dinv, here, width)
            step = load(c, first, width) * (inverse * entered)
            if past_cache:
                stream(b, here, entered)
                stream(x, here, step)
            else:
                store(b, here, entered)
                store(x, here, step)

    return loop


@scaled_start.register("numba")
def _(scale, r, dinv, c, b, out):
    n_rows, n_samples = r.shape
    shared = dinv.shape[1] != n_samples
    flat = [array.reshape(-1) for array in (b if scale is None else scale, r, dinv, c, b, out)]
    past_cache = streams(b) and streams(out)
    for first, width in tiles(n_samples):
        _start(width, shared, scale is not None)(*flat, past_cache, n_rows, n_samples, first)
    return b, out


@scaled_start.register("cuda")
def _(scale, r, dinv, c, b, out):
    n_rows, n_samples = r.shape
    shared = dinv.shape[1] != n_samples
    samples = (b, c, out, *(() if shared else (dinv,)))
    _on_device("scaled_start", scale, shared, (scale, r, dinv, c, b, out), n_rows, n_samples, samples, r)
    return b, out


@kernel
def scaled_finish(scale, indptr, indices, values, dinv, b, x, a, c, w, r, out):
    """The last Chebyshev step, scale * (x + a * w + c * dinv * (b - A x)), to `out`, of the type of r.

    Returns (out, the inner product of r and out, one value a sample). `out` must not be `x`.
    """
    xp = array_namespace(x)
    new = x + (a * w + c * (dinv * (b - row_sum(indptr, indices, values, x))))
    if scale is not None:
        new = scale * new
    new = xp.astype(new, r.dtype)
    return into(out, new), block_sums(r * new)


@per_width
def _finish(width, shared, scaled):
    @compiled
    def loop(scale, indptr, indices, values, dinv, b, x, a, c, w, r, out, partials, past_cache, n_samples, first):
        n_rows = indptr.size - 1
        for block in prange(partials.size // n_samples):
            inner = zeros(out, width)
            for i in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, n_rows)):
                total = row_product(
                    indptr, indices, values, x, i, n_samples, first, shared, False, zeros(values, width)
                )
                here = np.int64(i) * n_samples + first
                inverse = splat(dinv[i], dinv, width) if shared else load(dinv, here, width)
                step = load(c, first, width) * (inverse * (load(b, here, width) - total))
                step = load(a, first, width) * load(w, here, width) + step
                new = load(x, here, width) + step
                if scaled:
                    new = load(scale, here, width) * new
                left = convert(new, out)
                inner = inner + load(r, here, width) * left
                if past_cache:
                    stream(out, here, left)
                else:
                    store(out, here, left)
            store(partials, block * n_samples + first, inner)

    return loop


@scaled_finish.register("numba")
def _(scale, indptr, indices, values, dinv, b, x, a, c, w, r, out):
    n_rows, n_samples = x.shape
    out = np.empty(r.shape, r.dtype) if out is None else out
    shared = values.shape[1] != n_samples
    partials = partial_sums(n_rows, n_samples, r.dtype)
    flat = [array.reshape(-1) for array in (values, dinv, b, x, a, c, w, r, out, partials)]
    for first, width in tiles(n_samples):
        _finish(width, shared, scale is not None)(
            (b if scale is None else scale).reshape(-1), indptr, indices, *flat, streams(out), n_samples, first
        )
    return out, ordered_sum(partials)


@scaled_finish.register("cuda")
def _(scale, indptr, indices, values, dinv, b, x, a, c, w, r, out):
    n_rows, n_samples = x.shape
    out = _cuda.output(out, r, r.shape)
    shared = values.shape[1] != n_samples
    samples = (b, x, a, c, w, *(() if shared else (values, dinv)))
    arguments = (scale, indptr, indices, values, dinv, b, x, a, c, w, out)
    wide = _cuda.is_wide(indptr)
    _on_device("scaled_finish", scale, shared, arguments, n_rows, n_samples, samples, out, wide)
    return out, dot(r, out, None)
