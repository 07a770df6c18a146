"""Times at which every method steps exactly and starts anew: those of the user, and those that the trace of f shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import message, require, require_arguments
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.switches import changes_over_time, switching_times
from ensemble._typing import Array
from ensemble.ode.arguments import ARGUMENTS, NAME, stacked
from ensemble.scalar import Ensemble

__all__ = ["MOST_FOUND", "SHIFT", "Stops", "checked_stops", "found_stops", "stops_of"]

MOST_FOUND = 10_000
"""Stops of a sample that are taken from the trace, at most."""

TOGETHER = 48
"""Stops that differ by fewer spacings of t are one."""

SHIFT = 16
"""Spacings of t by which f is evaluated inside of the ends of a segment, where its conditions change over.

Rounding in a condition is worth some: in ``sin(w * t) > c`` up to eight.
"""

CHUNK = 1024
"""Samples whose stops are found together."""


class Stops(NamedTuple):
    """The segments of a run. Arrays are NumPy's, shape (..., S or 1)."""

    edges: Array
    """Ends of the segments in the direction of integration, (n_segments + 1, S or 1); segments may be empty."""
    acts: Array
    """The number of the user's stop that changes the state at the start of a segment; -1: none. (n_segments, S or 1)"""
    jumps: Array | None
    """What is added to the state at the user's stops, (n_stops, n, S or 1)."""
    change: Callable[..., Any] | None
    """The state after a stop, ``change(t, y, p, xp)``, where it is a function."""
    window: bool
    """Whether f is evaluated inside of the ends of segments: where there may be stops, in this sample or another."""

    def part(self, first: int, last: int) -> Stops:
        """Return the stops of the samples `first` to `last`."""
        cut = [_cut(field, first, last) for field in (self.edges, self.acts, self.jumps)]
        return self._replace(edges=cut[0], acts=cut[1], jumps=cut[2])


def _cut(field: Any, first: int, last: int) -> Any:
    return field if field is None or field.shape[-1] == 1 else field[..., first:last]


def checked_stops(stops: Any, at_stops: Any, n: int) -> tuple[Ensemble, Ensemble | None, Callable[..., Any] | None]:
    """The user's times, and what is done there: an addition or a function."""
    given = stacked(() if stops is None or stops is False else stops, "stops")
    numbers = to_numpy(given.samples)
    require(not np.isnan(numbers).any(), NAME, "stops", "be numbers", "NaN", "Pad with np.inf.")
    if at_stops is None:
        return given, None, None
    require(given.shape[0] > 0, NAME, "at_stops", "be None without stops", type(at_stops).__name__)
    if callable(at_stops):
        require_arguments(at_stops, ARGUMENTS, NAME, "at_stops")
        return given, None, at_stops
    if not isinstance(at_stops, Ensemble):
        try:
            at_stops = Ensemble(np.asarray(at_stops, dtype=np.float64)[..., None])
        except (TypeError, ValueError):
            raise TypeError(message(NAME, "at_stops", "be a function or an array", repr(at_stops))) from None
    shape = (given.shape[0], n)
    require(at_stops.shape == shape, NAME, "at_stops", f"have shape {shape}", at_stops.shape)
    finite = bool(np.isfinite(to_numpy(at_stops.samples)).all())
    require(finite, NAME, "at_stops", "be finite", "an infinite value or NaN")
    return given, at_stops, None


def found_stops(graph: Graph, n: int, p: Array, t0: Array, t1: Array) -> tuple[Array | None, bool]:
    """Switching times of a right-hand side, (n_times, S or 1), padded with infinities, and whether they are all.

    None where it cannot switch.
    """
    read = changes_over_time(graph, n)
    if not read:
        return None, True
    rows = {position: to_numpy(p[position - 1 - n]).astype(np.float64) for position in read if position > n}
    low, high = np.minimum(t0, t1).astype(np.float64), np.maximum(t0, t1).astype(np.float64)
    S = max([low.size, high.size, *(row.size for row in rows.values())])
    low, high = (np.broadcast_to(end, (S,)).copy() for end in (low, high))
    parts, complete = [], True
    for first in range(0, S, CHUNK):
        made, whole = _found(graph, n, low, high, rows, first, min(first + CHUNK, S))
        parts += made
        complete &= whole
    times = np.full((max((part.size for part in parts), default=0), S), np.inf)
    for s, part in enumerate(parts):
        times[: part.size, s] = part
    return times, complete


def _found(
    graph: Graph, n: int, low: Array, high: Array, rows: dict[int, Array], first: int, last: int
) -> tuple[list[Array], bool]:
    """The times of samples `first` to `last`, by sample; where there are too many for one, none of it alone."""
    own = {position: row[first:last] if row.size > 1 else row for position, row in rows.items()}
    made = switching_times(graph, n, low[first:last], high[first:last], own, MOST_FOUND)
    if made.complete:
        order = np.argsort(made.samples, kind="stable")
        ends = np.cumsum(np.bincount(made.samples, minlength=last - first))
        return np.split(made.times[order], ends[:-1]), True
    if last - first == 1:
        return [np.zeros(0)], False
    middle = (first + last) // 2
    halves = [_found(graph, n, low, high, rows, *pair) for pair in ((first, middle), (middle, last))]
    return halves[0][0] + halves[1][0], halves[0][1] and halves[1][1]


def stops_of(
    given: Array, found: Array | None, jumps: Array | None, change: Callable[..., Any] | None, t0: Array, t1: Array,
    dtype: str,
) -> Stops:  # fmt: skip
    """The segments between the user's stops and those found: NumPy arrays of the working precision.

    A stop counts from t0 on and before t1. Where nothing is done at a stop at t0, it changes nothing. `found` is None
    where the trace shows no function of the time that may switch.
    """
    window = found is not None or len(given) > 0
    found = np.zeros((0, 1)) if found is None else found
    count = max(each.shape[-1] for each in (given, found, t0, t1))
    t0, t1 = (np.broadcast_to(end.astype(dtype), (count,)) for end in (t0, t1))
    near = TOGETHER * np.spacing(np.maximum(np.abs(t0), np.abs(t1)))
    given, found = (np.broadcast_to(each.astype(dtype), (each.shape[0], count)) for each in (given, found))
    with np.errstate(invalid="ignore"):
        for own in given:  # the user's time is the one that outputs before and behind it are told apart by
            found = np.where(np.abs(found - own) < near, own, found)
    times = [given, found]
    number = np.concatenate([np.arange(len(given)), np.full(len(found), -1)])
    if jumps is None and change is None:
        number[:] = -1
    every, direction = np.concatenate(times), np.sign(t1 - t0)
    with np.errstate(invalid="ignore"):
        ahead = (every - t0) * direction
    inside = (ahead > 0.0) | ((ahead == 0.0) & (number >= 0)[:, None])
    inside &= ((t1 - every) * direction > 0.0) & np.isfinite(every)
    key = np.where(inside, ahead, np.inf)
    order = np.argsort(key, axis=0, kind="stable")[: int(inside.sum(axis=0).max(initial=0))]
    inside, every = (np.take_along_axis(each, order, axis=0) for each in (inside, every))
    every = np.where(inside, every, t1)
    acts = np.where(inside, number[order], -1)
    edges = np.concatenate([t0[None], every, t1[None]])
    for k in range(1, len(edges) - 1):
        edges[k] = np.where(np.abs(edges[k] - edges[k - 1]) < near, edges[k - 1], edges[k])
        edges[k] = np.where(np.abs(edges[k] - t1) < near, t1, edges[k])
    return Stops(edges, np.concatenate([np.full((1, count), -1), acts]), jumps, change, window)
