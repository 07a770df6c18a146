"""Products with matrices that are affine in a few parameters: entries are shared terms, no value is stored per sample.

Entry k of sample s is ``terms[k, 0] + sum over i of terms[k, i + 1] * coefficients[i, s]``. It is never formed: a row
keeps one sum for each term, ``A_i x``, and combines them with the sample's coefficients at its end. Terms, of shape
(nnz, m + 1), are read once for a whole tile of samples and spread over the lanes; `coefficients` has shape
(m, n_samples).

Bytes a product must move (float64, int32 columns, k entries per row; per entry and sample):
``(8 (m + 1) + 4)/S + (8 + 8)/k``, against ``8 + 4/S`` of stored values; ``m + 1`` fused multiply-adds against one. With
m = 5, S = 32 and two 512-bit units a row of 27 entries takes at least 27 * 6 * 4 / 2 cycles and moves 1.9 KB: which of
the two binds depends on the machine. Every sum is a chain of fused multiply-adds in the order of the entries, which
every width and the reference (`fma.py`) do alike.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.lanes.arithmetic import REGISTER_BYTES, add_terms, combine, convert, zero_sums
from ensemble._compile.lanes.types import load, prefetch, splat, store, stream, zeros
from ensemble._compile.numba import (
    WIDTHS,
    compiled,
    output,
    per_width,
    prange,
    spliced,
    streams,
    tiles,
)  # fmt: skip
from ensemble._compile.registry import into, kernel
from ensemble._kernels.krylov.vectors import dot_partials
from ensemble._kernels.sparse import affine_mma
from ensemble._kernels.sparse.fma import fma
from ensemble._kernels.sparse.row_sums import block_sums, chunk_sums, ordered_sum, row_blocks
from ensemble._typing import Array

__all__ = [
    "affine_chebyshev_first",
    "affine_chebyshev_last",
    "affine_chebyshev_step",
    "affine_residual",
    "affine_spmv",
    "affine_spmv_dot",
    "affine_spmv_transpose",
    "affine_values",
]

FIRST, STEP, LAST = 0, 1, 2
SET, RESIDUAL = 0, 1

CUDA = cuda.KernelModule(
    "sparse/affine",
    [*affine_mma.INSTANCES, "affine_transpose", "affine_values"],
    ("sparse/affine.cuh",),
    (("-DTERMS=6",), ("-DTERMS=3",)),
)

ENTRIES_AHEAD = 48
"""Entries ahead of their use that terms are prefetched; twice as many were slower, and so was none.

Measured again by `benchmarks affine`.
"""


def widest(n_terms, itemsize):
    """The widest tile whose sums stay in registers."""
    n_numbers = REGISTER_BYTES // itemsize
    return max((w for w in WIDTHS if (n_terms + 1) * w <= n_numbers), default=1)


def term_sums(indptr, indices, terms, coefficients, x):
    """The rows' sums for each term, (A_0 x, A_1 x, ...), combined with each sample's coefficients."""
    xp = array_namespace(terms)
    first, length = indptr[:-1], indptr[1:] - indptr[:-1]
    n_terms = terms.shape[1]
    sums = [xp.zeros((first.shape[0], x.shape[1]), dtype=x.dtype) for _ in range(n_terms)]
    for offset in range(int(xp.max(length)) if length.shape[0] else 0):  # the offset-th entry of every row at once
        live = length > offset
        k = xp.where(live, first + offset, xp.zeros_like(first))
        row, factors = xp.take(terms, k, axis=0), xp.take(x, xp.take(indices, k), axis=0)
        sums = [xp.where(live[:, None], fma(row[:, i, None], factors, total), total) for i, total in enumerate(sums)]
    return combined(sums, coefficients)


def combined(sums, coefficients):
    """Sum 0 plus each further sum times its coefficient."""
    total = sums[0]
    for i, part in enumerate(sums[1:]):
        total = fma(coefficients[i, :], part, total)
    return total


@spliced
def term_product(indptr, indices, terms, x, i, n_samples, first, sums):
    """`sums` plus, term by term, row i times `x`, for the tile of samples from `first` on."""
    for k in range(indptr[i], indptr[i + 1]):
        prefetch(terms, (np.int64(k) + ENTRIES_AHEAD) * len(sums), 8)
        sums = add_terms(sums, terms, np.int64(k), load(x, np.int64(indices[k]) * n_samples + first, sums[0]))
    return sums


# --- products
@kernel
def affine_spmv(indptr, indices, terms, coefficients, x, out):
    """y = A x, the sums of all terms side by side."""
    return into(out, term_sums(indptr, indices, terms, coefficients, x))


@kernel
def affine_residual(indptr, indices, terms, coefficients, x, b, out):
    """r = b - A x."""
    return into(out, b - term_sums(indptr, indices, terms, coefficients, x))


@per_width
def _product(width, n_terms, ending):
    @compiled
    def loop(indptr, indices, terms, coefficients, x, b, y, past_cache, n_samples, first):
        for i in prange(indptr.size - 1):
            sums = term_product(indptr, indices, terms, x, i, n_samples, first, zero_sums(terms, width, n_terms))
            total = combine(sums, coefficients, first, n_samples)
            here = np.int64(i) * n_samples + first
            if ending == RESIDUAL:
                total = load(b, here, width) - total
            if past_cache:
                stream(y, here, total)
            else:
                store(y, here, total)

    return loop


def _run_product(ending, indptr, indices, terms, coefficients, x, b, out):
    n_samples, n_terms = x.shape[1], terms.shape[1]
    out = output(out, (indptr.shape[0] - 1, n_samples), x.dtype)
    flat = [array.reshape(-1) for array in (terms, coefficients, x, b, out)]
    for first, width in tiles(n_samples, widest(n_terms, x.itemsize)):
        _product(width, n_terms, ending)(indptr, indices, *flat, streams(out), n_samples, first)
    return out


def _product_on_device(ending, indptr, indices, terms, coefficients, x, b, out):
    n_rows, n_samples = indptr.shape[0] - 1, x.shape[1]
    out = cuda.output(out, x, (n_rows, n_samples))
    arguments = (indptr, indices, terms, coefficients, x, b, out)
    affine_mma.queue(CUDA, f"affine_product<{ending}>", n_rows, n_samples, arguments, (x, b, out, coefficients))
    return out


@affine_spmv.register("cuda")
def _(indptr, indices, terms, coefficients, x, out):
    return _product_on_device("SET", indptr, indices, terms, coefficients, x, x, out)


@affine_residual.register("cuda")
def _(indptr, indices, terms, coefficients, x, b, out):
    return _product_on_device("RESIDUAL", indptr, indices, terms, coefficients, x, b, out)


@affine_spmv.register("numba")
def _(indptr, indices, terms, coefficients, x, out):
    return _run_product(SET, indptr, indices, terms, coefficients, x, x, out)


@affine_residual.register("numba")
def _(indptr, indices, terms, coefficients, x, b, out):
    return _run_product(RESIDUAL, indptr, indices, terms, coefficients, x, b, out)


@kernel
def affine_spmv_dot(indptr, indices, terms, coefficients, x, out):
    """y = A x and the inner product of x and y in the same pass: returns (y, one value per sample)."""
    y = term_sums(indptr, indices, terms, coefficients, x)
    return into(out, y), block_sums(x * y)


@per_width
def _spmv_dot(width, n_terms):
    @compiled
    def loop(indptr, indices, terms, coefficients, x, y, partials, bounds, past_cache, n_samples, first):
        for block in prange(partials.size // n_samples):
            inner = zeros(terms, width)
            for i in range(bounds[block], bounds[block + 1]):
                sums = term_product(indptr, indices, terms, x, i, n_samples, first, zero_sums(terms, width, n_terms))
                total = combine(sums, coefficients, first, n_samples)
                here = np.int64(i) * n_samples + first
                if past_cache:
                    stream(y, here, total)
                else:
                    store(y, here, total)
                inner = inner + load(x, here, width) * total
            store(partials, block * n_samples + first, inner)

    return loop


def affine_spmv_dot_partials(
    indptr: Array, indices: Array, terms: Array, coefficients: Array, x: Array, out: Array
) -> tuple[Array, Array]:
    """On a device: A x and the partial sums of x . A x."""
    out = _product_on_device("SET", indptr, indices, terms, coefficients, x, x, out)
    return out, dot_partials(x, out)


@affine_spmv_dot.register("cuda")
def _(indptr, indices, terms, coefficients, x, out):
    out, partials = affine_spmv_dot_partials(indptr, indices, terms, coefficients, x, out)
    return out, chunk_sums(partials)[0]


@affine_spmv_dot.register("numba")
def _(indptr, indices, terms, coefficients, x, out):
    n_rows, n_samples = indptr.shape[0] - 1, x.shape[1]
    n_terms = terms.shape[1]
    out = output(out, (n_rows, n_samples), x.dtype)
    partials, bounds = row_blocks(n_rows, n_samples, x.dtype)
    flat = [array.reshape(-1) for array in (terms, coefficients, x, out, partials)]
    for first, width in tiles(n_samples, widest(n_terms, x.itemsize)):
        _spmv_dot(width, n_terms)(indptr, indices, *flat, bounds, streams(out), n_samples, first)
    return out, ordered_sum(partials)


@kernel
def affine_spmv_transpose(indptr, indices, entries, terms, coefficients, x, out):
    """y = A^T x by rows of A^T: its k-th entry is entry ``entries[k]`` of A."""
    xp = array_namespace(terms)
    return into(out, term_sums(indptr, indices, xp.take(terms, entries, axis=0), coefficients, x))


@per_width
def _spmv_transpose(width, n_terms):
    @compiled
    def loop(indptr, indices, entries, terms, coefficients, x, y, n_samples, first):
        for i in prange(indptr.size - 1):
            sums = zero_sums(terms, width, n_terms)
            for k in range(indptr[i], indptr[i + 1]):
                row = load(x, np.int64(indices[k]) * n_samples + first, width)
                sums = add_terms(sums, terms, np.int64(entries[k]), row)
            store(y, np.int64(i) * n_samples + first, combine(sums, coefficients, first, n_samples))

    return loop


@affine_spmv_transpose.register("cuda")
def _(indptr, indices, entries, terms, coefficients, x, out):
    n_rows, n_samples = indptr.shape[0] - 1, x.shape[1]
    out = cuda.output(out, x, (n_rows, n_samples))
    layout, extra = cuda.layout_of(n_samples, x, out, coefficients), (f"-DTERMS={terms.shape[1]}",)
    arguments = (indptr, indices, entries, terms, coefficients, x, out)
    CUDA.rows("affine_transpose", n_rows, n_samples, arguments, layout, cuda.is_wide(indptr), extra)
    return out


@affine_spmv_transpose.register("numba")
def _(indptr, indices, entries, terms, coefficients, x, out):
    n_samples, n_terms = x.shape[1], terms.shape[1]
    out = output(out, (indptr.shape[0] - 1, n_samples), x.dtype)
    flat = [array.reshape(-1) for array in (terms, coefficients, x, out)]
    for first, width in tiles(n_samples, widest(n_terms, x.itemsize)):
        _spmv_transpose(width, n_terms)(indptr, indices, entries, *flat, n_samples, first)
    return out


# --- values
@kernel
def affine_values(terms, coefficients, out):
    """v[k, s] = terms[k, 0] + sum over i of terms[k, i + 1] * coefficients[i, s]: what a stored matrix would hold."""
    xp = array_namespace(terms)
    start = terms[:, :1] + xp.zeros((1, coefficients.shape[1]), dtype=terms.dtype)
    return into(out, combined([start, *(terms[:, i, None] for i in range(1, terms.shape[1]))], coefficients))


@per_width
def _values(width, n_terms):
    @compiled
    def loop(terms, coefficients, values, n_samples, first):
        one = splat(terms.dtype.type(1), terms, width)
        for k in prange(terms.size // n_terms):
            sums = add_terms(zero_sums(terms, width, n_terms), terms, np.int64(k), one)
            store(values, np.int64(k) * n_samples + first, combine(sums, coefficients, first, n_samples))

    return loop


@affine_values.register("cuda")
def _(terms, coefficients, out):
    n_samples = coefficients.shape[1]
    out = cuda.output(out, coefficients, (terms.shape[0], n_samples))
    layout, extra = cuda.layout_of(n_samples, out, coefficients), (f"-DTERMS={terms.shape[1]}",)
    CUDA.rows("affine_values", terms.shape[0], n_samples, (terms, coefficients, out), layout, False, extra)
    return out


@affine_values.register("numba")
def _(terms, coefficients, out):
    n_samples, n_terms = coefficients.shape[1], terms.shape[1]
    out = output(out, (terms.shape[0], n_samples), terms.dtype)
    flat = [array.reshape(-1) for array in (terms, coefficients, out)]
    for first, width in tiles(n_samples):
        _values(width, n_terms)(*flat, n_samples, first)
    return out


# --- smoothers: the steps of `relaxation`
@kernel
def affine_chebyshev_first(indptr, indices, terms, coefficients, dinv, b, x, c, w, out):
    """w = c * dinv * (b - A x), and x + w goes to `out`, which must not be `x`."""
    step = c * (dinv * (b - term_sums(indptr, indices, terms, coefficients, x)))
    return into(w, step), into(out, x + step)


@kernel
def affine_chebyshev_step(indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out):
    """w = a * w + c * dinv * (b - A x) in place, and x + w goes to `out`, which must not be `x`."""
    step = a * w + c * (dinv * (b - term_sums(indptr, indices, terms, coefficients, x)))
    return into(w, step), into(out, x + step)


@kernel
def affine_chebyshev_last(indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out):
    """x + a * w + c * dinv * (b - A x) to `out`, which may be of a wider type and must not be `x`."""
    return into(out, x + (a * w + c * (dinv * (b - term_sums(indptr, indices, terms, coefficients, x)))))


@per_width
def _chebyshev(width, n_terms, kind):
    @compiled
    def loop(indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out, past_cache, n_samples, first):
        for i in prange(indptr.size - 1):
            sums = term_product(indptr, indices, terms, x, i, n_samples, first, zero_sums(terms, width, n_terms))
            total = combine(sums, coefficients, first, n_samples)
            here = np.int64(i) * n_samples + first
            step = load(c, first, width) * (load(dinv, here, width) * (load(b, here, width) - total))
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


def _run_chebyshev(kind, indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out):
    n_samples, n_terms = x.shape[1], terms.shape[1]
    w, out = output(w, x.shape, x.dtype), output(out, x.shape, x.dtype)
    flat = [array.reshape(-1) for array in (terms, coefficients, dinv, b, x, a, c, w, out)]
    for first, width in tiles(n_samples, widest(n_terms, x.itemsize)):
        _chebyshev(width, n_terms, kind)(indptr, indices, *flat, streams(out), n_samples, first)
    return w, out


def _chebyshev_on_device(kind, indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out):
    n_rows, n_samples = x.shape
    w, given = cuda.output(w, x, x.shape), cuda.output(out, x, x.shape)
    out = given if given.dtype == x.dtype else empty_like(x, x.shape)
    vectors = (dinv, b, x, a, c, w, out, coefficients)
    arguments = (indptr, indices, terms, coefficients, *vectors[:-1])
    affine_mma.queue(CUDA, f"affine_chebyshev<{kind}>", n_rows, n_samples, arguments, vectors)
    return w, into(None if given is out else given, out)


@affine_chebyshev_first.register("cuda")
def _(indptr, indices, terms, coefficients, dinv, b, x, c, w, out):
    return _chebyshev_on_device("FIRST", indptr, indices, terms, coefficients, dinv, b, x, c, c, w, out)


@affine_chebyshev_step.register("cuda")
def _(indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out):
    return _chebyshev_on_device("STEP", indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out)


@affine_chebyshev_last.register("cuda")
def _(indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out):
    return _chebyshev_on_device("LAST", indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out)[1]


@affine_chebyshev_first.register("numba")
def _(indptr, indices, terms, coefficients, dinv, b, x, c, w, out):
    return _run_chebyshev(FIRST, indptr, indices, terms, coefficients, dinv, b, x, c, c, w, out)


@affine_chebyshev_step.register("numba")
def _(indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out):
    return _run_chebyshev(STEP, indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out)


@affine_chebyshev_last.register("numba")
def _(indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out):
    return _run_chebyshev(LAST, indptr, indices, terms, coefficients, dinv, b, x, a, c, w, out)[1]
