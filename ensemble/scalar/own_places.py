"""Entries of large vectors at places of each sample's own, by compiled loops; None or False where NumPy is left to."""

from __future__ import annotations

import numpy as np

from ensemble._compile.kept_memory import empty
from ensemble.scalar.plain_arrays import LARGE_ROWS, compiled_rows

__all__ = ["picked", "put"]


def _fits(samples: np.ndarray, places: np.ndarray) -> bool:
    if samples.ndim != 2 or places.dtype != np.int64 or samples.dtype.char not in "fdlq" or not samples.size:
        return False
    in_order = samples.flags.c_contiguous and places.flags.c_contiguous and places.shape[-1] == samples.shape[-1]
    return in_order and places.size >= LARGE_ROWS and compiled_rows(places.size)


def picked(samples: np.ndarray, places: np.ndarray) -> np.ndarray | None:
    """``samples[places[..., s], s]`` for each sample s of a vector."""
    if not _fits(samples, places):
        return None
    from ensemble._kernels.arrays.picks import pick

    out = empty(places.shape, samples.dtype)
    return out if pick(samples, places, out) else None


def put(samples: np.ndarray, places: np.ndarray, value: float) -> bool:
    """Whether one number was written to the places of each sample of a vector."""
    if not _fits(samples, places):
        return False
    from ensemble._kernels.arrays.picks import put as write

    return write(samples, places, value)
