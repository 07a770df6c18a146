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
"""Takes ascending rows, how many of them should come first, and a state; gives those that come first and the others,
both ascending, and the states of the two."""

NEAR = 16
"""A cut moves to an end of a plane of rows by at most 1 of so many rows of its smaller side: half a plane where that
side has eight planes."""


def _first_domains(domains: int) -> int:
    """How many of several domains come before a cut: about half, from four domains on an even number.

    Domains 2k and 2k + 1, which coarse levels join, then lie on one side.
    """
    return domains // 2 if domains < 4 else 2 * ((domains + 2) // 4)


def bisected_order(offsets: np.ndarray, split: Split, state: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """The rows in the order of their domains, within a domain ascending, and where each domain begins.

    Parameters
    ----------
    offsets : array of int64, shape (domains + 1,)
        Where each domain should begin in the order. Where `split` chooses another number of rows, the cuts within its
        two parts keep their shares.
    split : function
        As `Split`.
    state
        The state of the first cut.

    Returns
    -------
    order : array of int64, shape (n,)
    offsets : array of int64, shape (domains + 1,)
    """
    order: np.ndarray = np.arange(offsets[-1], dtype=np.int64)
    wanted, found = offsets.tolist(), offsets.copy()
    pending = [(0, offsets.size - 1, state)]
    while pending:
        begin, end, state = pending.pop()
        if end - begin < 2:
            continue
        middle, low, high = begin + _first_domains(end - begin), int(found[begin]), int(found[end])
        share, whole = wanted[middle] - wanted[begin], max(wanted[end] - wanted[begin], 1)
        first, second, before, after = split(order[low:high], (high - low) * share // whole, state)
        found[middle] = cut = low + first.size
        order[low:cut], order[cut:high] = first, second
        pending += [(middle, end, after), (begin, middle, before)]
    return order, found


def divided(
    rows: np.ndarray, key: np.ndarray, n_first: int, whole_planes: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The `n_first` rows with the least keys and the others, each in the given order, as are rows of equal keys.

    With `whole_planes`, rows of equal keys stay together where that moves the cut by little (`NEAR`).
    """
    if n_first in (0, rows.size):
        return rows[:n_first].copy(), rows[n_first:].copy()
    limit = np.partition(key, n_first)[n_first]
    first = key < limit
    equal = np.flatnonzero(key == limit)
    taken = n_first - int(np.count_nonzero(first))
    if whole_planes:
        end = 0 if 2 * taken <= equal.size else equal.size
        if NEAR * abs(end - taken) <= min(n_first, rows.size - n_first):
            taken = end
    first[equal[:taken]] = True
    return rows[first], rows[~first]


def coordinate_order(
    coordinates: np.ndarray, offsets: np.ndarray, whole_planes: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The rows in the order of domains that are cut at right angles to the axis of the largest extent, and the offsets.

    Of axes with equal extents the first is taken; of rows with equal coordinates those with smaller numbers come first.
    After a cut the second part runs through the other axes in the opposite direction, as a reflected Gray code does:
    domains that follow each other touch more often.

    Parameters
    ----------
    coordinates : array of float64, shape (n, d)
        Finite.
    offsets : array of int64, shape (domains + 1,)
        Where each domain should begin.
    whole_planes : bool
        Whether a cut may move to an end of a plane of rows that it goes through: domains of a box are boxes then, and
        aggregates of their rows are even.
    """
    columns = [np.ascontiguousarray(column) for column in coordinates.T]

    def split(
        rows: np.ndarray, n_first: int, signs: tuple[float, ...]
    ) -> tuple[np.ndarray, np.ndarray, tuple[float, ...], tuple[float, ...]]:
        places = [column[rows] for column in columns]
        with np.errstate(over="ignore"):
            axis = int(np.argmax([np.ptp(place) if place.size else 0.0 for place in places]))
        opposite = tuple(sign if a == axis else -sign for a, sign in enumerate(signs))
        return *divided(rows, signs[axis] * places[axis], n_first, whole_planes), signs, opposite

    return bisected_order(offsets, split, (1.0,) * len(columns))
