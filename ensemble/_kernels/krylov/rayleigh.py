"""Rayleigh quotients and residuals of vectors, whose lengths and signs are made those of the rule, in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.lanes.arithmetic import absolute, any_lane, lane
from ensemble._compile.lanes.types import load, select, splat, sqrt, store, zeros
from ensemble._compile.numba import compiled, inner, per_width, prange, tiles

__all__ = ["rayleigh_quotients"]

WIDEST = 8
"""Vectors that go through a matrix together."""

BLOCK = 512
"""Rows of one partial sum."""


@inner(forceinline=True)
def of_length_one(x, n, count, first, nothing):
    """Scale the vectors of a tile: the first component of at least half the largest magnitude becomes positive."""
    largest, square = nothing, nothing
    for start in range(0, n, BLOCK):
        part = nothing
        for i in range(start, min(start + BLOCK, n)):
            here = load(x, i * count + first, nothing)
            part = part + here * here
            largest = select(absolute(here) > largest, absolute(here), largest)
        square = square + part
    factor, i = nothing, np.int64(0)
    while i < n and any_lane(factor == 0.0):
        here = load(x, i * count + first, nothing)
        new = (factor == 0.0) & (absolute(here) >= 0.5 * largest)
        factor = select(new, select(here < 0.0, nothing - 1.0, nothing + 1.0), factor)
        i += 1
    factor = factor / sqrt(square)
    for i in range(n):
        store(x, i * count + first, load(x, i * count + first, nothing) * factor)


@inner(forceinline=True)
def quotient_and_residual(indptr, indices, matrix, shared, x, y, n, count, first, values, residuals, nothing):
    """Write ``x^T A x`` and the length of ``A x - x^T A x x`` of a tile; y is overwritten."""
    value, square = nothing, nothing
    for start in range(0, n, BLOCK):
        part = nothing
        for i in range(start, min(start + BLOCK, n)):
            total = nothing
            for k in range(np.int64(indptr[i]), np.int64(indptr[i + 1])):
                column = np.int64(lane(load(indices, k, 1), 0))
                entry = splat(matrix[k], x, nothing) if shared else load(matrix, k * count + first, nothing)
                total = total + entry * load(x, column * count + first, nothing)
            store(y, i * count + first, total)
            part = part + load(x, i * count + first, nothing) * total
        value = value + part
    for start in range(0, n, BLOCK):
        part = nothing
        for i in range(start, min(start + BLOCK, n)):
            defect = load(y, i * count + first, nothing) - value * load(x, i * count + first, nothing)
            part = part + defect * defect
        square = square + part
    store(values, first, value)
    store(residuals, first, sqrt(square))


@per_width
def _quotients(width: int) -> Any:
    @compiled
    def loop(indptr, indices, matrix, shared, x, y, values, residuals, n, count, begin, n_tiles):
        for t in prange(n_tiles):
            first, nothing = np.int64(begin) + np.int64(t) * width, zeros(x, width)
            of_length_one(x, n, count, first, nothing)
            quotient_and_residual(
                indptr, indices, matrix, shared, x, y, n, count, first, values, residuals, nothing
            )  # fmt: skip

    return loop


def rayleigh_quotients(
    indptr: np.ndarray, indices: np.ndarray, matrix: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Quotients and 2-norms of residuals, shape (count,), of vectors x, shape (n, count), which are scaled in place.

    The matrix has values of shape (nnz, 1), or (nnz, count) for one of its own for each vector.
    """
    n, count = x.shape
    values, residuals = np.empty((2, count), x.dtype)
    y = np.empty_like(x)
    whole = count // WIDEST
    runs = [(0, WIDEST, whole)] if whole else []
    runs += [(whole * WIDEST + begin, width, 1) for begin, width in tiles(count % WIDEST)]
    for begin, width, n_tiles in runs:
        _quotients(width)(
            indptr, indices, matrix.reshape(-1), matrix.shape[1] != count, x.reshape(-1), y.reshape(-1), values,
            residuals, n, count, begin, n_tiles,
        )  # fmt: skip
    return values.astype(np.float64), residuals.astype(np.float64)
