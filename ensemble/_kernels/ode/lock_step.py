"""Sums over stages and norms of errors for many samples that take a step together; the samples are the last axis."""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import SMALL, compiled, empty, inner, prange
from ensemble._compile.work_sharing import ALL_THREADS, ONE_THREAD
from ensemble._typing import Array

__all__ = ["mean_square", "pair_squares", "squares_of_tile", "stage_sum", "threads_of"]

TILE = 64
"""Samples of which a thread sums errors at a time."""


def threads_of(n_values: int) -> int:
    """Threads of a loop over so many numbers: the calling one, where others would take longer to start."""
    return ONE_THREAD if n_values <= SMALL else ALL_THREADS


def stage_sum(base: Array, stages: Array, weights: Array, scale: Array) -> Array:
    """``base + scale (weights[0] stages[0] + ...)``.

    `base` has shape (n, S), `stages` (m, n, S), `weights` (at most m,), `scale` (S,) or (1,). Reads an array for each
    weight and one more, and writes one.
    """
    out = empty(base.shape, base.dtype)
    _stage_sum_rows(base, stages, weights, scale, out, threads=threads_of(base.size))
    return out


@compiled
def _stage_sum_rows(base, stages, weights, scale, out):
    n_samples, spread = out.shape[1], scale.size == 1
    for i in prange(out.shape[0]):
        for s in range(n_samples):
            out[i, s] = stages[0, i, s] * weights[0]
        for j in range(1, weights.size):
            for s in range(n_samples):
                out[i, s] += stages[j, i, s] * weights[j]
        if spread:
            for s in range(n_samples):
                out[i, s] = base[i, s] + scale[0] * out[i, s]
        else:
            for s in range(n_samples):
                out[i, s] = base[i, s] + scale[s] * out[i, s]


def mean_square(values: Array, before: Array, after: Array, rtol: Array, atol: Array) -> Array:
    """The mean over rows of ``(value / (atol + rtol max(|before|, |after|)))**2``, rows summed in order.

    The first three have shape (n, S), `rtol` (S,), `atol` (1 or n, S). Reads three arrays.
    """
    out = np.zeros(values.shape[1], values.dtype)
    _sum_squares(values, before, after, rtol, atol, out, threads=threads_of(values.size))
    return out * (1.0 / values.shape[0])


@compiled
def _sum_squares(values, before, after, rtol, atol, out):
    n_tiles, varying = (out.size + TILE - 1) // TILE, atol.shape[0] > 1
    for tile in prange(n_tiles):
        first = np.int64(tile) * TILE
        last = min(first + TILE, out.size)
        for i in range(values.shape[0]):
            bound = atol[i if varying else 0]
            for s in range(first, last):
                a, b = abs(before[i, s]), abs(after[i, s])
                largest = a if (a > b) | (a != a) else b
                quotient = values[i, s] / (bound[s] + rtol[s] * largest)
                out[s] += quotient * quotient


def pair_squares(
    stages: Array, weights: Array, h: Array, before: Array, after: Array, rtol: Array, atol: Array
) -> Array:  # fmt: skip
    """The `mean_square` of each error ``h (weights[e, 0] stages[0] + ...)`` of a pair, shape (n_errors, S)."""
    out = np.zeros((weights.shape[0], h.size), stages.dtype)
    _pair_squares(stages, weights, h, before, after, rtol, atol, out, threads=threads_of(stages.size))
    return out * (1.0 / before.shape[0])


@compiled
def _pair_squares(stages, weights, h, before, after, rtol, atol, out):
    n_tiles = (h.size + TILE - 1) // TILE
    for tile in prange(n_tiles):
        first = np.int64(tile) * TILE
        squares_of_tile(stages, weights, h, before, after, rtol, atol, out, first, min(first + TILE, h.size))


@inner
def squares_of_tile(stages, weights, h, before, after, rtol, atol, out, first, last):
    """`pair_squares` before the division by n, for samples from `first` to before `last`, at most `TILE`."""
    varying = atol.shape[0] > 1
    sums = np.empty(TILE, stages.dtype)
    for e in range(weights.shape[0]):
        for i in range(before.shape[0]):
            for s in range(first, last):
                sums[s - first] = stages[0, i, s] * weights[e, 0]
            for j in range(1, weights.shape[1]):
                for s in range(first, last):
                    sums[s - first] += stages[j, i, s] * weights[e, j]
            bound = atol[i if varying else 0]
            for s in range(first, last):
                a, b = abs(before[i, s]), abs(after[i, s])
                largest = a if (a > b) | (a != a) else b
                quotient = h[s] * sums[s - first] / (bound[s] + rtol[s] * largest)
                out[e, s] += quotient * quotient
