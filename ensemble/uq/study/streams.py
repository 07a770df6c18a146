"""`Stream`: the statistics of one output, gathered in blocks of sample ids, in the order of the ids."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble.scalar import Ensemble, Moments
from ensemble.uq.store.places import as_slice, places_by_key
from ensemble.uq.study.histograms import Histograms, ranges
from ensemble.uq.study.outputs import Layout, blank

__all__ = ["Stream", "Summary", "block_size", "empty_streams"]

BLOCK_MEMORY = 2**25
"""Bytes of samples that a block may hold."""


def block_size(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Ids in a block: a power of two, fixed by the output alone, as it fixes the order of summation."""
    size = max(1, math.prod(shape) * dtype.itemsize)
    return int(min(1024, max(8, 2 ** (max(1, BLOCK_MEMORY // size).bit_length() - 1))))


UNCOUNTED_MEMORY = 2**27
"""Bytes of samples that wait to be counted: each count passes over all bins."""


@dataclass
class Summary:
    """Statistics of the samples of some blocks.

    Attributes
    ----------
    moments : list of Moments
        Moments of each replicate.
    low, high : arrays, shape `shape`, or None
    """

    moments: list[Moments]
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    def merge(self, other: Summary) -> None:
        """Add the samples of `other`, which come after."""
        for own, new in zip(self.moments, other.moments, strict=True):
            own.merge(new)
        if other.low is not None and other.high is not None:
            self.low = other.low if self.low is None else np.minimum(self.low, other.low)
            self.high = other.high if self.high is None else np.maximum(self.high, other.high)

    def total(self) -> Moments:
        """The moments of all replicates."""
        result = Moments()
        for own in self.moments:
            result.merge(own)
        return result


class Stream:
    """Moments by replicate, range and histograms of one output.

    Groups may come in any order. Samples wait until their block of ids is complete; blocks are added up in the order of
    their ids. So the bits depend on neither the order nor the size of the groups.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype
    n_replicates : int
    histograms : bool
        Whether quantiles are wanted.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, n_replicates: int, *, histograms: bool) -> None:
        self.shape, self.dtype, self.n_replicates = shape, dtype, n_replicates
        self.block = block_size(shape, dtype)
        counted, whole = histograms and dtype.kind in "biuf", dtype.kind in "biu"
        self.histograms = Histograms(math.prod(shape), whole=whole) if counted else None
        self._merged = Summary([Moments() for _ in range(n_replicates)])
        self._next = 0
        self._waiting: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._missing: dict[int, int] = {}
        self._complete: dict[int, Summary] = {}
        self._uncounted: list[np.ndarray] = []
        self._uncounted_range = Summary([])

    def add(
        self, ids: np.ndarray, values: np.ndarray | None, good: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """Add samples, shape ``(*shape, len(ids))``; those that are not `good` only count as there."""
        weight = good.astype(np.float64) if weights is None else np.where(good, weights, 0.0)
        number, last = int(ids[0]) // self.block, int(ids[-1]) // self.block
        places = as_slice(ids)
        if isinstance(places, slice) and number == last:
            first = number * self.block
            self._put(number, slice(places.start - first, places.stop - first), values, weight)
        else:
            self._add_scattered(ids, values, weight)
        while self._next in self._complete:
            self._merged.merge(self._complete.pop(self._next))
            self._next += 1

    def _add_scattered(self, ids: np.ndarray, values: np.ndarray | None, weight: np.ndarray) -> None:
        """Add samples of several blocks, in any order."""
        order = np.argsort(ids)
        blocks, places = np.divmod(ids[order], self.block)
        for number, chosen in places_by_key(blocks):
            inside = order[chosen]
            self._put(number, as_slice(places[chosen]), _chosen(values, inside), weight[inside])

    def _put(self, number: int, places: Any, values: np.ndarray | None, weight: np.ndarray) -> None:
        """Add samples of one block; take its statistics once it is complete."""
        if weight.size == self.block:
            self._finish(number, number * self.block + np.arange(self.block), values, weight)
            return
        if number not in self._waiting:
            self._waiting[number] = blank(self.shape, self.dtype, self.block), np.zeros(self.block)
            self._missing[number] = self.block
        held, weights = self._waiting[number]
        if values is not None:
            held[..., places] = values
        weights[places] = weight
        self._missing[number] -= weight.size
        if not self._missing[number]:
            del self._waiting[number], self._missing[number]
            self._finish(number, number * self.block + np.arange(self.block), held, weights)

    def _finish(self, number: int, ids: np.ndarray, values: np.ndarray | None, weights: np.ndarray) -> None:
        """Take the statistics of a whole block."""
        self._complete[number] = summary = self._summary(ids, values, weights)
        if self.histograms is not None and values is not None and summary.low is not None:
            self._count(values.reshape(-1, ids.size), weights > 0.0, summary)

    def _count(self, values: np.ndarray, good: np.ndarray, summary: Summary) -> None:
        """Keep samples for the histograms, which take many at once: their order does not matter."""
        self._uncounted.append(values.copy() if good.all() else values[:, good])
        self._uncounted_range.merge(Summary([], summary.low, summary.high))
        if sum(part.nbytes for part in self._uncounted) > UNCOUNTED_MEMORY:
            self._add_uncounted()

    def _add_uncounted(self) -> None:
        if self.histograms is not None and self._uncounted:
            parts = self._uncounted
            ends = (np.asarray(end).reshape(-1) for end in (self._uncounted_range.low, self._uncounted_range.high))
            self.histograms.add(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1), *ends)
        self._uncounted, self._uncounted_range = [], Summary([])

    def _summary(self, ids: np.ndarray, values: np.ndarray | None, weights: np.ndarray) -> Summary:
        """The statistics of one block."""
        result = Summary([Moments() for _ in range(self.n_replicates)])
        good = weights > 0.0
        if values is None or not np.any(good):
            return result
        if good.all() and np.all(weights == 1.0) and ids[0] % self.n_replicates == 0:  # the common case: no choice
            for r in range(min(self.n_replicates, ids.size)):
                own = values[..., r :: self.n_replicates]
                result.moments[r].update(Ensemble(own), weights=np.ones(own.shape[-1]))
            chosen = values
        else:
            replicate = ids % self.n_replicates
            for r in range(self.n_replicates):
                places = np.flatnonzero(good & (replicate == r))
                if places.size:
                    result.moments[r].update(Ensemble(np.take(values, places, axis=-1)), weights=weights[places])
            chosen = values if self.dtype.kind == "c" else np.take(values, np.flatnonzero(good), axis=-1)
        if self.dtype.kind != "c":
            low, high = ranges(chosen.reshape(-1, chosen.shape[-1]))
            result.low, result.high = low.reshape(self.shape), high.reshape(self.shape)
        return result

    def summary(self) -> tuple[Summary, Histograms | None]:
        """The statistics of all samples so far, those of incomplete blocks too."""
        self._add_uncounted()
        result = Summary([Moments().merge(own) for own in self._merged.moments], self._merged.low, self._merged.high)
        histograms = None if self.histograms is None else self.histograms.copy()
        parts = dict(self._complete)
        for number, (held, weights) in self._waiting.items():
            parts[number] = self._summary(number * self.block + np.arange(self.block), held, weights)
            if histograms is not None:
                histograms.add(held.reshape(-1, self.block)[:, weights > 0.0])
        for number in sorted(parts):
            result.merge(parts[number])
        return result, histograms


def _chosen(values: np.ndarray | None, places: np.ndarray) -> np.ndarray | None:
    return None if values is None else np.take(values, places, axis=-1)


def empty_streams(layout: Layout, n_replicates: int, *, histograms: bool) -> dict[str, Stream]:
    """An empty stream for each output of a layout."""
    return {name: Stream(shape, dtype, n_replicates, histograms=histograms) for name, (shape, dtype) in layout.items()}
