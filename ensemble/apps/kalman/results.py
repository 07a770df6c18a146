"""What filters and smoothers return."""

from __future__ import annotations

from dataclasses import dataclass, field

from ensemble._backend import array_namespace
from ensemble._kernels.sparse import block_sums
from ensemble._typing import Array
from ensemble.apps.kalman.model import Series

__all__ = ["FilterResult", "SmootherResult", "total"]


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
    """

    mean: Array
    covariance: Array
    log_likelihoods: Array
    log_likelihood: Array
    series: Series = field(repr=False)


@dataclass(frozen=True)
class SmootherResult:
    """The state at each step given all observations.

    Attributes
    ----------
    mean : array or Ensemble, shape (*batch, T, nx)
    covariance : array or Ensemble, shape (*batch, T, nx, nx)
    log_likelihoods, log_likelihood
        Those of the filter, see `FilterResult`.
    filtered : FilterResult
    """

    mean: Array
    covariance: Array
    filtered: FilterResult = field(repr=False)

    @property
    def log_likelihoods(self) -> Array:
        """``log p(y[k] | y[0], ..., y[k-1])`` of each step."""
        return self.filtered.log_likelihoods

    @property
    def log_likelihood(self) -> Array:
        """The log-density of all observations."""
        return self.filtered.log_likelihood


def total(terms: Array) -> Array:
    """The sum over time, in blocks of fixed length and at least float64."""
    xp = array_namespace(terms)
    wide = xp.astype(terms, xp.float64, copy=False)
    columns = 1
    for n in terms.shape[1:]:
        columns *= n
    return xp.reshape(block_sums(xp.reshape(wide, (terms.shape[0], columns))), tuple(terms.shape[1:]))
