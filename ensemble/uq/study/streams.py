"""`Stream`: the statistics of one output, gathered in blocks of sample ids, in the order of the ids."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._interrupts import held
from ensemble._kernels.statistics.block_sums import Choice, add_block, choice_of
from ensemble.scalar import Ensemble, Moments
from ensemble.scalar.statistics.histograms import Histograms, ranges
from ensemble.scalar.statistics.moments import moments_from, sums_of
from ensemble.uq.store.places import as_slice, places_by_key
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

COMPILED_FROM = 2**15
"""Values of a block from which compiled code takes its statistics, with the bits of NumPy's."""


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
        self.merge_range(other)

    def merge_range(self, other: Summary) -> None:
        """Extend the range by that of `other`."""
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
        self._is_compiled = dtype in (np.float64, np.float32) and math.prod(shape) * self.block >= COMPILED_FROM
        self._merged = Summary([Moments() for _ in range(n_replicates)])
        self._sums: tuple[np.ndarray, np.ndarray] | None = None
        self._choices: dict[int, Choice] = {}
        self._next = 0
        self._waiting: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._missing: dict[int, int] = {}
        self._complete: dict[int, Summary] = {}
        self._uncounted = Uncounted(self.block)
        self._is_shown = False

    def add(
        self, ids: np.ndarray, values: np.ndarray | None, good: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """Add samples, shape ``(*shape, len(ids))``; those that are not `good` only count as there."""
        weight = good.astype(np.float64) if weights is None else np.where(good, weights, 0.0)
        if values is not None:
            values = np.ascontiguousarray(values)  # sums of NumPy's follow the order in memory
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
            self._put(number, as_slice(places[chosen]), _chosen(values, as_slice(inside)), weight[inside])

    def _put(self, number: int, places: Any, values: np.ndarray | None, weight: np.ndarray) -> None:
        """Add samples of one block; take its statistics once it is complete."""
        if weight.size == self.block:
            self._finish(number, number * self.block + np.arange(self.block), values, weight)
            return
        if number not in self._waiting:
            self._waiting[number] = blank(self.shape, self.dtype, self.block), np.zeros(self.block)
            self._missing[number] = self.block
        values_held, weights = self._waiting[number]
        if values is not None:
            values_held[..., places] = values
        weights[places] = weight
        self._missing[number] -= weight.size
        if not self._missing[number]:
            del self._waiting[number], self._missing[number]
            self._finish(number, number * self.block + np.arange(self.block), values_held, weights)

    def _finish(self, number: int, ids: np.ndarray, values: np.ndarray | None, weights: np.ndarray) -> None:
        """Take the statistics of a whole block."""
        good = weights > 0.0
        choice = self._choice(ids, good, weights) if values is not None and number == self._next else None
        if choice is None or values is None or any(m.weight != m.count for m in self._merged.moments):
            self._complete[number] = summary = self._summary(ids, values, weights)
        else:
            with held():  # an interrupt must not come between sums and what is known of them
                summary = self._merge_in_place(choice, values)
                self._next += 1
        if self.histograms is not None and values is not None and summary.low is not None:
            self._count(values.reshape(-1, ids.size), good, summary)

    def _merge_in_place(self, choice: Choice, values: np.ndarray) -> Summary:
        """Add the next block to the sums of all before it in one pass; returns its range."""
        merged, n_entries = self._merged, math.prod(self.shape)
        counts = [m.count for m in merged.moments]
        before = [sums_of(m) for m in merged.moments]
        if self._sums is None:
            self._sums = np.zeros((self.n_replicates, n_entries)), np.zeros((self.n_replicates, n_entries))
            for r, own in enumerate(before):
                if own is not None:
                    for sums, array in zip(self._sums, own, strict=True):
                        sums[r] = np.asarray(array).reshape(-1)
        low, high = np.empty(n_entries, self.dtype), np.empty(n_entries, self.dtype)
        means, squares = self._sums
        add_block(values.reshape(n_entries, -1), choice, np.array(counts, np.float64), means, squares, low, high)
        counts = [count + int(n) for count, n in zip(counts, np.diff(choice.starts), strict=True)]
        merged.moments = self._moments(counts, *self._sums)
        ends = Summary([], low.reshape(self.shape), high.reshape(self.shape))
        merged.merge_range(ends)
        return ends

    def _moments(self, counts: Iterable[int], means: np.ndarray, squares: np.ndarray) -> list[Moments]:
        """The moments of the replicates from arrays of shape (R, n_entries)."""
        return [
            moments_from(n, mean.reshape(self.shape)[()], square.reshape(self.shape)[()])
            for n, mean, square in zip(counts, means, squares, strict=True)
        ]

    def _choice(self, ids: np.ndarray, good: np.ndarray, weights: np.ndarray) -> Choice | None:
        """The good samples of a block by replicate; None where NumPy takes the sums, or there is none."""
        if not self._is_compiled or not good.any() or not np.all(weights[good] == 1.0):
            return None
        first = int(ids[0]) % self.n_replicates
        whole = bool(good.all()) and ids.size == self.block
        if whole and first in self._choices:
            return self._choices[first]
        places = np.flatnonzero(good)
        replicate = ids[places] % self.n_replicates
        made = choice_of([places[replicate == r] for r in range(self.n_replicates)])
        if whole:
            self._choices[first] = made
        return made

    def _count(self, values: np.ndarray, good: np.ndarray, summary: Summary) -> None:
        """Keep samples for the histograms, which take many at once: their order does not matter."""
        self._uncounted.add(values, good, summary, UNCOUNTED_MEMORY if self._is_compiled else None)
        if self._uncounted.n_bytes + self._uncounted.part > UNCOUNTED_MEMORY:
            self._add_uncounted()

    def _add_uncounted(self) -> None:
        if self.histograms is not None and self._uncounted.n_bytes:
            if self._is_shown:
                self.histograms, self._is_shown = self.histograms.copy(), False
            with held():
                self._uncounted.move_to(self.histograms)

    def _summary(self, ids: np.ndarray, values: np.ndarray | None, weights: np.ndarray) -> Summary:
        """The statistics of one block."""
        result = Summary([Moments() for _ in range(self.n_replicates)])
        good = weights > 0.0
        if values is None or not np.any(good):
            return result
        choice = self._choice(ids, good, weights)
        if choice is not None:
            sums = (
                np.empty((self.n_replicates, math.prod(self.shape))),
                np.empty((self.n_replicates, math.prod(self.shape))),
            )
            low, high = np.empty(sums[0].shape[1], self.dtype), np.empty(sums[0].shape[1], self.dtype)
            add_block(values.reshape(low.size, -1), choice, np.zeros(self.n_replicates), *sums, low, high)
            moments = self._moments(np.diff(choice.starts).tolist(), *sums)
            return Summary(moments, low.reshape(self.shape), high.reshape(self.shape))
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
        self._sums = None  # the result has these arrays: the next block is added to copies
        histograms, self._is_shown = self.histograms, True
        parts = dict(self._complete)
        for number, (values, weights) in self._waiting.items():
            parts[number] = self._summary(number * self.block + np.arange(self.block), values, weights)
            if histograms is not None:
                histograms = histograms.copy() if histograms is self.histograms else histograms
                histograms.add(values.reshape(-1, self.block)[:, weights > 0.0])
        for number in sorted(parts):
            result.merge(parts[number])
        return result, histograms


class Uncounted:
    """Samples of an output that wait to be counted, block by block.

    Parameters
    ----------
    block : int
        Samples of a block, at most.
    """

    def __init__(self, block: int) -> None:
        self.block = block
        self.n_bytes = self.part = 0
        self._parts: list[np.ndarray] = []
        self._stack: np.ndarray | None = None
        self._range = Summary([])

    def add(self, values: np.ndarray, good: np.ndarray, ends: Summary, memory: int | None) -> None:
        """Copy the good samples of a block, shape (n_entries, n_samples), whose range is known.

        With a number of bytes they go to one array of about that size, for compiled code.
        """
        self._range.merge_range(ends)
        if memory is None:
            self._parts.append(values.copy() if good.all() else values[:, good])
            self.n_bytes += self._parts[-1].nbytes
            return
        self.part = values.shape[0] * self.block * values.itemsize
        if self._stack is None:
            count = max(1, memory // self.part)
            self._stack = np.empty((count, values.shape[0], self.block), values.dtype)
        chosen = values if good.all() else values[:, good]
        place = self._stack[len(self._parts), :, : chosen.shape[1]]
        place[...] = chosen
        self._parts.append(place)
        self.n_bytes += self.part

    def move_to(self, histograms: Histograms) -> None:
        """Count all samples that wait in `histograms`, and forget them."""
        parts, (low, high) = self._parts, (np.asarray(end).reshape(-1) for end in (self._range.low, self._range.high))
        if self._stack is not None:
            sizes = np.array([part.shape[1] for part in parts], np.int64)
            histograms.add_parts(self._stack[: len(parts)], sizes, low, high)
        else:
            histograms.add(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1), low, high)
        self._parts, self._range, self.n_bytes = [], Summary([]), 0


def _chosen(values: np.ndarray | None, places: Any) -> np.ndarray | None:
    """The samples at these places; a view of neighbours."""
    if values is None:
        return None
    return values[..., places] if isinstance(places, slice) else np.take(values, places, axis=-1)


def empty_streams(layout: Layout, n_replicates: int, *, histograms: bool) -> dict[str, Stream]:
    """An empty stream for each output of a layout."""
    return {name: Stream(shape, dtype, n_replicates, histograms=histograms) for name, (shape, dtype) in layout.items()}
