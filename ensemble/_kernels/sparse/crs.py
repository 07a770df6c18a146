"""Compressed-row-storage products: one graph, one row of `n_samples` values for every stored entry.

Longer than 400 lines: all products of one storage share their row loops.

Bytes a product must move (float64, int32 columns, k entries a row, S samples; per entry and sample):
``8 + 4/S + (8 + 8 + 4/S)/k``, each row of `x` read once, `y` written once, no write-allocate.

A matrix that is the same for all samples has `values` of shape (nnz, 1): they are read once and spread over the lanes.
That is the only broadcasting these kernels do. The last argument, `out`, is a buffer or None.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._compile import cuda
from ensemble._compile.lanes.arithmetic import conjugate
from ensemble._compile.lanes.types import load, prefetch, splat, store, stream, zeros
from ensemble._compile.numba import (
    compiled,
    compiled_procedure,
    inner,
    output,
    per_width,
    prange,
    spliced,
    streams,
    tiles,
    widest,
)
from ensemble._compile.registry import into, kernel
from ensemble._kernels.sparse.complex_numbers import conjugated, times
from ensemble._kernels.sparse.row_passes import block_lists, row_runs
from ensemble._kernels.sparse.row_sums import block_sums, chunk_sums, ordered_sum, row_blocks
from ensemble._typing import Array

__all__ = ["diagonal", "residual", "spmv", "spmv_add", "spmv_dot", "spmv_transpose"]


def row_sum(indptr, indices, values, x):
    """The sum over each row's entries, in their stored order, by whole columns of entries at once."""
    xp = array_namespace(values)
    starts = to_numpy(indptr)  # which are known where JAX traces values and x
    first, length = starts[:-1], np.diff(starts)
    y = xp.zeros((first.shape[0], x.shape[1]), dtype=x.dtype)
    for offset in range(int(length.max(initial=0))):  # the offset-th entry of every row at once
        live = length > offset
        k = asarray_like(np.where(live, first + offset, 0), values)
        term = times(xp.take(values, k, axis=0), xp.take(x, xp.take(indices, k), axis=0))
        y = xp.where(asarray_like(live[:, None], values), y + term, y)
    return y


WIDE_ENTRY = 128
"""Bytes of an entry of all samples from which on values are prefetched `BYTES_AHEAD[1]` ahead, not `BYTES_AHEAD[0]`.

Measured again by `benchmarks spmv`.
"""

BYTES_AHEAD = (4096, 2048)
"""Bytes ahead of its use that a value is prefetched: the hardware's own prefetch stops at page ends.

Measured again by `benchmarks spmv`.
"""

ROWS_AHEAD = np.uint64(64)
"""Entries ahead that a row of `x` is prefetched where columns are scattered (`benchmarks spmv-orders`)."""

FEW_SAMPLES = 2
"""Samples up to which a product has loops of its own."""

FEW_AHEAD = 4096
"""Bytes ahead of its use that a value of few samples is prefetched (`benchmarks spmv-small`)."""

FEW_ROWS_AHEAD = np.uint64(128)
"""Entries ahead that a row of `x` of few samples is prefetched (`benchmarks spmv-orders`)."""

CACHE_BYTES = 1 << 20
"""Bytes of a vector that the caches near a core hold."""

SAMPLED_ROWS, NEAR_COLUMNS = 64, 64

COMPILED_FLOATS = frozenset(np.dtype(name) for name in ("float32", "float64", "complex64", "complex128"))
"""Types of which a product has compiled code."""

U = np.uint64  # an unsigned index needs no test for a negative one


@spliced
def values_ahead(bytes_of_entry):
    """How many entries ahead a value is prefetched, an entry being `bytes_of_entry` of all samples."""
    return U((BYTES_AHEAD[0] if bytes_of_entry < WIDE_ENTRY else BYTES_AHEAD[1]) // bytes_of_entry)


@spliced
def row_product(indptr, indices, values, x, i, n_samples, first, shared, prefetch_x, total):
    """`total` plus row i of the matrix times `x`, for the tile of samples from `first` on that `total` is wide."""
    ahead = values_ahead(n_samples * values.itemsize)
    row, stride, start, last = U(i), U(n_samples), U(first), U(indices.size - 1)
    for k in range(U(indptr[row]), U(indptr[row + U(1)])):
        if shared:
            entry = splat(values[k], values, total)
        else:
            entry = load(values, np.int64(k * stride + start), total)
            prefetch(values, np.int64((k + ahead) * stride + start), total)
        if prefetch_x:
            later = np.int64(U(indices[min(k + ROWS_AHEAD, last)]) * stride + start)
            prefetch(x, later, 8)  # at least one line, however narrow the tile
            prefetch(x, later, total)
        total = total + entry * load(x, np.int64(U(indices[k]) * stride + start), total)
    return total


def far_columns(indptr: Any, indices: Any, distance: int = 1) -> bool:
    """Whether one entry in eight of some rows is far from all columns of the row `distance` rows before."""
    return bool(_far_columns(indptr, indices, distance))


@compiled_procedure
def _far_columns(indptr, indices, distance):
    n_rows, far, seen = indptr.size - 1, 0, 0
    for j in range(min(n_rows - distance, SAMPLED_ROWS)):
        i = distance + j * (n_rows - distance) // SAMPLED_ROWS if n_rows > SAMPLED_ROWS else distance + j
        m, end = indptr[i - distance], indptr[i - distance + 1]
        for k in range(indptr[i], indptr[i + 1]):
            while m + 1 < end and indices[m + 1] <= indices[k]:
                m += 1
            near = False
            if m < end:
                apart = np.int64(indices[k]) - np.int64(indices[m])
                near = apart >= -NEAR_COLUMNS and apart <= NEAR_COLUMNS
            if not near and m + 1 < end:
                apart = np.int64(indices[m + 1]) - np.int64(indices[k])
                near = apart >= -NEAR_COLUMNS and apart <= NEAR_COLUMNS
            if not near:
                far += 1
            seen += 1
    if 8 * far > seen:
        return 1
    return 0


def scattered(indptr, indices, x):
    """Whether rows of `x` are prefetched: they outgrow a cache, and the columns of neighbouring rows are far apart.

    The order in which a row is summed does not depend on it. Kernels with further arithmetic in each row do
    not prefetch for a single sample.
    """
    return x.shape[1] > 1 and x.nbytes > CACHE_BYTES and far_columns(indptr, indices)


def scattered_few_samples(indptr, indices, values, x):
    """As `scattered`, for a product of one or two samples, where the stream of values drives `x` from the cache."""
    outgrown = x.nbytes > CACHE_BYTES // 4 and values.nbytes > 4 * CACHE_BYTES
    return outgrown and far_columns(indptr, indices)


# --- products
@kernel
def spmv(indptr, indices, values, x, out):
    """y[i, s] = sum over k in row i of values[k, s] * x[indices[k], s]."""
    return into(out, row_sum(indptr, indices, values, x))


@kernel
def spmv_add(indptr, indices, values, x, out):
    """out[i, s] += sum over k in row i of values[k, s] * x[indices[k], s]; `out` must be given."""
    return into(out, out + row_sum(indptr, indices, values, x))


@kernel
def residual(indptr, indices, values, x, b, out):
    """r[i, s] = b[i, s] - sum over k in row i of values[k, s] * x[indices[k], s]."""
    return into(out, b - row_sum(indptr, indices, values, x))


SET, ADD, RESIDUAL, DOT = 0, 1, 2, 3
ONE_TILE_SAMPLES = 16
"""Samples from which on a product whose samples fill one tile is compiled for that number of samples."""
ENTRIES_AHEAD = 16  # how far ahead a transposed product prefetches entries (`benchmarks multigrid`)
STAGED_LANES = 4  # as in rows.cuh
SHARED = ("false", "true")

INSTANCES = (
    *(f"product<{ending}, {shared}>" for ending in (SET, ADD, RESIDUAL) for shared in SHARED),
    *(f"{name}<{shared}>" for name in ("product_dot", "product_transpose") for shared in SHARED),
    "diagonal",
    "sum_partials",
)
CUDA = cuda.KernelModule(
    "sparse/crs",
    list(INSTANCES),
    headers=("../_compile/include/copy_engine.cuh", "sparse/rows.cuh"),
    of_complex=INSTANCES,
)


@inner
def product_rows(
    indptr, indices, values, x, b, y, past_cache, n_samples, first, shared, prefetch_x, ending, low, high, nothing
):
    """Rows `low` to `high` of a product, for the tile of samples from `first` on that the zeros `nothing` are wide."""
    for i in range(U(low), U(high)):
        total = row_product(indptr, indices, values, x, i, n_samples, first, shared, prefetch_x, nothing)
        here = np.int64(i) * n_samples + first
        if ending == ADD:
            total = load(y, here, nothing) + total
        elif ending == RESIDUAL:
            total = load(b, here, nothing) - total
        if past_cache:
            stream(y, here, total)
        else:
            store(y, here, total)


@per_width
def _product(width, shared, ending, prefetch_x, one_tile):
    """Make the loop of a product, for tiles of `width` samples; with `one_tile` a tile has all of them.

    `prefetch_x` is what `scattered` says. Strides of one tile are constants.

    Threads take runs of rows: the pointers of a serial loop stay in registers, those of a `prange` do not.
    """

    @compiled
    def loop(indptr, indices, values, x, b, y, runs, past_cache, n_samples, first):
        stride, start = (width, 0) if one_tile else (n_samples, first)
        for r in prange(runs.shape[0]):
            product_rows(
                indptr, indices, values, x, b, y, past_cache, stride, start, shared, prefetch_x, ending,
                runs[r, 0], runs[r, 1], zeros(values, width),
            )  # fmt: skip

    return loop


@spliced
def entry_product(indices, values, x, k, width, nothing):
    """Entry k times its row of `x`, for all `width` samples."""
    return load(values, np.int64(k) * width, nothing) * load(x, np.int64(U(indices[k])) * width, nothing)


@inner(forceinline=True)
def few_sample_rows(indptr, indices, values, x, b, y, width, prefetch_x, ending, low, high, nothing):
    """Rows `low` to `high` of a product of `width` samples, one or two; with the ending for it, the inner product, too.

    One sample on near columns is summed by fours: a loop that ends in single entries, as compilers unroll it, costs
    short rows more than their entries. Otherwise lines are prefetched ahead, entry by entry: the hardware's prefetch
    loses its stride among the lines of `x`.

    `ending` is given as an int64: Numba translates the function once, and LLVM drops the other endings where it is
    inlined.
    """
    last, ahead = U(indices.size - 1), U(FEW_AHEAD // (width * values.itemsize))
    k, product = U(indptr[U(low)]), nothing
    for row in range(U(low), U(high)):
        total, end, here = nothing, U(indptr[row + U(1)]), np.int64(row) * width
        if prefetch_x or width > 1:
            while k < end:
                prefetch(values, np.int64(k + ahead) * width, 8)
                if prefetch_x:
                    prefetch(x, np.int64(U(indices[min(k + FEW_ROWS_AHEAD, last)])) * width, 8)
                total = total + entry_product(indices, values, x, k, width, nothing)
                k += U(1)
        else:
            while k + U(4) <= end:
                for _ in range(4):
                    total = total + entry_product(indices, values, x, k, width, nothing)
                    k += U(1)
            if k + U(2) <= end:
                for _ in range(2):
                    total = total + entry_product(indices, values, x, k, width, nothing)
                    k += U(1)
            if k < end:
                total = total + entry_product(indices, values, x, k, width, nothing)
                k += U(1)
        if ending == ADD:
            total = load(y, here, nothing) + total
        elif ending == RESIDUAL:
            total = load(b, here, nothing) - total
        elif ending == DOT:
            product = product + conjugate(load(x, here, nothing)) * total
        store(y, here, total)
    return product


@per_width
def _few_sample_product(width, prefetch_x, ending):
    @compiled
    def loop(indptr, indices, values, x, b, y, runs):
        for r in prange(runs.shape[0]):
            few_sample_rows(
                indptr, indices, values, x, b, y, width, prefetch_x, np.int64(ending), runs[r, 0], runs[r, 1],
                zeros(values, width),
            )  # fmt: skip

    return loop


def _run_product(ending, indptr, indices, values, x, b, out):
    n_samples = x.shape[1]
    out = output(out, (indptr.shape[0] - 1, n_samples), x.dtype)
    shared = values.shape[1] != n_samples
    past_cache = ending != ADD and streams(out)
    flat = [array.reshape(-1) for array in (values, x, b, out)]
    if n_samples <= FEW_SAMPLES and not shared:
        few = _few_sample_product(n_samples, scattered_few_samples(indptr, indices, values, x), ending)
        for runs in row_runs(out.shape[0]):
            few(indptr, indices, *flat, runs)
        return out
    prefetch_x = scattered(indptr, indices, x)
    for runs in row_runs(out.shape[0]):
        for first, width in tiles(n_samples, widest(x)):
            one_tile = width == n_samples and width >= ONE_TILE_SAMPLES
            loop = _product(width, shared, ending, prefetch_x, one_tile)
            loop(indptr, indices, *flat, runs, past_cache, n_samples, first)
    return out


def product_of_few(indptr: Any, indices: Any, values: Any, x: Any) -> Any:
    """`spmv` of small NumPy arrays of one type and of as many samples, one or two; None for others.

    `x` has shape (n_columns, n_samples), or (n_columns,) for one sample, and so has the result. Its type and its number
    of samples decide alone: `spmv` asks each array for its backend, which takes as long as the product.
    """
    if type(x) is not np.ndarray or type(values) is not np.ndarray:
        return None
    dtype, shape, n_samples = values.dtype, x.shape, values.shape[1]
    if x.dtype != dtype or dtype not in COMPILED_FLOATS or n_samples > FEW_SAMPLES or values.nbytes > CACHE_BYTES:
        return None
    if n_samples != (shape[1] if len(shape) > 1 else 1):
        return None
    n_rows = indptr.size - 1
    y, flat, few = np.empty((n_rows, *shape[1:]), dtype), x.ravel(), _few_sample_product(n_samples, False, SET)
    for runs in row_runs(n_rows):
        few(indptr, indices, values.ravel(), flat, flat, y.ravel(), runs)
    return y


def _product_on_device(ending, indptr, indices, values, x, b, out):
    n_rows, n_samples = indptr.shape[0] - 1, x.shape[1]
    out = cuda.output(out, x, (n_rows, n_samples))
    shared = values.shape[1] != n_samples
    layout = cuda.layout_of(n_samples, x, out, b, *(() if shared else (values,)))
    arguments = (indptr, indices, values, x, b, out)
    name = f"product<{ending}, {SHARED[shared]}>"
    CUDA.rows(name, n_rows, n_samples, arguments, layout, cuda.is_wide(indptr))
    return out


@spmv.register("numba", complex_numbers=True)
def _(indptr, indices, values, x, out):
    return _run_product(SET, indptr, indices, values, x, x, out)


@spmv.register("cuda", complex_numbers=True)
def _(indptr, indices, values, x, out):
    return _product_on_device(SET, indptr, indices, values, x, x, out)


@spmv_add.register("numba", complex_numbers=True)
def _(indptr, indices, values, x, out):
    return _run_product(ADD, indptr, indices, values, x, x, out)


@spmv_add.register("cuda", complex_numbers=True)
def _(indptr, indices, values, x, out):
    return _product_on_device(ADD, indptr, indices, values, x, x, out)


@residual.register("numba", complex_numbers=True)
def _(indptr, indices, values, x, b, out):
    return _run_product(RESIDUAL, indptr, indices, values, x, b, out)


@residual.register("cuda", complex_numbers=True)
def _(indptr, indices, values, x, b, out):
    return _product_on_device(RESIDUAL, indptr, indices, values, x, b, out)


# --- a product and its inner product
@kernel
def spmv_dot(indptr, indices, values, x, out):
    """y = A x and, in the same pass over A, the inner product of x and y: returns (y, one value a sample).

    Complex numbers of x are conjugated in the inner product.
    """
    y = row_sum(indptr, indices, values, x)
    return into(out, y), block_sums(times(conjugated(x), y))


@per_width
def _spmv_dot(width, shared, prefetch_x):
    @compiled
    def loop(indptr, indices, values, x, y, partials, bounds, blocks, past_cache, n_samples, first):
        for k in prange(blocks.size):
            block = blocks[k]
            inner = zeros(values, width)
            for i in range(bounds[block], bounds[block + 1]):
                total = row_product(
                    indptr, indices, values, x, i, n_samples, first, shared, prefetch_x, zeros(values, width)
                )
                here = np.int64(i) * n_samples + first
                if past_cache:
                    stream(y, here, total)
                else:
                    store(y, here, total)
                inner = inner + conjugate(load(x, here, width)) * total
            store(partials.reshape(-1), block * n_samples + first, inner)

    return loop


@per_width
def _few_sample_dot(width, prefetch_x):
    @compiled
    def loop(indptr, indices, values, x, y, partials, bounds, blocks):
        for k in prange(blocks.size):
            block = blocks[k]
            low, high = bounds[block], bounds[block + 1]
            product = few_sample_rows(
                indptr, indices, values, x, x, y, width, prefetch_x, np.int64(DOT), low, high, zeros(values, width)
            )
            store(partials.reshape(-1), block * width, product)

    return loop


@spmv_dot.register("numba", complex_numbers=True)
def _(indptr, indices, values, x, out):
    n_rows, n_samples = indptr.size - 1, x.shape[1]
    out = output(out, (n_rows, n_samples), x.dtype)
    shared = values.shape[1] != n_samples
    partials, bounds = row_blocks(n_rows, n_samples, x.dtype)
    flat = [array.reshape(-1) for array in (values, x, out)]
    if n_samples <= FEW_SAMPLES and not shared:
        few = _few_sample_dot(n_samples, scattered_few_samples(indptr, indices, values, x))
        for blocks in block_lists(partials.shape[0]):
            few(indptr, indices, *flat, partials, bounds, blocks)
        return out, ordered_sum(partials)
    prefetch_x, past_cache = scattered(indptr, indices, x), streams(out)
    for blocks in block_lists(partials.shape[0]):
        for first, width in tiles(n_samples, widest(x)):
            loop = _spmv_dot(width, shared, prefetch_x)
            loop(indptr, indices, *flat, partials, bounds, blocks, past_cache, n_samples, first)
    return out, ordered_sum(partials)


@spmv_dot.register("cuda", complex_numbers=True)
def _(indptr, indices, values, x, out):
    out, partials = spmv_dot_partials(indptr, indices, values, x, out)
    return out, chunk_sums(partials)[0]


def spmv_dot_partials(indptr: Array, indices: Array, values: Array, x: Array, out: Array) -> tuple[Array, Array]:
    """On a device: A x and the partial sums of x . A x, which whoever reads them adds up."""
    n_rows, n_samples = indptr.size - 1, x.shape[1]
    out = cuda.output(out, x, (n_rows, n_samples))
    shared = values.shape[1] != n_samples
    layout = cuda.layout_of(n_samples, x, out, *(() if shared else (values,)))
    if layout.lanes <= STAGED_LANES and not shared:  # the staged product and a pass of its own are faster than one pass
        _product_on_device(SET, indptr, indices, values, x, x, out)
        vectors = cuda.layout_of(n_samples, x, out)
        return out, cuda.chunked(
            cuda.KERNEL_MODULES["krylov/vectors"], "dot", n_rows, (x, out), vectors, False, n_samples, 1
        )
    arguments = (indptr, indices, values, x, out)
    name, wide = f"product_dot<{SHARED[shared]}>", cuda.is_wide(indptr)
    return out, cuda.chunked(CUDA, name, n_rows, arguments, layout, wide, n_samples, 1)


# --- transpose
@kernel
def spmv_transpose(indptr, indices, entries, values, x, out):
    """y = A^T x by rows of A^T: its k-th entry is entry ``entries[k]`` of A, whose values stay where they are."""
    xp = array_namespace(values)
    return into(out, row_sum(indptr, indices, xp.take(values, entries, axis=0), x))


@per_width
def _spmv_transpose(width, shared):
    @compiled
    def loop(indptr, indices, entries, values, x, y, n_samples, first):
        last = np.int64(indptr[-1]) - 1
        for i in prange(indptr.size - 1):
            total = zeros(values, width)
            for k in range(indptr[i], indptr[i + 1]):
                if shared:
                    a = splat(values[entries[k]], values, width)
                else:
                    a = load(values, np.int64(entries[k]) * n_samples + first, width)
                    ahead = min(np.int64(k) + ENTRIES_AHEAD, last)  # the hardware does not prefetch indirect addresses
                    prefetch(values, np.int64(entries[ahead]) * n_samples + first, width)
                    prefetch(x, np.int64(indices[ahead]) * n_samples + first, width)
                total = total + a * load(x, np.int64(indices[k]) * n_samples + first, width)
            store(y, np.int64(i) * n_samples + first, total)

    return loop


@spmv_transpose.register("numba", complex_numbers=True)
def _(indptr, indices, entries, values, x, out):
    n_samples = x.shape[1]
    out = output(out, (indptr.shape[0] - 1, n_samples), x.dtype)
    shared = values.shape[1] != n_samples
    flat = [array.reshape(-1) for array in (values, x, out)]
    for first, width in tiles(n_samples, widest(x)):
        _spmv_transpose(width, shared)(indptr, indices, entries, *flat, n_samples, first)
    return out


@spmv_transpose.register("cuda", complex_numbers=True)
def _(indptr, indices, entries, values, x, out):
    n_rows, n_samples = indptr.shape[0] - 1, x.shape[1]
    out = cuda.output(out, x, (n_rows, n_samples))
    shared = values.shape[1] != n_samples
    layout = cuda.layout_of(n_samples, x, out, *(() if shared else (values,)))
    arguments = (indptr, indices, entries, values, x, out)
    CUDA.rows(f"product_transpose<{SHARED[shared]}>", n_rows, n_samples, arguments, layout, cuda.is_wide(indptr))
    return out


# --- diagonal
@kernel
def diagonal(entries, values, out):
    """d[i, s] = values[entries[i], s], and zero where ``entries[i]`` is -1: a row that stores no diagonal."""
    xp = array_namespace(values)
    if values.shape[0] == 0:
        return into(out, xp.zeros((entries.shape[0], values.shape[1]), dtype=values.dtype))
    kept = xp.take(values, xp.where(entries < 0, xp.zeros_like(entries), entries), axis=0)
    return into(out, xp.where((entries < 0)[:, None], xp.zeros_like(kept), kept))


@compiled
def _diagonal(entries, values, out):
    for i in prange(entries.size):
        for s in range(out.shape[1]):
            out[i, s] = values[entries[i], s] if entries[i] >= 0 else 0


@diagonal.register("numba", complex_numbers=True)
def _(entries, values, out):
    out = output(out, (entries.shape[0], values.shape[1]), values.dtype)
    _diagonal(entries, values, out)
    return out


@diagonal.register("cuda", complex_numbers=True)
def _(entries, values, out):
    n_rows, n_samples = entries.shape[0], values.shape[1]
    out = cuda.output(out, values, (n_rows, n_samples))
    layout = cuda.layout_of(n_samples, values, out)
    CUDA.rows("diagonal", n_rows, n_samples, (entries, values, out), layout, cuda.is_wide(entries))
    return out
