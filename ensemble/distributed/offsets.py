"""Offsets from counts, and places among ascending numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["narrow", "offsets_of", "places_in"]

TABLE = 4
"""Numbers that a table of places may span, for each number that is looked up in it."""


def offsets_of(counts: Any) -> np.ndarray:
    """Where each of some parts begins that lie one behind the other, and the end of the last: int64."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def places_in(ascending: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The place of each of `numbers` in `ascending`, which has them all, without repetition; int32."""
    span = int(ascending[-1] - ascending[0]) + 1 if ascending.size else 0
    if ascending.size and span == ascending.size:  # a range: always so on one rank
        return np.asarray(numbers - ascending[0], np.int32)
    if 0 < span <= TABLE * numbers.size:  # a search takes several times as long
        table = np.zeros(span, np.int32)
        table[ascending - ascending[0]] = np.arange(ascending.size, dtype=np.int32)
        places: np.ndarray = table[numbers - ascending[0]]
        return places
    found: np.ndarray = np.searchsorted(ascending, numbers).astype(np.int32)
    return found


def narrow(offsets: np.ndarray) -> np.ndarray:
    """`offsets` as int32 where they fit."""
    found: np.ndarray = offsets.astype(np.int32 if offsets[-1] < 2**31 else np.int64, copy=False)
    return found
