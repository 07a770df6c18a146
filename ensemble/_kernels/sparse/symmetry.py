"""What one pass over a square matrix tells of its symmetry, its norm and its eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.types import load, select, store, zeros
from ensemble._compile.numba import compiled, per_width, prange, tiles

__all__ = ["symmetry_and_bounds"]


@per_width
def _scan(width: int) -> Any:
    @compiled
    def loop(indptr, indices, values, across, out, n_samples, first):
        for _ in prange(1):
            nothing = zeros(values, width)
            apart, norm, low, high, total = nothing, nothing, nothing, nothing, nothing
            for i in range(indptr.size - 1):
                sums, diagonal = nothing, nothing
                for k in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
                    value = load(values, k * n_samples + first, width)
                    if indices[k] == i:
                        diagonal = value
                    else:
                        sums = sums + select(value < nothing, -value, value)
                    if indices[k] > i:
                        difference = value - load(values, np.int64(across[k]) * n_samples + first, width)
                        difference = select(difference < nothing, -difference, difference)
                        apart = select(difference > apart, difference, apart)
                size = sums + select(diagonal < nothing, -diagonal, diagonal)
                norm = select(size > norm, size, norm)
                total = total + size
                if i == 0:
                    low, high = diagonal - sums, diagonal + sums
                low = select(diagonal - sums < low, diagonal - sums, low)
                high = select(diagonal + sums > high, diagonal + sums, high)
            store(out, first, apart)
            store(out, n_samples + first, norm)
            store(out, 2 * n_samples + first, low)
            store(out, 3 * n_samples + first, high)
            store(out, 4 * n_samples + first, total)

    return loop


def symmetry_and_bounds(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, across: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Per sample the largest ``|a_ij - a_ji|``, the largest sum of magnitudes of a row, the ends of Gershgorin's
    circles, and whether all entries, and their sum, are finite.

    `across` has the place of the entry across the diagonal. Moves 2 nnz S values.
    """
    n_samples = values.shape[1]
    out = np.empty((5, n_samples), values.dtype)
    for first, width in tiles(n_samples):
        _scan(width)(indptr, indices, values.reshape(-1), across, out.reshape(-1), n_samples, first)
    apart, norm, low, high = out[:4].astype(np.float64)
    return apart, norm, low, high, np.isfinite(out[4])
