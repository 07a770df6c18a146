"""Entries at places of each sample's own, read or written row by row of the places.

Bytes (m places of S samples, 8 bytes each): ``24 m S``, and as much as lines are read apart.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled_procedure

__all__ = ["pick", "put"]


@compiled_procedure
def _pick(x, places, out, n, n_samples):
    wrong = 0
    for row in range(places.size // n_samples):
        first = row * n_samples
        for s in range(n_samples):
            k = places[np.uint64(first + s)]
            k = k + n if k < 0 else k
            wrong |= k | (n - 1 - k)  # negative where one of both is
            out[np.uint64(first + s)] = x[np.uint64((k if 0 <= k < n else 0) * n_samples + s)]
    return 1 if wrong < 0 else 0


@compiled_procedure
def _put(x, places, value, n, n_samples):
    wrong, number = 0, value[0]
    for i in range(places.size):
        wrong |= (places[i] + n) | (n - 1 - places[i])  # negative where one of both is
    if wrong < 0:
        return 1
    for row in range(places.size // n_samples):
        first = row * n_samples
        for s in range(n_samples):
            k = places[np.uint64(first + s)]
            x[np.uint64((k + n if k < 0 else k) * n_samples + s)] = number
    return 0


def pick(x: np.ndarray, places: np.ndarray, out: np.ndarray) -> bool:
    """Write ``x[places[j, s], s]`` to ``out[j, s]``; whether all places are there.

    Parameters
    ----------
    x : array, shape (n, n_samples), in C order, n positive
    places : array of int64, shape (m, n_samples), in C order
    out : array of the type of `x`, shape (m, n_samples)
    """
    wrong = _pick(x.reshape(-1), places.reshape(-1), out.reshape(-1), *x.shape)
    return not wrong


def put(x: np.ndarray, places: np.ndarray, value: float) -> bool:
    """Write one number to ``x[places[j, s], s]``; nothing where a place is not there, which is returned."""
    wrong = _put(x.reshape(-1), places.reshape(-1), np.full(1, value, x.dtype), *x.shape)
    return not wrong
