"""Smoothers and the eigenvalue estimate: each step is one pass over A.

`dinv` is the inverse diagonal, of shape (n, 1) or (n, n_samples) like `values`; the coefficients `a` and `c` have one
value per sample. Bytes the last Chebyshev step must move beyond A itself: 4 vectors read, 1 written.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile import cuda
from ensemble._compile.lanes.arithmetic import conjugate
from ensemble._compile.lanes.types import load, splat, store, stream, zeros
from ensemble._compile.numba import compiled, output, per_width, prange, streams, tiles
from ensemble._compile.registry import into, kernel
from ensemble._kernels.sparse.complex_numbers import conjugated, real_parts, times
from ensemble._kernels.sparse.crs import row_product, row_sum, scattered
from ensemble._kernels.sparse.row_passes import block_lists, row_runs
from ensemble._kernels.sparse.row_sums import block_sums, chunk_sums, ordered_sum, row_blocks

__all__ = ["chebyshev_first", "chebyshev_last", "chebyshev_start", "chebyshev_step", "power_step"]


SHARED = ("false", "true")
FIRST, STEP, LAST = 0, 1, 2

INSTANCES = (
    *(f"chebyshev_start<{shared}>" for shared in SHARED),
    *(f"chebyshev_step<{kind}, {shared}>" for kind in (FIRST, STEP, LAST) for shared in SHARED),
    *(f"power_step<{shared}>" for shared in SHARED),
)
CUDA = cuda.KernelModule(
    "multigrid/relaxation",
    list(INSTANCES),
    headers=("../_compile/include/copy_engine.cuh", "sparse/rows.cuh"),
    of_complex=INSTANCES,
)


@kernel
def chebyshev_start(dinv, b, c, out):
    """First step from x = 0: x = c * dinv * b, which is also its own change w."""
    return into(out, times(c, times(dinv, b)))


@per_width
def _chebyshev_start(width, shared):
    @compiled
    def loop(dinv, b, c, x, past_cache, n_rows, n_samples, first):
        for i in prange(n_rows):
            here = np.int64(i) * n_samples + first
            inverse = splat(dinv[i], dinv, width) if shared else load(dinv, here, width)
            step = load(c, first, width) * (inverse * load(b, here, width))
            if past_cache:
                stream(x, here, step)
            else:
                store(x, here, step)

    return loop


@chebyshev_start.register("numba", complex_numbers=True)
def _(dinv, b, c, out):
    n_rows, n_samples = b.shape
    out = output(out, b.shape, b.dtype)
    shared = dinv.shape[1] != n_samples
    flat = [array.reshape(-1) for array in (dinv, b, c, out)]
    for first, width in tiles(n_samples):
        _chebyshev_start(width, shared)(*flat, streams(out), n_rows, n_samples, first)
    return out


@chebyshev_start.register("cuda", complex_numbers=True)
def _(dinv, b, c, out):
    n_rows, n_samples = b.shape
    out = cuda.output(out, b, b.shape)
    shared = dinv.shape[1] != n_samples
    layout = cuda.layout_of(n_samples, b, c, out, *(() if shared else (dinv,)))
    CUDA.rows(f"chebyshev_start<{SHARED[shared]}>", n_rows, n_samples, (dinv, b, c, out), layout)
    return out


@kernel
def chebyshev_first(indptr, indices, values, dinv, b, x, c, w, out):
    """First step from x: w = c * dinv * (b - A x), and x + w goes to `out`, which must not be `x`."""
    step = times(c, times(dinv, b - row_sum(indptr, indices, values, x)))
    return into(w, step), into(out, x + step)


@kernel
def chebyshev_step(indptr, indices, values, dinv, b, x, a, c, w, out):
    """w = a * w + c * dinv * (b - A x) in place, and x + w goes to `out`, which must not be `x`."""
    step = times(a, w) + times(c, times(dinv, b - row_sum(indptr, indices, values, x)))
    return into(w, step), into(out, x + step)


@kernel
def chebyshev_last(indptr, indices, values, dinv, b, x, a, c, w, out):
    """x + a * w + c * dinv * (b - A x) to `out`, which must not be `x`; `w` is only read and may be `x`."""
    step = times(a, w) + times(c, times(dinv, b - row_sum(indptr, indices, values, x)))
    return into(out, x + step)


@per_width
def _chebyshev_step(width, shared, kind, prefetch_x):
    @compiled
    def loop(indptr, indices, values, dinv, b, x, a, c, w, out, runs, past_cache, n_samples, first):
        for r in prange(runs.shape[0]):
            for i in range(runs[r, 0], runs[r, 1]):
                total = row_product(
                    indptr, indices, values, x, i, n_samples, first, shared, prefetch_x, zeros(values, width)
                )
                here = np.int64(i) * n_samples + first
                inverse = splat(dinv[i], dinv, width) if shared else load(dinv, here, width)
                step = load(c, first, width) * (inverse * (load(b, here, width) - total))
                if kind != FIRST:
                    step = load(a, first, width) * load(w, here, width) + step
                new = load(x, here, width) + step
                if kind != LAST:
                    store(w, here, step)
                if past_cache:
                    stream(out, here, new)
                else:
                    store(out, here, new)

    return loop


def _run_chebyshev(kind, indptr, indices, values, dinv, b, x, a, c, w, out):
    n_samples = x.shape[1]
    w, out = output(w, b.shape, x.dtype), output(out, b.shape, x.dtype)
    shared = values.shape[1] != n_samples
    flat = [array.reshape(-1) for array in (values, dinv, b, x, a, c, w, out)]
    prefetch_x = scattered(indptr, indices, x)
    past_cache = streams(out)
    for runs in row_runs(out.shape[0]):
        for first, width in tiles(n_samples):
            loop = _chebyshev_step(width, shared, kind, prefetch_x)
            loop(indptr, indices, *flat, runs, past_cache, n_samples, first)
    return w, out


def _chebyshev_on_device(kind, indptr, indices, values, dinv, b, x, a, c, w, out):
    n_rows, n_samples = b.shape
    w, out = cuda.output(w, x, b.shape), cuda.output(out, x, b.shape)
    shared = values.shape[1] != n_samples
    layout = cuda.layout_of(n_samples, b, x, a, c, w, out, *(() if shared else (values, dinv)))
    arguments = (indptr, indices, values, dinv, b, x, a, c, w, out)
    name = f"chebyshev_step<{kind}, {SHARED[shared]}>"
    CUDA.rows(name, n_rows, n_samples, arguments, layout, cuda.is_wide(indptr))
    return w, out


@chebyshev_first.register("numba", complex_numbers=True)
def _(indptr, indices, values, dinv, b, x, c, w, out):
    return _run_chebyshev(FIRST, indptr, indices, values, dinv, b, x, c, c, w, out)


@chebyshev_first.register("cuda", complex_numbers=True)
def _(indptr, indices, values, dinv, b, x, c, w, out):
    return _chebyshev_on_device(FIRST, indptr, indices, values, dinv, b, x, c, c, w, out)


@chebyshev_step.register("numba", complex_numbers=True)
def _(indptr, indices, values, dinv, b, x, a, c, w, out):
    return _run_chebyshev(STEP, indptr, indices, values, dinv, b, x, a, c, w, out)


@chebyshev_step.register("cuda", complex_numbers=True)
def _(indptr, indices, values, dinv, b, x, a, c, w, out):
    return _chebyshev_on_device(STEP, indptr, indices, values, dinv, b, x, a, c, w, out)


@chebyshev_last.register("numba", complex_numbers=True)
def _(indptr, indices, values, dinv, b, x, a, c, w, out):
    return _run_chebyshev(LAST, indptr, indices, values, dinv, b, x, a, c, w, out)[1]


@chebyshev_last.register("cuda", complex_numbers=True)
def _(indptr, indices, values, dinv, b, x, a, c, w, out):
    return _chebyshev_on_device(LAST, indptr, indices, values, dinv, b, x, a, c, w, out)[1]


@kernel
def power_step(indptr, indices, values, dinv, q, scale, out):
    """One step of the power method on D^-1 A: z = dinv * (A (scale * q)).

    Returns z, the Rayleigh quotients (scale * q) . z and the squares z . z, one value per sample each; `scale`, one
    value per sample, is 1 / ||q||, so that no separate pass normalises q. Of complex numbers the first factors of the
    products are conjugated; the squares are real.
    """
    z = times(scale, times(dinv, row_sum(indptr, indices, values, q)))
    quotient, square = block_sums(times(conjugated(times(scale, q)), z)), block_sums(times(conjugated(z), z))
    return into(out, z), quotient, real_parts(square)


@per_width
def _power_step(width, shared, prefetch_x):
    @compiled
    def loop(
        indptr, indices, values, dinv, q, scale, z, quotients, squares, bounds, blocks, past_cache, n_samples, first
    ):
        for k in prange(blocks.size):
            block = blocks[k]
            quotient, square = zeros(values, width), zeros(values, width)
            factor = load(scale, first, width)
            for i in range(bounds[block], bounds[block + 1]):
                total = row_product(
                    indptr, indices, values, q, i, n_samples, first, shared, prefetch_x, zeros(values, width)
                )
                here = np.int64(i) * n_samples + first
                inverse = splat(dinv[i], dinv, width) if shared else load(dinv, here, width)
                new = factor * (inverse * total)
                if past_cache:
                    stream(z, here, new)
                else:
                    store(z, here, new)
                quotient = quotient + conjugate(factor * load(q, here, width)) * new
                square = square + conjugate(new) * new
            store(quotients.reshape(-1), block * n_samples + first, quotient)
            store(squares.reshape(-1), block * n_samples + first, square)

    return loop


@power_step.register("numba", complex_numbers=True)
def _(indptr, indices, values, dinv, q, scale, out):
    n_rows, n_samples = indptr.size - 1, q.shape[1]
    out = output(out, (n_rows, n_samples), q.dtype)
    shared = values.shape[1] != n_samples
    (quotients, bounds), (squares, _) = (row_blocks(n_rows, n_samples, q.dtype) for _ in range(2))
    flat = [array.reshape(-1) for array in (values, dinv, q, scale, out)]
    prefetch_x = scattered(indptr, indices, q)
    past_cache = streams(out)
    for blocks in block_lists(quotients.shape[0]):
        for first, width in tiles(n_samples):
            loop = _power_step(width, shared, prefetch_x)
            loop(indptr, indices, *flat, quotients, squares, bounds, blocks, past_cache, n_samples, first)
    return out, ordered_sum(quotients), real_parts(ordered_sum(squares))


@power_step.register("cuda", complex_numbers=True)
def _(indptr, indices, values, dinv, q, scale, out):
    n_rows, n_samples = indptr.size - 1, q.shape[1]
    out = cuda.output(out, q, (n_rows, n_samples))
    shared = values.shape[1] != n_samples
    layout = cuda.layout_of(n_samples, q, scale, out, *(() if shared else (values, dinv)))
    arguments = (indptr, indices, values, dinv, q, scale, out)
    name, wide = f"power_step<{SHARED[shared]}>", cuda.is_wide(indptr)
    quotient, square = chunk_sums(cuda.chunked(CUDA, name, n_rows, arguments, layout, wide, n_samples, 2))
    return out, quotient, real_parts(square)
