"""Vectors to begin with that depend on the numbers of rows alone: the same on all machines and ranks."""

from __future__ import annotations

import numpy as np

__all__ = ["scattered"]


def scattered(first: int, count: int) -> np.ndarray:
    """`count` numbers in [-1, 1) that belong to the integers from `first`, 0 or above, on (splitmix64), float64."""
    with np.errstate(over="ignore"):
        z = np.arange(first + 1, first + 1 + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
