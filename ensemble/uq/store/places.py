"""Places of equal keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

__all__ = ["places_by_key"]


def places_by_key(keys: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each key in increasing order, and the places that hold it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(keys) else np.zeros(0, dtype=int)
    for start, stop in zip(starts, [*starts[1:], len(keys)], strict=False):
        yield int(ordered[start]), order[start:stop]
