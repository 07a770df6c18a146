"""Recursive bisection: an order of rows in which each domain is one range.

The cut is at right angles to the longest axis (Berger, Bokhari 1987, IEEE Trans. Comput. C-36, 570); `graph_partition`
has another for graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Split", "bisected_order", "coordinate_order", "divided"]

Split = Callable[[np.ndarray, int, int, Any], tuple[np.ndarray, np.ndarray, Any, Any]]
"""Takes ascending rows, how many of them should come first, how many would with equal domains, and a state; gives those
that come first and the others, both ascending, and the states of the two."""

NEAR = 16
"""A cut goes beside a plane of rows if that moves it by at most 1 of so many rows of its smaller side: half a plane
where that side has eight planes."""

ALIKE = 0.875
"""Part of the largest extent from which on an axis counts as equally long, for cuts beside planes: boxes of 16 and 17
planes are cut along the same axis, so that aggregates of neighbouring domains lie side by side."""


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
        equal = (high - low) * (middle - begin) // (end - begin)
        first, second, before, after = split(order[low:high], (high - low) * share // whole, equal, state)
        found[middle] = cut = low + first.size
        order[low:cut], order[cut:high] = first, second
        pending += [(middle, end, after), (begin, middle, before)]
    return order, found


def divided(rows: np.ndarray, key: np.ndarray, n_first: int) -> tuple[np.ndarray, np.ndarray]:
    """The `n_first` rows with the least keys and the others, each in the given order, as are rows of equal keys."""
    if n_first in (0, rows.size):
        return rows[:n_first].copy(), rows[n_first:].copy()
    limit = np.partition(key, n_first)[n_first]
    first = key < limit
    equal = np.flatnonzero(key == limit)
    first[equal[: n_first - int(np.count_nonzero(first))]] = True
    return rows[first], rows[~first]


def beside_plane(place: np.ndarray, sign: float, n_first: int) -> int | None:
    """The number nearest to `n_first` of rows, by ascending ``sign * place``, that parts no rows of equal place.

    Of two that are equally near the one that leaves the plane above, whatever the sign: boxes side by side are cut
    alike. None where that number is far (`NEAR`), or where the rows have a place each.
    """
    if n_first in (0, place.size):
        return None
    key = sign * place
    limit = np.partition(key, n_first)[n_first]
    before, plane = int(np.count_nonzero(key < limit)), int(np.count_nonzero(key == limit))
    twice = 2 * (n_first - before) - plane
    above = sign > 0 if abs(twice) <= 1 else twice < 0
    cut = before if above else before + plane
    near = NEAR * abs(cut - n_first) <= min(n_first, place.size - n_first)
    return cut if near and plane > 1 else None


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
        Whether a cut goes beside a plane of rows where one is near: domains of a box are boxes then, and aggregates of
        their rows are even.
    """
    columns = [np.ascontiguousarray(column) for column in coordinates.T]

    def split(
        rows: np.ndarray, n_first: int, equal: int, signs: tuple[float, ...]
    ) -> tuple[np.ndarray, np.ndarray, tuple[float, ...], tuple[float, ...]]:
        places = [column[rows] for column in columns]
        with np.errstate(over="ignore"):
            extents = np.array([np.ptp(place) if place.size else 0.0 for place in places])
        axis = int(np.argmax(extents))
        if whole_planes:
            alike = int(np.argmax(extents >= ALIKE * extents[axis]))
            for along in dict.fromkeys((alike, axis)):
                cut = beside_plane(places[along], signs[along], equal)
                if cut is not None:
                    axis, n_first = along, cut
                    break
        opposite = tuple(sign if a == axis else -sign for a, sign in enumerate(signs))
        return *divided(rows, signs[axis] * places[axis], n_first), signs, opposite

    return bisected_order(offsets, split, (1.0,) * len(columns))
