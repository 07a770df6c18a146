"""`Stream`: the statistics of one output, gathered in blocks of sample ids, in the order of the ids."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ensemble.scalar import Ensemble, Moments
from ensemble.uq.study.histograms import Histograms
from ensemble.uq.study.outputs import Layout, blank

__all__ = ["Stream", "Summary", "block_size", "empty_streams"]

BLOCK_MEMORY = 2**25
"""Bytes of samples that a block may hold."""


def block_size(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Ids in a block: a power of two, fixed by the output alone, as it fixes the order of summation."""
    size = max(1, math.prod(shape) * dtype.itemsize)
    return int(min(1024, max(8, 2 ** (max(1, BLOCK_MEMORY // size).bit_length() - 1))))


@dataclass
class Summary:
    """Statistics of the samples of some blocks.

    Attributes
    ----------
    moments : list of Moments
        Of each replicate.
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
        self.histograms = Histograms(math.prod(shape)) if histograms and dtype.kind in "biuf" else None
        self._merged = Summary([Moments() for _ in range(n_replicates)])
        self._next = 0
        self._waiting: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._complete: dict[int, Summary] = {}

    def add(
        self, ids: np.ndarray, values: np.ndarray | None, good: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """Add samples, shape ``(*shape, len(ids))``; those that are not `good` only count as there."""
        if np.any(ids[1:] < ids[:-1]):
            order = np.argsort(ids)
            ids, good, values = ids[order], good[order], _chosen(values, order)
            weights = None if weights is None else weights[order]
        weight = np.where(good, 1.0 if weights is None else weights, 0.0)
        blocks = ids // self.block
        for number in np.unique(blocks):
            places = np.flatnonzero(blocks == number)
            if places.size == self.block:
                self._finish(int(number), ids[places], _chosen(values, places), weight[places])
            else:
                self._gather(int(number), ids[places], _chosen(values, places), weight[places])
        while self._next in self._complete:
            self._merged.merge(self._complete.pop(self._next))
            self._next += 1

    def _gather(self, number: int, ids: np.ndarray, values: np.ndarray | None, weight: np.ndarray) -> None:
        if number not in self._waiting:
            there = np.zeros(self.block, bool)
            self._waiting[number] = blank(self.shape, self.dtype, self.block), np.zeros(self.block), there
        held, weights, there = self._waiting[number]
        places = ids - number * self.block
        if values is not None:
            held[..., places] = values
        weights[places], there[places] = weight, True
        if np.all(there):
            del self._waiting[number]
            self._finish(number, number * self.block + np.arange(self.block), held, weights)

    def _finish(self, number: int, ids: np.ndarray, values: np.ndarray | None, weights: np.ndarray) -> None:
        """Take the statistics of a whole block."""
        self._complete[number] = self._summary(ids, values, weights)
        if self.histograms is not None and values is not None:
            self.histograms.add(values.reshape(-1, ids.size)[:, weights > 0.0])

    def _summary(self, ids: np.ndarray, values: np.ndarray | None, weights: np.ndarray) -> Summary:
        """The statistics of one block."""
        result = Summary([Moments() for _ in range(self.n_replicates)])
        good = weights > 0.0
        if values is None or not np.any(good):
            return result
        replicate = ids % self.n_replicates
        for r in range(self.n_replicates):
            places = np.flatnonzero(good & (replicate == r))
            if places.size:
                result.moments[r].update(Ensemble(np.take(values, places, axis=-1)), weights=weights[places])
        if self.dtype.kind != "c":
            chosen = np.take(values, np.flatnonzero(good), axis=-1)
            result.low, result.high = chosen.min(axis=-1), chosen.max(axis=-1)
        return result

    def summary(self) -> tuple[Summary, Histograms | None]:
        """The statistics of all samples so far, those of incomplete blocks too."""
        result = Summary([Moments().merge(own) for own in self._merged.moments], self._merged.low, self._merged.high)
        histograms = None if self.histograms is None else self.histograms.copy()
        parts = dict(self._complete)
        for number, (held, weights, _) in self._waiting.items():
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
