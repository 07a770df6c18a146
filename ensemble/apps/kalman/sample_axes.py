"""Samples of a series as one more axis of its batch, and results back: NumPy's calls cost less than an Ensemble's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._typing import Array
from ensemble.apps.kalman.devices.compiled import PARTS, compiled_backend, n_samples_of
from ensemble.apps.kalman.results import FilterResult, SmootherResult
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble
from ensemble.scalar.namespace import set_of

__all__ = ["filter_of_samples", "smoother_of_samples", "with_sample_axis"]

FORMS = (("F", 2), ("Q", 2), ("H", 2), ("R", 2), ("u", 1), ("d", 1), ("m0", 1), ("P0", 2), ("diffuse", 2))


OF_DIRECTIONS = ("F", "H", "R", "diffuse", "y")
"""What the directions that stay diffuse depend on, `y` by what is missing; where samples share these, they share them.

Smoothed ones depend on Q and P0, too.
"""


def with_sample_axis(series: Series, method: str) -> Series | None:
    """The series with its samples as the last axis of its batch, for code that treats each series of a batch alone.

    None where it has no samples, or for methods in which a series' bits depend on its batch.
    """
    n = n_samples_of(series)
    if n is None or n == 1 or series.S is not None or compiled_backend(series, method) != "numba":
        return None
    parts: dict[str, Any] = {
        name: _moved(getattr(series, name), tail) for name, tail in FORMS if getattr(series, name) is not None
    }
    y = _moved(series.y, 1)
    y = np.broadcast_to(y, (series.n_steps, *series.batch, n, y.shape[-1]))
    return replace(series, y=y, batch=(*series.batch, n), **parts)


def _moved(a: Array, tail: int) -> np.ndarray:
    """The numbers of an array or Ensemble, the samples before its last `tail` axes."""
    values = a.samples if isinstance(a, Ensemble) else a[..., None]
    return np.moveaxis(values, -1, -1 - tail)


def filter_of_samples(
    series: Series, result: FilterResult, directions: tuple[str, ...] = OF_DIRECTIONS
) -> FilterResult:
    """The result for `series` from that of `with_sample_axis`."""
    at = len(series.batch)
    sample_set = set_of(*(getattr(series, name) for name in (*PARTS, "diffuse")))

    def lifted(a: Any) -> Any:
        return None if a is None else Ensemble(np.ascontiguousarray(np.moveaxis(a, at, -1)), sample_set)

    return FilterResult(
        mean=lifted(result.mean),
        covariance=lifted(result.covariance),
        log_likelihoods=lifted(result.log_likelihoods),
        log_likelihood=lifted(result.log_likelihood),
        series=series,
        diffuse_covariance=_shared(series, directions, lifted(result.diffuse_covariance)),
        by_roots=lifted(result.by_roots),
        by_recursion=lifted(result.by_recursion),
        form=result.form,
    )


def smoother_of_samples(series: Series, result: SmootherResult) -> SmootherResult:
    """The result for `series` from that of `with_sample_axis`."""
    filtered = filter_of_samples(series, result.filtered)
    own = replace(
        result.filtered,
        mean=result.mean,
        covariance=result.covariance,
        diffuse_covariance=result.diffuse_covariance,
    )
    several = own.diffuse_covariance is not None and own.diffuse_covariance.shape[len(series.batch) + 1] > 1
    found = filter_of_samples(series, own, (*OF_DIRECTIONS, "Q", "P0") if several else OF_DIRECTIONS)
    return SmootherResult(found.mean, found.covariance, filtered, found.diffuse_covariance)


def _shared(series: Series, names: tuple[str, ...], a: Any) -> Any:
    """`a` as one sample for all where they share these parts."""
    parts = (getattr(series, name) for name in names)
    if a is None or any(isinstance(part, Ensemble) and part.n_samples > 1 for part in parts):
        return a
    return Ensemble(np.ascontiguousarray(a.samples[..., :1]))
