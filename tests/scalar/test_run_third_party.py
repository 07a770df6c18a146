"""Code of others, written for floats or arrays, unmodified: equal to its own scalar runs."""

import json
import os
import subprocess
import sys
import textwrap
import warnings

import array_api_extra as xpx
import fluids
import numpy as np
import pytest

from ensemble.scalar import Ensemble, run

with warnings.catch_warnings(action="ignore"):
    from filterpy import kalman
    from filterpy.gh import GHFilter

EPS = np.finfo(np.float64).eps


def uniform(low, high, *shape):
    return Ensemble(np.random.default_rng(61703).uniform(low, high, size=shape))


def assert_like_scalar_runs(result, f, *inputs, rtol):
    result.raise_if_failed()
    for s in range(result.n_samples):
        compare(result.sample(s), f(*(x.sample(s)[()] for x in inputs)), rtol)


def compare(got, wanted, rtol):
    if isinstance(wanted, list | tuple):
        for one, other in zip(got, wanted, strict=True):
            compare(one, other, rtol)
    else:
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=0)


# -- fluids: formulas in plain Python ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f, low, high, n_paths",
    [
        (lambda Re: fluids.friction_factor(Re=Re, eD=1e-4), 1e2, 1e6, None),
        (lambda Re: fluids.friction.friction_laminar(Re), 1e2, 2e3, 1),
        (lambda Re: fluids.drag.drag_sphere(Re), 1e-2, 1e5, None),
        (lambda Re: fluids.friction.Blasius(Re), 3e3, 1e5, None),
        (lambda d: fluids.fittings.contraction_sharp(Di1=1.0, Di2=d), 0.1, 0.9, 1),
        (lambda d: fluids.fittings.diffuser_sharp(Di1=d, Di2=1.0), 0.1, 0.9, 1),
        (lambda V: fluids.core.Reynolds(V=V, D=0.25, nu=1.1e-6), 0.1, 9.0, 1),
    ],
    ids=["friction", "laminar", "drag", "blasius", "contraction", "diffuser", "reynolds"],
)
def test_engineering_formulas(f, low, high, n_paths):
    x = uniform(low, high, 40)
    result = run(f, x)
    # `**` on an array and on a number differ by rounding in NumPy; the formulas have a handful of them.
    assert_like_scalar_runs(result, f, x, rtol=16 * EPS)
    assert n_paths is None or len(result.groups) == n_paths
    assert result.n_runs < 2 * len(result.groups)


# -- filterpy: filters on NumPy ----------------------------------------------------------------------------------------


def test_a_kalman_filter():
    def f(noise, z):
        filter = kalman.KalmanFilter(dim_x=2, dim_z=1)
        filter.F, filter.H = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
        filter.R, filter.Q = filter.R * noise, np.eye(2) * 0.1
        for value in z:
            filter.predict()
            filter.update(value)
        return filter.x, filter.P, float(filter.log_likelihood)

    inputs = uniform(0.5, 2.0, 6), uniform(-1.0, 1.0, 10, 6)
    assert_like_scalar_runs(run(f, *inputs), f, *inputs, rtol=0)


def test_a_gh_filter_stays_together():
    def f(g, z):
        filter = GHFilter(x=0.0, dx=0.0, dt=1.0, g=g, h=0.02)
        return [filter.update(value) for value in z]

    inputs = uniform(0.2, 0.8, 6), uniform(-1.0, 1.0, 10, 6)
    result = run(f, *inputs)
    assert result.n_runs == 1
    assert_like_scalar_runs(result, f, *inputs, rtol=0)


# -- array-api-extra: generic over the standard ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda m: xpx.kron(m, m),
        lambda m: xpx.cov(m),
        lambda m: xpx.sinc(m),
        lambda m: xpx.pad(m, 2),
        lambda m: xpx.atleast_nd(m, ndim=4),
        lambda m: xpx.create_diagonal(m[0]),
        lambda m: xpx.at(m)[0].add(1.0),
        lambda m: xpx.nunique(m),
        lambda m: xpx.isclose(m, 1.01 * m),
        lambda m: xpx.apply_where(m > 0.0, m, lambda v: v**0.5, lambda v: -v),
    ],
    ids=["kron", "cov", "sinc", "pad", "atleast_nd", "diagonal", "at", "nunique", "isclose", "where"],
)
def test_array_api_extra(f):
    m = uniform(-1.0, 1.0, 3, 8, 5)
    assert_like_scalar_runs(run(f, m), f, m, rtol=64 * EPS)


# -- SciPy's functions over the standard -------------------------------------------------------------------------------

SCIPY = textwrap.dedent("""
    import json
    import warnings

    import numpy as np
    import scipy.differentiate, scipy.integrate, scipy.special, scipy.stats
    import scipy.optimize.elementwise as elementwise

    from ensemble.scalar import Ensemble, run

    x = Ensemble(np.random.default_rng(90281).uniform(0.1, 2.0, size=(20, 6)))
    cases = {
        "zscore": scipy.stats.zscore,
        "variation": scipy.stats.variation,
        "pearsonr": lambda x: scipy.stats.pearsonr(x, x**2).statistic,
        "ttest_1samp": lambda x: scipy.stats.ttest_1samp(x, 0.7).pvalue,
        "gmean": scipy.stats.gmean,
        "kurtosis": scipy.stats.kurtosis,
        "trim_mean": lambda x: scipy.stats.trim_mean(x, 0.1),
        "logsumexp": scipy.special.logsumexp,
        "softmax": scipy.special.softmax,
        "gammaln": scipy.special.gammaln,
        "trapezoid": scipy.integrate.trapezoid,
        "simpson": scipy.integrate.simpson,
        "derivative": lambda x: scipy.differentiate.derivative(lambda t: t**3, x).df,
        "find_root": lambda x: elementwise.find_root(lambda t, c: t**3 - c, (0.0 * x, 2.0 + x), args=(x,)).x,
    }
    told = {}
    for name, f in cases.items():
        result = run(f, x).raise_if_failed()
        alone = [f(x.sample(s)) for s in range(6)]
        worst = max(np.max(np.abs(result.sample(s) / alone[s] - 1.0)) for s in range(6))
        told[name] = float(worst), result.n_runs
    print(json.dumps(told))
""")


@pytest.fixture(scope="module")
def scipy_told():
    # SciPy reads the switch when it is imported.
    setting = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", SCIPY], env=setting, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


TOGETHER = "zscore gmean kurtosis trim_mean logsumexp softmax trapezoid variation pearsonr ttest_1samp gammaln"


@pytest.mark.parametrize("name", TOGETHER.split())
def test_scipy_functions_in_one_call(scipy_told, name):
    worst, n_runs = scipy_told[name]
    assert worst < 1024 * EPS  # sums of 20 in another order, moments of order 4
    assert n_runs == 1


@pytest.mark.parametrize("name", ["simpson", "derivative", "find_root"])
def test_scipy_functions_that_need_plain_arrays(scipy_told, name):
    assert scipy_told[name][0] < 1e-12
