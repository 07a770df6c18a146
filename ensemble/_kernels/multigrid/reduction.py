"""Relaxation of the fine or the coarse rows alone: one pass over these rows of A."""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.lanes.types import load, splat, store, zeros
from ensemble._compile.numba import compiled, output, per_width, prange, tiles
from ensemble._compile.registry import into, kernel
from ensemble._kernels.sparse.complex_numbers import times
from ensemble._kernels.sparse.crs import row_product, row_sum

__all__ = ["relax_rows"]

SHARED = ("false", "true")

INSTANCES = tuple(f"relax_rows<{shared}>" for shared in SHARED)
CUDA = cuda.KernelModule(
    "multigrid/reduction",
    list(INSTANCES),
    headers=("../_compile/include/copy_engine.cuh", "sparse/rows.cuh"),
    of_complex=INSTANCES,
)


@kernel
def relax_rows(marks, mark, indptr, indices, values, dinv, b, x, out):
    """x + dinv * (b - A x) in the rows i with ``marks[i] == mark``, x in the others; `out` must not be `x`.

    `dinv` has shape (n, 1) or (n, n_samples), like `values`. Bytes: the marked rows of A; 2 vectors read, 1 written,
    `b` and `dinv` in the marked rows.
    """
    xp = array_namespace(values)
    relaxed = x + times(dinv, b - row_sum(indptr, indices, values, x))
    return into(out, xp.where((marks == mark)[:, None], relaxed, x))


@per_width
def _relax_rows(width, shared):
    @compiled
    def loop(marks, mark, indptr, indices, values, dinv, b, x, out, n_samples, first):
        for i in prange(indptr.size - 1):
            here = np.int64(i) * n_samples + first
            new = load(x, here, width)
            if marks[i] == mark:
                total = row_product(
                    indptr, indices, values, x, i, n_samples, first, shared, False, zeros(values, width)
                )
                inverse = splat(dinv[i], dinv, width) if shared else load(dinv, here, width)
                new = new + inverse * (load(b, here, width) - total)
            store(out, here, new)

    return loop


@relax_rows.register("numba", complex_numbers=True)
def _(marks, mark, indptr, indices, values, dinv, b, x, out):
    n_samples = x.shape[1]
    out = output(out, x.shape, x.dtype)
    shared = values.shape[1] != n_samples
    flat = [array.reshape(-1) for array in (values, dinv, b, x, out)]
    for first, width in tiles(n_samples):
        _relax_rows(width, shared)(marks, mark, indptr, indices, *flat, n_samples, first)
    return out


@relax_rows.register("cuda", complex_numbers=True)
def _(marks, mark, indptr, indices, values, dinv, b, x, out):
    n_rows, n_samples = x.shape
    out = cuda.output(out, x, x.shape)
    shared = values.shape[1] != n_samples
    layout = cuda.layout_of(n_samples, b, x, out, *(() if shared else (values, dinv)))
    arguments = (marks, np.int32(mark), indptr, indices, values, dinv, b, x, out)
    CUDA.rows(f"relax_rows<{SHARED[shared]}>", n_rows, n_samples, arguments, layout, cuda.is_wide(indptr))
    return out
