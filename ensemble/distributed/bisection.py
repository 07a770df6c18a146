"""Recursive bisection: an order of rows in which each domain is one range.

The cut is at right angles to the longest axis (Berger, Bokhari 1987, IEEE Trans. Comput. C-36, 570); `graph_partition`
has another for graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Split", "bisected_order", "coordinate_order", "divided"]

Split = Callable[[np.ndarray, int, Any], tuple[np.ndarray, np.ndarray, Any, Any]]
"""Takes ascending rows, how many of them come first, and a state; gives those that come first and the others, both
ascending, and the states of the two."""


def _first_domains(domains: int) -> int:
    """How many of several domains come before a cut: about half, from four domains on an even number.

    Domains 2k and 2k + 1, which coarse levels join, then lie on one side.
    """
    return domains // 2 if domains < 4 else 2 * ((domains + 2) // 4)


def bisected_order(offsets: np.ndarray, split: Split, state: Any = None) -> np.ndarray:
    """The rows in the order of their domains, within a domain ascending.

    Parameters
    ----------
    offsets : array of int64, shape (domains + 1,)
        Where each domain begins in the order: the sizes of the domains are given.
    split : function
        As `Split`.
    state
        The state of the first cut.

    Returns
    -------
    array of int64, shape (n,)
    """
    order: np.ndarray = np.arange(offsets[-1], dtype=np.int64)
    pending = [(0, offsets.size - 1, state)]
    while pending:
        begin, end, state = pending.pop()
        if end - begin < 2:
            continue
        middle = begin + _first_domains(end - begin)
        low, cut, high = (int(offsets[d]) for d in (begin, middle, end))
        order[low:cut], order[cut:high], before, after = split(order[low:high], cut - low, state)
        pending += [(middle, end, after), (begin, middle, before)]
    return order


def divided(rows: np.ndarray, key: np.ndarray, n_first: int) -> tuple[np.ndarray, np.ndarray]:
    """The `n_first` rows with the least keys and the others, each in the given order, as are rows of equal keys."""
    if n_first in (0, rows.size):
        return rows[:n_first].copy(), rows[n_first:].copy()
    limit = np.partition(key, n_first)[n_first]
    first = key < limit
    equal = np.flatnonzero(key == limit)
    first[equal[: n_first - int(np.count_nonzero(first))]] = True
    return rows[first], rows[~first]


def coordinate_order(coordinates: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The rows in the order of domains that are cut at right angles to the axis of the largest extent.

    Of axes with equal extents the first is taken; of rows with equal coordinates those with smaller numbers come first.
    After a cut the second part runs through the other axes in the opposite direction, as a reflected Gray code does:
    domains that follow each other touch more often.

    Parameters
    ----------
    coordinates : array of float64, shape (n, d)
        Finite.
    offsets : array of int64, shape (domains + 1,)
    """
    columns = [np.ascontiguousarray(column) for column in coordinates.T]

    def split(
        rows: np.ndarray, n_first: int, signs: tuple[float, ...]
    ) -> tuple[np.ndarray, np.ndarray, tuple[float, ...], tuple[float, ...]]:
        places = [column[rows] for column in columns]
        with np.errstate(over="ignore"):
            axis = int(np.argmax([np.ptp(place) if place.size else 0.0 for place in places]))
        opposite = tuple(sign if a == axis else -sign for a, sign in enumerate(signs))
        return *divided(rows, signs[axis] * places[axis], n_first), signs, opposite

    return bisected_order(offsets, split, (1.0,) * len(columns))
