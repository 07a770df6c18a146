"""Gauss-Seidel sweeps by colours: rows of one colour are not coupled, so that their updates run in parallel.

Bytes a sweep must move: the matrix once, b and x once read, x once written.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace, numbers
from ensemble._compile import cuda
from ensemble._compile.lanes.types import load, splat, store, zeros
from ensemble._compile.numba import compiled, compiled_arrays, per_width, prange, tiles
from ensemble._compile.registry import into, kernel
from ensemble._kernels.sparse.complex_numbers import times
from ensemble._kernels.sparse.crs import row_product, row_sum

__all__ = ["gauss_seidel", "greedy_colours"]

SHARED = ("false", "true")

INSTANCES = tuple(f"gauss_seidel<{shared}>" for shared in SHARED)
CUDA = cuda.KernelModule("multigrid/gauss_seidel", list(INSTANCES), of_complex=INSTANCES)


@compiled_arrays
def greedy_colours(indptr, indices, indptr_t, indices_t):
    """The colour of each row: the lowest that no earlier row coupled to it has, in the graph or its transpose."""
    n = indptr.size - 1
    colour = np.full(n, -1, np.int32)
    seen = np.full(n + 1, -1, np.int64)  # the last row to which a colour was forbidden
    for i in range(n):
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] != i and colour[indices[k]] >= 0:
                seen[colour[indices[k]]] = i
        for k in range(indptr_t[i], indptr_t[i + 1]):
            if indices_t[k] != i and colour[indices_t[k]] >= 0:
                seen[colour[indices_t[k]]] = i
        c = 0
        while seen[c] == i:
            c += 1
        colour[i] = c
    return colour


@kernel
def gauss_seidel(indptr, indices, values, dinv, rows, starts, order, b, x):
    """Update ``x[i] += dinv[i] * (b[i] - (A x)[i])`` in place, colour after colour as `order` lists them.

    Colour c has the rows ``rows[starts[c]:starts[c + 1]]``, none coupled to another of them. `starts` and `order` are
    lists of integers: a kernel takes all arrays from one library.
    """
    xp = array_namespace(x)
    colour = np.empty(rows.shape[0], np.int64)
    for c in range(len(starts) - 1):
        colour[np.asarray(numbers(rows[starts[c] : starts[c + 1]]), np.int64)] = c
    colour = xp.asarray(colour)[:, None]
    new = x
    for c in order:
        new = xp.where(colour == c, new + times(dinv, b - row_sum(indptr, indices, values, new)), new)
    return into(x, new)


@per_width
def _gauss_seidel(width, shared):
    @compiled
    def loop(indptr, indices, values, dinv, rows, begin, end, b, x, n_samples, first):
        for j in prange(end - begin):
            i = rows[begin + j]
            total = row_product(indptr, indices, values, x, i, n_samples, first, shared, False, zeros(values, width))
            here = np.int64(i) * n_samples + first
            inverse = splat(dinv[i], dinv, width) if shared else load(dinv, here, width)
            store(x, here, load(x, here, width) + inverse * (load(b, here, width) - total))

    return loop


@gauss_seidel.register("numba", complex_numbers=True)
def _(indptr, indices, values, dinv, rows, starts, order, b, x):
    n_samples = x.shape[1]
    shared = values.shape[1] != n_samples
    values, dinv, b, flat = (array.reshape(-1) for array in (values, dinv, b, x))
    for first, width in tiles(n_samples):
        sweep = _gauss_seidel(width, shared)
        for c in order:
            sweep(indptr, indices, values, dinv, rows, starts[c], starts[c + 1], b, flat, n_samples, first)
    return x


@gauss_seidel.register("cuda", complex_numbers=True)
def _(indptr, indices, values, dinv, rows, starts, order, b, x):
    n_samples = x.shape[1]
    shared = values.shape[1] != n_samples
    layout = cuda.layout_of(n_samples, b, x, *(() if shared else (values, dinv)))
    wide = cuda.is_wide(indptr)
    for c in order:
        here = rows[starts[c] : starts[c + 1]]
        arguments = (indptr, indices, values, dinv, here, b, x)
        CUDA.rows(f"gauss_seidel<{SHARED[shared]}>", here.shape[0], n_samples, arguments, layout, wide)
    return x
