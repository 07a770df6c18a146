"""Products of matrices of small dense blocks: one column index per block, r * c values per sample.

`values` has shape (nnz, r, c, n_samples), or (nnz, r, c, 1) for a matrix that all samples share; vectors have a row
per scalar unknown, `c` of them per block column. A row is summed block by block and column by column: the order, and
so the bits, of the scalar matrix with the same entries.

Bytes a product must move per block (float64, int32 columns, S samples, k blocks a row):
``8 r c S + 4 + (8 r + 8 c) S / k``; a scalar matrix has ``4 r c`` bytes of indices in place of 4. With 3 by 3 blocks
and one sample that is 76 bytes of matrix per block against 108.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.lanes.arithmetic import REGISTER_BYTES, zero_sums
from ensemble._compile.lanes.lane_blocks import add_block, prefetch_block
from ensemble._compile.lanes.types import load, splat, store
from ensemble._compile.numba import WIDTHS, compiled, output, per_width, prange, spliced, tiles
from ensemble._compile.registry import into, kernel
from ensemble._kernels.sparse.row_passes import run_of_rows
from ensemble._typing import Array

__all__ = [
    "block_chebyshev_first",
    "block_chebyshev_last",
    "block_chebyshev_step",
    "block_residual",
    "block_spmv",
    "block_spmv_partials",
    "block_spmv_transpose",
]

SET, RESIDUAL, FIRST, STEP, LAST = range(5)
BYTES_AHEAD = 4096
"""Bytes ahead of its use that a block is prefetched (`benchmarks atmosphere-step`)."""

STAGED_LANES = 4  # as in bcrs.cu
SHARED = ("false", "true")

CUDA = cuda.KernelModule(
    "sparse/bcrs",
    [
        *(f"block_step<{kind}, {shared}>" for kind in range(5) for shared in SHARED),
        *(f"block_transpose<{shared}>" for shared in SHARED),
    ],
    extras=(("-DBLOCK_ROWS=3", "-DBLOCK_COLUMNS=3"), ("-DBLOCK_ROWS=1", "-DBLOCK_COLUMNS=3")),
)


def block_row_sum(indptr, indices, values, x):
    """The sum over each scalar row's entries, block by block and column by column; shape (n_rows * r, n_samples)."""
    xp = array_namespace(values)
    first, length = indptr[:-1], indptr[1:] - indptr[:-1]
    n_rows, (_, r, c, _), n_samples = first.shape[0], values.shape, x.shape[1]
    x = xp.reshape(x, (x.shape[0] // c, c, n_samples))
    y = xp.zeros((n_rows, r, n_samples), dtype=x.dtype)
    for offset in range(int(xp.max(length)) if n_rows else 0):  # the offset-th block of every row at once
        live = length > offset
        k = xp.where(live, first + offset, xp.zeros_like(first))
        blocks, columns = xp.take(values, k, axis=0), xp.take(x, xp.take(indices, k), axis=0)
        for j in range(c):
            y = xp.where(live[:, None, None], y + blocks[:, :, j, :] * columns[:, None, j, :], y)
    return xp.reshape(y, (n_rows * r, n_samples))


# --- the loops of all products
@functools.cache
def widest(rows, columns, itemsize):
    """The widest tile whose sums and columns stay in registers."""
    n_numbers = REGISTER_BYTES // itemsize
    return max((w for w in WIDTHS if (rows + columns + 1) * w <= n_numbers), default=1)


@spliced
def block_rows(
    indptr, indices, values, dinv, b, x, a, c, w, out, n_samples, first, n_tiles,
    width, rows, columns, size, shared, kind, low, high,
):  # fmt: skip
    """Block rows `low` to `high`, for `n_tiles` tiles of `width` samples from `first` on."""
    step = 1 if shared else n_samples
    ahead = BYTES_AHEAD // (size * step * values.itemsize) + 1
    for i in range(low, high):
        for tile in range(n_tiles):
            s = first + tile * width
            start = 0 if shared else s
            total = zero_sums(values, width, rows)
            for k in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
                if not shared:
                    prefetch_block(values, (k + ahead) * size * step + start, step, size, total)
                total = add_block(
                    total, values, k * size * step + start, step,
                    x, np.int64(indices[k]) * columns * n_samples + s, n_samples, columns, columns, 1, shared,
                )  # fmt: skip
            for p in range(rows):
                here = (i * rows + p) * n_samples + s
                if kind == SET:
                    store(out, here, total[p])
                elif kind == RESIDUAL:
                    store(out, here, load(b, here, width) - total[p])
                else:
                    inverse = splat(dinv[i * rows + p], dinv, width) if shared else load(dinv, here, width)
                    change = load(c, s, width) * (inverse * (load(b, here, width) - total[p]))
                    if kind != FIRST:
                        change = load(a, s, width) * load(w, here, width) + change
                    new = load(x, here, width) + change
                    if kind != LAST:
                        store(w, here, change)
                    store(out, here, new)


@per_width
def _block_product(width, rows, columns, shared, kind):
    size = rows * columns

    @compiled
    def loop(indptr, indices, values, dinv, b, x, a, c, w, out, n_samples, first, n_tiles):
        n_rows = indptr.size - 1
        run = run_of_rows(n_rows)
        for r in prange((n_rows + run - 1) // run):
            block_rows(
                indptr, indices, values, dinv, b, x, a, c, w, out, n_samples, first, n_tiles,
                width, rows, columns, size, shared, kind, r * run, min((r + 1) * run, n_rows),
            )  # fmt: skip

    return loop


def grouped_tiles(n_samples, most):
    """The tiles of the sample axis as (first, width, how many of that width follow each other)."""
    for width, group in itertools.groupby(tiles(n_samples, most), key=lambda tile: tile[1]):
        found = list(group)
        yield found[0][0], width, len(found)


def _run(kind, indptr, indices, values, dinv, b, x, a, c, w, out):
    (_, rows, columns, own), n_samples = values.shape, x.shape[1]
    shape = ((indptr.shape[0] - 1) * rows, n_samples)
    out = output(out, shape, x.dtype)
    w = output(w, shape, x.dtype) if kind in (FIRST, STEP) else out if w is None else w
    flat = [array.reshape(-1) for array in (values, dinv, b, x, a, c, w, out)]
    for first, width, n_tiles in grouped_tiles(n_samples, widest(rows, columns, values.itemsize)):
        loop = _block_product(width, rows, columns, own != n_samples, kind)
        loop(indptr, indices, *flat, n_samples, first, n_tiles)
    return w, out


def _run_on_device(kind, indptr, indices, values, dinv, b, x, a, c, w, out):
    (_, rows, columns, own), n_samples = values.shape, x.shape[1]
    n_rows = (indptr.shape[0] - 1) * rows
    out = cuda.output(out, x, (n_rows, n_samples))
    w = cuda.output(w, x, (n_rows, n_samples)) if kind in (FIRST, STEP) else w
    shared = own != n_samples
    vectors = [array for array in (b, x, a, c, w, out, *(() if shared else (values, dinv))) if array is not None]
    layout = cuda.layout_of(n_samples, *vectors)
    arguments = (indptr, indices, values, dinv, b, x, a, c, w, out)
    name, extra = f"block_step<{kind}, {SHARED[shared]}>", _block_shape(rows, columns)
    CUDA.rows(name, n_rows, n_samples, arguments, layout, cuda.is_wide(indptr), extra)
    return w, out


def _block_shape(rows, columns):
    return f"-DBLOCK_ROWS={rows}", f"-DBLOCK_COLUMNS={columns}"


# --- products
@kernel
def block_spmv(indptr, indices, values, x, out):
    """y[i r + p, s] = sum over blocks k of row i and columns q of values[k, p, q, s] * x[indices[k] c + q, s]."""
    return into(out, block_row_sum(indptr, indices, values, x))


@block_spmv.register("numba")
def _(indptr, indices, values, x, out):
    return _run(SET, indptr, indices, values, x, x, x, x, x, None, out)[1]


@block_spmv.register("cuda")
def _(indptr, indices, values, x, out):
    return _run_on_device(SET, indptr, indices, values, None, None, x, None, None, None, out)[1]


@kernel
def block_residual(indptr, indices, values, x, b, out):
    """b - A x, A a matrix of blocks."""
    return into(out, b - block_row_sum(indptr, indices, values, x))


@block_residual.register("numba")
def _(indptr, indices, values, x, b, out):
    return _run(RESIDUAL, indptr, indices, values, x, b, x, x, x, None, out)[1]


@block_residual.register("cuda")
def _(indptr, indices, values, x, b, out):
    return _run_on_device(RESIDUAL, indptr, indices, values, None, b, x, None, None, None, out)[1]


def block_spmv_partials(indptr: Array, indices: Array, values: Array, x: Array, out: Array) -> tuple[Array, Array]:
    """On a device: A x and the partial sums of x . A x, which whoever reads them adds up."""
    out = block_spmv(indptr, indices, values, x, out)
    layout = cuda.layout_of(x.shape[1], x, out)
    vectors = cuda.KERNEL_MODULES["krylov/vectors"]
    return out, cuda.chunked(vectors, "dot", x.shape[0], (x, out), layout, False, x.shape[1], 1)


# --- steps of a smoother, each in one pass over A
@kernel
def block_chebyshev_first(indptr, indices, values, dinv, b, x, c, w, out):
    """First step from x: w = c * dinv * (b - A x), and x + w goes to `out`, which must not be `x`."""
    step = c * (dinv * (b - block_row_sum(indptr, indices, values, x)))
    return into(w, step), into(out, x + step)


@block_chebyshev_first.register("numba")
def _(indptr, indices, values, dinv, b, x, c, w, out):
    return _run(FIRST, indptr, indices, values, dinv, b, x, c, c, w, out)


@block_chebyshev_first.register("cuda")
def _(indptr, indices, values, dinv, b, x, c, w, out):
    return _run_on_device(FIRST, indptr, indices, values, dinv, b, x, c, c, w, out)


@kernel
def block_chebyshev_step(indptr, indices, values, dinv, b, x, a, c, w, out):
    """w = a * w + c * dinv * (b - A x) in place, and x + w goes to `out`, which must not be `x`."""
    step = a * w + c * (dinv * (b - block_row_sum(indptr, indices, values, x)))
    return into(w, step), into(out, x + step)


@block_chebyshev_step.register("numba")
def _(indptr, indices, values, dinv, b, x, a, c, w, out):
    return _run(STEP, indptr, indices, values, dinv, b, x, a, c, w, out)


@block_chebyshev_step.register("cuda")
def _(indptr, indices, values, dinv, b, x, a, c, w, out):
    return _run_on_device(STEP, indptr, indices, values, dinv, b, x, a, c, w, out)


@kernel
def block_chebyshev_last(indptr, indices, values, dinv, b, x, a, c, w, out):
    """x + a * w + c * dinv * (b - A x) to `out`, which must not be `x`; `w` is only read and may be `x`."""
    return into(out, x + (a * w + c * (dinv * (b - block_row_sum(indptr, indices, values, x)))))


@block_chebyshev_last.register("numba")
def _(indptr, indices, values, dinv, b, x, a, c, w, out):
    return _run(LAST, indptr, indices, values, dinv, b, x, a, c, w, out)[1]


@block_chebyshev_last.register("cuda")
def _(indptr, indices, values, dinv, b, x, a, c, w, out):
    return _run_on_device(LAST, indptr, indices, values, dinv, b, x, a, c, w, out)[1]


# --- transpose
@kernel
def block_spmv_transpose(indptr, indices, entries, values, x, out):
    """y = A^T x by rows of A^T: its k-th block is the transpose of block ``entries[k]`` of A."""
    xp = array_namespace(values)
    blocks = xp.permute_dims(xp.take(values, entries, axis=0), (0, 2, 1, 3))
    return into(out, block_row_sum(indptr, indices, blocks, x))


@per_width
def _block_transpose(width, rows, columns, shared):
    @compiled
    def loop(indptr, indices, entries, values, x, out, n_samples, first, n_tiles):
        step = 1 if shared else n_samples
        for i in prange(indptr.size - 1):
            for tile in range(n_tiles):
                s = first + tile * width
                start = 0 if shared else s
                total = zero_sums(values, width, columns)
                for k in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
                    total = add_block(
                        total, values, np.int64(entries[k]) * rows * columns * step + start, step,
                        x, np.int64(indices[k]) * rows * n_samples + s, n_samples, rows, 1, columns, shared,
                    )  # fmt: skip
                for p in range(columns):
                    store(out, (np.int64(i) * columns + p) * n_samples + s, total[p])

    return loop


@block_spmv_transpose.register("numba")
def _(indptr, indices, entries, values, x, out):
    (_, rows, columns, own), n_samples = values.shape, x.shape[1]
    out = output(out, ((indptr.shape[0] - 1) * columns, n_samples), x.dtype)
    flat = [array.reshape(-1) for array in (values, x, out)]
    for first, width, n_tiles in grouped_tiles(n_samples, widest(columns, rows, values.itemsize)):
        loop = _block_transpose(width, rows, columns, own != n_samples)
        loop(indptr, indices, entries, *flat, n_samples, first, n_tiles)
    return out


@block_spmv_transpose.register("cuda")
def _(indptr, indices, entries, values, x, out):
    (_, rows, columns, own), n_samples = values.shape, x.shape[1]
    n_rows = (indptr.shape[0] - 1) * columns
    out = cuda.output(out, x, (n_rows, n_samples))
    shared = own != n_samples
    layout = cuda.layout_of(n_samples, x, out, *(() if shared else (values,)))
    arguments, extra = (indptr, indices, entries, values, x, out), _block_shape(rows, columns)
    name = f"block_transpose<{SHARED[shared]}>"
    CUDA.rows(name, n_rows, n_samples, arguments, layout, cuda.is_wide(indptr), extra)
    return out
