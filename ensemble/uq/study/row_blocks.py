"""Passes over all samples of an output, some rows at a time: what they need stays in the cache of a core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["by_rows", "largest_change", "power_sums"]

AT_A_TIME = 2**15
"""Numbers of a block."""


def _blocks(n_rows: int, n: int) -> Iterator[slice]:
    count = max(1, AT_A_TIME // max(1, n))
    return (slice(first, first + count) for first in range(0, n_rows, count))


def by_rows(f: Callable[..., Any], values: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """``f(values, *others)``, one number for each row of `values` (..., n); `others` are of shape (...)."""
    rows, columns = values.reshape(-1, values.shape[-1]), [a.reshape(-1) for a in others]
    found = np.empty(rows.shape[0])
    for block in _blocks(*rows.shape):
        found[block] = f(rows[block], *(a[block] for a in columns))
    return found.reshape(values.shape[:-1])


def largest_change(values: np.ndarray, mean: np.ndarray) -> Any:
    """The largest jump between neighbours of the squares about `mean` of values (..., n)."""
    ordered = np.sort(values.astype(np.float64), axis=-1)
    gaps = np.diff(ordered, axis=-1)
    with np.errstate(over="ignore", invalid="ignore"):
        changes = gaps * np.abs(ordered[..., 1:] + ordered[..., :-1] - 2.0 * mean[..., None])
    return changes.max(axis=-1)


def power_sums(
    values: np.ndarray, mean: np.ndarray, scale: np.ndarray, weights: np.ndarray | None, most: int
) -> np.ndarray:
    """Sums over the last axis of the powers 2, 3, 4 and 6 of ``(values - mean) / scale``; of 2 and 3 if `most` is 3."""
    rows, means, scales = values.reshape(-1, values.shape[-1]), mean.reshape(-1, 1), scale.reshape(-1, 1)
    sums = np.zeros((4, rows.shape[0]))
    for block in _blocks(*rows.shape):
        z = (rows[block] - means[block]) / scales[block]
        square = z * z  # products, as powers take ten times as long
        powers = [square, square * z] if most == 3 else [square, square * z, square * square, (square * z) ** 2]
        for k, power in enumerate(powers):
            sums[k, block] = (power if weights is None else weights * power).sum(axis=-1)
    return sums.reshape(4, *mean.shape)
