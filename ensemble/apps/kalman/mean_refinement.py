"""Means wider than covariances: the model for deviations from a trajectory, where narrow numbers keep their digits.

Covariances do not depend on where the origin lies, means do: what a narrow mean loses is in proportion to the distance
from the origin, while its standard deviation may stay small. A first run finds a trajectory near the means; the same
code then runs on the deviations, whose inputs and innovations are formed in the wide type. That is one step of
iterative refinement, the same for every method, scan and device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.array.steps import apply
from ensemble.apps.kalman.results import FilterResult, SmootherResult
from ensemble.apps.kalman.series import Series

__all__ = ["deviation_series", "refined_filter", "refined_smoother"]

VECTORS = ("u", "d", "m0", "y")


def deviation_series(series: Series, x: Array) -> Series:
    """The model of ``x[k] - reference[k]`` for a reference `x` of shape (T, *batch, nx), its vectors narrow."""
    xp = array_namespace(x, series.y, series.F)
    F, H = (xp.astype(a, x.dtype) for a in (series.F, series.H))
    before = xp.broadcast_to(series.m0, x.shape[1:])
    start = xp.zeros_like(before) if series.predict_first else before - x[0, ...]
    u = apply(F, xp.concat([before[None, ...], x[:-1, ...]], axis=0)) + series.u - x
    y = series.y - apply(H, x) - series.d
    return narrow(replace(series, m0=start, u=u, d=xp.zeros_like(series.d), y=y))


def narrow(series: Series) -> Series:
    """Vectors in the type of the matrices."""
    xp = array_namespace(series.y, series.F, series.m0, series.u, series.d)
    return replace(series, **{name: xp.astype(getattr(series, name), series.F.dtype) for name in VECTORS})


def reference_of(series: Series, result: FilterResult) -> tuple[Array, Array]:
    """The filter's means in the wide type, and the same with time first."""
    xp = array_namespace(result.mean)
    wide = xp.astype(result.mean, series.y.dtype)
    return wide, xp.moveaxis(wide, len(series.batch), 0)


def _moved(series: Series, deviations: FilterResult, reference: Array) -> FilterResult:
    xp = array_namespace(reference, deviations.mean)
    return replace(deviations, mean=reference + xp.astype(deviations.mean, reference.dtype), series=series)


def refined_filter(series: Series, run: Callable[[Series], FilterResult]) -> FilterResult:
    """The filter `run` on deviations from its own means."""
    reference, x = reference_of(series, run(narrow(series)))
    return _moved(series, run(deviation_series(series, x)), reference)


def refined_smoother(
    series: Series, rough: Callable[[Series], FilterResult], run: Callable[[Series], SmootherResult]
) -> SmootherResult:
    """The smoother `run` on deviations from the means of the filter `rough`."""
    reference, x = reference_of(series, rough(narrow(series)))
    result = run(deviation_series(series, x))
    xp = array_namespace(reference, result.mean)
    return SmootherResult(
        reference + xp.astype(result.mean, reference.dtype),
        result.covariance,
        _moved(series, result.filtered, reference),
    )
