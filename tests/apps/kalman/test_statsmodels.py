"""Likelihoods, filtered and smoothed states are those of another library, on models and data that come with it."""

import numpy as np
import pytest

from ensemble.apps.kalman import LinearGaussianModel, rts_smoother, two_filter_smoother
from tests.apps.kalman.models import close

api = pytest.importorskip("statsmodels.api")


def macro(*names, growth=False):
    data = api.datasets.macrodata.load_pandas().data[list(names)].to_numpy(float, copy=True)
    return 100.0 * np.diff(np.log(data), axis=0) if growth else data


def gapped(y, every=13):
    y[5::every, 0] = np.nan
    return y


MODELS = {
    "local level": lambda: api.tsa.UnobservedComponents(macro("infl"), "llevel"),
    "local linear trend": lambda: api.tsa.UnobservedComponents(np.log(macro("realgdp")), "lltrend"),
    "trend and cycle": lambda: api.tsa.UnobservedComponents(macro("unemp"), "rwdrift", cycle=True,
                                                            stochastic_cycle=True, damped_cycle=True),
    "seasonal": lambda: api.tsa.UnobservedComponents(np.log(macro("realcons")), "lltrend", seasonal=4),
    "autoregression in noise": lambda: api.tsa.SARIMAX(gapped(macro("unemp")), order=(1, 0, 0), trend="c",
                                                       measurement_error=True),
    "moving average": lambda: api.tsa.SARIMAX(gapped(macro("infl")), order=(2, 0, 1)),
    "dynamic factor": lambda: api.tsa.DynamicFactor(gapped(macro("realgdp", "realcons", "realinv", growth=True)),
                                                    k_factors=1, factor_order=2),
    "vector autoregression": lambda: api.tsa.VARMAX(gapped(macro("realgdp", "realcons", growth=True)), order=(2, 0),
                                                    trend="n", measurement_error=True),
}  # fmt: skip

TOLERANCES = {"seasonal": 1e-6}
"""Relative; 1e-9 elsewhere. Here a vague prior stands 1e11 above the noise, and both libraries lose as many digits."""

SMOOTHERS = {
    "recursion": lambda *a: rts_smoother(*a, method="sequential"),
    "square_root": lambda *a: rts_smoother(*a, form="square_root"),
    "scan": lambda *a: rts_smoother(*a, method="scan"),
    "blelloch": lambda *a: rts_smoother(*a, method="scan", scan="blelloch"),
    "two_filter": two_filter_smoother,
}


def expected_of(name):
    """The other library's model at its own first guess of the parameters, as matrices of ours, and its results."""
    other = MODELS[name]()
    with np.errstate(all="ignore"):
        other.update(np.asarray(other.start_params))
        found = other.ssm.smooth()
    last = lambda a: a[..., 0]
    selection = last(other["selection", :, :, 0:1]) if other["selection"].ndim == 3 else other["selection"]
    plain = {key: np.array(last(other[key]) if other[key].ndim == n + 1 else other[key])
             for key, n in (("transition", 2), ("state_cov", 2), ("design", 2), ("obs_cov", 2), ("state_intercept", 1),
                            ("obs_intercept", 1))}  # fmt: skip
    model = LinearGaussianModel(
        F=plain["transition"], Q=selection @ plain["state_cov"] @ selection.T, H=plain["design"], R=plain["obs_cov"],
        m0=found.initial_state, P0=found.initial_state_cov, u=plain["state_intercept"], d=plain["obs_intercept"],
        prior_at="first_observation",
    )  # fmt: skip
    return model, np.asarray(other.endog, float), found


@pytest.mark.filterwarnings("ignore::UserWarning")  # of statsmodels, about its first guesses
@pytest.mark.parametrize("method", SMOOTHERS)
@pytest.mark.parametrize("name", MODELS)
def test_states_and_likelihood_are_those_of_statsmodels(name, method):
    model, y, found = expected_of(name)
    got = SMOOTHERS[method](model, y)
    burn = found.loglikelihood_burn
    tolerance = TOLERANCES.get(name, 1e-9)
    close(np.sum(got.log_likelihoods[burn:]), found.llf, tolerance)
    close(got.log_likelihoods[burn:], found.llf_obs[burn:], tolerance)
    close(got.filtered.mean[burn:], found.filtered_state.T[burn:], 100 * tolerance)
    close(got.mean[burn:], found.smoothed_state.T[burn:], 100 * tolerance)
    close(got.covariance[burn:], np.moveaxis(found.smoothed_state_cov, -1, 0)[burn:], 100 * tolerance)
