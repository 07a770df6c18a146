"""Values of a matrix in float32, and how large they are, in one pass.

Bytes that must move, values of 8: ``12 nnz S``.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile.lanes.arithmetic import absolute, convert
from ensemble._compile.lanes.types import load, select, store, zeros
from ensemble._compile.numba import compiled, per_width, prange, tiles
from ensemble._compile.registry import into, kernel
from ensemble._kernels.sparse.row_sums import largest_of_blocks, row_blocks

__all__ = ["narrowed_values"]


@kernel
def narrowed_values(values, out):
    """`values` rounded to the type of `out`, which must be given, and the largest magnitude of each sample.

    A magnitude that is NaN does not count.
    """
    xp = array_namespace(values)
    size = xp.where(xp.isnan(values), xp.zeros_like(values), xp.abs(values))
    largest = xp.max(size, axis=0) if values.shape[0] else xp.zeros(values.shape[1:], dtype=values.dtype)
    return into(out, xp.astype(values, out.dtype)), largest


@per_width
def _narrowed(width):
    @compiled
    def loop(values, out, partials, bounds, n_samples, first):
        for block in prange(partials.size // n_samples):
            most = zeros(values, width)
            for k in range(bounds[block], bounds[block + 1]):
                here = np.int64(k) * n_samples + first
                entry = load(values, here, width)
                size = absolute(entry)
                most = select(size > most, size, most)  # a comparison with NaN is false
                store(out, here, convert(entry, out))
            store(partials, block * n_samples + first, most)

    return loop


@narrowed_values.register("numba")
def _(values, out):
    n_rows, n_samples = values.shape
    partials, bounds = row_blocks(n_rows, n_samples, values.dtype)
    for first, width in tiles(n_samples):
        _narrowed(width)(values.reshape(-1), out.reshape(-1), partials.reshape(-1), bounds, n_samples, first)
    return out, largest_of_blocks(partials)
