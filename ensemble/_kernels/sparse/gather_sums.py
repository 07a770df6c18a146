"""Sums of chosen rows of an array: what assembly of sparse matrices and right-hand sides comes down to.

Row m of the result is ``values[sources[starts[m]]] + values[sources[starts[m] + 1]] + ...``, in that order; rows have a
number per sample, or per sample and entry of a block. No two threads write one row, so that bits depend on neither
threads nor samples.

Bytes that must move (float64, T sources, M sums, W numbers a row): ``8 T W + 4 T + 4 M + 8 M W``. Element matrices of
few numbers, and vectors, go to `staged_sums` on a device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.lanes.arithmetic import REGISTER_BYTES
from ensemble._compile.lanes.types import load, prefetch, store, zeros
from ensemble._compile.numba import compiled, output, per_width, prange
from ensemble._compile.registry import into, kernel
from ensemble._kernels.sparse.bcrs import grouped_tiles
from ensemble._kernels.sparse.element_map import ElementMap
from ensemble._kernels.sparse.row_passes import run_of_rows

__all__ = ["element_sums", "gather_sums"]

AHEAD = 24
"""Sources ahead of its use that a row is prefetched (`benchmarks forms`)."""

PAIRS_AHEAD = 4
"""Rows of element matrices that are prefetched ahead of their use (`benchmarks forms`)."""

CUDA = cuda.KernelModule("sparse/gather_sums", ["gather_sums"], of_complex=("gather_sums",))


@kernel
def gather_sums(starts, sources, values, out):
    """out[m] = sum of values[sources[t]] over t from starts[m] to starts[m + 1], in that order."""
    xp = array_namespace(values)
    first, length = starts[:-1], starts[1:] - starts[:-1]
    total = xp.zeros((first.shape[0], values.shape[1]), dtype=values.dtype)
    for offset in range(int(xp.max(length)) if first.shape[0] else 0):  # the offset-th source of every sum at once
        live = length > offset
        t = xp.where(live, first + offset, xp.zeros_like(first))
        total = xp.where(live[:, None], total + xp.take(values, xp.take(sources, t), axis=0), total)
    return into(out, total)


@per_width
def _gather_sums(width):
    @compiled
    def loop(starts, sources, values, out, stride, first, n_tiles):
        n, last = starts.size - 1, np.int64(sources.size - 1)
        run = run_of_rows(n)
        for r in prange((n + run - 1) // run):
            for m in range(r * run, min((r + 1) * run, n)):
                for tile in range(n_tiles):
                    s = first + tile * width
                    total = zeros(values, width)
                    for t in range(np.int64(starts[m]), np.int64(starts[m + 1])):
                        prefetch(values, np.int64(sources[min(t + AHEAD, last)]) * stride + s, 8)
                        total = total + load(values, np.int64(sources[t]) * stride + s, width)
                    store(out, np.int64(m) * stride + s, total)

    return loop


@gather_sums.register("numba", complex_numbers=True)
def _(starts, sources, values, out):
    out = output(out, (starts.shape[0] - 1, values.shape[1]), values.dtype)
    flat, stride = [array.reshape(-1) for array in (values, out)], values.shape[1]
    for first, width, n_tiles in grouped_tiles(stride, max(1, REGISTER_BYTES // (2 * values.itemsize))):
        _gather_sums(width)(starts, sources, *flat, stride, first, n_tiles)
    return out


@gather_sums.register("cuda", complex_numbers=True)
def _(starts, sources, values, out):
    n, width = starts.shape[0] - 1, values.shape[1]
    out = cuda.output(out, values, (n, width))
    layout = cuda.layout_of(width, values, out)
    CUDA.rows("gather_sums", n, width, (starts, sources, values, out), layout, cuda.is_wide(starts))
    return out


# --- element matrices on the CPU: the numbers of one element and row lie together, so that rows of the matrix add them
@per_width
def _element_sums(width):
    @compiled
    def loop(indptr, first, incidences, slots, values, out, stride, start, n_tiles):
        n, k, last = indptr.size - 1, slots.shape[1], np.int64(incidences.size - 1)
        run = run_of_rows(n)
        for r in prange((n + run - 1) // run):
            for i in range(r * run, min((r + 1) * run, n)):
                begin = np.int64(indptr[i])
                for m in range(begin, np.int64(indptr[i + 1])):
                    for tile in range(n_tiles):
                        store(out, m * stride + start + tile * width, zeros(out, width))
                for t in range(np.int64(first[i]), np.int64(first[i + 1])):
                    pair, later = np.int64(incidences[t]), np.int64(incidences[min(t + PAIRS_AHEAD, last)])
                    for b in range(k):
                        at = (begin + slots[pair, b]) * stride + start
                        source = (pair * k + b) * stride + start
                        prefetch(values, (later * k + b) * stride + start, 8)
                        for tile in range(n_tiles):
                            s = tile * width
                            store(out, at + s, load(out, at + s, width) + load(values, source + s, width))

    return loop


def element_sums(made: ElementMap, values: Any) -> Any:
    """On the CPU: the entries of a sparse matrix from element matrices, shape (n_elements * k * k, width).

    The bits of `gather_sums`, in passes over whole rows of element matrices.
    """
    stride, k = values.shape[1], made.slots.shape[1]
    out = output(None, (made.indices.size, stride), values.dtype)
    flat = [array.reshape(-1) for array in (values, out)]
    arrays = made.indptr, made.first, made.incidences, made.slots.reshape(-1, k)
    for start, width, n_tiles in grouped_tiles(stride, max(1, REGISTER_BYTES // (2 * values.itemsize))):
        _element_sums(width)(*arrays, *flat, stride, start, n_tiles)
    return out
