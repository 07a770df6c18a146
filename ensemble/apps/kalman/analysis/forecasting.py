"""Forecasts of states and observations, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._check import finite, integer, kind_of, message, require
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Values
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.array.square_root import last_factor, semidefinite_factor, triangle
from ensemble.apps.kalman.array.steps import apply, observed_covariance, symmetric
from ensemble.apps.kalman.diffuse import proper_series
from ensemble.apps.kalman.filtering import kalman_filter
from ensemble.apps.kalman.filters import any_true, filtered
from ensemble.apps.kalman.interop import tables
from ensemble.apps.kalman.interop.arguments import real_array
from ensemble.apps.kalman.model import LinearGaussianModel
from ensemble.apps.kalman.results import FilterResult, SmootherResult
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

if TYPE_CHECKING:
    import pandas

__all__ = ["ForecastResult", "forecast"]

VARYING = {"F": 2, "Q": 2, "H": 2, "R": 2, "u": 1, "d": 1}
"""Parts that may vary in time, and their axes at a step."""


@dataclass(frozen=True)
class ForecastResult:
    """Distributions of the states and observations that follow the last one.

    Attributes
    ----------
    mean : array or Ensemble, shape (*batch, horizon, ny)
        Means of the observations.
    covariance : array or Ensemble, shape (*batch, horizon, ny, ny)
        Covariances of the observations, their noise included.
    state_mean : array or Ensemble, shape (*batch, horizon, nx)
    state_covariance : array or Ensemble, shape (*batch, horizon, nx, nx)
    level : float
        Probability of the intervals.
    """

    mean: Array
    covariance: Array
    state_mean: Array
    state_covariance: Array
    level: float
    index: Any = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"ForecastResult(mean {tuple(self.mean.shape)}, level {self.level:g})"

    @property
    def lower(self) -> Array:
        """Lower ends of the intervals of each observation, shape (*batch, horizon, ny)."""
        return self.interval()[0]

    @property
    def upper(self) -> Array:
        """Upper ends of the intervals of each observation, shape (*batch, horizon, ny)."""
        return self.interval()[1]

    def interval(self, level: float | None = None) -> tuple[Array, Array]:
        """Lower and upper ends of central intervals of the observations, each taken alone, at a level."""
        return _interval(self.mean, self.covariance, self.level if level is None else _level(level, "interval"))

    def state_interval(self, level: float | None = None) -> tuple[Array, Array]:
        """Lower and upper ends of central intervals of the states, each taken alone, at a level."""
        chosen = self.level if level is None else _level(level, "state_interval")
        return _interval(self.state_mean, self.state_covariance, chosen)

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame of the means, lower and upper ends of observations, one row per step.

        The index continues that of the observations, if those were a Series or DataFrame with a frequency.
        """
        tables.check_one_series(self, self.mean)
        columns = {"mean": self.mean, "lower": self.lower, "upper": self.upper}
        return tables.table({name: np.asarray(a) for name, a in columns.items()}, self.index)


def _level(level: Any, function: str) -> float:
    number = float(finite(level, function, "level"))
    require(0.0 < number < 1.0, function, "level", "be between 0 and 1", number, "E.g. 0.95.")
    return number


def _interval(mean: Array, covariance: Array, level: float) -> tuple[Array, Array]:
    xp = array_namespace(mean, covariance)
    width = NormalDist().inv_cdf(0.5 * (1.0 + level)) * xp.sqrt(xp.linalg.diagonal(covariance))
    return mean - width, mean + width


@explains_calls("forecast")
def forecast(
    model: LinearGaussianModel,
    y: Any,
    horizon: int,
    *,
    level: float = 0.95,
    future: Mapping[str, Any] | None = None,
    mask: Values | None = None,
) -> ForecastResult:
    """Compute the distributions of the next states and observations.

    Parameters
    ----------
    model : LinearGaussianModel
    y : array or Ensemble of shape (*batch, T, ny), FilterResult or SmootherResult
        Observations, NaN where missing, which are filtered first; or what a filter or smoother of `model` has returned.
    horizon : int
        The number of steps after the last observation.
    level : float between 0 and 1
        Probability of the intervals.
    future : mapping, optional
        Parts F, Q, H, R, u, d of the steps to come, with an axis of time of length `horizon`, or none for constants.
        Needed for the parts that vary in time.
    mask : bool array or Ensemble, shape of `y` or of `y` without its last axis, optional
        Entries of `y` to treat as missing.

    Returns
    -------
    ForecastResult
        Ensembles where the model or `y` has any: sample i is the forecast of sample i alone.

    Raises
    ------
    TypeError, ValueError
        As `kalman_filter`, and if a part that varies in time is not given for the future, or the observations do not
        determine all diffuse states.

    Examples
    --------
    >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> ahead = forecast(model, [[3.0], [float("nan")], [4.0]], 2)
    >>> ahead.mean[:, 0].round(4).tolist(), ahead.upper[:, 0].round(4).tolist()
    ([3.4545, 3.4545], [6.6913, 7.2385])
    """
    horizon = integer(horizon, "forecast", "horizon", minimum=1)
    level = _level(level, "forecast")
    result = _filtered(model, y, mask)
    series, n_batch = result.series, len(result.series.batch)
    if result.diffuse_covariance is not None and result.diffuse_covariance.shape[n_batch] == series.n_steps:
        unknown = any_true(result.diffuse_covariance[..., -1, :, :] != 0.0)
        require(not unknown, "forecast", "y", "determine all diffuse states", "too few observations")
    later, last = _later_model(model, result, future or {}, horizon), series.y[-1:, ...]
    xp = array_namespace(last, series.y)
    gaps = xp.full((horizon, *last.shape[1:]), float("nan"), dtype=last.dtype)
    seen = xp.moveaxis(xp.concat([last, gaps], axis=0), 0, n_batch)
    ahead = aligned(later, seen, None, "forecast")
    run = filtered(_unobserved(ahead), "sequential", "chunked")
    mean, P = (xp.moveaxis(a, n_batch, 0)[1:, ...] for a in (run.mean, run.covariance))
    H, d = (ahead.each(name, slice(1, None)) for name in "Hd")

    def time_last(a: Array) -> Array:
        return array_namespace(a).moveaxis(a, 0, n_batch)

    return ForecastResult(
        mean=time_last(apply(H, mean) + d),
        covariance=time_last(_observed(result.series, ahead, P)),
        state_mean=time_last(mean),
        state_covariance=time_last(P),
        level=level,
        index=tables.continued(series.index, horizon),
    )


def _observed(before: Series, ahead: Series, P: Array) -> Array:
    """Covariances of the observations of `ahead` after its first step; where they cancel, from factors."""
    H, R = (ahead.each(name, slice(1, None)) for name in "HR")
    found = observed_covariance(H, R, P)
    xp = array_namespace(found)
    lost = xp.isnan(found)
    if not any_true(lost):
        return found
    U, steps = last_factor(proper_series(before)), []
    for k in range(1, ahead.n_steps):
        U = triangle(ahead.at("F", k) @ U, semidefinite_factor(ahead.at("Q", k)))
        HU = ahead.at("H", k) @ U
        steps.append(xp.broadcast_to(symmetric(HU @ HU.mT + ahead.at("R", k)), found.shape[1:]))
    return xp.where(lost, xp.stack(steps, axis=0), found)


def _filtered(model: LinearGaussianModel, y: Any, mask: Any) -> FilterResult:
    if not isinstance(model, LinearGaussianModel):
        raise TypeError(message("forecast", "model", "be a LinearGaussianModel", kind_of(model)))
    if not isinstance(y, (FilterResult, SmootherResult)):
        return kalman_filter(model, y, mask=mask)
    require(mask is None, "forecast", "mask", "be None for a result", "a mask", "It belongs to the filter's call.")
    result = y.filtered if isinstance(y, SmootherResult) else y
    sizes = result.mean.shape[-1], result.series.y.shape[-1]
    expected = f"be of a model with nx = {model.nx} and ny = {model.ny}"
    require(sizes == (model.nx, model.ny), "forecast", "y", expected, f"nx = {sizes[0]} and ny = {sizes[1]}")
    return result


def _later_model(
    model: LinearGaussianModel, result: FilterResult, future: Mapping[str, Any], horizon: int
) -> LinearGaussianModel:
    """The model of the last step seen and of those to come, with the last filtered state at its first step."""
    unknown = sorted(set(future) - set(VARYING))
    require(not unknown, "forecast", "future", f"hold parts of {', '.join(VARYING)}", ", ".join(map(str, unknown)))
    parts = {}
    for name, tail in VARYING.items():
        now, later = getattr(model, name), future.get(name)
        varies = len(now.shape) > tail and now.shape[-tail - 1] > 1
        advice = f"The model has {model.n_steps} steps of it."
        require(not varies or later is not None, "forecast", "future", f"hold {name}, which varies in time",
                f"{sorted(future)}", advice)  # fmt: skip
        parts[name] = now if later is None else _longer(now, real_array(later, name, "forecast"), name, tail, horizon)
    m, P = result.mean[..., -1, :], result.covariance[..., -1, :, :]
    m = array_namespace(m, P).astype(m, P.dtype, copy=False)
    S = model.S if model.S is None or not _varies(model.S, 2) else model.S[..., -1:, :, :]
    later_model = LinearGaussianModel(**parts, m0=m, P0=0.0 * P, prior_at="first_observation", S=S)
    later_model.P0 = P  # a filter's covariance, which rounding may have made slightly indefinite
    return later_model


def _varies(a: Array, tail: int) -> bool:
    return len(a.shape) > tail and a.shape[-tail - 1] > 1


def _longer(now: Array, later: Array, name: str, tail: int, horizon: int) -> Array:
    """A part's last entry, and those to come after it."""
    same = tuple(later.shape[len(later.shape) - tail :]) == tuple(now.shape[len(now.shape) - tail :])
    steps = later.shape[-tail - 1] if len(later.shape) > tail else 1
    shape = tuple(now.shape[len(now.shape) - tail :])
    advice = f"Leave the axis of time away for a constant {name}."
    fits = same and steps in (1, horizon)
    requirement = f"hold {name} of shape (..., {', '.join(map(str, (horizon, *shape)))})"
    require(fits, "forecast", "future", requirement, f"shape {tuple(later.shape)}", advice)
    xp = array_namespace(*(a for a in (now, later) if isinstance(a, Ensemble)), now)
    now, later = (xp.asarray(a if len(a.shape) > tail else a[None, ...]) for a in (now, later))
    now = now[(..., slice(-1, None), *(slice(None),) * tail)]
    lead = np.broadcast_shapes(tuple(now.shape[: -tail - 1]), tuple(later.shape[: -tail - 1]))
    later = xp.broadcast_to(later, (*lead, horizon, *shape))
    return xp.concat([xp.broadcast_to(now, (*lead, 1, *shape)), later], axis=len(lead))


def _unobserved(series: Any) -> Any:
    """The series without its first observation, which the state at its first step includes already."""
    return replace(series, y=series.y + float("nan"))
