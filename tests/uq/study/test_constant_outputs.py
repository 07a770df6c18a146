"""An output that does not vary has a variance of exactly zero, whatever the rounding of its sums."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import uq

INPUTS = en.Inputs(a=stats.norm(), b=stats.uniform())
VALUES = [0.1, 1.0 / 3.0, -0.7, 1e-300, 1e300, 1234.56789, 0.1 + 0.3j]


def model(value):
    return lambda x: {"c": value + 0.0 * x.a, "line": en.shared(np.array([value, 2.0 * value])), "y": x.a + x.b}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("keep", ["all", "statistics"])
@pytest.mark.parametrize("sampler, n", [("sobol", 1000), ("monte_carlo", 37), (uq.Sobol(replicates=7), 700)], ids=str)
@pytest.mark.filterwarnings("ignore:.*balanced")
def test_a_study_gives_the_value_and_zero(value, keep, sampler, n):
    result = en.propagate(model(value), INPUTS, n, seed=1, sampler=sampler, keep=keep, progress=False, ensemble_size=64)
    assert result.mean("c") == value and result.var("c") == 0.0 and result.std("c") == 0.0
    assert np.all(result.std("line") == 0.0) and np.all(result.mean("line") == np.array([value, 2.0 * value]))
    assert result.std("y") > 0.5


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("weights", [None, np.linspace(0.1, 1.0, 33)], ids=["even", "weighted"])
def test_statistics_of_samples_give_zero(value, weights):
    drawn = en.SampleSet(weights=np.ones(33) if weights is None else weights)
    x = en.Ensemble(np.stack([np.full(33, value), np.arange(33.0)]).astype(np.result_type(value)), drawn)
    assert en.sample_mean(x)[0] == value and en.sample_var(x)[0] == 0.0 and en.sample_std(x, ddof=1)[0] == 0.0
    assert en.sample_cov(x)[0, 0] == 0.0 and en.sample_cov(x)[0, 1] == 0.0 and np.isnan(en.sample_corr(x)[0, 1])
    assert en.sample_mean(x[0]) == value and en.sample_var(x[0]) == 0.0
    total = en.Moments(x) + en.Moments(x)
    assert total.mean()[0] == value and total.var()[0] == 0.0 and total.var()[1] > 1.0


def test_float32_and_nan_stay_what_they_are():
    x = en.Ensemble(np.array([[0.1] * 9, [0.1] * 8 + [np.nan]], dtype=np.float32))
    assert en.sample_var(x)[0] == 0.0 and en.sample_mean(x).dtype == np.float32 and np.isnan(en.sample_var(x)[1])


def test_a_quadrature_rule_gives_zero():
    result = en.propagate(model(0.1), INPUTS, sampler=uq.Gauss(5), progress=False)
    assert result.mean("c") == 0.1 and result.var("c") == 0.0


@pytest.mark.parametrize("method", ["regression", "quadrature"])
def test_a_chaos_expansion_gives_zero_and_no_indices(method):
    options = {"sampler": uq.Gauss(5)} if method == "quadrature" else {"n": 64, "seed": 1}
    study = en.propagate(lambda x: {"c": 0.1 + 0.0 * x.a, "y": x.a}, INPUTS, progress=False, **options)
    found = uq.chaos(INPUTS, study, degree=3, method=method)
    assert found.mean("c") == 0.1 and found.var("c") == 0.0 and np.isnan(found.first["c"]).all()
    assert found.var("y") == pytest.approx(1.0, abs=0.2) and not found.notes


def test_sobol_indices_of_a_constant_are_not_defined():
    found = en.sobol_indices(lambda x: {"c": 0.1 + 0.0 * x.a}, INPUTS, 64, seed=1, progress=False)
    assert np.isnan(found.first["c"]).all() and found.std("c") == 0.0 and found.mean("c") == 0.1
