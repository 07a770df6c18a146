"""State-space models of statsmodels on data that come with it: the table that every method is compared on.

`MODELS` gives a statsmodels model by name, at its own first guess of the parameters by `at_start`.
"""

import functools
import warnings

import numpy as np
import pytest

api = pytest.importorskip("statsmodels.api")


@functools.cache
def _macro():
    return api.datasets.macrodata.load_pandas().data


def macro(*names, growth=False):
    data = _macro()[list(names)].to_numpy(float, copy=True)
    return 100.0 * np.diff(np.log(data), axis=0) if growth else data


def gapped(y, every=13):
    y[5::every, 0] = np.nan
    return y


def exact(make):
    """The model with exact diffuse initialisation of what is not stationary."""

    def made():
        model = make()
        model.ssm.initialize("diffuse")
        return model

    return made


def monthly():
    return api.datasets.co2.load_pandas().data["co2"].resample("MS").mean().to_numpy()[:180]


def varying_regression(**options):
    """Regression on a constant and a series with coefficients that are random walks."""
    data = macro("infl", "unemp", "tbilrate")

    class Varying(api.tsa.statespace.MLEModel):
        param_names = ("coefficients", "noise")
        start_params = (0.05, 1.0)

        def __init__(self):
            design = np.stack([np.ones(len(data)), data[:, 1], data[:, 2]])[None]
            super().__init__(data[:, 0], k_states=3, k_posdef=3)
            self["design"] = design
            self["transition"] = self["selection"] = np.eye(3)
            self.ssm.initialize(**options)

        def update(self, params, **kwargs):
            params = super().update(params, **kwargs)
            self["state_cov"], self["obs_cov", 0, 0] = params[0] * np.eye(3), params[1]

    return Varying()


def varying_noise():
    """A local level whose every part varies in time, intercepts and selection too."""
    y = gapped(macro("infl"))
    T, k = len(y), np.arange(len(y))

    class Everything(api.tsa.statespace.MLEModel):
        param_names = ("level", "noise")
        start_params = (0.5, 1.0)

        def __init__(self):
            super().__init__(y, k_states=2, k_posdef=1)
            self["design"] = np.stack([1.0 + 0.1 * np.sin(k), np.cos(k)])[None]
            self["transition"] = np.stack([[0.9 + 0.05 * np.cos(k), 0.1 * np.sin(k)], [0.0 * k, 0.7 + 0.0 * k]])
            self["selection"] = np.stack([1.0 + 0.5 * np.sin(k), 0.5 * np.cos(k)])[:, None]
            self["state_intercept"] = 0.1 * np.stack([np.sin(k), np.cos(k)])
            self["obs_intercept"] = 0.2 * np.sin(0.5 * k)[None]
            self.ssm.initialize("known", constant=[1.0, -1.0], stationary_cov=np.diag([2.0, 3.0]))

        def update(self, params, **kwargs):
            params = super().update(params, **kwargs)
            k = np.arange(T)
            self["state_cov"] = (params[0] * (1.0 + 0.3 * np.cos(k)))[None, None]
            self["obs_cov"] = (params[1] * (1.0 + 0.3 * np.sin(k)))[None, None]

    return Everything()


U, S = api.tsa.UnobservedComponents, api.tsa.SARIMAX

MODELS = {
    "local level": lambda: U(macro("infl"), "llevel"),
    "local linear trend": lambda: U(np.log(macro("realgdp")), "lltrend"),
    "trend and cycle": lambda: U(macro("unemp"), "rwdrift", cycle=True, stochastic_cycle=True, damped_cycle=True),
    "seasonal": lambda: U(np.log(macro("realcons")), "lltrend", seasonal=4),
    "monthly seasonal": lambda: U(monthly(), "lltrend", seasonal=12, stochastic_seasonal=True),
    "varying regression": lambda: varying_regression(initialization="approximate_diffuse"),
    "everything varies": varying_noise,
    "autoregression in noise": lambda: S(gapped(macro("unemp")), order=(1, 0, 0), trend="c", measurement_error=True),
    "moving average": lambda: S(gapped(macro("infl")), order=(2, 0, 1)),
    "ARIMA(0,1,1)(0,1,0)": lambda: S(macro("infl"), order=(0, 1, 1), seasonal_order=(0, 1, 0, 3)),
    "SARIMAX with regressors": lambda: S(macro("infl"), macro("unemp"), order=(1, 0, 1), measurement_error=True),
    "SARIMAX(1,1,1)(1,1,1)": lambda: S(monthly(), order=(1, 1, 1), seasonal_order=(1, 1, 1, 12)),
    "dynamic factor": lambda: api.tsa.DynamicFactor(
        gapped(macro("realgdp", "realcons", "realinv", growth=True)), k_factors=1, factor_order=2
    ),
    "vector autoregression": lambda: api.tsa.VARMAX(
        gapped(macro("realgdp", "realcons", growth=True)), order=(2, 0), trend="n", measurement_error=True
    ),
    "vector moving average": lambda: api.tsa.VARMAX(
        macro("realgdp", "realcons", growth=True), order=(1, 1), trend="c", error_cov_type="diagonal"
    ),
    "diffuse level": exact(lambda: U(gapped(macro("infl")), "llevel")),
    "diffuse trend": exact(lambda: U(np.log(macro("realgdp")), "lltrend")),
    "diffuse random walk": exact(lambda: U(macro("infl"), "rwalk")),
    "diffuse seasonal": exact(lambda: U(np.log(macro("realcons")), "lltrend", seasonal=4)),
    "diffuse regression": lambda: varying_regression(initialization="diffuse"),
    "diffuse ARIMA": lambda: S(macro("infl"), order=(1, 1, 1), use_exact_diffuse=True),
    "diffuse SARIMAX": lambda: S(monthly(), order=(1, 1, 1), seasonal_order=(0, 1, 1, 12), use_exact_diffuse=True),
    "diffuse factor": exact(lambda: api.tsa.DynamicFactor(
        gapped(macro("realgdp", "realcons", "realinv", growth=True)), k_factors=1, factor_order=1)),
}  # fmt: skip


def updated(model):
    """The first guess of the parameters, which the model has from here on."""
    params = np.asarray(model.start_params, float)
    model.update(params)
    return params


@functools.cache
def at_start(name):
    """The model at its first guess of the parameters, its parameters, and the smoother's results of statsmodels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MODELS[name]()
        params = updated(model)
        with np.errstate(all="ignore"):
            found = model.ssm.smooth()
    return model, params, found


def observations(model):
    return np.asarray(model.endog, float).reshape(model.nobs, -1)
