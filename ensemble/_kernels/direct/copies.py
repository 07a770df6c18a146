"""Copies of some samples of one factorisation into another: bits move, nothing is computed.

Bytes that must move: ``16 n_values`` for each sample; a sample alone moves whole cache lines of its tile.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled, prange, threads_for

__all__ = ["copy_samples"]


def copy_samples(target: np.ndarray, places: np.ndarray, source: np.ndarray, chosen: np.ndarray) -> None:
    """Set samples `places` of `target` to samples `chosen` of `source`, both of shape (n_tiles, n_values, width)."""
    with threads_for(source.size):
        _copy(target, places.astype(np.int64), source, chosen.astype(np.int64))


@compiled
def _copy(target, places, source, chosen):
    width, given = target.shape[2], source.shape[2]
    for e in prange(target.shape[1]):
        for k in range(places.size):
            to, at = places[k], chosen[k]
            target[to // width, e, to % width] = source[at // given, e, at % given]
