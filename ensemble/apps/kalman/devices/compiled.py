"""A series with any batches and Ensembles as arguments of the compiled recursions, and their results as its own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._backend import COMPILED_DTYPES, array_namespace, asarray_like, backend_of, contiguous, to_numpy
from ensemble._kernels.kalman.block_launch import filter_blocks, smooth_blocks, two_filter_blocks
from ensemble._kernels.kalman.kalman_launch import (
    LARGEST,
    chunk_length,
    filter_chunks,
    smooth_chunks,
    two_filter_chunks,
)
from ensemble._kernels.kalman.level_scans import scan_filter, scan_smoother, scan_two_filters
from ensemble._kernels.kalman.recursions import filter_square_root, smooth_series, smooth_square_root
from ensemble._kernels.kalman.scan import Sengupta
from ensemble._typing import Array
from ensemble.apps.kalman.devices.collapsed import filter_host
from ensemble.apps.kalman.results import FilterResult, SmootherResult, sum_over_time
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble
from ensemble.scalar.namespace import set_of

__all__ = [
    "compiled_backend",
    "compiled_filter",
    "compiled_rts",
    "compiled_square_root_filter",
    "compiled_square_root_smoother",
    "compiled_terms",
    "compiled_two_filter",
]

PARTS = ("F", "Q", "H", "R", "u", "d", "m0", "P0", "y")

FILTER_PARTS = (("F", 2), ("Q", 2), ("H", 2), ("R", 2), ("u", 1), ("d", 1), ("y", 1))


def _values(a: Array) -> Array:
    return a.samples if isinstance(a, Ensemble) else a


def compiled_backend(series: Series, method: str) -> str | None:
    """Choose the compiled code for a method, "numba" or "cuda"; None where arrays or numbers are of another kind."""
    arrays = [_values(getattr(series, name)) for name in PARTS]
    backend, dtype = backend_of(*arrays), arrays[0].dtype
    if backend == "numba":
        return backend if method != "scan" and dtype in COMPILED_DTYPES else None
    return backend if backend == "cuda" and str(dtype).split(".")[-1] in ("float32", "float64") else None


def fits_registers(series: Series) -> bool:
    """Tell whether one thread of a device holds a step's matrices in registers; else a block of threads shares them."""
    return bool(max(series.F.shape[-1], series.y.shape[-1]) <= LARGEST)


def n_samples_of(series: Series) -> int | None:
    """Count the samples of a series; None where no part of it is an Ensemble."""
    arrays = [getattr(series, name) for name in PARTS]
    return max((a.n_samples for a in arrays if isinstance(a, Ensemble)), default=None)


def series_first(a: Array, tail: int, batch: tuple[int, ...], n_samples: int | None, time_at: int | None) -> Array:
    """Bring `a` to the shape (series or 1, [time,] *tail), batches and samples as series; a view if memory allows it.

    `time_at` is the axis of time, which is before or after the batch; None where there is none.
    """
    plain = not isinstance(a, Ensemble)
    if plain and not batch:  # the usual case
        return a[None, ...]
    if not plain and not batch:  # samples of one series: one transpose
        n = len(a.samples.shape)
        values = a.samples.transpose(n - 1, *range(n - 1))
        if values.shape[0] in (1, n_samples):
            return values
        return np.broadcast_to(values, (n_samples or 1, *values.shape[1:]))
    values = a[..., None] if plain else a.samples
    axes = len(values.shape)
    values = np.moveaxis(values, -1, axes - 1 - tail)  # samples after the batch
    if time_at == 0:
        values = np.moveaxis(values, 0, axes - 1 - tail)
    elif time_at is not None:
        values = np.moveaxis(values, time_at, time_at + 1)
    n_lead = axes - tail - (time_at is not None)
    lead, rest = values.shape[:n_lead], values.shape[n_lead:]
    if math.prod(lead) == 1:
        return values.reshape((1, *rest))
    shape = (*batch, n_samples or 1, *rest)
    values = values if values.shape == shape else np.broadcast_to(values, shape)  # which may not be written to
    return values.reshape((-1, *rest))


def from_series(series: Series, values: np.ndarray, n_samples: int | None) -> Array:
    """Bring results with all series in front back to an array or Ensemble of shape (*batch, ...)."""
    if n_samples is None and not series.batch:
        return values[0, ...]
    if not series.batch:
        only = values[:1] if values.strides[0] == 0 else values  # the same for every sample
        samples = only.transpose(*range(1, values.ndim), 0)
        known = None if samples.shape[-1] == 1 else set_of(*(getattr(series, name) for name in PARTS))
        return Ensemble(contiguous(samples), known)
    shaped = values.reshape((*series.batch, n_samples or 1, *values.shape[1:]))
    n_batch = len(series.batch)
    if n_samples is None:
        return np.squeeze(shaped, axis=n_batch)
    samples = np.moveaxis(shaped, n_batch, -1)
    return Ensemble(contiguous(samples), set_of(*(getattr(series, name) for name in PARTS)))


def filter_arguments(series: Series, n_samples: int | None) -> list[np.ndarray]:
    """Bring F, Q, H, R, u, d, y, m0, P0 to the form that kernels take, all series in front."""
    parts = [series_first(getattr(series, name), tail, series.batch, n_samples, 0) for name, tail in FILTER_PARTS]
    starts = [series_first(a, tail, series.batch, n_samples, None) for a, tail in ((series.m0, 1), (series.P0, 2))]
    n_series = math.prod(series.batch) * (n_samples or 1)
    if parts[-1].shape[0] != n_series:
        parts[-1] = np.broadcast_to(parts[-1], (n_series, *parts[-1].shape[1:]))
    return [*parts, *starts]


def chunk_steps(series: Series, n_samples: int | None, method: str) -> int | None:
    """Choose how many steps a thread of a device works on; None for whole series."""
    n_series = math.prod(series.batch) * (n_samples or 1)
    return None if method == "sequential" else chunk_length(n_series, series.n_steps)


def filter_result(
    series: Series, n_samples: int | None, m: Array, P: Array, terms: Array, sums: Array | None = None
) -> FilterResult:
    """Make a `FilterResult` in the caller's form of arrays with all series in front."""
    return FilterResult(
        mean=from_series(series, m, n_samples),
        covariance=from_series(series, P, n_samples),
        log_likelihoods=from_series(series, terms, n_samples),
        log_likelihood=from_series(series, sum_over_time(terms.T) if sums is None else sums, n_samples),
        series=series,
    )


def is_level_scan(method: str, scan: str | Sengupta) -> bool:
    """Tell whether a device combines elements by a classical scan, level by level."""
    return method == "scan" and scan != "chunked"


def scan_of_blocks(series: Series, n_samples: int | None, method: str, scan: str | Sengupta) -> str | Sengupta | None:
    """Choose the scan over chunks where a block of threads works on each; None for the recursion."""
    if method == "scan":
        return scan
    return None if chunk_steps(series, n_samples, method) is None else "chunked"


def compiled_filter(series: Series, backend: str, method: str, scan: str | Sengupta) -> FilterResult:
    """Filter by compiled code: by recursion on the CPU, on a device by a scan unless `method` is "sequential"."""
    n_samples = n_samples_of(series)
    arguments = filter_arguments(series, n_samples)
    if backend == "cuda":
        options: list[Any] = [*arguments, series.predict_first]
        if not fits_registers(series):
            used = scan_of_blocks(series, n_samples, method, scan)
            return filter_result(series, n_samples, *filter_blocks(tuple(options), used))
        if is_level_scan(method, scan):
            return filter_result(series, n_samples, *scan_filter(tuple(options), scan))
        options += [chunk_steps(series, n_samples, method)]
        return filter_result(series, n_samples, *filter_chunks(*options))
    last = n_samples is not None and not series.batch
    m, P, terms = filter_host(arguments, series.predict_first, last)
    lost = np.isnan(np.sum(terms, axis=1))
    if not lost.any():
        return filter_result(series, n_samples, m, P, terms)
    P = P if P.flags.writeable else P.copy()
    for out, found in zip((m, P, terms), lost_series(series, n_samples, lost), strict=True):
        out[lost] = found
    return replace(filter_result(series, n_samples, m, P, terms), by_roots=from_series(series, lost, n_samples))


def lost_series(series: Series, n_samples: int | None, lost: np.ndarray) -> tuple[np.ndarray, ...]:
    """Means, covariances and terms of the series that have lost too many digits, on square roots of covariances."""
    arguments, rooted = square_root_arguments(series, n_samples)
    some = [a if a.shape[0] == 1 else a[lost] for a in arguments]
    return filter_square_root(some, series.predict_first, rooted)


def square_root_arguments(series: Series, n_samples: int | None) -> tuple[list[np.ndarray], bool]:
    """`filter_arguments` with a factor in place of P0 where the series has one, and whether it has."""
    arguments = filter_arguments(series, n_samples)
    if series.root is None:
        return arguments, False
    root = series_first(series.root, 2, series.batch, n_samples, None)
    return [*arguments[:-1], np.swapaxes(root, -1, -2)], True


def compiled_terms(series: Series, n_samples: int | None) -> Array:
    """``log p(y[k] | y[:k])`` by the recursion on the CPU, which keeps no means and covariances: (T, n_series)."""
    terms = filter_host(filter_arguments(series, n_samples), series.predict_first, True, False)[2]
    lost = np.isnan(np.add.reduce(terms, axis=1))
    if lost.any():
        terms[lost] = lost_series(series, n_samples, lost)[2]
    return terms.T


def compiled_square_root_filter(series: Series) -> FilterResult:
    """The recursion on square roots, on the CPU."""
    n_samples = n_samples_of(series)
    arguments, rooted = square_root_arguments(series, n_samples)
    return filter_result(series, n_samples, *filter_square_root(arguments, series.predict_first, rooted))


def compiled_two_filter(series: Series, scan: str | Sengupta) -> SmootherResult:
    """The two-filter smoother, on a device."""
    n_samples = n_samples_of(series)
    arguments: Any = (*filter_arguments(series, n_samples), series.predict_first)
    if not fits_registers(series):
        *filtered, mean, covariance = two_filter_blocks(arguments, scan)
    elif is_level_scan("scan", scan):
        *filtered, mean, covariance = scan_two_filters(arguments, scan)
    else:
        options: list[Any] = [*arguments, chunk_steps(series, n_samples, "scan") or series.n_steps]
        *filtered, mean, covariance = two_filter_chunks(*options)
    smooth_failed_on_device(arguments, filtered[0], filtered[1], mean, covariance)
    result = filter_result(series, n_samples, *filtered)
    return SmootherResult(from_series(series, mean, n_samples), from_series(series, covariance, n_samples), result)


def compiled_rts(
    series: Series, result: FilterResult, backend: str, method: str, scan: str | Sengupta
) -> SmootherResult:
    """The smoother's recursion on the CPU; on a device, a scan unless `method` is "sequential"."""
    n_samples, time_at = n_samples_of(series), len(series.batch)
    m = series_first(result.mean, 1, series.batch, n_samples, time_at)
    P = series_first(result.covariance, 2, series.batch, n_samples, time_at)
    if backend == "cuda":
        arguments: Any = (*filter_arguments(series, n_samples), series.predict_first)
        if not fits_registers(series):
            mean, covariance = smooth_blocks(arguments, m, P, scan_of_blocks(series, n_samples, method, scan))
        elif is_level_scan(method, scan):
            mean, covariance = scan_smoother(arguments, m, P, scan)
        else:
            F, Q, _, _, u, *_ = arguments
            mean, covariance = smooth_chunks(F, Q, u, m, P, chunk_steps(series, n_samples, method))
        smooth_failed_on_device(arguments, m, P, mean, covariance)
        return SmootherResult(from_series(series, mean, n_samples), from_series(series, covariance, n_samples), result)
    parts = [series_first(getattr(series, name), tail, series.batch, n_samples, 0)
             for name, tail in (("F", 2), ("Q", 2), ("u", 1))]  # fmt: skip
    mean, covariance = smooth_series(*parts, m, P, n_samples is not None and not series.batch)
    if result.by_roots is not None:
        mean[series_first(result.by_roots, 0, series.batch, n_samples, None), :-1] = np.nan
    covariance = smooth_failed_series(series, m, mean, covariance)
    return SmootherResult(from_series(series, mean, n_samples), from_series(series, covariance, n_samples), result)


def smooth_failed_on_device(arguments: tuple[Any, ...], m: Array, P: Array, mean: Array, covariance: Array) -> None:
    """Smooth, in place, the series that a device's kernels left without a first mean though the filter has a last one.

    First in disturbance form, in parallel; where that cancels too, on the host, on square roots.
    """
    lost = np.flatnonzero(to_numpy(_gain_failed(m, mean))).tolist()
    if not lost:
        return
    parts, (y, m0, P0, predict_first) = arguments[:6], arguments[6:]
    some = [a if a.shape[0] == 1 else a[lost] for a in (*parts, y, m0, P0)]
    m, P = m[lost], P[lost]
    again = smooth_blocks((*some, predict_first), m, P, "chunked")
    left = np.flatnonzero(to_numpy(_gain_failed(m, again[0]))).tolist()
    if left:
        host = [to_numpy(a if a.shape[0] == 1 else a[left]) for a in (*some, m, P, *again)]
        *given, last, spread, found, wide = host
        found[:, -1], wide[:, -1] = last[:, -1], spread[:, -1]
        smooth_square_root(given, predict_first, found, wide, np.ones(len(left), bool))
        for a, out in zip((found, wide), again, strict=True):
            out[left] = asarray_like(a, out)
    mean[lost], covariance[lost] = again


def _gain_failed(m: Array, mean: Array) -> Array:
    """Which series have no first smoothed mean but a last filtered one."""
    xp = array_namespace(mean)
    return xp.logical_and(xp.isnan(mean[:, 0, 0]), xp.logical_not(xp.isnan(m[:, -1, 0])))


def smooth_failed_series(series: Series, m: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Smooth on square roots the series whose gain failed and whose filter, with means `m`, did not.

    Means are written in place; covariances too, unless series share them.
    """
    if covariance.size and covariance.strides[0] == 0 and not np.isnan(mean).any():
        return covariance  # one gain for all, without NaN
    failed = _gain_failed(m, mean)
    if failed.any():
        covariance = covariance if covariance.flags.writeable else covariance.copy()
        arguments, rooted = square_root_arguments(series, n_samples_of(series))
        smooth_square_root(arguments, series.predict_first, mean, covariance, failed, rooted)
    return covariance


def compiled_square_root_smoother(
    series: Series, result: FilterResult, run: SmootherResult | None = None
) -> SmootherResult:
    """The smoother on square roots; with `run`, of the series whose gain failed there."""
    n_samples, time_at = n_samples_of(series), len(series.batch)
    T, nx = series.n_steps, series.F.shape[-1]
    forms = ((result.mean, 1), (result.covariance, 2))
    m, P = (series_first(a, tail, series.batch, n_samples, time_at) for a, tail in forms)
    shape = (math.prod(series.batch) * (n_samples or 1), T)
    outs = []
    for a, last, tail in ((run and run.mean, m, (nx,)), (run and run.covariance, P, (nx, nx))):
        out = np.full((*shape, *tail), np.nan, m.dtype)
        out[...] = np.nan if a is None else series_first(a, len(tail), series.batch, n_samples, time_at)
        out[:, -1] = last[:, -1] if a is None else out[:, -1]
        outs.append(out)
    if T > 1:
        smooth_failed_series(series, m, *outs)  # in place
    mean, covariance = (from_series(series, out, n_samples) for out in outs)
    return SmootherResult(mean, covariance, result)
