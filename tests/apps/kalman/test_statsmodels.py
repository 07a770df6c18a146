"""Likelihoods, filtered and smoothed states are those of another library, on models and data that come with it."""

import numpy as np
import pytest

from ensemble.apps.kalman import LinearGaussianModel, kalman_filter, rts_smoother, two_filter_smoother
from tests.apps.kalman.digits import in_many_digits
from tests.apps.kalman.models import close
from tests.apps.kalman.statsmodels_models import MODELS, at_start, observations

WIDE = {
    "local linear trend": 1e-8,
    "seasonal": 1e-8,
    "monthly seasonal": 1e-8,
    "varying regression": 1e-9,
    "diffuse trend": 1e-9,
    "ARIMA(0,1,1)(0,1,0)": 1e-9,
    "SARIMAX(1,1,1)(1,1,1)": 1e-6,
}
"""Relative tolerance of likelihoods where a vague prior stands 1e6 to 1e11 above the noise; 1e-10 elsewhere.

States have a hundred times as much: statsmodels stops updating covariances that have converged to 1e-9.
"""

SPREAD = {"SARIMAX(1,1,1)(1,1,1)": 2e-4}
"""Tolerance of smoothed covariances: in 60 digits two_filter_smoother is off by 5e-11 and statsmodels by 1.1e-4."""

BY_DIGITS = {"varying regression"}
"""Where smoothed covariances of statsmodels are off by 3e-5: ours are judged by 60 digits."""

SMOOTHERS = {
    "recursion": lambda *a: rts_smoother(*a, method="sequential"),
    "square_root": lambda *a: rts_smoother(*a, form="square_root"),
    "scan": lambda *a: rts_smoother(*a, method="scan"),
    "blelloch": lambda *a: rts_smoother(*a, method="scan", scan="blelloch"),
    "two_filter": two_filter_smoother,
}

PAIRS = [(name, method) for name in MODELS for method in SMOOTHERS]


def first_step(name, model, found):
    """The step from which on numbers are compared: an approximately diffuse prior has no digits to give before."""
    return 0 if model.diffuse is not None else found.loglikelihood_burn


@pytest.mark.parametrize("method", ["sequential", "scan", "square_root"])
@pytest.mark.parametrize("name", MODELS)
def test_filtered_states_and_likelihoods_are_those_of_statsmodels(name, method):
    other, params, found = at_start(name)
    model = LinearGaussianModel.from_statsmodels(other, params)
    options = {"form": method} if method == "square_root" else {"method": method}
    got = kalman_filter(model, observations(other), **options)
    start, tolerance = first_step(name, model, found), WIDE.get(name, 1e-10)
    close(got.log_likelihoods[start:], found.llf_obs[start:], tolerance)
    close(np.sum(got.log_likelihoods[start:]), np.sum(found.llf_obs[start:]), tolerance)
    close(got.mean[start:], found.filtered_state.T[start:], 100 * tolerance)
    close(got.covariance[start:], np.moveaxis(found.filtered_state_cov, -1, 0)[start:], 100 * tolerance)


@pytest.mark.parametrize("name, method", PAIRS)
def test_smoothed_states_are_those_of_statsmodels(name, method):
    other, params, found = at_start(name)
    model = LinearGaussianModel.from_statsmodels(other, params)
    got = SMOOTHERS[method](model, observations(other))
    start, tolerance = first_step(name, model, found), 100 * WIDE.get(name, 1e-10)
    mean, covariance = found.smoothed_state.T, np.moveaxis(found.smoothed_state_cov, -1, 0)
    if name in BY_DIGITS:
        parts = {part: getattr(model, part) for part in ("F", "Q", "H", "R", "u", "d", "m0", "P0")}
        mean, covariance = (a.astype(float) for a in in_many_digits(parts, observations(other))[2:4])
    close(got.mean[start:], mean[start:], tolerance)
    close(got.covariance[start:], covariance[start:], SPREAD.get(name, tolerance))


def test_given_parameters_are_set_and_others_kept():
    other, params, _ = at_start("local level")
    first = LinearGaussianModel.from_statsmodels(other)
    twice = LinearGaussianModel.from_statsmodels(other, 2.0 * params)
    np.testing.assert_array_equal(twice.Q, 2.0 * first.Q)
    LinearGaussianModel.from_statsmodels(other, params)


@pytest.mark.parametrize(
    "change, error, match",
    [
        (lambda other: 3, TypeError, "model must be a statsmodels state-space model; got a builtins int"),
        (lambda other: (other, [1.0]), ValueError, r"params must hold 2 numbers .*sigma2.*; got shape \(1,\)"),
        (lambda other: other.ssm.set_filter_timing(1), ValueError, "model must have the initial state predicted"),
        (lambda other: setattr(other.ssm, "initialization", None), ValueError, "model must be initialised"),
    ],
)
def test_other_things_are_refused(change, error, match):
    other = MODELS["local level"]()
    given = change(other)
    arguments = given if isinstance(given, tuple) else (other,) if given is None else (given,)
    with pytest.raises(error, match=f"^LinearGaussianModel.from_statsmodels: {match}"):
        LinearGaussianModel.from_statsmodels(*arguments)
