"""`Histograms`: quantiles and shares of every entry of an output from counts in bins that grow with the range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ensemble._kernels.statistics.counts import count_rows

__all__ = ["Histograms", "ranges"]

MEMORY = 2**28
"""Bytes of counts that one output may take, where that leaves each entry the fewest bins or more."""

FEWEST_BINS, MOST_BINS = 64, 1024

CACHED_COUNTS = 2**17
"""Counts that are worked on at a time: with their samples they stay in the second-level cache."""

SHORT_ROW = 64
"""Values of a row from which NumPy takes their smallest and largest one fast."""

FEW = 8
"""Counts for one value beyond which values are added one by one."""


class Histograms:
    """Counts in bins of one width for each entry of an output, for quantiles and shares without the samples.

    Bin k of an entry is ``[k * 2**e, (k + 1) * 2**e)``. Its `e` is the smallest at which the samples so far cover at
    most `n_bins` bins: a function of their smallest and largest value, so the counts depend on neither the order nor
    the grouping of the samples, and those of two accumulators add up.

    Parameters
    ----------
    n_entries : int
    n_bins : int, optional
        Default: 1024, fewer for large fields (256 MB in all), at least 64.
    whole : bool, optional
        The samples are integers or bools: a bin no wider than one holds one number.

    Notes
    -----
    A quantile is off by at most one width, and the width is below ``2 * (max - min) / (n_bins - 1)``: half of it would
    need more than `n_bins` bins (equal samples: rounding). Values of very different size make it inaccurate: take
    logarithms of such an output, or keep its samples. Samples equal to the smallest and to the largest one are counted
    apart: often many are, as where an output is cut off.
    """

    def __init__(self, n_entries: int, n_bins: int | None = None, *, whole: bool = False) -> None:
        if n_bins is None:
            n_bins = max(FEWEST_BINS, min(MOST_BINS, 2 ** int(np.log2(max(1, MEMORY // (8 * max(1, n_entries)))))))
        self.n_bins, self.whole = n_bins, whole
        self.counts = np.zeros((n_entries, n_bins), np.int64)
        self.low = np.full(n_entries, np.inf)
        self.high = np.full(n_entries, -np.inf)
        self.at_low, self.at_high = np.zeros(n_entries, np.int64), np.zeros(n_entries, np.int64)
        self.exponents = np.zeros(n_entries, np.int64)
        self.first = np.zeros(n_entries, np.int64)

    def add(self, values: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None) -> None:
        """Count finite samples, shape (n_entries, n_samples), whose smallest and largest may be known."""
        if not values.shape[-1]:
            return
        if low is None or high is None:
            low, high = ranges(values)
        for rows in self._chunks():
            self._cover_rows(np.minimum(self.low[rows], low[rows]), np.maximum(self.high[rows], high[rows]), rows)
            self._add_rows(values[rows].astype(np.float64, copy=False), rows)

    def add_present(self, values: np.ndarray, present: np.ndarray) -> None:
        """Count those samples, shape (n_entries, n_samples), that are `present`, a mask of that shape; all finite."""
        values = np.where(present, values, np.nan).astype(np.float64, copy=False)
        low = np.fmin.reduce(values, axis=-1, initial=np.inf)
        high = np.fmax.reduce(values, axis=-1, initial=-np.inf)
        for rows in self._chunks():
            self._cover_rows(np.minimum(self.low[rows], low[rows]), np.maximum(self.high[rows], high[rows]), rows)
            self._add_rows(np.where(present[rows], values[rows], 0.0), rows, present[rows])

    def add_parts(self, values: np.ndarray, sizes: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """Count the first samples of each part, by compiled code.

        Parameters
        ----------
        values : array, shape (n_parts, n_entries, n_samples), float64 or float32, in C order
        sizes : int64 array, shape (n_parts,)
            How many samples of a part count.
        low, high : arrays, shape (n_entries,)
            The range of these samples.
        """
        low, high = np.minimum(self.low, low), np.maximum(self.high, high)
        exponents, first = _bins_of(low, high, self.n_bins)
        if np.any(np.abs(exponents) >= 1022):  # no factor has that size
            for part, size in zip(values, sizes, strict=True):
                self.add(part[:, :size])
            return
        is_moved = (self.high >= self.low) & ((exponents != self.exponents) | (first != self.first))
        shift = np.where(is_moved, np.minimum(exponents - self.exponents, 62), 0)
        self.at_low *= low == self.low
        self.at_high *= high == self.high
        bins = self.first, first, shift, is_moved, np.ldexp(1.0, -exponents)
        count_rows(values, sizes, self.counts, bins, low, high, self.at_low, self.at_high)
        self.low, self.high, self.exponents, self.first = low, high, exponents, first

    def _chunks(self) -> Iterator[slice]:
        """Entries in runs whose counts stay in the caches."""
        step = max(1, CACHED_COUNTS // self.n_bins)
        return (slice(k, min(k + step, self.low.size)) for k in range(0, self.low.size, step))

    def _add_rows(self, values: np.ndarray, rows: slice, present: np.ndarray | None = None) -> None:
        for counts, end in ((self.at_low, self.low), (self.at_high, self.high)):
            equal = values == end[rows, None]
            at_end = np.nonzero(equal if present is None else equal & present)[0]
            counts[rows] += np.bincount(at_end, minlength=values.shape[0])
        bins = _bin(values, self.exponents[rows, None])
        bins += self.n_bins * np.arange(values.shape[0])[:, None] - self.first[rows, None]
        counts, flat = self.counts[rows], bins.reshape(-1) if present is None else bins[present]
        if FEW * flat.size >= counts.size:
            counts += np.bincount(flat, minlength=counts.size).reshape(counts.shape)
        else:
            np.add.at(counts.reshape(-1), flat, 1)

    def merge(self, other: Histograms) -> None:
        """Add the counts of `other`, which has as many entries and bins."""
        if np.any(other.high >= other.low):
            added = other.copy()
            low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
            self._cover(low, high)
            added._cover(low, high)
            for name in ("counts", "at_low", "at_high"):
                getattr(self, name).__iadd__(getattr(added, name))

    def copy(self) -> Histograms:
        """The same counts in memory of their own."""
        result = Histograms(self.low.size, self.n_bins, whole=self.whole)
        for name in ("counts", "low", "high", "at_low", "at_high", "exponents", "first"):
            setattr(result, name, getattr(self, name).copy())
        return result

    def _cover(self, low: np.ndarray, high: np.ndarray) -> None:
        """Make the bins those of the range from `low` to `high`."""
        for rows in self._chunks():
            self._cover_rows(low[rows], high[rows], rows)

    def _cover_rows(self, low: np.ndarray, high: np.ndarray, rows: slice) -> None:
        before, after = self.low[rows], self.high[rows]
        if np.any((low < before) | (high > after)):
            exponents, first = _bins_of(low, high, self.n_bins)
            old, start = self.exponents[rows], self.first[rows]
            moved = np.flatnonzero((after >= before) & ((exponents != old) | (first != start)))
            if moved.size:
                counts = self.counts[rows]
                kept = counts[moved]
                row, place = np.nonzero(kept)
                shift = np.minimum(exponents[moved] - old[moved], 62)
                new = ((start[moved][row] + place) >> shift[row]) - first[moved][row]
                # Sums of floats are exact: counts are below 2**53.
                sums = np.bincount(row * self.n_bins + new, kept[row, place], kept.size)
                counts[moved] = sums.reshape(kept.shape).astype(np.int64)
            self.exponents[rows], self.first[rows] = exponents, first
        self.at_low[rows] *= low == before
        self.at_high[rows] *= high == after
        self.low[rows], self.high[rows] = low, high

    def quantile(self, q: float) -> np.ndarray:
        """The quantile at `q` of every entry, NaN where there is no sample: shape (n_entries,)."""
        if q in (0.0, 1.0):
            return np.where(self.high >= self.low, self.high if q else self.low, np.nan)
        value, total = np.empty(self.low.size), np.empty(self.low.size, np.int64)
        for rows in self._chunks():
            before = np.cumsum(self.counts[rows], axis=-1)
            total[rows] = before[:, -1]
            rank = q * (total[rows] - 1)
            bins = np.minimum((before <= rank[:, None]).sum(axis=-1), self.n_bins - 1)
            places = np.arange(rank.size)
            inside = self.counts[rows][places, bins]
            share = (rank - (before[places, bins] - inside) + 0.5) / np.maximum(inside, 1)
            value[rows] = np.ldexp(self.first[rows] + bins + np.clip(share, 0.0, 1.0), self.exponents[rows])
        result: np.ndarray = np.where(total > 0, np.clip(value, self.low, self.high), np.nan)
        return result

    def share(self, comparison: str, number: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The share of samples for which a comparison with a number holds, and its bounds, each of shape (n_entries,).

        Bounds differ where the number is inside a bin: some of its samples are below it. The share takes them as
        spread evenly over the bin.

        Parameters
        ----------
        comparison : {"<", "<=", ">", ">="}
        number : float
        """
        equal = comparison in ("<=", ">")
        if self.whole:  # of integers: n <= x is n < floor(x) + 1
            number, equal = (np.floor(number) + 1.0 if equal else np.ceil(number)), False
        total = self.counts.sum(axis=-1)
        least, about, most = self._below(number, equal, total)
        if ">" in comparison:
            least, about, most = total - most, total - about, total - least
        size = np.where(total > 0, total, np.nan)
        return about / size, least / size, most / size

    def _below(self, number: float, equal: bool, total: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """At least, about and at most how many samples are below a number, or with `equal` equal to it."""
        rows, last = np.arange(total.size), self.n_bins - 1
        with np.errstate(over="ignore"):
            place = np.ldexp(np.float64(number), -self.exponents)
        begin = np.clip(np.floor(place), self.first, self.first + last)
        inside = begin.astype(np.int64) - self.first
        before = np.cumsum(self.counts, axis=-1)[rows, inside] - self.counts[rows, inside]
        lowest, highest = (np.clip(_bin(end, self.exponents) - self.first, 0, last) for end in self._ends())
        known = np.where(lowest == inside, self.at_low, 0)
        above = np.where((highest == inside) & (self.high > self.low), self.at_high, 0)
        spread = self.counts[rows, inside] - known - above
        part = np.clip(place - begin, 0.0, 1.0)
        least = before + known
        counts = least, least + part * spread, least + np.where((part == 0.0) & (not equal), 0, spread)
        where: list[Any] = [
            (number < self.low) | ((number == self.low) & (not equal)),
            (number > self.high) | ((number == self.high) & equal),
            (number == self.low + 1.0) if self.whole else (number == self.low),
            number == self.high,
        ]
        at_ends = [np.zeros_like(total), total, self.at_low, total - self.at_high]
        least, about, most = (np.select(where, at_ends, count) for count in counts)
        return least, about, most

    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest sample; 0 where there is none."""
        seen = self.high >= self.low
        return np.where(seen, self.low, 0.0), np.where(seen, self.high, 0.0)

    def moments(self, mean: np.ndarray, std: np.ndarray, orders: tuple[int, ...]) -> list[np.ndarray]:
        """Mean powers of ``(value - mean) / std`` of every entry, with each sample in the middle of its bin."""
        share = self.counts / np.maximum(self.counts.sum(axis=-1, keepdims=True), 1)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            middle = np.ldexp(self.first[:, None] + np.arange(self.n_bins) + 0.5, self.exponents[:, None])
            middle = np.clip(middle, self.low[:, None], self.high[:, None])
            if self.whole:
                middle = np.where(self.exponents[:, None] <= 0, np.floor(middle), middle)
            scaled = np.where(share > 0.0, (middle - mean[:, None]) / std[:, None], 0.0)
            return [(share * scaled**order).sum(axis=-1) for order in orders]

    def width(self) -> np.ndarray:
        """The width of the bins of every entry: the bound on the error of its quantiles."""
        return np.ldexp(1.0, self.exponents)


def ranges(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest value of each row, shape (n_entries,); rows shorter than a SIMD loop are turned."""
    n = values.shape[-1]
    if n >= SHORT_ROW:
        return values.min(axis=-1), values.max(axis=-1)
    low, high = np.empty(values.shape[0], values.dtype), np.empty(values.shape[0], values.dtype)
    step = max(1, CACHED_COUNTS // (4 * n))
    for k in range(0, values.shape[0], step):
        columns = np.ascontiguousarray(values[k : k + step].T)
        columns.min(axis=0, out=low[k : k + step])
        columns.max(axis=0, out=high[k : k + step])
    return low, high


def _bin(values: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """The number of the bin that each value is in."""
    if np.all(np.abs(exponents) < 1022):  # a factor is faster than `ldexp`, and rounds alike
        scaled = values * np.ldexp(1.0, -exponents)
    else:
        scaled = np.ldexp(values, -exponents)
    bins: np.ndarray = np.floor(scaled).astype(np.int64)
    return bins


def _bins_of(low: np.ndarray, high: np.ndarray, n_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """The smallest exponents at which `low` to `high` take at most `n_bins` bins, and the first bin.

    Numbers of bins are exact: they stay below 2**53.
    """
    seen = high >= low
    low, high = np.where(seen, low, 0.0), np.where(seen, high, 0.0)
    size = np.maximum(np.abs(low), np.abs(high))
    least = np.where(size > 0.0, np.maximum(np.frexp(size)[1] - 53, -1074), -1074).astype(np.int64)
    gap = np.ldexp(high, -2) / n_bins - np.ldexp(low, -2) / n_bins  # a quarter, so that the difference is finite
    exponents = np.where(gap > 0.0, np.maximum(least, np.frexp(gap)[1] + 1), least)  # the smallest, or one below
    for _ in range(4):
        wide = _bin(high, exponents) - _bin(low, exponents) >= n_bins
        if not np.any(wide):
            break
        exponents = exponents + wide
    return exponents, np.where(seen, _bin(low, exponents), 0)
