"""Counts of samples in bins of every row's own width, in one pass over the counts for many samples.

Bytes (rows of n samples of 8 bytes, B bins): 8 n + 16 B for each row.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.allocation import new
from ensemble._compile.numba import compiled, prange

__all__ = ["count_rows"]


@compiled
def _count_rows(
    values, sizes, pitch, counts, n_bins, start, first, shift, is_moved, factors, low, high, at_low, at_high
):
    n_rows, n_parts = low.size, sizes.size
    moved = new(n_bins, np.int64)
    for row in prange(n_rows):
        base, begin = row * n_bins, first[row]
        if is_moved[row] != 0:
            for k in range(n_bins):
                moved[k] = 0
            for k in range(n_bins):
                count = counts[base + k]
                if count != 0:
                    moved[((start[row] + k) >> shift[row]) - begin] += count
            for k in range(n_bins):
                counts[base + k] = moved[k]
        lowest, highest, factor = low[row], high[row], factors[row]
        equal_low, equal_high = 0, 0
        for part in range(n_parts):
            at = (part * n_rows + row) * pitch
            for k in range(sizes[part]):
                value = np.float64(values[at + k])
                if value == lowest:
                    equal_low += 1
                if value == highest:
                    equal_high += 1
                scaled = value * factor
                place = np.int64(scaled)
                if np.float64(place) > scaled:
                    place -= 1
                counts[base + place - begin] += 1
        at_low[row] += equal_low
        at_high[row] += equal_high


def count_rows(
    values: np.ndarray,
    sizes: np.ndarray,
    counts: np.ndarray,
    bins: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    low: np.ndarray,
    high: np.ndarray,
    at_low: np.ndarray,
    at_high: np.ndarray,
) -> None:
    """Count samples, and those that equal the smallest or the largest one; counts so far go to new bins first.

    Parameters
    ----------
    values : array, shape (n_parts, n_rows, n_samples), float64 or float32, in C order
    sizes : int64 array, shape (n_parts,)
        How many samples of a part count: its first.
    counts : int64 array, shape (n_rows, n_bins)
        Added to.
    bins : tuple of arrays, shape (n_rows,)
        The first bin of the counts so far and of the new ones; the exponent of two by which bins widen; whether a row
        has other bins than before; one over the new width.
    low, high : float64 arrays, shape (n_rows,)
        The range of all samples.
    at_low, at_high : int64 arrays, shape (n_rows,)
        Added to.
    """
    start, first, shift, is_moved, factors = bins
    _count_rows(
        values.reshape(-1), sizes, values.shape[-1], counts.reshape(-1), counts.shape[1], start, first, shift,
        is_moved.astype(np.int64), factors, low, high, at_low, at_high,
    )  # fmt: skip
