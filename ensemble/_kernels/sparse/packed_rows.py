"""Copies of chosen rows of a vector, one behind the other, for a message to another process.

Bytes that must move (float64, R rows): ``16 R S + 4 R``. Memory is read in sectors of 32 bytes, so that rows of one
sample that lie apart cost 32 bytes each.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile import cuda
from ensemble._compile.lanes.types import load, prefetch_for_writing, store
from ensemble._compile.numba import compiled_procedure
from ensemble._compile.registry import into, kernel
from ensemble._typing import Array

__all__ = ["pack", "packed_rows"]

CUDA = cuda.KernelModule("sparse/packed_rows", ["packed_rows"], of_complex=("packed_rows",))


@kernel
def packed_rows(x: Array, rows: Array, out: Array) -> Array:
    """Copy rows: out[i] = x[rows[i]], `rows` of int32 or int64 and within x."""
    return into(out, array_namespace(x).take(x, rows, axis=0))


LINE = 8
"""Numbers of 8 bytes in a line of the cache."""

LINES_AHEAD = 64
"""Cache lines by which `out` is prefetched before it is written: another process, which read it, holds them.

Measured again by `benchmarks distributed`.
"""

LARGE = 1 << 15
"""Bytes from which on lines are copied by compiled code: it takes 0.85 of NumPy's time, its call takes longer.

Measured again by `benchmarks distributed`.
"""


@compiled_procedure
def _lines(x, rows, out, n):
    for i in range(rows.size):
        source, target = np.int64(rows[i]) * n, i * n
        for s in range(0, n, LINE):
            prefetch_for_writing(out, target + s + LINES_AHEAD * LINE, LINE)
            store(out, target + s, load(x, source + s, LINE))


@packed_rows.register("numba", complex_numbers=True)
def pack(x: Array, rows: Array, out: Array) -> Array:
    """Copy rows as `packed_rows` does, of arrays of NumPy of any type and number of axes."""
    n, rest = divmod(x.strides[0], 8 * LINE)
    together = x.flags.c_contiguous and out is not None and out.flags.c_contiguous
    if together and out.nbytes >= LARGE and not rest:
        _lines(x.reshape(-1).view(np.float64), rows, out.reshape(-1).view(np.float64), LINE * n)
        return out
    return np.take(x, rows, axis=0, out=out, mode="clip")  # the other modes copy once more


@packed_rows.register("cuda", complex_numbers=True)
def _(x: Array, rows: Array, out: Array) -> Array:
    n_rows, n_samples = rows.shape[0], x.shape[1]
    out = cuda.output(out, x, (n_rows, n_samples))
    CUDA.rows("packed_rows", n_rows, n_samples, (x, rows, out), cuda.layout_of(n_samples, x, out), cuda.is_wide(rows))
    return out
