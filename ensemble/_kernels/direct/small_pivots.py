"""Rows whose entries cancelled in an elimination: their sums of magnitudes over their pivots, per sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.arithmetic import absolute
from ensemble._compile.lanes.types import load, select, store, zeros
from ensemble._compile.numba import compiled, per_width, prange, tiles

__all__ = ["row_sums_over_pivots"]


@per_width
def _row_sums(width):
    @compiled
    def loop(indptr, indices, values, units, inverse, columns, out, n_samples, first):
        for _ in prange(1):
            most = zeros(values, width)
            for i in range(columns.size):
                total = zeros(values, width)
                for k in range(indptr[i], indptr[i + 1]):
                    size = absolute(load(values, k * n_samples + first, most))
                    total = total + size * load(units, indices[k] * n_samples + first, most)
                total = total * absolute(load(inverse, i * n_samples + first, most))
                total = total / load(units, columns[i] * n_samples + first, most)
                most = select(total > most, total, most)
            store(out, np.int64(first), most)

    return loop


def row_sums_over_pivots(A: Any, units: np.ndarray, inverse: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Compute the largest sum of magnitudes of a row of A over its pivot, per sample, shape (n_samples,).

    Parameters
    ----------
    A : CrsMatrix
        Float64 in NumPy's arrays.
    units : array, shape (n, n_samples)
        What entries of each column are multiplied by.
    inverse : array, shape (n, n_samples)
        Reciprocals of the pivots in the order of the rows of A.
    columns : array of int, shape (n,)
        The column of the pivot of each row.
    """
    n_samples = A.values.shape[1]
    out = np.empty(n_samples)
    units, inverse = (
        np.ascontiguousarray(np.broadcast_to(found, (*A.shape[:1], n_samples))) for found in (units, inverse)
    )
    for first, width in tiles(n_samples, 32):
        _row_sums(width)(
            A.graph.indptr, A.graph.indices, A.values.reshape(-1), units.reshape(-1), inverse.reshape(-1), columns, out,
            n_samples, first,
        )  # fmt: skip
    return out
