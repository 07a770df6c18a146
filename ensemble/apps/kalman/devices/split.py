"""One series in parts, each a interval of its steps and perhaps on a device of its own.

On CUDA devices every part is reduced to one element; from these follow the state between parts and the information of
later parts on it, and all parts run in parallel (`time_ranges.py`). Elsewhere, for batches, for Ensembles, and where
an element does not exist because an innovation covariance is singular, parts run one after another, on the CPU with the
bits of one run over all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._check import integer, kind_of, message, require
from ensemble._compile.streams import on_device_of, to_cuda_device, to_device_of
from ensemble._kernels.kalman.time_ranges import filter_ranges, two_filter_ranges
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Values
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.devices.compiled import (
    PARTS,
    compiled_backend,
    filter_arguments,
    filter_result,
    from_series,
    n_samples_of,
)
from ensemble.apps.kalman.filters import filtered
from ensemble.apps.kalman.model import LinearGaussianModel
from ensemble.apps.kalman.results import FilterResult, SmootherResult
from ensemble.apps.kalman.series import Series
from ensemble.apps.kalman.smoothers import backwards
from ensemble.scalar import Ensemble
from ensemble.scalar.namespace import set_of

__all__ = ["filter_split_series", "smooth_split_series", "split_series"]

STEPS = tuple(name for name in PARTS if name not in ("m0", "P0"))
"""Parts of a series that have an axis of time."""

Part = tuple[LinearGaussianModel, Any]


@explains_calls("split_series")
def split_series(
    model: LinearGaussianModel, y: Any, devices: Sequence[int | None], *, mask: Values | None = None
) -> list[tuple[LinearGaussianModel, Array]]:
    """Divide a model and its observations into intervals of time, each on a device.

    Parameters
    ----------
    model : LinearGaussianModel
        With NumPy's or CuPy's arrays, or Ensembles of them.
    y : array or Ensemble, shape (*batch, T, ny)
        Observations, NaN where missing.
    devices : sequence of int or None
        For every part the number of a CUDA device, where its arrays become CuPy's; None leaves them where they are.
    mask : bool array or Ensemble, shape of `y` or of `y` without its last axis, optional
        Entries to treat as missing.

    Returns
    -------
    list of (LinearGaussianModel, array)
        As many parts as devices, of equally many steps but for one. Every part has the prior, and the first alone
        uses it.

    Raises
    ------
    TypeError, ValueError
        As `kalman_filter`, and if there are no devices, or more of them than steps.

    Examples
    --------
    >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> [part.shape for _, part in split_series(model, [[3.0], [float("nan")], [4.0]], [None, None])]
    [(1, 1), (2, 1)]
    """
    series = aligned(model, y, mask, "split_series")
    if not isinstance(devices, Sequence) or isinstance(devices, str):
        advice = "One entry a part, e.g. [0, 1]."
        raise TypeError(
            message("split_series", "devices", "be a list of device numbers or None", repr(devices), advice)
        )
    places = [None if device is None else integer(device, "split_series", "devices", minimum=0) for device in devices]
    n, T = len(places), series.n_steps
    seen = f"{n} for {T} steps"
    require(1 <= n <= T, "split_series", "devices", "be one or more, and no more than there are steps", seen)
    cuts = [T * k // n for k in range(n + 1)]
    return [
        _part(series, slice(*cuts[k : k + 2]), model.prior_at if k == 0 else "before", place)
        for k, place in enumerate(places)
    ]


def _part(series: Series, steps: slice, prior_at: str, device: int | None) -> Part:
    """Cut steps out of a series, as a model and observations of their own, batch axes in front."""
    arrays = {}
    for name in PARTS:
        a = getattr(series, name)
        if name not in ("m0", "P0"):
            a = series.each(name, steps)
            a = array_namespace(a).moveaxis(a, 0, len(series.batch))
        if device is not None:
            a = (
                Ensemble(to_cuda_device(a.samples, device), set_of(a))
                if isinstance(a, Ensemble)
                else to_cuda_device(a, device)
            )
        arrays[name] = a
    y = arrays.pop("y")
    with on_device_of(_values(y)):
        return LinearGaussianModel(**arrays, prior_at=prior_at), y


@explains_calls("filter_split_series")
def filter_split_series(parts: Sequence[tuple[LinearGaussianModel, Any]]) -> list[FilterResult]:
    """Filter one series in parts, as `kalman_filter`: every part of the result is on the device of its observations.

    Parameters
    ----------
    parts : sequence of (LinearGaussianModel, array or Ensemble)
        Consecutive intervals of time, from `split_series` or made where they are needed. Entry 0 of a later part's F, Q
        and u leads over from the part before it; its prior is not read.

    Returns
    -------
    list of FilterResult
        `log_likelihood` is each part's share.

    Raises
    ------
    TypeError
        If `parts` is no sequence of pairs, or as `kalman_filter`.
    ValueError
        If parts differ in their sizes, batches or dtypes, a later part has its prior at its first observation, or as
        `kalman_filter`.

    Notes
    -----
    Parts of one series on CUDA devices run in parallel: twice the filter's work, and a state goes from device to
    device. All others run one after another. Many series are better distributed over devices whole.

    Examples
    --------
    >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> parts = split_series(model, [[3.0], [float("nan")], [4.0]], [None, None])
    >>> [part.mean[:, 0].round(4).tolist() for part in filter_split_series(parts)]
    [[2.0], [2.0, 3.4545]]
    """
    intervals = _intervals(parts, "filter_split_series")
    if _are_ranges(intervals):
        ranges = _range_arguments(intervals)
        results = [_filtered_range(s, a) for s, a in zip(intervals, filter_ranges(*ranges), strict=True)]
        if not _has_nan(results[-1].mean[..., -1:, :1]):
            return results
    return _filter_sequentially(intervals)


@explains_calls("smooth_split_series")
def smooth_split_series(parts: Sequence[tuple[LinearGaussianModel, Any]]) -> list[SmootherResult]:
    """Smooth one series in parts: every part of the result is on the device of its observations.

    Parameters
    ----------
    parts : sequence of (LinearGaussianModel, array or Ensemble)
        See `filter_split_series`.

    Returns
    -------
    list of SmootherResult
        `log_likelihood` is each part's share.

    Raises
    ------
    TypeError, ValueError
        As `filter_split_series`.

    Notes
    -----
    On CUDA devices this is the two-filter smoother, elsewhere the recursion of Rauch, Tung and Striebel. What goes from
    device to device is a state and the information of later observations on it: 34 numbers for four states.

    Examples
    --------
    On two CUDA devices, for a model and observations of NumPy or CuPy:
    ``smooth_split_series(split_series(model, y, devices=[0, 1]))``. Here both parts stay where they are:

    >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> parts = split_series(model, [[3.0], [float("nan")], [4.0]], [None, None])
    >>> [part.mean[:, 0].round(4).tolist() for part in smooth_split_series(parts)]
    [[2.3636], [2.9091, 3.4545]]
    """
    intervals = _intervals(parts, "smooth_split_series")
    if _are_ranges(intervals):
        ranges = _range_arguments(intervals)
        results = [_smoothed_range(s, a) for s, a in zip(intervals, two_filter_ranges(*ranges), strict=True)]
        if not (_has_nan(results[-1].filtered.mean[..., -1:, :1]) or _has_nan(results[0].mean[..., :1, :1])):
            return results
    return _smooth_sequentially(intervals, _filter_sequentially(intervals))


def _intervals(parts: Any, function: str) -> list[Series]:
    """Every part in the one form, checked against the others."""
    pairs = isinstance(parts, Sequence) and len(parts) > 0
    if not pairs or not all(isinstance(part, tuple) and len(part) == 2 for part in parts):
        seen = kind_of(parts)
        raise TypeError(message(function, "parts", "be a list of pairs (model, y)", seen, "split_series makes them."))
    intervals = []
    for model, y in parts:
        with on_device_of(_values(y)):
            intervals.append(aligned(model, y, None, function))
    for k, (series, (model, _)) in enumerate(zip(intervals, parts, strict=True)):
        advice = "Entry 0 of its F, Q, u leads over from the part before."
        before = k == 0 or model.prior_at == "before"
        require(before, function, f"part {k}", "have prior_at='before'", repr(model.prior_at), advice)
        kinds = [(s.F.shape[-1], s.y.shape[-1], s.batch, str(s.y.dtype)) for s in (intervals[0], series)]
        seen = " and ".join(f"nx={nx}, ny={ny}, batch {batch}, {dtype}" for nx, ny, batch, dtype in kinds)
        require(kinds[0] == kinds[1], function, f"part {k}", "be of the first part's sizes, batch and dtype", seen)
    return intervals


def _values(a: Any) -> Any:
    return a.samples if isinstance(a, Ensemble) else a


# --- in parallel
def _are_ranges(intervals: list[Series]) -> bool:
    """Whether the kernels over several devices take these parts: one series of CuPy's arrays."""
    alone = all(n_samples_of(s) is None and math.prod(s.batch) == 1 for s in intervals)
    return len(intervals) > 1 and alone and all(compiled_backend(s, "scan") == "cuda" for s in intervals)


def _range_arguments(intervals: list[Series]) -> tuple[Any, ...]:
    """The parts' arrays, and the prior, as the kernels require them."""
    arguments = []
    for series in intervals:
        with on_device_of(series.y):
            arguments.append(filter_arguments(series, None))
    m0, P0 = arguments[0][-2:]
    return [tuple(a[:-2]) for a in arguments], m0, P0, intervals[0].predict_first


def _filtered_range(series: Series, arrays: tuple[Array, ...]) -> FilterResult:
    with on_device_of(series.y):
        return filter_result(series, None, *arrays[:4])


def _smoothed_range(series: Series, arrays: tuple[Array, ...]) -> SmootherResult:
    result = _filtered_range(series, arrays)
    mean, covariance = (from_series(series, a, None) for a in arrays[4:])
    return SmootherResult(mean, covariance, result)


def _has_nan(m: Array) -> bool:
    """Whether a number is NaN."""
    return bool(np.isnan(to_numpy(m)).any())


# --- one after another
def _filter_sequentially(intervals: list[Series]) -> list[FilterResult]:
    """Each part from the state that the one before it ends with."""
    results: list[FilterResult] = []
    for series in intervals:
        with on_device_of(_values(series.y)):
            if results:
                m, P = (_to_device_of(a, series.y) for a in _at(results[-1], -1))
                series = replace(series, m0=m, P0=P, predict_first=True)
            results.append(filtered(series, "auto", "chunked"))
    return results


def _smooth_sequentially(intervals: list[Series], results: list[FilterResult]) -> list[SmootherResult]:
    """Smooth part after part, from the last one back: the first state of the part behind counts as its last step.

    Off CUDA devices all parts go back in one piece: on square roots a series needs its filter from the prior on.
    """
    if not any(compiled_backend(series, "scan") == "cuda" for series in intervals):
        return _smooth_joined(intervals, results)
    smoothers: list[SmootherResult] = []
    for k in range(len(intervals) - 1, -1, -1):
        series, result = intervals[k], results[k]
        with on_device_of(_values(series.y)):
            if not smoothers:
                smoothers.append(backwards(series, result, "auto", "chunked"))
                continue
            longer = _longer(series, intervals[k + 1])
            state = [_to_device_of(a, series.y) for a in _at(smoothers[0], 0)]
            ahead = replace(result, series=longer, **_with_one_more(result, state, len(series.batch)))
            run = backwards(longer, ahead, "auto", "chunked")
            T, n_batch = series.n_steps, len(series.batch)
            key = (*(slice(None),) * n_batch, slice(0, T), ...)
            smoothers.insert(0, SmootherResult(run.mean[key], run.covariance[key], result))
    return smoothers


def _smooth_joined(intervals: list[Series], results: list[FilterResult]) -> list[SmootherResult]:
    """The smoother of all parts as one series, cut again."""
    first, n_batch = intervals[0], len(intervals[0].batch)
    xp = array_namespace(*(s.F for s in intervals), *(s.y for s in intervals))
    parts = {}
    for name in STEPS:
        arrays = [getattr(s, name) for s in intervals]
        if all(a.shape[0] == 1 and a is arrays[0] for a in arrays):
            parts[name] = arrays[0]
            continue
        shapes = [(s.n_steps, *a.shape[1:]) for s, a in zip(intervals, arrays, strict=True)]
        parts[name] = xp.concat([xp.broadcast_to(a, n) for a, n in zip(arrays, shapes, strict=True)], axis=0)
    joined = {name: xp.concat([getattr(r, name) for r in results], axis=n_batch)
              for name in ("mean", "covariance", "log_likelihoods")}  # fmt: skip
    whole = replace(first, **parts)
    run = backwards(whole, replace(results[0], series=whole, **joined), "auto", "chunked")
    smoothers, start = [], 0
    for series, result in zip(intervals, results, strict=True):
        key = (*(slice(None),) * n_batch, slice(start, start + series.n_steps), ...)
        smoothers.append(SmootherResult(run.mean[key], run.covariance[key], result))
        start += series.n_steps
    return smoothers


def _at(result: FilterResult | SmootherResult, k: int) -> tuple[Array, Array]:
    """The state at step k."""
    return result.mean[..., k, :], result.covariance[..., k, :, :]


def _to_device_of(a: Array, like: Array) -> Array:
    """`a` on the device of `like`."""
    if isinstance(a, Ensemble):
        return Ensemble(to_device_of(a.samples, _values(like)), set_of(a))
    return to_device_of(a, _values(like))


def _longer(series: Series, later: Series) -> Series:
    """Append the transition to the next part as a step in which nothing is observed."""
    xp = array_namespace(series.y, series.F, series.m0)
    parts = {}
    for name in ("F", "Q", "u"):
        a, end = getattr(series, name), _to_device_of(later.at(name, 0), series.y)[None, ...]
        parts[name] = xp.concat([xp.broadcast_to(a, (series.n_steps, *a.shape[1:])), end], axis=0)
    y = xp.concat([series.y, xp.zeros_like(series.y[:1, ...])], axis=0)
    return replace(series, y=y, **parts)


def _with_one_more(result: FilterResult, state: list[Array], n_batch: int) -> dict[str, Array]:
    """Append a state to means and covariances."""
    xp = array_namespace(result.mean, *state)
    pairs = zip(("mean", "covariance"), (result.mean, result.covariance), state, strict=True)
    return {name: xp.concat([a, xp.expand_dims(end, axis=n_batch)], axis=n_batch) for name, a, end in pairs}
