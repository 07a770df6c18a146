"""Filters and smoothers with a diffuse prior: the diffuse steps apart, all others by any method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._typing import Array
from ensemble.apps.kalman.array.diffuse_steps import DiffuseState, Start, diffuse_steps, wide
from ensemble.apps.kalman.array.steps import apply, product, symmetric
from ensemble.apps.kalman.results import FilterResult, SmootherResult, sum_over_time
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = ["diffuse_filter", "diffuse_smoother", "proper_series"]

Result = TypeVar("Result")


def _proper(series: Series, start: Start) -> Series:
    """The series from the last step of `start` on, whose filtered state is its prior."""
    last, end = len(start.states) - 1, start.states[-1]
    parts = {name: series.each(name, slice(last, None)) for name in ("F", "Q", "H", "R", "u", "d", "y")}
    m0, P0, root = (_narrow(a, series) for a in (end.m, end.P, end.U))
    y = parts.pop("y")
    xp = array_namespace(y, m0)
    missing = xp.full(tuple(y[:1, ...].shape), float("nan"), dtype=y.dtype)
    y = xp.concat([missing, y[1:, ...]], axis=0)
    return replace(series, y=y, m0=m0, P0=P0, root=root, predict_first=False, diffuse=None, **parts)


def _narrow(a: Array, series: Series) -> Array:
    """Convert what the diffuse steps computed, in a wider type, to the type of the series."""
    return array_namespace(a).astype(a, series.F.dtype, copy=False)


def proper_series(series: Series) -> Series:
    """The series from the last diffuse step of all on; `series` itself where nothing is diffuse."""
    return series if series.diffuse is None else _proper(series, diffuse_steps(series))


def _prepended(series: Series, early: list[Array], late: Array | None, tail: tuple[int, ...]) -> Array:
    """Steps of `early` and those of a result after its first, time after the batch."""
    xp = array_namespace(*early, *([] if late is None else [late]))
    n_batch = len(series.batch)
    first = xp.stack([xp.broadcast_to(a, (*series.batch, *tail)) for a in early], axis=n_batch)
    if late is None or late.shape[n_batch] == 1:
        return first
    return xp.concat([first, late[(*(slice(None),) * n_batch, slice(1, None), ...)]], axis=n_batch)


def diffuse_filter(series: Series, run: Callable[[Series], FilterResult]) -> FilterResult:
    """The filter of a series with a diffuse prior; `run` filters the steps after the diffuse ones."""
    start = diffuse_steps(series)

    def whole(part: Start) -> FilterResult:
        return _joined(series, part, run(_proper(series, part)))

    return _each_from_its_end(series, start, whole, _chosen_filter)


def _each_from_its_end(
    series: Series, start: Start, whole: Callable[[Start], Result], choose: Callable[[Array, Result, Result], Result]
) -> Result:
    """The result of each series from the steps in which it is diffuse itself: the bits that it has alone."""
    ends = start.ends(series.batch)
    values = to_numpy(ends.samples if isinstance(ends, Ensemble) else ends)
    last, *others = np.unique(values)[::-1].tolist()
    result = whole(start.until(last))
    for end in others:
        result = choose(ends == end, whole(start.until(end)), result)
    return result


def _chosen_filter(mask: Array, a: FilterResult, b: FilterResult) -> FilterResult:
    """The result a for the series in `mask`, which are diffuse for fewer steps than those of b."""
    names = (("mean", 2), ("covariance", 3), ("log_likelihoods", 1), ("log_likelihood", 0))
    parts = {name: _select(mask, getattr(a, name), getattr(b, name), tail) for name, tail in names}
    assert a.diffuse_covariance is not None and b.diffuse_covariance is not None
    parts["diffuse_covariance"] = _select(
        mask, _padded(a.diffuse_covariance, b.diffuse_covariance), b.diffuse_covariance, 3
    )
    none = array_namespace(mask).zeros_like(mask)
    for name in ("by_roots", "by_recursion"):
        ours, others = getattr(a, name), getattr(b, name)
        if ours is not None or others is not None:
            parts[name] = _select(mask, none if ours is None else ours, none if others is None else others, 0)
    return replace(b, **parts)


def _chosen_smoother(mask: Array, a: SmootherResult, b: SmootherResult) -> SmootherResult:
    assert a.diffuse_covariance is not None and b.diffuse_covariance is not None
    return SmootherResult(
        mean=_select(mask, a.mean, b.mean, 2),
        covariance=_select(mask, a.covariance, b.covariance, 3),
        filtered=_chosen_filter(mask, a.filtered, b.filtered),
        diffuse_covariance=_select(mask, _padded(a.diffuse_covariance, b.diffuse_covariance), b.diffuse_covariance, 3),
    )


def _padded(short: Array, long: Array) -> Array:
    """`short` with steps of zeros to the length of `long`."""
    xp = array_namespace(short, long)
    n = long.shape[-3] - short.shape[-3]
    shape = (*short.shape[:-3], n, *short.shape[-2:])
    return xp.concat([short, xp.zeros(shape, dtype=short.dtype)], axis=-3) if n else short


def _select(mask: Array, a: Array, b: Array, tail: int) -> Array:
    xp = array_namespace(mask, a, b)
    return xp.where(xp.reshape(mask, (*mask.shape, *(1,) * tail)), a, b)


def _joined(series: Series, start: Start, later: FilterResult) -> FilterResult:
    nx = series.F.shape[-1]

    def early(parts: list[Array]) -> list[Array]:
        return [_narrow(a, series) for a in parts]

    terms = _prepended(series, early(start.terms), later.log_likelihoods, ())
    return FilterResult(
        by_roots=later.by_roots,
        by_recursion=later.by_recursion,
        form=later.form,
        mean=_prepended(series, early([state.m for state in start.states]), later.mean, (nx,)),
        covariance=_prepended(series, early([state.P for state in start.states]), later.covariance, (nx, nx)),
        log_likelihoods=terms,
        log_likelihood=sum_over_time(array_namespace(terms).moveaxis(terms, len(series.batch), 0)),
        series=series,
        diffuse_covariance=_prepended(series, early([s.diffuse_covariance for s in start.states]), None, (nx, nx)),
    )


def _undetermined(E: Array, left: Array, factor: Array, state: DiffuseState) -> Array:
    """A factor of what multiplies kappa in a smoothed covariance, without rounding.

    `factor` is that of the next step, `left` what the next state leaves free of this one, `state` the filtered one.
    """
    xp = array_namespace(E, left, factor)
    moved = product(E, factor)
    sizes = product(xp.abs(E), xp.sqrt(xp.sum(factor * factor, axis=-1))[..., None])[..., 0]
    small = xp.sqrt(xp.sum(moved * moved, axis=-1)) <= float(xp.finfo(E.dtype).eps) ** 0.5 * sizes
    small = xp.logical_or(small, xp.all(state.B == 0.0, axis=-1))
    return xp.concat([left, xp.where(small[..., None], 0.0 * moved, moved)], axis=-1)


def _with_infinity(P: Array, factor: Array) -> Array:
    """`P` with infinite variances of the states that are not determined, and NaN for their covariances."""
    xp = array_namespace(P, factor)
    there = xp.any(factor != 0, axis=-1)
    infinity, nan = (xp.asarray(v, dtype=P.dtype) for v in (float("inf"), float("nan")))
    either = xp.logical_or(there[..., :, None], there[..., None, :])
    unknown = xp.where(xp.eye(P.shape[-1], dtype=xp.bool), infinity, nan)
    return xp.where(either, unknown, P)


def diffuse_smoother(series: Series, run: Callable[[Series], SmootherResult]) -> SmootherResult:
    """The smoother of a series with a diffuse prior; `run` smooths the steps after the diffuse ones."""
    return _each_from_its_end(
        series,
        diffuse_steps(series),
        lambda part: _smoothed(series, part, run(_proper(series, part))),
        _chosen_smoother,
    )


def _smoothed(series: Series, start: Start, later: SmootherResult) -> SmootherResult:
    """The smoother's result with the diffuse steps, from that of the steps after them."""
    n_batch, nx = len(series.batch), series.F.shape[-1]
    first = (*(slice(None),) * n_batch, 0, ...)
    mean, covariance = (wide(a[first]) for a in (later.mean, later.covariance))
    factor = start.states[-1].G
    parts: tuple[list[Array], ...] = ([mean], [_with_infinity(covariance, factor)], [product(factor, factor.mT)])
    for k in range(len(start.states) - 2, -1, -1):
        F, Q, u = (wide(series.at(name, k + 1)) for name in ("F", "Q", "u"))
        state = start.states[k]
        found = state.smoother_gain(F, Q)
        E = found.gain
        mean = state.m + apply(E, mean - apply(F, state.m, product) - u, product)
        covariance = found.state.P + product(product(E, covariance), E.mT)
        covariance = symmetric(covariance)
        factor = _undetermined(E, found.state.G, factor, state)
        for kept, a in zip(parts, (mean, _with_infinity(covariance, factor), product(factor, factor.mT)), strict=True):
            kept.append(a)
    means, covariances, diffuses = ([_narrow(a, series) for a in kept[::-1]] for kept in parts)
    return SmootherResult(
        mean=_prepended(series, means, later.mean, (nx,)),
        covariance=_prepended(series, covariances, later.covariance, (nx, nx)),
        filtered=_joined(series, start, later.filtered),
        diffuse_covariance=_prepended(series, diffuses, None, (nx, nx)),
    )
