"""What filters and smoothers return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._check import message, samples_text
from ensemble._kernels.kalman.sums import sum_steps
from ensemble._typing import Array
from ensemble.apps.kalman.array import moments
from ensemble.apps.kalman.interop import tables
from ensemble.apps.kalman.series import Series
from ensemble.krylov import SolveError
from ensemble.scalar import Ensemble

if TYPE_CHECKING:
    import pandas

__all__ = ["FilterResult", "SmootherResult", "sum_over_time", "text_of_result"]


@dataclass(frozen=True)
class FilterResult:
    """The state at each step given the observations up to it.

    Attributes
    ----------
    mean : array or Ensemble, shape (*batch, T, nx)
    covariance : array or Ensemble, shape (*batch, T, nx, nx)
        A read-only view, or an Ensemble of one sample, where series differ in their observations and means only.
    log_likelihoods : array or Ensemble, shape (*batch, T)
        ``log p(y[k] | y[0], ..., y[k-1])`` of each step; 0 where all of ``y[k]`` is missing.
    log_likelihood : array or Ensemble, shape batch
        Their sum over time, in float64 or the arrays' dtype if that is wider.
    diffuse_covariance : array or Ensemble, shape (*batch, n_diffuse_steps, nx, nx), or None
        What multiplies kappa in the covariance of the first steps, where the model has a diffuse prior; `covariance` is
        the finite part. After these steps it is zero. None for models without diffuse states.
    by_roots : bool array or Ensemble, shape batch, or None
        Which series were filtered on square roots of covariances, because the covariances lost too many digits; None
        where none was.
    by_recursion : bool array or Ensemble, shape batch, or None
        Which series of a scan took the recursion, because ``H Q H' + R`` is singular; None where none did.
    form : str
        Which form gave the numbers of the other series, such as "compiled recursion or scan (numba)".
    """

    mean: Array
    covariance: Array
    log_likelihoods: Array
    log_likelihood: Array
    series: Series = field(repr=False)
    diffuse_covariance: Array | None = field(default=None, repr=False)
    by_roots: Array | None = field(default=None, repr=False)
    by_recursion: Array | None = field(default=None, repr=False)
    form: str = field(default="", repr=False)

    def __repr__(self) -> str:
        return text_of_result(self)

    @property
    def failed(self) -> Array:
        """True for each series without a finite log-likelihood, as a singular innovation covariance leaves it."""
        xp = array_namespace(self.log_likelihood)
        return xp.logical_not(xp.isfinite(self.log_likelihood))

    @property
    def predicted_mean(self) -> Array:
        """Means of the states given the observations before each step, shape (*batch, T, nx)."""
        return self._time_last(self._predicted()[0])

    @property
    def predicted_covariance(self) -> Array:
        """Their covariances, shape (*batch, T, nx, nx); of a diffuse prior the finite part."""
        return self._time_last(self._predicted()[1])

    @property
    def predicted_diffuse_covariance(self) -> Array | None:
        """What multiplies kappa in the predicted covariances of the diffuse steps; None without a diffuse prior."""
        if self.diffuse_covariance is None:
            return None
        return self._time_last(moments.predicted_diffuse(self.series, self._time_first(self.diffuse_covariance)))

    @property
    def innovation(self) -> Array:
        """Observations minus their predictions, shape (*batch, T, ny); NaN where missing."""
        return self._time_last(moments.innovations(self.series, self._predicted()[0]))

    @property
    def innovation_covariance(self) -> Array:
        """``H P H' + R`` of the predicted covariances, shape (*batch, T, ny, ny), of entries that are missing, too.

        For a diffuse prior it is the finite part. NaN for entries whose terms cancel, see `by_roots`.
        """
        return self._time_last(moments.innovation_covariances(self.series, self._predicted()[1]))

    @property
    def gain(self) -> Array:
        """Kalman's gains, shape (*batch, T, nx, ny): ``mean = predicted_mean + gain innovation``.

        Columns of missing entries are zero; for a diffuse prior it is the limit.
        """
        return self._time_last(moments.gains(self.series, self._predicted()[1]))

    def _predicted(self) -> tuple[Array, Array]:
        return moments.predicted(self.series, self._time_first(self.mean), self._time_first(self.covariance))

    def _time_first(self, a: Array) -> Array:
        return array_namespace(a).moveaxis(a, len(self.series.batch), 0)

    def _time_last(self, a: Array) -> Array:
        """`a`, which has time first, with time after the batch."""
        return array_namespace(a).moveaxis(a, 0, len(self.series.batch))

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame with the index of the observations, see `SmootherResult.to_pandas`."""
        return tables.states(self, self.series.index)

    def raise_if_failed(self) -> FilterResult:
        """This result, or `SolveError` naming the series and samples that failed, and the first step."""
        terms = self.log_likelihoods
        where = failures(array_namespace(terms).isfinite(terms))
        if where is None:
            return self
        y = self.series.y.samples if isinstance(self.series.y, Ensemble) else self.series.y
        if np.isinf(to_numpy(y)).any():
            seen = f"infinity in it, from {where}"
            raise SolveError(message("kalman_filter", "y", "be finite, or NaN where missing", seen, "Missing is NaN."))
        raise SolveError(
            f"kalman_filter: the innovation covariance is not positive definite from {where}; observations without "
            "noise of what is known exactly have no density."
        )


def failures(good: Array, first: bool = True) -> str | None:
    """The first or last step of those not `good`, of shape (*batch, T), with the series and samples that have any."""
    plain = not isinstance(good, Ensemble)
    bad = ~to_numpy(good[..., None] if plain else good.samples)  # (*batch, T, samples)
    if not bad.any():
        return None
    n, steps = bad.shape[-1], np.flatnonzero(bad.any(axis=(*range(bad.ndim - 2), -1)))
    step = int(steps[0] if first else steps[-1])
    where = [] if plain else [samples_text(np.flatnonzero(bad.reshape(-1, n).any(axis=0)), of=n)]
    if bad.ndim > 2:
        series = np.argwhere(bad.any(axis=(-1, -2)))
        named = ", ".join(str(tuple(map(int, index))) for index in series[:6])
        where.insert(0, f"series {named}" + (f", ... ({len(series)} in all)" if len(series) > 6 else ""))
    return f"step {step} on{' (' + '; '.join(where) + ')' if where else ''}"


@dataclass(frozen=True)
class SmootherResult:
    """The state at each step given all observations.

    Attributes
    ----------
    mean : array or Ensemble, shape (*batch, T, nx)
    covariance : array or Ensemble, shape (*batch, T, nx, nx)
        A read-only view, or an Ensemble of one sample, where series differ in their observations and means only.
    log_likelihoods, log_likelihood
        Those of the filter, see `FilterResult`.
    filtered : FilterResult
        Its `form`, `by_roots` and `by_recursion` say how the numbers came about.
    diffuse_covariance : array or Ensemble, shape (*batch, n_diffuse_steps, nx, nx), or None
        As that of `FilterResult`: not zero where all observations leave a diffuse direction undetermined. There
        `covariance` has infinite variances, and NaN beside them.
    """

    mean: Array
    covariance: Array
    filtered: FilterResult = field(repr=False)
    diffuse_covariance: Array | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return text_of_result(self)

    @property
    def log_likelihoods(self) -> Array:
        """``log p(y[k] | y[0], ..., y[k-1])`` of each step."""
        return self.filtered.log_likelihoods

    @property
    def log_likelihood(self) -> Array:
        """The log-density of all observations."""
        return self.filtered.log_likelihood

    @property
    def failed(self) -> Array:
        """True for each series whose filter failed, see `FilterResult`, or whose smoother did.

        A smoother failed where a mean or variance is not finite, or where a variance is negative by more than rounding:
        by more than ``sqrt(eps)`` of the largest variance that the same component has before or after an observation,
        or of ``eps`` of all components.
        """
        xp = array_namespace(self.mean)
        return xp.logical_or(self.filtered.failed, xp.logical_not(xp.all(self._is_sound(), axis=-1)))

    def _is_sound(self) -> Array:
        """Whether mean and variances of a step are what they can be, shape (*batch, T)."""
        xp = array_namespace(self.mean, self.covariance)
        variance, before = (xp.linalg.diagonal(a) for a in (self.covariance, self.filtered.covariance))
        eps = float(xp.finfo(variance.dtype).eps)
        size = self._largest_variances(xp.max(xp.abs(before), axis=-2, keepdims=True))
        least = -(eps**0.5) * xp.maximum(size, eps * xp.max(size, axis=-1, keepdims=True))
        finite = xp.isfinite(variance)
        if self.diffuse_covariance is not None:  # what all observations leave undetermined
            finite = xp.logical_or(finite, variance == float("inf"))
        return xp.all(xp.logical_and(xp.logical_and(xp.isfinite(self.mean), finite), variance >= least), axis=-1)

    def _largest_variances(self, filtered: Array) -> Array:
        """At least the variances of the states before any observation, from the largest filtered ones.

        What is left of a state that is seen exactly is rounding: it is measured by what it was before.
        """
        series = self.filtered.series
        xp = array_namespace(filtered, series.F, series.Q, series.P0)
        F, Q = xp.max(xp.abs(series.F), axis=0), xp.max(xp.abs(xp.linalg.diagonal(series.Q)), axis=0)
        start = xp.abs(xp.linalg.diagonal(series.P0))[..., None, :]
        deviation = xp.sqrt(xp.where(start > filtered, start, filtered))
        ahead = xp.sum(F[..., None, :, :] * deviation[..., None, :], axis=-1) ** 2 + Q[..., None, :]
        return xp.maximum(ahead, deviation**2)

    @property
    def lag_one_covariance(self) -> Array:
        """``cov(x[k], x[k+1] | y)`` for k from 0 to T - 2, shape (*batch, T - 1, nx, nx).

        NaN where it has less than six digits, as where predicted covariances are nearly singular after a wide prior.
        """
        filtered = self.filtered
        first = filtered._time_first
        found = moments.lag_one_covariances(
            filtered.series, first(filtered.mean), first(filtered.covariance), first(self.covariance)
        )
        return filtered._time_last(found)

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame of means, standard deviations and log-likelihoods, one row per step.

        Returns
        -------
        pandas.DataFrame
            With the index of the observations where these were a Series or DataFrame. Columns are pairs: ("mean", i)
            and ("deviation", i) for each state i, and ("log_likelihood", "").

        Raises
        ------
        ImportError
            If pandas is not installed.
        ValueError
            If the result holds several series or an Ensemble.
        """
        return tables.states(self, self.filtered.series.index)

    def raise_if_failed(self) -> SmootherResult:
        """This result, or `SolveError` as `FilterResult.raise_if_failed` has it, or for the smoother.

        A smoother runs back: the step that is named is the last of those that failed.
        """
        self.filtered.raise_if_failed()
        where = failures(self._is_sound(), first=False)
        if where is None:
            return self
        raise SolveError(
            f"rts_smoother: means or variances are not finite, or variances are negative, from {where} back; check the "
            "covariances of the model, or use float64."
        )


def text_of_result(result: Any) -> str:
    """Describe a result in a line: its name, the shape of its means, and its likelihood."""
    likelihood, mean = result.log_likelihood, result.mean
    samples = f", n_samples={mean.n_samples}" if isinstance(mean, Ensemble) else ""
    if likelihood.ndim:
        text = f"of shape {tuple(likelihood.shape)}"
    else:
        text = f"{likelihood if isinstance(likelihood, Ensemble) else float(likelihood):.6g}"
    return f"{type(result).__name__}(mean {tuple(mean.shape)}{samples}, log_likelihood {text})"


def sum_over_time(terms: Array) -> Array:
    """The sum over time, in blocks of fixed length and at least float64."""
    if type(terms) is np.ndarray and terms.ndim == 2 and terms.dtype == np.float64:  # the usual case
        return np.asarray(sum_steps(terms))
    xp = array_namespace(terms)
    wide = xp.astype(terms, xp.float64, copy=False)
    columns = 1
    for n in terms.shape[1:]:
        columns *= n
    return xp.reshape(sum_steps(xp.reshape(wide, (terms.shape[0], columns))), tuple(terms.shape[1:]))
