"""Filters and smoothers with a diffuse prior: the diffuse steps apart, all others by any method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.array.diffuse_steps import Start, diffuse_gain, diffuse_steps
from ensemble.apps.kalman.array.steps import apply, symmetric
from ensemble.apps.kalman.results import FilterResult, SmootherResult, sum_over_time
from ensemble.apps.kalman.series import Series

__all__ = ["diffuse_filter", "diffuse_smoother"]


def _proper(series: Series, start: Start) -> Series:
    """The series from the last step of `start` on, whose filtered state is its prior."""
    last = len(start.means) - 1
    xp = array_namespace(series.y, start.means[-1], start.covariances[-1])
    parts = {name: series.each(name, slice(last, None)) for name in ("F", "Q", "H", "R", "u", "d", "y")}
    y = parts.pop("y")
    missing = xp.full(tuple(y[:1, ...].shape), float("nan"), dtype=y.dtype)
    y = xp.concat([missing, y[1:, ...]], axis=0)
    m0, P0 = start.means[-1], start.covariances[-1]
    return replace(series, y=y, m0=m0, P0=P0, predict_first=False, diffuse=None, **parts)


def _prepended(series: Series, early: list[Array], late: Array | None, tail: tuple[int, ...]) -> Array:
    """Steps of `early` and those of a result after its first, time after the batch."""
    xp = array_namespace(*early, *([] if late is None else [late]))
    n_batch = len(series.batch)
    first = xp.stack([xp.broadcast_to(a, (*series.batch, *tail)) for a in early], axis=n_batch)
    if late is None or late.shape[n_batch] == 1:
        return first
    return xp.concat([first, late[(*(slice(None),) * n_batch, slice(1, None), ...)]], axis=n_batch)


def _squares(factors: list[Array]) -> list[Array]:
    return [symmetric(G @ G.mT) for G in factors]


def diffuse_filter(series: Series, run: Callable[[Series], FilterResult]) -> FilterResult:
    """The filter of a series with a diffuse prior; `run` filters the steps after the diffuse ones."""
    start = diffuse_steps(series)
    return _joined(series, start, run(_proper(series, start)))


def _joined(series: Series, start: Start, later: FilterResult) -> FilterResult:
    nx = series.F.shape[-1]
    terms = _prepended(series, start.terms, later.log_likelihoods, ())
    return FilterResult(
        mean=_prepended(series, start.means, later.mean, (nx,)),
        covariance=_prepended(series, start.covariances, later.covariance, (nx, nx)),
        log_likelihoods=terms,
        log_likelihood=sum_over_time(array_namespace(terms).moveaxis(terms, len(series.batch), 0)),
        series=series,
        diffuse_covariance=_prepended(series, _squares(start.factors), None, (nx, nx)),
    )


def _undetermined(diffuse: Array, G: Array, whole: Array) -> Array:
    """What multiplies kappa in a smoothed covariance, without rounding; `G` is the filter's factor."""
    xp = array_namespace(diffuse, G, whole)
    small = xp.linalg.diagonal(diffuse) <= xp.finfo(diffuse.dtype).eps * xp.sum(whole * whole, axis=-1)
    small = xp.logical_or(small, xp.all(G == 0.0, axis=-1))
    return xp.where(xp.logical_or(small[..., :, None], small[..., None, :]), 0.0 * diffuse, symmetric(diffuse))


def _with_infinity(P: Array, diffuse: Array) -> Array:
    """`P` with infinite variances of the states that are not determined, and NaN for their covariances."""
    xp = array_namespace(P, diffuse)
    there = xp.linalg.diagonal(diffuse) > 0
    infinity, nan = (xp.asarray(v, dtype=P.dtype) for v in (float("inf"), float("nan")))
    either = xp.logical_or(there[..., :, None], there[..., None, :])
    unknown = xp.where(xp.eye(P.shape[-1], dtype=xp.bool), infinity, nan)
    return xp.where(either, unknown, P)


def diffuse_smoother(series: Series, run: Callable[[Series], SmootherResult]) -> SmootherResult:
    """The smoother of a series with a diffuse prior; `run` smooths the steps after the diffuse ones."""
    start = diffuse_steps(series)
    later = run(_proper(series, start))
    n_batch, nx = len(series.batch), series.F.shape[-1]
    first = (*(slice(None),) * n_batch, 0, ...)
    mean, covariance = later.mean[first], later.covariance[first]
    diffuse = _squares(start.factors[-1:])[0]
    means, covariances, diffuses = [mean], [_with_infinity(covariance, diffuse)], [diffuse]
    for k in range(len(start.means) - 2, -1, -1):
        F, Q, u = (series.at(name, k + 1) for name in ("F", "Q", "u"))
        m, P = start.means[k], start.covariances[k]
        found = diffuse_gain(F, Q, P, start.factors[k], start.wholes[k])
        E = found.gain
        mean = m + apply(E, mean - apply(F, m) - u)
        covariance = symmetric(found.P + E @ covariance @ E.mT)
        diffuse = _undetermined(found.G @ found.G.mT + E @ diffuse @ E.mT, start.factors[k], start.wholes[k])
        means.append(mean)
        covariances.append(_with_infinity(covariance, diffuse))
        diffuses.append(diffuse)
    return SmootherResult(
        mean=_prepended(series, means[::-1], later.mean, (nx,)),
        covariance=_prepended(series, covariances[::-1], later.covariance, (nx, nx)),
        filtered=_joined(series, start, later.filtered),
        diffuse_covariance=_prepended(series, diffuses[::-1], None, (nx, nx)),
    )
