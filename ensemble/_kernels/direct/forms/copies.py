"""Copies of some samples of one factorisation into another: bits move, nothing is computed.

Bytes that must move: ``16 n_values`` for each sample; a sample alone moves whole cache lines of its tile.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled, prange, threads_for

__all__ = ["copy_samples"]

U = np.uint64  # an unsigned index needs no test for a negative one


def copy_samples(target: np.ndarray, places: np.ndarray, source: np.ndarray, chosen: np.ndarray) -> None:
    """Set samples `places` of `target` to samples `chosen` of `source`, both of shape (n_tiles, n_values, width)."""
    with threads_for(source.size):
        _copy(target, _first(target, places), source, _first(source, chosen))


def _first(values: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """The places of the first values of samples."""
    tiles, lanes = np.divmod(samples, values.shape[2])
    first: np.ndarray = tiles * (values.shape[1] * values.shape[2]) + lanes
    return first


@compiled
def _copy(target, to, source, of):
    values, given = target.reshape(-1), source.reshape(-1)
    for e in prange(target.shape[1]):
        there, here = U(e) * U(target.shape[2]), U(e) * U(source.shape[2])
        for k in range(to.size):
            values[U(to[k]) + there] = given[U(of[k]) + here]
