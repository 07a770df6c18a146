"""Entry to and exit from a V-cycle that works in scaled variables, in another precision, or both.

The V-cycle solves for ``b = scale * (enter * r)`` in its own type, and its result x is returned as ``leave * (scale *
x)`` in the type of r: conversion and scaling are done in the first and in the last pass over the finest level. `scale`,
of shape (n, n_samples), may be None: no scaling. `enter` and `leave` are powers of two, one per sample, in the type of
r: they scale numbers of any magnitude into the range of the V-cycle's type, and round nothing.

Bytes (r of 8, the V-cycle of 4, n rows, S samples): `scaled_start` 20 n S, `scaled_finish` 36 n S and the matrix.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.lanes.arithmetic import absolute, convert
from ensemble._compile.lanes.types import load, select, splat, store, stream, zeros
from ensemble._compile.numba import compiled, compiled_procedure, output, per_width, prange, streams, tiles
from ensemble._compile.powers import exponent_of, times_power_of_two
from ensemble._compile.registry import into, kernel
from ensemble._kernels.krylov.vectors import dot
from ensemble._kernels.sparse.crs import row_product, row_sum
from ensemble._kernels.sparse.row_passes import block_lists
from ensemble._kernels.sparse.row_sums import (
    SERIAL,
    block_sums,
    largest_of_blocks,
    largest_of_chunks,
    ordered_sum,
    row_blocks,
    space_in_force,
)
from ensemble._typing import Array

__all__ = [
    "entry_units", "finished_on_device", "narrowed", "scaled_finish", "scaled_start", "units_from", "units_of_norms",
]  # fmt: skip


CUDA = cuda.KernelModule(
    "multigrid/scaling",
    [
        *(
            f"{name}<{shared}, {scaled}>"
            for name in ("scaled_start", "scaled_finish")
            for shared in ("false", "true")
            for scaled in ("false", "true")
        ),
        "narrowed",
    ],
    headers=("../_compile/include/copy_engine.cuh", "sparse/rows.cuh"),
    extras=(("-DWIDE=double",), ("-DWIDE=float",)),
)


def _on_device(name, scale, shared, arguments, n_rows, n_samples, samples, outer, wide=False):
    """Queue a kernel; `samples` are its arrays with a column a sample, `outer` one of the other precision."""
    layout = cuda.layout_of(n_samples, *samples, *(() if scale is None else (scale,)))
    instance = cuda.instance(name, shared, scale is not None)
    CUDA.rows(instance, n_rows, n_samples, arguments, layout, wide, _extra(outer))


def _extra(outer):
    """Compile-time definitions of the type outside the V-cycle."""
    return (f"-DWIDE={'double' if outer.dtype.itemsize == 8 else 'float'}",)


# --- powers of two
@kernel
def entry_units(r, unit, out):
    """Row 0: the power of two, one per sample, that scales the largest entry of r into [1, 2); row 1: unit over it.

    `unit` and the result are of the type of r. A sample of zeros, or of numbers that are not finite, has 1 in row 0.
    """
    most = np.max(np.where(np.isnan(r), 0, np.abs(r)), axis=0, initial=0)
    return into(out, units_from(most, unit))


def units_from(most, unit):
    """`entry_units` from the largest magnitudes, one per sample."""
    exponent = np.frexp(np.where(np.isfinite(most) & (most > 0), most, 1))[1] - 1
    exponent = np.maximum(exponent, -LARGEST_EXPONENT[most.dtype.itemsize])
    with np.errstate(over="ignore", under="ignore"):  # the result may be beyond the range, too
        return np.stack([np.ldexp(np.ones_like(most), -exponent), np.ldexp(unit, exponent)])


LARGEST_EXPONENT = {4: 126, 8: 1022}
"""Exponent of the largest power of two whose inverse is a normal number, by bytes of the type."""


@per_width
def _largest(width):
    @compiled
    def loop(x, partials, bounds, n_samples, first):
        for block in prange(partials.size // n_samples):
            most = zeros(x, width)
            for i in range(bounds[block], bounds[block + 1]):
                size = absolute(load(x, np.int64(i) * n_samples + first, width))
                most = select(size > most, size, most)  # a comparison with NaN is false
            store(partials, block * n_samples + first, most)

    return loop


@compiled_procedure
def _units(partials, unit, most, out):
    for s in range(partials.shape[1]):
        out[0, s] = 0.0
        largest = out[0, s]
        for block in range(partials.shape[0]):
            largest = max(largest, partials[block, s])
        exponent = np.int64(0)
        if np.isfinite(largest) and largest > 0.0:
            exponent = max(exponent_of(largest), -most)
        out[0, s] = 1.0
        out[0, s] = times_power_of_two(out[0, s], -exponent)
        out[1, s] = times_power_of_two(unit[s], exponent)


@entry_units.register("numba")
def _(r, unit, out):
    n_rows, n_samples = r.shape
    partials, bounds = row_blocks(n_rows, n_samples, r.dtype)
    for first, width in tiles(n_samples):
        _largest(width)(r.reshape(-1), partials.reshape(-1), bounds, n_samples, first)
    if space_in_force() is not SERIAL:
        return into(out, units_from(largest_of_blocks(partials), unit))
    found = output(out, (2, n_samples), r.dtype)
    _units(partials, unit, LARGEST_EXPONENT[r.dtype.itemsize], found)
    return found


@entry_units.register("cuda")
def _(r, unit, out):
    n_rows, n_samples = r.shape
    krylov = cuda.KERNEL_MODULES["krylov/vectors"]
    layout = cuda.layout_of(n_samples, r)
    partials = largest_of_chunks(cuda.chunked(krylov, "largest", n_rows, (r,), layout, False, n_samples, 1))
    return _units_on_device(partials[0], unit, cuda.output(out, r, (2, n_samples)))


def units_of_norms(norm: Array, unit: Array) -> Array:
    """On a device: `entry_units` from norms of r, one per sample, float64."""
    n_samples, xp = norm.shape[0], array_namespace(norm)
    norm = xp.astype(norm, unit.dtype, copy=False)
    return _units_on_device(norm[None], unit, empty_like(unit, (2, n_samples)))


def _units_on_device(sizes, unit, out):
    """`entry_units` from partial maxima, shape (n, n_samples)."""
    n_chunks, n_samples = sizes.shape
    arguments = (sizes, unit, out, np.int64(n_chunks), np.int32(n_samples))
    krylov = cuda.KERNEL_MODULES["krylov/vectors"]
    krylov.launch("units_from", cuda.single_layout(unit), (n_samples,), UNIT_THREADS, arguments)
    return out


UNIT_THREADS = 128  # as in krylov/vectors.cu


@kernel
def narrowed(values, unit, out):
    """values * unit, one factor per sample, rounded to the type of `out`, which must be given."""
    return into(out, array_namespace(values).astype(values * unit, out.dtype))


@per_width
def _narrowed(width):
    @compiled
    def loop(values, unit, out, past_cache, n_rows, n_samples, first):
        factor = load(unit, first, width)
        for k in prange(n_rows):
            here = np.int64(k) * n_samples + first
            entry = convert(load(values, here, width) * factor, out)
            if past_cache:
                stream(out, here, entry)
            else:
                store(out, here, entry)

    return loop


@narrowed.register("numba")
def _(values, unit, out):
    n_rows, n_samples = values.shape
    for first, width in tiles(n_samples):
        flat = values.reshape(-1), unit, out.reshape(-1)
        _narrowed(width)(*flat, streams(out), n_rows, n_samples, first)
    return out


@narrowed.register("cuda")
def _(values, unit, out):
    n_rows, n_samples = values.shape
    layout = cuda.layout_of(n_samples, out)
    CUDA.rows("narrowed", n_rows, n_samples, (values, unit, out), layout, False, _extra(values))
    return out


# --- entry and exit
@kernel
def scaled_start(scale, enter, r, dinv, c, b, out):
    """b = scale * (enter * r), and the first Chebyshev step from zero, c * dinv * b, to `out`; both must be given."""
    xp = array_namespace(b)
    entered = xp.astype(enter * r, b.dtype)
    if scale is not None:
        entered = scale * entered
    return into(b, entered), into(out, c * (dinv * entered))


@per_width
def _start(width, shared):
    @compiled
    def loop(scale, enter, r, dinv, c, b, x, past_cache, n_rows, n_samples, first, scaled):
        for i in prange(n_rows):
            here = np.int64(i) * n_samples + first
            entered = convert(load(enter, first, width) * load(r, here, width), b)
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
def _(scale, enter, r, dinv, c, b, out):
    n_rows, n_samples = r.shape
    shared = dinv.shape[1] != n_samples
    flat = [array.reshape(-1) for array in (b if scale is None else scale, enter, r, dinv, c, b, out)]
    past_cache = streams(b) and streams(out)
    for first, width in tiles(n_samples):
        _start(width, shared)(*flat, past_cache, n_rows, n_samples, first, scale is not None)
    return b, out


@scaled_start.register("cuda")
def _(scale, enter, r, dinv, c, b, out):
    n_rows, n_samples = r.shape
    shared = dinv.shape[1] != n_samples
    samples = (b, c, out, *(() if shared else (dinv,)))
    _on_device("scaled_start", scale, shared, (scale, enter, r, dinv, c, b, out), n_rows, n_samples, samples, r)
    return b, out


@kernel
def scaled_finish(scale, leave, indptr, indices, values, dinv, b, x, a, c, w, r, out):
    """The last Chebyshev step, leave * (scale * (x + a * w + c * dinv * (b - A x))), to `out`.

    Returns (out, the inner product of r and out, one value per sample). `out` is of the type of r and must not be `x`.
    """
    xp = array_namespace(x)
    new = x + (a * w + c * (dinv * (b - row_sum(indptr, indices, values, x))))
    if scale is not None:
        new = scale * new
    new = leave * xp.astype(new, r.dtype)
    return into(out, new), block_sums(r * new)


@per_width
def _finish(width, shared):
    @compiled
    def loop(
        scale, leave, indptr, indices, values, dinv, b, x, a, c, w, r, out, partials, bounds, blocks, past_cache,
        n_samples, first, scaled,
    ):  # fmt: skip
        for k in prange(blocks.size):
            block = blocks[k]
            inner = zeros(out, width)
            for i in range(bounds[block], bounds[block + 1]):
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
                left = load(leave, first, width) * convert(new, out)
                inner = inner + load(r, here, width) * left
                if past_cache:
                    stream(out, here, left)
                else:
                    store(out, here, left)
            store(partials, block * n_samples + first, inner)

    return loop


@scaled_finish.register("numba")
def _(scale, leave, indptr, indices, values, dinv, b, x, a, c, w, r, out):
    n_rows, n_samples = b.shape
    out = np.empty(r.shape, r.dtype) if out is None else out
    shared = values.shape[1] != n_samples
    partials, bounds = row_blocks(n_rows, n_samples, r.dtype)
    flat = [array.reshape(-1) for array in (values, dinv, b, x, a, c, w, r, out, partials)]
    factors, past_cache = (b if scale is None else scale).reshape(-1), streams(out)
    for blocks in block_lists(partials.shape[0]):
        for first, width in tiles(n_samples):
            _finish(width, shared)(
                factors, leave, indptr, indices, *flat, bounds, blocks, past_cache, n_samples, first, scale is not None
            )
    return out, ordered_sum(partials)


@scaled_finish.register("cuda")
def _(scale, leave, indptr, indices, values, dinv, b, x, a, c, w, r, out):
    out = cuda.output(out, r, r.shape)
    finished_on_device(scale, leave, indptr, indices, values, dinv, b, x, a, c, w, out)
    return out, dot(r, out, None)


def finished_on_device(scale, leave, indptr, indices, values, dinv, b, x, a, c, w, out):
    """`scaled_finish` on a device without its inner product, which is another pass there."""
    n_rows, n_samples = b.shape
    shared = values.shape[1] != n_samples
    samples = (b, x, a, c, w, *(() if shared else (values, dinv)))
    arguments = (scale, leave, indptr, indices, values, dinv, b, x, a, c, w, out)
    wide = cuda.is_wide(indptr)
    _on_device("scaled_finish", scale, shared, arguments, n_rows, n_samples, samples, out, wide)
