"""From a model and observations, whatever their batches and Ensembles, to the compiled recursions and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ensemble._backend import backend_of
from ensemble._kernels.kalman import filter_series, smooth_series, square_root_series
from ensemble._kernels.kalman_cuda import LARGEST, chunk_length, filter_chunks, smooth_chunks, two_filter_chunks
from ensemble._kernels.kalman_scans import scan_filter, scan_smoother, scan_two_filters
from ensemble._typing import Array
from ensemble.apps.kalman.model import Series
from ensemble.apps.kalman.results import FilterResult, SmootherResult, total
from ensemble.scalar import Ensemble
from ensemble.scalar.namespace import set_of

__all__ = ["compiled_filter", "compiled_rts", "compiled_square_roots", "compiled_two_filter", "device_of"]

PARTS = ("F", "Q", "H", "R", "u", "d", "m0", "P0", "y")

FILTER_PARTS = (("F", 2), ("Q", 2), ("H", 2), ("R", 2), ("u", 1), ("d", 1), ("y", 1))


def _values(a: Array) -> Array:
    return a.samples if isinstance(a, Ensemble) else a


def device_of(series: Series, method: str) -> str | None:
    """Where compiled code for this method runs: "numba", "cuda", or None where there is none."""
    arrays = [_values(getattr(series, name)) for name in PARTS]
    backend = backend_of(*arrays)
    if str(arrays[0].dtype).split(".")[-1] not in ("float32", "float64"):
        return None
    if backend == "numba":
        return backend if method != "scan" else None
    fits = max(series.F.shape[-1], series.y.shape[-1]) <= LARGEST
    return backend if backend == "cuda" and fits else None


def n_samples_of(series: Series) -> int | None:
    """The number of samples; None where there is no Ensemble."""
    arrays = [getattr(series, name) for name in PARTS]
    return max((a.n_samples for a in arrays if isinstance(a, Ensemble)), default=None)


def series_first(a: Array, tail: int, batch: tuple[int, ...], n_samples: int | None, time_at: int | None) -> np.ndarray:
    """`a` with shape (series or 1, [time,] *tail): batches and samples are all series. A view where memory allows it.

    `time_at` is the axis of time, which stands before or behind the batch; None where there is none.
    """
    lone = not isinstance(a, Ensemble)
    if lone and not batch:  # the usual case
        return a[None, ...]
    if not lone and not batch:  # samples of one series: one transpose
        n = len(a.samples.shape)
        values = a.samples.transpose(n - 1, *range(n - 1))
        if values.shape[0] in (1, n_samples):
            return values
        return np.broadcast_to(values, (n_samples or 1, *values.shape[1:]))
    values = a[..., None] if lone else a.samples
    axes = len(values.shape)
    values = np.moveaxis(values, -1, axes - 1 - tail)  # samples behind the batch
    if time_at == 0:
        values = np.moveaxis(values, 0, axes - 1 - tail)
    elif time_at is not None:
        values = np.moveaxis(values, time_at, time_at + 1)
    n_lead = axes - tail - (time_at is not None)
    lead, rest = values.shape[:n_lead], values.shape[n_lead:]
    if math.prod(lead) == 1:
        return values.reshape((1, *rest))
    return np.broadcast_to(values, (*batch, n_samples or 1, *rest)).reshape((-1, *rest))


def from_series(series: Series, values: np.ndarray, n_samples: int | None) -> Array:
    """Results with all series in front as an array or Ensemble of shape (*batch, ...)."""
    if n_samples is None and not series.batch:
        return values[0, ...]
    if not series.batch:
        only = values[:1] if values.strides[0] == 0 else values  # the same for every sample
        samples = only.transpose(*range(1, values.ndim), 0)
        return Ensemble(np.ascontiguousarray(samples), set_of(*(getattr(series, name) for name in PARTS)))
    shaped = values.reshape((*series.batch, n_samples or 1, *values.shape[1:]))
    n_batch = len(series.batch)
    if n_samples is None:
        return np.squeeze(shaped, axis=n_batch)
    samples = np.moveaxis(shaped, n_batch, -1)
    return Ensemble(np.ascontiguousarray(samples), set_of(*(getattr(series, name) for name in PARTS)))


def filter_arguments(series: Series, n_samples: int | None) -> list[np.ndarray]:
    """F, Q, H, R, u, d, y, m0, P0 as the kernels want them."""
    parts = [series_first(getattr(series, name), tail, series.batch, n_samples, 0) for name, tail in FILTER_PARTS]
    starts = [series_first(a, tail, series.batch, n_samples, None) for a, tail in ((series.m0, 1), (series.P0, 2))]
    n_series = math.prod(series.batch) * (n_samples or 1)
    if parts[-1].shape[0] != n_series:
        parts[-1] = np.broadcast_to(parts[-1], (n_series, *parts[-1].shape[1:]))
    return [*parts, *starts]


def chunk_of(series: Series, n_samples: int | None, method: str) -> int | None:
    """Steps a thread of a device works on; None for whole series."""
    n_series = math.prod(series.batch) * (n_samples or 1)
    return None if method == "sequential" else chunk_length(n_series, series.n_steps)


def filter_result(
    series: Series, n_samples: int | None, m: Array, P: Array, terms: Array, sums: Array | None = None
) -> FilterResult:
    """Results with all series in front, in the caller's form."""
    return FilterResult(
        mean=from_series(series, m, n_samples),
        covariance=from_series(series, P, n_samples),
        log_likelihoods=from_series(series, terms, n_samples),
        log_likelihood=from_series(series, total(terms.T) if sums is None else sums, n_samples),
        series=series,
    )


def is_level_by_level(method: str, scan: str) -> bool:
    """Whether a device joins elements by one of the classical scans; else it cuts time into chunks, or does not."""
    return method == "scan" and scan != "chunked"


def compiled_filter(series: Series, device: str, method: str, scan: str) -> FilterResult:
    """The recursion on the CPU; on a device, a scan unless `method` is "sequential"."""
    n_samples = n_samples_of(series)
    arguments = filter_arguments(series, n_samples)
    if device == "cuda":
        options: list[Any] = [*arguments, series.predict_first]
        if is_level_by_level(method, scan):
            return filter_result(series, n_samples, *scan_filter(tuple(options), scan))
        options += [chunk_of(series, n_samples, method)]
        return filter_result(series, n_samples, *filter_chunks(*options))
    last = n_samples is not None and not series.batch
    return filter_result(series, n_samples, *filter_series(*arguments, series.predict_first, last))


def compiled_square_roots(series: Series) -> FilterResult:
    """The filter on square roots of covariances, on the CPU."""
    n_samples = n_samples_of(series)
    arguments: list[Any] = [*filter_arguments(series, n_samples), series.predict_first]
    return filter_result(series, n_samples, *square_root_series(*arguments))


def compiled_two_filter(series: Series, scan: str) -> SmootherResult:
    """Two filters that meet, on a device."""
    n_samples = n_samples_of(series)
    options: list[Any] = [*filter_arguments(series, n_samples), series.predict_first]
    if is_level_by_level("scan", scan):
        *filtered, mean, covariance = scan_two_filters(tuple(options), scan)
    else:
        options += [chunk_of(series, n_samples, "scan") or series.n_steps]
        *filtered, mean, covariance = two_filter_chunks(*options)
    result = filter_result(series, n_samples, *filtered)
    return SmootherResult(from_series(series, mean, n_samples), from_series(series, covariance, n_samples), result)


def compiled_rts(series: Series, result: FilterResult, device: str, method: str, scan: str) -> SmootherResult:
    """The smoother's recursion on the CPU; on a device, a scan unless `method` is "sequential"."""
    n_samples, time_at = n_samples_of(series), len(series.batch)
    m = series_first(result.mean, 1, series.batch, n_samples, time_at)
    P = series_first(result.covariance, 2, series.batch, n_samples, time_at)
    if device == "cuda" and is_level_by_level(method, scan):
        arguments = (*filter_arguments(series, n_samples), series.predict_first)
        mean, covariance = scan_smoother(arguments, m, P, scan)
        return SmootherResult(from_series(series, mean, n_samples), from_series(series, covariance, n_samples), result)
    parts = [series_first(getattr(series, name), tail, series.batch, n_samples, 0)
             for name, tail in (("F", 2), ("Q", 2), ("u", 1))]  # fmt: skip
    if device == "cuda":
        options: list[Any] = [*parts, m, P, chunk_of(series, n_samples, method)]
        mean, covariance = smooth_chunks(*options)
    else:
        mean, covariance = smooth_series(*parts, m, P, n_samples is not None and not series.batch)
    return SmootherResult(from_series(series, mean, n_samples), from_series(series, covariance, n_samples), result)
