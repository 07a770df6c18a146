"""Chosen rows of a vector, one behind the other: what a message to another process carries.

Bytes that must move (float64, R rows): ``16 R S + 4 R``. Memory is read in sectors of 32 bytes, so that rows of one
sample that lie apart cost 32 bytes each.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.registry import into, kernel
from ensemble._typing import Array

__all__ = ["packed_rows"]

CUDA = cuda.KernelModule("sparse/packed_rows", ["packed_rows"])


@kernel
def packed_rows(x: Array, rows: Array, out: Array) -> Array:
    """out[i] = x[rows[i]], `rows` of int32 or int64 and within x."""
    return into(out, array_namespace(x).take(x, rows, axis=0))


@packed_rows.register("numba")
def _(x: Array, rows: Array, out: Array) -> Array:
    return np.take(x, rows, axis=0, out=out, mode="clip")  # the other modes copy once more


@packed_rows.register("cuda")
def _(x: Array, rows: Array, out: Array) -> Array:
    n_rows, n_samples = rows.shape[0], x.shape[1]
    out = cuda.output(out, x, (n_rows, n_samples))
    CUDA.rows("packed_rows", n_rows, n_samples, (x, rows, out), cuda.layout_of(n_samples, x, out), cuda.is_wide(rows))
    return out
