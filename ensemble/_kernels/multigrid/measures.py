"""Quantities of a matrix that the set-up of a hierarchy needs first: inverse diagonals, and numbers out of range.

On a device each is one kernel: array functions of CuPy would be compiled one after another, reductions for seconds.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._compile import cuda
from ensemble._compile.numba import compiled, prange
from ensemble._compile.registry import kernel
from ensemble._kernels.sparse.complex_numbers import is_complex, quotients

__all__ = ["CUDA", "reciprocal", "too_small"]

CUDA = cuda.KernelModule(
    "multigrid/measures", ["coupled_rows", "reciprocal", "too_small"], of_complex=("coupled_rows", "reciprocal")
)

LARGE = 1 << 20
"""Numbers from which on threads share the work on the host: below, NumPy is faster than the compilation.

Measured again by `benchmarks multigrid`.
"""

ROWS_AT_ONCE = 1024
"""Rows that are compared at once on the host: they fit the cache."""


@kernel
def reciprocal(d):
    """1 / d in the memory of `d`; 0 where `d` is zero or subnormal."""
    tiny = np.finfo(d.dtype).smallest_normal
    if is_complex(d):
        none = (abs(d.real) < tiny) & (abs(d.imag) < tiny)
        d[...] = np.where(none, 0.0, quotients(np.ones_like(d), np.where(none, 1.0, d)))
        return d
    none = (d < tiny) & (d > -tiny)
    if none.any():
        d[none] = np.inf
    return array_namespace(d).divide(1.0, d, out=d)


@reciprocal.register("numba", complex_numbers=True)
def _(d):
    if is_complex(d) or d.size < LARGE or not d.flags.c_contiguous:
        return reciprocal.reference(d)  # once a level: NumPy's passes suffice
    _reciprocals(d.reshape(-1), np.finfo(d.dtype).smallest_normal)
    return d


@compiled
def _reciprocals(d, tiny):
    n = d.size
    for i in prange(n):
        value = d[i]
        none = value < tiny and value > -tiny
        d[i] = value - value if none else 1 / value


@reciprocal.register("cuda", complex_numbers=True)
def _(d):
    CUDA.rows("reciprocal", *d.shape, (d,), cuda.layout_of(d.shape[1], d))
    return d


@kernel
def too_small(size, units, least):
    """Which samples have a positive entry of `size` below `least` in its unit: one value per sample, on the host.

    By runs of rows that the cache holds: memory for whole vectors of results would cost more than the work.
    """
    xp, found = array_namespace(size), np.zeros(size.shape[1], bool)
    with np.errstate(all="ignore"):
        for start in range(0, size.shape[0], ROWS_AT_ONCE):
            part = size[start : start + ROWS_AT_ONCE]
            found |= to_numpy(xp.any((part > 0) & (part * units < least), axis=0))
    return found


@too_small.register("numba")
def _(size, units, least):
    if size.size < LARGE or not size.flags.c_contiguous:
        return too_small.reference(size, units, least)
    units = np.ascontiguousarray(np.broadcast_to(np.asarray(units, size.dtype), (1, size.shape[1])).reshape(-1))
    found = np.zeros(((size.shape[0] + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE, size.shape[1]), np.uint8)
    _too_small(size, units, size.dtype.type(least), found)
    return found.any(axis=0)


@compiled
def _too_small(size, units, least, found):
    n_chunks = found.shape[0]
    for chunk in prange(n_chunks):
        for i in range(chunk * ROWS_AT_ONCE, min((chunk + 1) * ROWS_AT_ONCE, size.shape[0])):
            for s in range(size.shape[1]):
                if size[i, s] > 0 and size[i, s] * units[s] < least:
                    found[chunk, s] = 1


@too_small.register("cuda")
def _(size, units, least):
    xp, n_samples = array_namespace(size), size.shape[1]
    found = xp.zeros(n_samples, dtype=xp.bool)
    arguments = (size, units, size.dtype.type(least), found)
    CUDA.rows("too_small", *size.shape, arguments, cuda.layout_of(n_samples, size))
    return to_numpy(found)
