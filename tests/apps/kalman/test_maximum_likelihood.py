"""Maximum likelihood against the literature, statsmodels and laws of its own."""

import numpy as np
import pytest

from ensemble.apps.kalman import LinearGaussianModel, kalman_filter, maximum_likelihood
from ensemble.krylov import SolveError
from ensemble.scalar import Ensemble

POSITIVE = (0.0, None)
ONE = np.eye(1)


def nile():
    api = pytest.importorskip("statsmodels.api")
    return api.datasets.nile.load_pandas().data["volume"].to_numpy(float, copy=True)[:, None]


def local_level(first):
    """The level after the first observation of a level that nothing was known of."""
    return lambda theta: LinearGaussianModel(ONE, theta[1] * ONE, ONE, theta[0] * ONE, first, theta[0] * ONE)


def ar1_in_noise(theta):
    prior = theta[1] / (1.0 - theta[0] * theta[0])
    return LinearGaussianModel(theta[0] * ONE, theta[1] * ONE, ONE, theta[2] * ONE, np.zeros(1), prior * ONE,
                               prior_at="first_observation")  # fmt: skip


def ar1_series(T=300, seed=33589):
    rng = np.random.default_rng(seed)
    x, y = 0.0, np.empty((T, 1))
    for k in range(T):
        x = 0.8 * x + rng.standard_normal()
        y[k] = x + 0.7 * rng.standard_normal()
    return y


@pytest.mark.parametrize("start", [[1e4, 1e4], [1.0, 1.0], [1e8, 1e-3], [[1e2, 1e8], [3e3, 5e3], [1e-9, 1e9]]], ids=str)
@pytest.mark.parametrize("options", [{}, {"method": "scan"}, {"form": "square_root"}], ids=str)
def test_the_nile_has_the_variances_of_the_book(start, options):
    """J. Durbin, S. J. Koopman, Time Series Analysis by State Space Methods (2001), section 2.10.2: 15099, 1469.1."""
    y = nile()
    result = maximum_likelihood(local_level(y[0]), y[1:], start, bounds=[POSITIVE] * 2, **options).raise_if_failed()
    assert np.round(result.estimate[0]) == 15099
    np.testing.assert_allclose(result.estimate[1], 1469.1, atol=0.1)
    np.testing.assert_allclose(result.log_likelihood, -632.5456, atol=5e-5)


def agrees_with(other, result):
    """The same likelihood, no slope in the other's likelihood, and the errors of the other's second derivatives."""
    theta = result.estimate
    np.testing.assert_allclose(other.loglike(theta), result.log_likelihood, rtol=1e-9)
    numdiff = pytest.importorskip("statsmodels.tools.numdiff")
    errors = np.sqrt(np.diag(np.linalg.inv(-numdiff.approx_hess3(theta, other.loglike))))
    score = numdiff.approx_fprime(theta, other.loglike, centered=True)
    assert np.max(np.abs(score * errors)) < 1e-3
    np.testing.assert_allclose(result.standard_errors, errors, rtol=2e-3)


def test_a_local_level_is_fitted_as_statsmodels_would():
    api = pytest.importorskip("statsmodels.api")
    y = nile()
    y[20:40] = np.nan
    other = api.tsa.UnobservedComponents(y[:, 0], "llevel", loglikelihood_burn=1)
    other.ssm.initialize_known([0.0], [[1e7]])
    vague = lambda theta: LinearGaussianModel(ONE, theta[1] * ONE, ONE, theta[0] * ONE, np.zeros(1), 1e7 * ONE,
                                              prior_at="first_observation")  # fmt: skip
    agrees_with(other, maximum_likelihood(vague, y, [1e4, 1e3], bounds=[POSITIVE] * 2, burn=1).raise_if_failed())


def test_an_autoregression_in_noise_is_fitted_as_statsmodels_would():
    api = pytest.importorskip("statsmodels.api")
    y = ar1_series()
    y[50:60] = np.nan
    other = api.tsa.SARIMAX(y[:, 0], order=(1, 0, 0), measurement_error=True)
    bounds = [(-1.0, 1.0), POSITIVE, POSITIVE]
    result = maximum_likelihood(ar1_in_noise, y, [0.5, 1.0, 1.0], bounds=bounds).raise_if_failed()
    order = [0, 2, 1]  # statsmodels has the measurement error second
    turned = type(result)(**{**result.__dict__, "estimate": result.estimate[order],
                             "standard_errors": result.standard_errors[order]})  # fmt: skip
    agrees_with(other, turned)


def test_batches_are_independent_series_of_one_set_of_parameters():
    y = np.stack([ar1_series(120, 7), ar1_series(120, 8)])
    bounds = [(-1.0, 1.0), POSITIVE, POSITIVE]
    both = maximum_likelihood(ar1_in_noise, y, [0.5, 1.0, 1.0], bounds=bounds).raise_if_failed()
    parts = [float(kalman_filter(ar1_in_noise(both.estimate), one).log_likelihood) for one in y]
    np.testing.assert_allclose(both.log_likelihood, sum(parts), rtol=1e-13)
    step = 1e-3 * both.standard_errors
    for i in range(3):
        move = np.eye(3)[i] * step
        for theta in (both.estimate + move, both.estimate - move):
            other = sum(float(kalman_filter(ar1_in_noise(theta), one).log_likelihood) for one in y)
            assert other < both.log_likelihood


def test_an_unbounded_parameter_and_its_error_are_those_of_the_mean():
    """Noise about a constant: the mean, and its deviation over the square root of the count."""
    rng = np.random.default_rng(4177)
    y = 37.0 + 2.0 * rng.standard_normal((50, 1))
    zero = np.zeros((1, 1))
    constant = lambda theta: LinearGaussianModel(ONE, zero, ONE, theta[1] * ONE, theta[:1], zero)
    result = maximum_likelihood(constant, y, [0.0, 1.0], bounds=[(None, None), POSITIVE]).raise_if_failed()
    np.testing.assert_allclose(result.estimate, [y.mean(), y.var()], rtol=1e-6)
    np.testing.assert_allclose(result.standard_errors, [y.std() / np.sqrt(50), y.var() * np.sqrt(2 / 50)], rtol=1e-5)
    upper = maximum_likelihood(constant, y, [0.0, -1.0 + 1.5], bounds=[(None, 100.0), (0.0, 50.0)]).raise_if_failed()
    np.testing.assert_allclose(upper.estimate, result.estimate, rtol=1e-5)
    np.testing.assert_allclose(upper.standard_errors, result.standard_errors, rtol=1e-4)


def test_a_variance_that_is_zero_has_no_standard_error():
    y = np.random.default_rng(613).standard_normal((40, 1)) * np.array([[1.0], [-1.0]] * 20)
    y = np.tile([[1.0], [-1.0]], (20, 1)) + 0.01 * y  # turns at every step: no level moves like that
    result = maximum_likelihood(local_level(y[0]), y[1:], [1.0, 1.0], bounds=[POSITIVE] * 2)
    assert result.estimate[1] < 1e-6 * result.estimate[0]
    assert np.isnan(result.standard_errors[1]) and np.isnan(result.covariance[0, 1])
    # What is left is noise about a level that stands still and is known from the first observation only.
    r = y[1:, 0] - y[0]
    noise = r @ np.linalg.solve(np.eye(39) + 1.0, r) / 39
    np.testing.assert_allclose(result.estimate[0], noise, rtol=1e-6)
    np.testing.assert_allclose(result.standard_errors[0], result.estimate[0] * np.sqrt(2 / 39), rtol=1e-4)


def test_candidates_that_fail_cost_nothing():
    """A start whose likelihood is NaN loses against any other."""
    y = ar1_series(60)
    exact = lambda theta: LinearGaussianModel(ONE, theta[0] * ONE, ONE, theta[1] * ONE, np.zeros(1), theta[0] * ONE)
    starts = np.array([[1e-310, 1e-310], [1.0, 1.0]])
    with np.errstate(all="ignore"):
        result = maximum_likelihood(exact, y, starts, bounds=[POSITIVE] * 2)
        alone = maximum_likelihood(exact, y, [1.0, 1.0], bounds=[POSITIVE] * 2)
    np.testing.assert_array_equal(result.estimate, alone.estimate)


def test_few_iterations_are_told():
    y = nile()
    result = maximum_likelihood(local_level(y[0]), y[1:], [1.0, 1.0], bounds=[POSITIVE] * 2, max_iterations=2)
    assert not result.converged and result.iterations == 2
    with pytest.raises(SolveError, match="maximum_likelihood: no convergence in 2 iterations"):
        result.raise_if_failed()


@pytest.mark.parametrize(
    "changes, error, match",
    [
        ({"start": [1.0, -1.0]}, ValueError, "start must lie strictly within the bounds"),
        ({"start": np.zeros((1, 1, 2))}, ValueError, "start must have shape"),
        ({"bounds": [(0.0, None)]}, ValueError, r"bounds must be 2 pairs \(low, high\)"),
        ({"bounds": [0.0, 1.0]}, ValueError, r"bounds must be 2 pairs"),
        ({"burn": 99}, ValueError, "burn must leave one step or more"),
        ({"tol": -1.0}, ValueError, "tol must be"),
        ({"model_of": lambda theta: 3}, TypeError, "model_of must return a LinearGaussianModel; got an int"),
        (
            {"model_of": lambda theta: LinearGaussianModel(ONE, ONE, ONE, ONE, [0.0], ONE)},
            TypeError,
            "model_of must use",
        ),
        ({"y": np.full((9, 1), 1e300)}, ValueError, "start must have a finite likelihood"),
    ],
)
def test_bad_input_is_named(changes, error, match):
    arguments = {"model_of": local_level(np.zeros(1)), "y": ar1_series(9), "start": [1.0, 1.0],
                 "bounds": [POSITIVE] * 2, **changes}  # fmt: skip
    with np.errstate(all="ignore"), pytest.raises(error, match=f"maximum_likelihood: {match}"):
        maximum_likelihood(arguments.pop("model_of"), arguments.pop("y"), arguments.pop("start"), **arguments)


def test_the_model_of_the_result_is_the_fitted_one():
    y = ar1_series(80)
    result = maximum_likelihood(ar1_in_noise, y, [0.5, 1.0, 1.0], bounds=[(-1.0, 1.0), POSITIVE, POSITIVE])
    assert not isinstance(result.model.F, Ensemble)
    np.testing.assert_allclose(kalman_filter(result.model, y).log_likelihood, result.log_likelihood, rtol=1e-13)
