"""The log-density of observations under a model, without the states' means and covariances."""

from __future__ import annotations

from typing import Any

from ensemble._backend import array_namespace
from ensemble._check import integer, one_of, require
from ensemble._kernels.kalman.scan import Sengupta, check_scan
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Values
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.array.exact_rank import marked_without_density
from ensemble.apps.kalman.devices.compiled import compiled_backend, compiled_terms, from_series, n_samples_of
from ensemble.apps.kalman.filters import METHODS, check_form, check_scannable, filtered
from ensemble.apps.kalman.model import LinearGaussianModel
from ensemble.apps.kalman.results import sum_over_time
from ensemble.apps.kalman.series import Series

__all__ = ["log_likelihood", "log_likelihood_of"]


@explains_calls("log_likelihood")
def log_likelihood(
    model: LinearGaussianModel,
    y: Any,
    *,
    burn: int = 0,
    method: str = "auto",
    scan: str | Sengupta = "chunked",
    form: str = "covariance",
    mask: Values | None = None,
) -> Array:
    """Compute the logarithm of the density of the observations under a model.

    That is `FilterResult.log_likelihood` of `kalman_filter`, to the bit. The recursion on the CPU writes no means and
    covariances, so that it needs less memory and time. An optimiser makes its model once and calls
    ``log_likelihood(model.replace(Q=...), y)``, see `LinearGaussianModel.replace`.

    Parameters
    ----------
    model : LinearGaussianModel
    y : array or Ensemble, shape (*batch, T, ny)
        Observations, NaN where missing.
    burn : int
        How many of the first steps' terms to leave out, where a vague prior represents ignorance.
    method, scan, form, mask
        As `kalman_filter`.

    Returns
    -------
    array or Ensemble, shape batch
        In float64 or the arrays' dtype if that is wider. Not finite where an innovation covariance is singular.

    Raises
    ------
    TypeError, ValueError
        As `kalman_filter`, and if `burn` leaves no step.

    Examples
    --------
    >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> round(float(log_likelihood(model, [[3.0], [float("nan")], [4.0]])), 4)
    -5.0823
    """
    return log_likelihood_of("log_likelihood", model, y, burn, mask, method, scan, form)


def log_likelihood_of(
    function: str, model: LinearGaussianModel, y: Any, burn: int = 0, mask: Values | None = None, method: str = "auto",
    scan: str | Sengupta = "chunked", form: str = "covariance",
) -> Array:  # fmt: skip
    """What `log_likelihood` gives; errors name `function`."""
    one_of(method, METHODS, function, "method")
    check_scan(scan, function)
    check_form(form, method, function)
    burn = integer(burn, function, "burn", minimum=0)
    series = marked_without_density(aligned(model, y, mask, function, diffuse=True))
    require(burn < series.n_steps, function, "burn", "leave one step or more", burn)
    if method == "scan":
        check_scannable(series, function)
    return log_density(series, burn, method, scan, form)


def log_density(series: Series, burn: int, method: str, scan: str | Sengupta, form: str) -> Array:
    """The sum over time of the terms of a series, shape batch."""
    if form == "covariance" and series.diffuse is None and compiled_backend(series, method) == "numba":
        n_samples = n_samples_of(series)
        return from_series(series, sum_over_time(compiled_terms(series, n_samples)[burn:, ...]), n_samples)
    result = filtered(series, method, scan, form)
    if burn == 0:
        return result.log_likelihood
    terms = result.log_likelihoods
    return sum_over_time(array_namespace(terms).moveaxis(terms, -1, 0)[burn:, ...])
