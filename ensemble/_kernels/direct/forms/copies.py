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
        _copy(target, *np.divmod(places, target.shape[2]), source, *np.divmod(chosen, source.shape[2]))


@compiled
def _copy(target, to_tiles, to_lanes, source, tiles, lanes):
    for e in prange(target.shape[1]):
        for k in range(tiles.size):
            target[to_tiles[k], e, to_lanes[k]] = source[tiles[k], e, lanes[k]]
