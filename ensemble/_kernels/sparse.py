"""Compressed-row-storage products: one graph, one row of `n_samples` values for every stored entry.

Bytes a call must move (float64, int32 columns, k entries a row, S samples; per entry and sample):
``8 + 4/S + (8 + 8 + 4/S)/k``, each row of `x` read once, `y` written once, no write-allocate.

A matrix that is the same for all samples has `values` of shape (nnz, 1): its values are read once and spread over the
lanes. That is the only broadcasting a kernel does.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._kernels._compile import compiled, output, per_width, prange, tiles
from ensemble._kernels._lanes import load, splat, store, zeros
from ensemble._kernels._registry import into, kernel

__all__ = ["spmv"]


def row_sum(indptr, indices, values, x):
    """The sum over each row's entries, in their stored order, by whole columns of entries at once."""
    xp = array_namespace(values)
    first, length = indptr[:-1], indptr[1:] - indptr[:-1]
    y = xp.zeros((first.shape[0], x.shape[1]), dtype=xp.result_type(values.dtype, x.dtype))
    longest = int(xp.max(length)) if length.shape[0] else 0
    for offset in range(longest):  # the offset-th entry of every row at once
        live = length > offset
        k = xp.where(live, first + offset, xp.zeros_like(first))
        term = xp.take(values, k, axis=0) * xp.take(x, xp.take(indices, k), axis=0)
        y = xp.where(live[:, None], y + term, y)
    return y


@kernel
def spmv(indptr, indices, values, x, out):
    """y[i, s] = sum over k in row i of values[k, s] * x[indices[k], s]."""
    return into(out, row_sum(indptr, indices, values, x))


@per_width
def _spmv(width, shared):
    @compiled
    def loop(indptr, indices, values, x, y, n_samples, first):
        for i in prange(indptr.size - 1):
            total = zeros(values, width)
            for k in range(indptr[i], indptr[i + 1]):
                if shared:
                    a = splat(values[k], values, width)
                else:
                    a = load(values, np.int64(k) * n_samples + first, width)
                total = total + a * load(x, np.int64(indices[k]) * n_samples + first, width)
            store(y, np.int64(i) * n_samples + first, total)

    return loop


@spmv.register("numba")
def _(indptr, indices, values, x, out):
    n_samples = x.shape[1]
    shared = values.shape[1] != n_samples
    out = output(out, (indptr.shape[0] - 1, n_samples), x.dtype)
    for first, width in tiles(n_samples):
        _spmv(width, shared)(indptr, indices, values.reshape(-1), x.reshape(-1), out.reshape(-1), n_samples, first)
    return out
