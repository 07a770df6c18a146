"""Places of equal keys, and runs of places as slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["as_slice", "marked_blocks", "places_by_key"]


def as_slice(numbers: np.ndarray) -> Any:
    """Consecutive numbers, from 0 or above, as a slice, which indexes several times as fast; others as they are."""
    size = numbers.size
    if not size:
        return numbers
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first == size - 1 and first >= 0 and (size < 3 or (numbers[1:] - numbers[:-1] == 1).all()):
        return slice(first, last + 1)
    return numbers


def marked_blocks(marked: np.ndarray, width: int) -> np.ndarray:
    """The numbers of the blocks of `width` entries of which at least one is marked, in order."""
    if not marked.size:
        return np.zeros(0, dtype=np.int64)
    found: np.ndarray = np.flatnonzero(np.logical_or.reduceat(marked, np.arange(0, marked.size, width)))
    return found


def places_by_key(keys: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each key in increasing order, and the places that hold it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(keys) else np.zeros(0, dtype=int)
    for start, stop in zip(starts, [*starts[1:], len(keys)], strict=False):
        yield int(ordered[start]), order[start:stop]
