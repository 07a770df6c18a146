"""Options of statsmodels' models are taken with the same likelihood and states, or refused by name."""

import warnings

import numpy as np
import pytest

from ensemble.apps.kalman import LinearGaussianModel, OnlineFilter, forecast, kalman_filter, rts_smoother
from tests.apps.kalman.models import close
from tests.apps.kalman.statsmodels_models import _macro, api, gapped, macro, updated

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from statsmodels.tsa.statespace.exponential_smoothing import ExponentialSmoothing

S, U, V, D = api.tsa.SARIMAX, api.tsa.UnobservedComponents, api.tsa.VARMAX, api.tsa.DynamicFactor


def infl():
    return macro("infl")[:80, 0]


def growth(*names):
    return macro(*names, growth=True)[:60]


ZOO = {
    "concentrated": lambda: S(infl(), order=(1, 0, 1), trend="c", concentrate_scale=True),
    "concentrated with gaps": lambda: S(gapped(infl()[:, None]), order=(2, 0, 0), concentrate_scale=True),
    "concentrated ARIMA": lambda: S(infl(), order=(1, 1, 0), concentrate_scale=True),
    "constant and trend": lambda: S(infl(), order=(1, 0, 0), trend="ct"),
    "quadratic trend": lambda: S(infl(), order=(1, 0, 0), trend=[1, 0, 1]),
    "trend offset": lambda: S(infl(), order=(1, 0, 0), trend="ct", trend_offset=10),
    "simple differencing": lambda: S(infl(), order=(1, 1, 1), simple_differencing=True),
    "Hamilton's form": lambda: S(infl(), order=(2, 0, 1), hamilton_representation=True),
    "seasonal": lambda: S(infl(), order=(1, 0, 0), seasonal_order=(1, 0, 1, 4)),
    "regression in the state": lambda: S(infl(), np.sin(np.arange(80.0)), order=(1, 0, 0), mle_regression=False),
    "regression that varies": lambda: S(infl(), np.sin(np.arange(80.0)), order=(1, 0, 0), mle_regression=False,
                                        time_varying_regression=True),
    "not enforced": lambda: S(infl(), order=(2, 0, 1), enforce_stationarity=False, enforce_invertibility=False),
    "exactly diffuse": lambda: S(infl(), order=(1, 1, 1), use_exact_diffuse=True),
    "level, cycle, seasons": lambda: U(infl(), "lltrend", cycle=True, seasonal=4, autoregressive=1),
    "trigonometric seasons": lambda: U(infl(), "llevel", freq_seasonal=[{"period": 6, "harmonics": 2}]),
    "regression beside a level": lambda: U(infl(), "llevel", exog=np.cos(np.arange(80.0)), mle_regression=False,
                                           use_exact_diffuse=True),
    "fixed intercept": lambda: U(infl(), "fixed intercept"),
    "smooth trend": lambda: U(infl(), "strend", use_exact_diffuse=True),
    "VARMAX(1,0)": lambda: V(growth("realgdp", "realcons"), order=(1, 0), trend="c"),
    "VARMAX with a trend": lambda: V(growth("realgdp", "realcons"), order=(1, 0), trend="ct"),
    "VARMAX with regressors": lambda: V(growth("realgdp", "realcons"), order=(1, 0), exog=np.sin(np.arange(60.0))),
    "VMA": lambda: V(growth("realgdp", "realcons"), order=(0, 1), trend="n"),
    "dynamic factor": lambda: D(growth("realgdp", "realcons", "realinv"), k_factors=1, factor_order=1, error_order=1),
    "factor with errors that correlate": lambda: D(growth("realgdp", "realcons"), k_factors=1, factor_order=1,
                                                   error_cov_type="unstructured"),
    "recursive least squares": lambda: api.RecursiveLS(macro("infl")[:, 0], api.add_constant(macro("unemp"))),
    "exponential smoothing": lambda: ExponentialSmoothing(infl()),
    "with a damped trend": lambda: ExponentialSmoothing(infl(), trend=True, damped_trend=True),
    "with seasons": lambda: ExponentialSmoothing(infl(), trend=True, seasonal=4),
    "with its own scale": lambda: ExponentialSmoothing(infl(), trend=True, concentrate_scale=False),
    "estimated start": lambda: ExponentialSmoothing(infl(), trend=True, initialization_method="concentrated"),
}  # fmt: skip


def found(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ZOO[name]()
        params = updated(model)
        with np.errstate(all="ignore"):
            if name == "recursive least squares":
                return model, None, model.ssm.smooth()
            return model, params, model.smooth(params, return_ssm=True)


@pytest.mark.parametrize("name", ZOO)
def test_likelihoods_and_states_are_those_of_statsmodels(name):
    other, params, results = found(name)
    model = LinearGaussianModel.from_statsmodels(other, params)
    y = np.asarray(other.endog, float).reshape(other.nobs, -1)
    got = rts_smoother(model, y)
    assert not bool(got.failed)
    burn = other.loglikelihood_burn
    first = max(burn, other.k_states if model.diffuse is None else 0)
    close(np.sum(got.log_likelihoods[burn:]), results.llf_obs[burn:].sum(), 1e-6)
    if params is not None:
        close(np.sum(got.log_likelihoods[burn:]), other.loglike(params), 1e-6)
    close(got.filtered.mean[first:], results.filtered_state.T[first:], 1e-4)
    close(got.mean[first:], results.smoothed_state.T[first:], 1e-4)
    close(got.covariance[first:], np.moveaxis(results.smoothed_state_cov, -1, 0)[first:], 1e-4)


def test_constraints_that_are_seen_again_without_noise_have_no_density():
    """Statsmodels leaves such entries out; here the series has `failed`."""
    other = api.RecursiveLS(_macro().infl, api.add_constant(_macro()[["unemp", "tbilrate"]]),
                            constraints="unemp + tbilrate = 1")  # fmt: skip
    y = np.asarray(other.endog, float)
    assert bool(kalman_filter(LinearGaussianModel.from_statsmodels(other), y).failed)


def test_a_start_that_is_fitted_needs_the_parameters():
    other = ZOO["estimated start"]()
    with pytest.raises(ValueError, match="params must be given where initial states are concentrated"):
        LinearGaussianModel.from_statsmodels(other)


def test_mixed_frequencies_are_taken():
    rng = np.random.default_rng(5)
    y = rng.standard_normal((40, 3)).cumsum(axis=0) * 0.1 + rng.standard_normal((40, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = api.tsa.DynamicFactorMQ(y, factors=1, factor_orders=1)
        params = np.asarray(other.start_params, float)
        model = LinearGaussianModel.from_statsmodels(other, params)
        total = other.loglike(params)
    close(kalman_filter(model, np.asarray(other.endog)).log_likelihood, total, 1e-8)


def test_intercepts_that_statsmodels_repeats_are_constants():
    other = S(infl(), order=(1, 0, 0), trend="c", measurement_error=True)
    model = LinearGaussianModel.from_statsmodels(other, [1.0, 0.5, 1.0, 0.5])
    assert not model.is_time_varying
    ahead = forecast(model, infl()[:, None], 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = other.filter([1.0, 0.5, 1.0, 0.5]).get_forecast(3)
    close(ahead.mean[:, 0], theirs.predicted_mean, 1e-10)
    close(ahead.covariance[:, 0, 0], theirs.var_pred_mean, 1e-10)
    online = OnlineFilter(model)
    for row in np.concatenate([infl(), infl()]):
        online.step([row])
    assert online.k == 159


def test_the_scale_is_that_of_the_data_and_its_intervals_are_right():
    other = S(infl(), order=(1, 0, 1), concentrate_scale=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = other.filter([0.6, 0.1])
    model = LinearGaussianModel.from_statsmodels(other, [0.6, 0.1])
    ahead = forecast(model, infl()[:, None], 2)
    close(ahead.covariance[:, 0, 0], results.get_forecast(2).var_pred_mean, 1e-10)
    with other.ssm.fixed_scale(2.0):
        fixed = LinearGaussianModel.from_statsmodels(other)
    np.testing.assert_allclose(np.max(fixed.Q), 2.0)


INITIALISATIONS = {
    "known": lambda m: m.ssm.initialize("known", constant=[1.0, 0.2], stationary_cov=[[2.0, 0.1], [0.1, 1.0]]),
    "diffuse": lambda m: m.ssm.initialize("diffuse"),
    "approximate diffuse": lambda m: m.ssm.initialize_approximate_diffuse(1e4),
    "mixed": lambda m: _mixed(m),
}


def _mixed(model):
    from statsmodels.tsa.statespace.initialization import Initialization

    start = Initialization(2)
    start.set(0, "diffuse")
    start.set(1, "known", constant=[0.3], stationary_cov=[[0.5]])
    model.ssm.initialization = start


@pytest.mark.parametrize("name", INITIALISATIONS)
def test_every_initialisation_is_taken(name):
    other = U(infl(), "lltrend")
    INITIALISATIONS[name](other)
    other.loglikelihood_burn = 0
    params = [0.5, 0.1, 0.05]
    model = LinearGaussianModel.from_statsmodels(other, params)
    close(kalman_filter(model, infl()[:, None]).log_likelihood, other.loglike(params), 1e-8)


NUMERICS = [
    ("filter_univariate", True), ("filter_collapsed", True), ("invert_lu", True), ("solve_lu", True),
    ("stability_force_symmetry", False), ("tolerance", 0.0), ("memory_no_smoothing", True), ("memory_no_gain", True),
]  # fmt: skip


@pytest.mark.parametrize("flag, value", NUMERICS)
def test_options_of_arithmetic_change_nothing(flag, value):
    plain, other = (S(infl(), order=(1, 0, 1), trend="c") for _ in range(2))
    setattr(other.ssm, flag, value)
    a, b = (LinearGaussianModel.from_statsmodels(m, [0.1, 0.5, 0.2, 1.0]) for m in (plain, other))
    for part in ("F", "Q", "H", "R", "m0", "P0", "u", "d"):
        np.testing.assert_array_equal(getattr(a, part), getattr(b, part))


def _flag(name, value=True):
    return lambda other: setattr(other.ssm, name, value)


@pytest.mark.parametrize(
    "change, params, match",
    [
        (_flag("filter_extended"), None, "model must have a linear filter; got filter_extended"),
        (_flag("filter_unscented"), None, "model must have a linear filter; got filter_unscented"),
        (_flag("filter_square_root"), None, "model must have a linear filter; got filter_square_root"),
        (_flag("filter_augmented"), None, "model must have a linear filter; got filter_augmented"),
        (_flag("timing_init_filtered"), None, "model must have the initial state predicted"),
        (_flag("memory_no_likelihood"), None, "keep likelihoods, from which its concentrated scale follows"),
        (lambda other: None, [0.5 + 0j, 0.1], "params must be real; got dtype complex128"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(change, params, match):
    other = S(infl(), order=(1, 0, 1), concentrate_scale=True)
    other.update([0.5, 0.1])
    change(other)
    with pytest.raises(ValueError, match=f"^LinearGaussianModel.from_statsmodels: .*{match}"):
        LinearGaussianModel.from_statsmodels(other, params)
