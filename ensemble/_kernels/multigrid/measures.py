"""Quantities of a matrix that the set-up of a hierarchy needs first: inverse diagonals, and numbers out of range.

On a device each is one kernel: array functions of CuPy would be compiled one after another, reductions for seconds.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._compile import cuda
from ensemble._compile.registry import kernel
from ensemble._kernels.sparse.complex_numbers import is_complex, quotients

__all__ = ["CUDA", "reciprocal", "too_small"]

CUDA = cuda.KernelModule("multigrid/measures", ["coupled_rows", "reciprocal", "too_small"])

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


reciprocal.register("numba", complex_numbers=True)(reciprocal.reference)  # once a level: NumPy's passes suffice


@reciprocal.register("cuda")
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


too_small.register("numba")(too_small.reference)  # once a hierarchy


@too_small.register("cuda")
def _(size, units, least):
    xp, n_samples = array_namespace(size), size.shape[1]
    found = xp.zeros(n_samples, dtype=xp.bool)
    arguments = (size, units, size.dtype.type(least), found)
    CUDA.rows("too_small", *size.shape, arguments, cuda.layout_of(n_samples, size))
    return to_numpy(found)
