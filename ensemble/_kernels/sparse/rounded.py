"""Products with square matrices whose values are stored in fewer bits than the vectors: float32, or bfloat16.

NumPy has no bfloat16: its 16 bits, the upper half of a float32, are held as uint16 and widened in registers. `shift`
holds for each row what rounding took from the sum of its entries, and is added to the diagonal: rows keep their sums,
so that what the matrix does to constants is not lost in the rounding of large entries that nearly cancel.

`values` has shape (nnz, n_samples), `shift` (n, n_samples), or one column for all samples. Bytes of a product (k
entries per row, float32 vectors, bfloat16 values): per entry and sample ``2 + 4/S + (12 + 4/S)/k``.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.lanes.arithmetic import convert, rounded_to, widened
from ensemble._compile.lanes.types import PREFETCH_BYTES, load, prefetch, splat, store, stream, zeros
from ensemble._compile.numba import compiled, output, per_width, prange, spliced, streams, tiles
from ensemble._compile.registry import into, kernel
from ensemble._kernels.sparse.crs import row_sum

__all__ = [
    "round_rows",
    "rounded_chebyshev_first",
    "rounded_chebyshev_last",
    "rounded_chebyshev_step",
    "rounded_residual",
    "rounded_spmv",
]


SHARED = ("false", "true")
SET, RESIDUAL = 0, 1
FIRST, STEP, LAST = 0, 1, 2

CUDA = cuda.KernelModule(
    "sparse/rounded",
    [
        *(f"rounded_product<{ending}, {shared}>" for ending in (SET, RESIDUAL) for shared in SHARED),
        *(f"rounded_chebyshev<{kind}, {shared}>" for kind in (FIRST, STEP, LAST) for shared in SHARED),
        "round_rows",
    ],
    extras=(("-DSTORED=bfloat16", "-DWIDE=double"), ("-DSTORED=float", "-DWIDE=float")),
)


def _extra(values, out):
    """What the compiler is told of the stored values and of the type of the answer."""
    return (
        f"-DSTORED={'bfloat16' if values.dtype.itemsize == 2 else 'float'}",
        f"-DWIDE={'double' if out.dtype.itemsize == 8 else 'float'}",
    )


def as_floats(values, dtype):
    """Stored values as floats of `dtype`."""
    xp = array_namespace(values)
    if values.dtype.itemsize == 2:
        values = xp.astype(xp.astype(values, xp.uint32) << 16, xp.uint32, copy=False).view(xp.float32)
    return xp.astype(values, dtype, copy=False)


def as_stored(values, like):
    """`values` rounded to nearest, ties to even, in the type of `like`."""
    xp = array_namespace(values)
    near = xp.astype(values, xp.float32, copy=False)
    if like.dtype.itemsize != 2:
        return near
    word = xp.asarray(near, copy=True).view(xp.uint32)
    upper = word >> 16
    rounded = xp.where(near != near, upper | 0x40, (word + (0x7FFF + (upper & 1))) >> 16)
    return xp.astype(rounded, xp.uint16)


# --- rounding
@kernel
def round_rows(indptr, values, rounded, shift):
    """Values to nearest in the type of `rounded`, and what each row lost by it to `shift`, both in place."""
    xp = array_namespace(values)
    into(rounded, as_stored(values, rounded))
    lost = values - as_floats(rounded, values.dtype)
    first = xp.zeros(values.shape[0], dtype=xp.int64)
    ones = xp.ones((1, values.shape[1]), dtype=values.dtype)
    return rounded, into(shift, row_sum(indptr, first, lost, ones))


@per_width
def _round_rows(width):
    @compiled
    def loop(indptr, values, rounded, shift, n_samples, first):
        for i in prange(indptr.size - 1):
            lost = zeros(values, width)
            for k in range(indptr[i], indptr[i + 1]):
                here = np.int64(k) * n_samples + first
                value = load(values, here, width)
                near = rounded_to(value, rounded)
                store(rounded, here, near)
                lost = lost + (value - widened(near, values))
            store(shift, np.int64(i) * n_samples + first, lost)

    return loop


@round_rows.register("numba")
def _(indptr, values, rounded, shift):
    n_samples = values.shape[1]
    flat = [array.reshape(-1) for array in (values, rounded, shift)]
    for first, width in tiles(n_samples):
        _round_rows(width)(indptr, *flat, n_samples, first)
    return rounded, shift


@round_rows.register("cuda")
def _(indptr, values, rounded, shift):
    n_rows, n_samples = indptr.shape[0] - 1, values.shape[1]
    layout, wide = cuda.layout_of(n_samples, values, rounded, shift), cuda.is_wide(indptr)
    arguments = (indptr, values, rounded, shift)
    CUDA.rows("round_rows", n_rows, n_samples, arguments, layout, wide, _extra(rounded, values))
    return rounded, shift


# --- products
def rounded_sum(indptr, indices, values, shift, x):
    """A x by columns of entries, the diagonal shift last."""
    return row_sum(indptr, indices, as_floats(values, x.dtype), x) + shift * x


@spliced
def rounded_row(indptr, indices, values, shift, x, i, n_samples, first, shared, total):
    """`total` plus row i of the matrix times `x`, for the tile of samples from `first` on that `total` is wide."""
    ahead = PREFETCH_BYTES // (n_samples * values.itemsize)
    for k in range(indptr[i], indptr[i + 1]):
        if shared:
            entry = widened(splat(values[k], values, total), x)
        else:
            entry = widened(load(values, np.int64(k) * n_samples + first, total), x)
            prefetch(values, (np.int64(k) + ahead) * n_samples + first, total)
        total = total + entry * load(x, np.int64(indices[k]) * n_samples + first, total)
    here = np.int64(i) * n_samples + first
    extra = splat(shift[i], shift, total) if shared else load(shift, here, total)
    return total + extra * load(x, here, total)


@kernel
def rounded_spmv(indptr, indices, values, shift, x, out):
    """y = A x."""
    return into(out, rounded_sum(indptr, indices, values, shift, x))


@kernel
def rounded_residual(indptr, indices, values, shift, x, b, out):
    """r = b - A x."""
    return into(out, b - rounded_sum(indptr, indices, values, shift, x))


@per_width
def _rounded_product(width, shared, ending):
    @compiled
    def loop(indptr, indices, values, shift, x, b, y, past_cache, n_samples, first):
        for i in prange(indptr.size - 1):
            total = rounded_row(indptr, indices, values, shift, x, i, n_samples, first, shared, zeros(x, width))
            here = np.int64(i) * n_samples + first
            if ending == RESIDUAL:
                total = load(b, here, width) - total
            if past_cache:
                stream(y, here, total)
            else:
                store(y, here, total)

    return loop


def _run_product(ending, indptr, indices, values, shift, x, b, out):
    n_samples = x.shape[1]
    out = output(out, x.shape, x.dtype)
    shared = values.shape[1] != n_samples
    flat = [array.reshape(-1) for array in (values, shift, x, b, out)]
    for first, width in tiles(n_samples):
        _rounded_product(width, shared, ending)(indptr, indices, *flat, streams(out), n_samples, first)
    return out


def _product_on_device(ending, indptr, indices, values, shift, x, b, out):
    n_rows, n_samples = x.shape
    out = cuda.output(out, x, x.shape)
    shared = values.shape[1] != n_samples
    layout = cuda.layout_of(n_samples, x, b, out, *(() if shared else (values, shift)))
    name, wide = f"rounded_product<{ending}, {SHARED[shared]}>", cuda.is_wide(indptr)
    CUDA.rows(name, n_rows, n_samples, (indptr, indices, values, shift, x, b, out), layout, wide, _extra(values, out))
    return out


@rounded_spmv.register("numba")
def _(indptr, indices, values, shift, x, out):
    return _run_product(SET, indptr, indices, values, shift, x, x, out)


@rounded_spmv.register("cuda")
def _(indptr, indices, values, shift, x, out):
    return _product_on_device(SET, indptr, indices, values, shift, x, x, out)


@rounded_residual.register("numba")
def _(indptr, indices, values, shift, x, b, out):
    return _run_product(RESIDUAL, indptr, indices, values, shift, x, b, out)


@rounded_residual.register("cuda")
def _(indptr, indices, values, shift, x, b, out):
    return _product_on_device(RESIDUAL, indptr, indices, values, shift, x, b, out)


# --- smoothing: each step as in `relaxation`, on rounded values
@kernel
def rounded_chebyshev_first(indptr, indices, values, shift, dinv, b, x, c, w, out):
    """First step from x: w = c * dinv * (b - A x), and x + w goes to `out`, which must not be `x`."""
    step = c * (dinv * (b - rounded_sum(indptr, indices, values, shift, x)))
    return into(w, step), into(out, x + step)


@kernel
def rounded_chebyshev_step(indptr, indices, values, shift, dinv, b, x, a, c, w, out):
    """w = a * w + c * dinv * (b - A x) in place, and x + w goes to `out`, which must not be `x`."""
    step = a * w + c * (dinv * (b - rounded_sum(indptr, indices, values, shift, x)))
    return into(w, step), into(out, x + step)


@kernel
def rounded_chebyshev_last(indptr, indices, values, shift, dinv, b, x, a, c, w, out):
    """x + a * w + c * dinv * (b - A x) to `out`, which may be of a wider type; `w` is only read and may be `x`."""
    return into(out, x + (a * w + c * (dinv * (b - rounded_sum(indptr, indices, values, shift, x)))))


@per_width
def _rounded_chebyshev(width, shared, kind):
    @compiled
    def loop(indptr, indices, values, shift, dinv, b, x, a, c, w, out, past_cache, n_samples, first):
        for i in prange(indptr.size - 1):
            total = rounded_row(indptr, indices, values, shift, x, i, n_samples, first, shared, zeros(x, width))
            here = np.int64(i) * n_samples + first
            inverse = splat(dinv[i], dinv, width) if shared else load(dinv, here, width)
            step = load(c, first, width) * (inverse * (load(b, here, width) - total))
            if kind != FIRST:
                step = load(a, first, width) * load(w, here, width) + step
            new = convert(load(x, here, width) + step, out)
            if kind != LAST:
                store(w, here, step)
            if past_cache:
                stream(out, here, new)
            else:
                store(out, here, new)

    return loop


def _run_chebyshev(kind, indptr, indices, values, shift, dinv, b, x, a, c, w, out):
    n_samples = x.shape[1]
    w, out = output(w, x.shape, x.dtype), output(out, x.shape, x.dtype)
    shared = values.shape[1] != n_samples
    flat = [array.reshape(-1) for array in (values, shift, dinv, b, x, a, c, w, out)]
    for first, width in tiles(n_samples):
        _rounded_chebyshev(width, shared, kind)(indptr, indices, *flat, streams(out), n_samples, first)
    return w, out


def _chebyshev_on_device(kind, indptr, indices, values, shift, dinv, b, x, a, c, w, out):
    n_rows, n_samples = x.shape
    w, out = cuda.output(w, x, x.shape), cuda.output(out, x, x.shape)
    shared = values.shape[1] != n_samples
    layout = cuda.layout_of(n_samples, b, x, a, c, w, out, *(() if shared else (values, shift, dinv)))
    arguments = (indptr, indices, values, shift, dinv, b, x, a, c, w, out)
    name, wide = f"rounded_chebyshev<{kind}, {SHARED[shared]}>", cuda.is_wide(indptr)
    CUDA.rows(name, n_rows, n_samples, arguments, layout, wide, _extra(values, out))
    return w, out


@rounded_chebyshev_first.register("numba")
def _(indptr, indices, values, shift, dinv, b, x, c, w, out):
    return _run_chebyshev(FIRST, indptr, indices, values, shift, dinv, b, x, c, c, w, out)


@rounded_chebyshev_first.register("cuda")
def _(indptr, indices, values, shift, dinv, b, x, c, w, out):
    return _chebyshev_on_device(FIRST, indptr, indices, values, shift, dinv, b, x, c, c, w, out)


@rounded_chebyshev_step.register("numba")
def _(indptr, indices, values, shift, dinv, b, x, a, c, w, out):
    return _run_chebyshev(STEP, indptr, indices, values, shift, dinv, b, x, a, c, w, out)


@rounded_chebyshev_step.register("cuda")
def _(indptr, indices, values, shift, dinv, b, x, a, c, w, out):
    return _chebyshev_on_device(STEP, indptr, indices, values, shift, dinv, b, x, a, c, w, out)


@rounded_chebyshev_last.register("numba")
def _(indptr, indices, values, shift, dinv, b, x, a, c, w, out):
    return _run_chebyshev(LAST, indptr, indices, values, shift, dinv, b, x, a, c, w, out)[1]


@rounded_chebyshev_last.register("cuda")
def _(indptr, indices, values, shift, dinv, b, x, a, c, w, out):
    return _chebyshev_on_device(LAST, indptr, indices, values, shift, dinv, b, x, a, c, w, out)[1]
