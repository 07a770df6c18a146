"""The ranges of time of one rank, on the CPU: the series of a batch, one behind the other in time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._kernels.kalman.between_ranges import condition_states, states_between
from ensemble._kernels.kalman.recursions import filter_elements, smooth_series
from ensemble._typing import Array
from ensemble.apps.kalman.array.agreement import differ
from ensemble.apps.kalman.array.steps import predict, rts_gain, smooth
from ensemble.apps.kalman.devices.compiled import (
    PARTS,
    filter_arguments,
    from_series,
    n_samples_of,
    series_first,
)
from ensemble.apps.kalman.devices.time_cuts import TimeCuts
from ensemble.apps.kalman.filters import filtered
from ensemble.apps.kalman.results import FilterResult, SmootherResult
from ensemble.apps.kalman.series import Series
from ensemble.apps.kalman.smoothers import combine_information

__all__ = ["HostRanges"]

STEPS = tuple(name for name in PARTS if name not in ("m0", "P0"))


@dataclass
class _Group:
    """Ranges of one length as the leading batch axis of a series; `first` is the number of the first one."""

    first: int
    count: int
    series: Series
    result: Any = None


class HostRanges:
    """The ranges of a rank.

    Element arrays have the shape (ranges, n, ...) for n series: of a batch, and of the samples of an Ensemble.
    """

    def __init__(self, series: Series, cuts: TimeCuts, rank: int) -> None:
        self.series, self.cuts, self.n_samples = series, cuts, n_samples_of(series)
        self.n, self.nx = math.prod(series.batch) * (self.n_samples or 1), series.F.shape[-1]
        at, self.groups = int(cuts.ranks[rank]), []
        self.first = at
        for start, count, length in cuts.groups(rank):
            self.groups.append(_Group(at, count, _ranges_of(series, start, count, length)))
            at += count

    # --- elements
    def elements(self) -> np.ndarray:
        """Reduce each range to one element of the scan, a row of numbers."""
        rows = []
        for group in self.groups:
            parts = self._reduced(group)
            rows.append(np.concatenate([a.reshape(group.count, -1) for a in parts], axis=1))
        return np.concatenate(rows)

    def _reduced(self, group: _Group) -> tuple[np.ndarray, ...]:
        series, nx = group.series, self.nx
        if group.first == 0 and not series.predict_first:
            series = _without_first_transition(series)
        *steps, m0, P0 = filter_arguments(series, self.n_samples)
        n, dtype = steps[-1].shape[0], steps[-1].dtype
        A, P = (np.zeros((n, nx, nx), dtype) for _ in range(2))
        m = np.zeros((n, nx), dtype)
        if group.first == 0:
            m[...], P[...] = m0, P0
        else:
            A[...] = np.eye(nx)
        found: tuple[np.ndarray, ...] = filter_elements(*steps, A, m, P, np.zeros_like(m), np.zeros_like(P))
        return found

    def _unpacked(self, rows: np.ndarray) -> list[np.ndarray]:
        """Split rows of numbers into the elements (A, b, C, eta, J) of all ranges."""
        nx, n = self.nx, self.n
        shapes = [(nx, nx), (nx,), (nx, nx), (nx,), (nx, nx)]
        ends = np.cumsum([n * math.prod(shape) for shape in shapes])[:-1]
        return [a.reshape(-1, n, *s) for a, s in zip(np.split(rows, ends, axis=1), shapes, strict=True)]

    def _between(self, rows: np.ndarray) -> None:
        """Scan over the elements; keep the state before each range, and what later observations tell of its end."""
        self.m, self.P, self.eta, self.J = states_between(tuple(self._unpacked(rows)))

    def _of(self, group: _Group, values: np.ndarray, shift: int = 0) -> Array:
        """Take entries (ranges, n, ...) of a group's ranges in the form of its series; behind the end, the last one."""
        at = np.minimum(np.arange(group.count) + group.first + shift, values.shape[0] - 1)
        return from_series(group.series, values[at].reshape(-1, *values.shape[2:]), self.n_samples)

    # --- the filter
    def filtered(self, rows: np.ndarray) -> tuple[FilterResult, np.ndarray]:
        """Filter the rank's steps, range by range: the result, and the log-likelihood of each range, (ranges, n)."""
        self._between(rows)
        sums = []
        for group in self.groups:
            if group.first > 0:
                m0, P0 = self._of(group, self.m), self._of(group, self.P)
                group.series = replace(group.series, m0=m0, P0=P0, predict_first=True)
            group.result = filtered(group.series, "auto", "chunked")
            sums.append(self._rows(group, group.result.log_likelihood))
        series = self.series
        if self.first > 0:
            m0, P0 = (from_series(series, a[self.first], self.n_samples) for a in (self.m, self.P))
            series = replace(series, m0=m0, P0=P0, predict_first=True)
        names = ("mean", "covariance", "log_likelihoods")
        mean, covariance, terms = (
            self._joined([getattr(group.result, name) for group in self.groups]) for name in names
        )
        result = FilterResult(mean, covariance, terms, terms, series, by_roots=self._by_roots())
        return result, np.concatenate(sums)

    def _rows(self, group: _Group, a: Array) -> np.ndarray:
        """Bring an array of a group's ranges, without an axis of time, to the shape (ranges, n)."""
        values = series_first(a, 0, group.series.batch, self.n_samples, None)
        return np.broadcast_to(values, (group.count * self.n,)).reshape(group.count, self.n)

    def _joined(self, parts: list[Array]) -> Array:
        """Join results of the groups, (ranges, *batch, steps, ...), along time."""
        n_batch = len(self.series.batch)
        joined = []
        for a in parts:
            a = array_namespace(a).moveaxis(a, 0, n_batch)
            shape = (*a.shape[:n_batch], a.shape[n_batch] * a.shape[n_batch + 1], *a.shape[n_batch + 2 :])
            joined.append(array_namespace(a).reshape(a, shape))
        return joined[0] if len(joined) == 1 else array_namespace(*joined).concat(joined, axis=n_batch)

    def _by_roots(self) -> Array | None:
        """Tell which series of the batch have a range that was filtered on square roots; None if none has."""
        flags = [(group, group.result.by_roots) for group in self.groups]
        if all(flag is None for _, flag in flags):
            return None
        found = np.zeros(self.n, bool)
        for group, flag in flags:
            found |= False if flag is None else self._rows(group, flag).any(axis=0)
        return from_series(self.series, found, self.n_samples)

    def lost(self) -> np.ndarray:
        """Tell which series end a range in another state than the next one starts from, (n,)."""
        found = np.zeros(self.n, bool)
        for group in self.groups:
            series, result = group.series, group.result
            T = series.n_steps
            last = group.first + np.arange(group.count) == self.cuts.n_ranges - 1
            before = (series.m0, series.P0) if T == 1 else (result.mean[..., -2, :], result.covariance[..., -2, :, :])
            ahead = predict(series.at("F", T - 1), series.at("Q", T - 1), series.at("u", T - 1), *before)[1]
            ends = result.mean[..., -1, :], result.covariance[..., -1, :, :]
            starts = self._of(group, self.m, 1), self._of(group, self.P, 1)
            other = self._rows(group, differ(starts, ends, series.at("R", T - 1), ahead))
            found |= np.any(other & ~last[:, None], axis=0)
        return found

    # --- the smoother
    def smoothed(self, result: FilterResult) -> tuple[SmootherResult, np.ndarray]:
        """Smooth the rank's steps; tell which series this does not serve, (n,)."""
        lost, parts = np.zeros(self.n, bool), []
        if result.by_roots is not None:
            lost |= self._flat(result.by_roots)
        for group in self.groups:
            mean, covariance = self._back(group)
            parts.append((mean, covariance))
            lost |= self._rows(group, array_namespace(mean).isnan(mean[..., 0, 0])).any(axis=0)
            lost |= self._differ_before(group, mean[..., 0, :], covariance[..., 0, :, :])
        mean, covariance = (self._joined([part[k] for part in parts]) for k in range(2))
        return SmootherResult(mean, covariance, result), lost

    def _flat(self, a: Array) -> np.ndarray:
        return np.broadcast_to(series_first(a, 0, self.series.batch, self.n_samples, None), (self.n,))

    def _back(self, group: _Group) -> tuple[Array, Array]:
        """Smooth a group's ranges back from their last states, which later observations have conditioned."""
        series, result = group.series, group.result
        arrays = []
        for a, tail in ((result.mean, 1), (result.covariance, 2)):
            values = series_first(a, tail, series.batch, self.n_samples, len(series.batch))
            arrays.append(np.array(np.broadcast_to(values, (group.count * self.n, *values.shape[1:]))))
        observed = group.count - int(group.first + group.count == self.cuts.n_ranges)  # nothing follows the last one
        if observed:
            later = (a[group.first : group.first + observed].reshape(-1, *a.shape[2:]) for a in (self.eta, self.J))
            ends = condition_states(*(a[: observed * self.n, -1] for a in arrays), *later)
            for a, end in zip(arrays, ends, strict=True):
                a[: observed * self.n, -1] = end
        F, Q, _, _, u, *_ = filter_arguments(series, self.n_samples)
        found = smooth_series(F, Q, u, *arrays, False)
        return tuple(from_series(series, a, self.n_samples) for a in found)

    def _differ_before(self, group: _Group, mean: Array, covariance: Array) -> np.ndarray:
        """Tell for which series a step back from a range does not meet the last smoothed state before it, (n,)."""
        series = group.series
        if group.first == 0:
            return np.zeros(self.n, bool)
        m, P = series.m0, series.P0
        with np.errstate(all="ignore"):
            end = combine_information(m, P, self._of(group, self.eta, -1), self._of(group, self.J, -1))
            gain = rts_gain(series.at("F", 0), series.at("Q", 0), series.at("u", 0), m, P)
            again = smooth(*gain, mean, covariance)
            other = self._rows(group, differ(end, again, series.at("R", 0), P))
        return np.asarray(other.any(axis=0))


def _ranges_of(series: Series, start: int, count: int, length: int) -> Series:
    """Cut a series into ranges of `length` steps, which become its leading batch axis."""
    parts: dict[str, Any] = {}
    for name in STEPS:
        a = getattr(series, name)
        xp = array_namespace(a)
        if a.shape[0] == 1 and (series.n_steps > 1 or name != "y"):
            parts[name] = xp.reshape(a, (1, 1, *a.shape[1:]))
        else:
            cut = xp.reshape(a[start : start + count * length, ...], (count, length, *a.shape[1:]))
            parts[name] = xp.moveaxis(cut, 0, 1)
    for name in ("m0", "P0"):
        a = getattr(series, name)
        parts[name] = array_namespace(a).reshape(a, (1, *a.shape))
    return replace(series, batch=(count, *series.batch), index=None, root=None, **parts)


def _without_first_transition(series: Series) -> Series:
    """Replace the first transition of a series by one that changes nothing."""
    parts = {}
    for name in ("F", "Q", "u"):
        a = getattr(series, name)
        xp = array_namespace(a)
        wide = xp.broadcast_to(a, (series.n_steps, *a.shape[1:]))
        eye = xp.eye(series.F.shape[-1], dtype=a.dtype)
        still = {"F": eye, "Q": xp.zeros_like(eye), "u": xp.zeros_like(eye[0, ...])}[name]
        first = xp.broadcast_to(still, wide.shape[1:])[None, ...]
        parts[name] = xp.concat([first, wide[1:, ...]], axis=0)
    return replace(series, **parts)
