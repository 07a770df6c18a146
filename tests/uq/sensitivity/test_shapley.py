"""Shapley effects: linear normal models, independent inputs, rows of permutations."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.uq.sensitivity.rows import PermutedRows, PickFreezeRows
from tests.uq.sensitivity.problems import ISHIGAMI_FIRST, ISHIGAMI_TOTAL, ishigami, ishigami_inputs, shapley_of_linear

COVARIANCE = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.8], [0.0, 1.8, 4.0]])
"""Of Iooss and Prieur (2019), section 4: two of three inputs with correlation 0.9."""


def linear_inputs():
    return en.Inputs(a=stats.norm(), b=stats.norm(), c=stats.norm(0.0, 2.0), correlation={("b", "c"): 0.9})


def linear(x):
    return {"y": x.a + x.b + x.c}


def effects_of(model=linear, inputs=None, n=2048, **options):
    options = {"seed": 61403, "progress": False, "ensemble_size": 1024} | options
    return en.uq.shapley_effects(model, inputs or linear_inputs(), n, **options)


def test_the_reference_gives_the_published_effects_of_two_inputs():
    """Owen and Prieur (2017), section 4.1."""
    rho, s1, s2 = 0.6, 1.0, 2.0
    covariance = np.array([[s1**2, rho * s1 * s2], [rho * s1 * s2, s2**2]])
    total = s1**2 + s2**2 + 2.0 * rho * s1 * s2
    first = (s1**2 * (1.0 - rho**2 / 2.0) + rho * s1 * s2 + s2**2 * rho**2 / 2.0) / total
    np.testing.assert_allclose(shapley_of_linear(np.ones(2), covariance), [first, 1.0 - first], rtol=1e-12)


def test_effects_of_a_linear_model_of_dependent_inputs_are_the_exact_ones():
    effects = effects_of(n=4096)
    low, high = effects.interval("y")
    exact = shapley_of_linear(np.ones(3), COVARIANCE)
    assert np.all(np.abs(effects.effects["y"] - exact) <= high - low)
    assert np.all(high - low < 0.08)


@pytest.mark.slow
def test_intervals_hold_the_effects_about_as_often_as_they_say():
    exact, inside = shapley_of_linear(np.ones(3), COVARIANCE), []
    for seed in range(40):
        low, high = effects_of(n=256, seed=70900 + seed).interval("y")
        inside.append((low <= exact) & (exact <= high))
    assert 0.87 <= np.mean(inside) <= 1.0


def test_effects_add_up_to_one():
    assert effects_of(n=128).effects["y"].sum() == pytest.approx(1.0, abs=1e-13)


def test_effects_of_independent_inputs_lie_between_first_and_total_indices():
    effects = effects_of(ishigami, ishigami_inputs(), 4096)
    low, high = effects.interval("y")
    assert np.all(high >= ISHIGAMI_FIRST) and np.all(low <= ISHIGAMI_TOTAL)
    np.testing.assert_allclose(effects.effects["y"], 0.5 * (ISHIGAMI_FIRST + ISHIGAMI_TOTAL), atol=0.04)


def test_vectors_are_one_input_and_may_be_correlated_in_part():
    inputs = en.Inputs(v=[stats.norm(), stats.norm()], c=stats.norm(), correlation={(("v", 1), "c"): 0.5})
    effects = effects_of(lambda x: {"y": x.v[0] + x.v[1] + x.c}, inputs, 4096)
    # v explains 1 + 1.5^2 alone and 4 - 0.75 given c; c explains 1.5^2 alone
    shares = 0.5 * np.array([3.25 + 4.0 - 2.25, 2.25 + 4.0 - 3.25]) / 4.0
    np.testing.assert_allclose(effects.effects["y"], shares, atol=0.03)


@pytest.mark.parametrize("ensemble_size", [1, 7, "auto"])
def test_no_bit_depends_on_the_ensemble_size(ensemble_size):
    one, other = effects_of(n=32), effects_of(n=32, ensemble_size=ensemble_size)
    np.testing.assert_array_equal(one.effects["y"], other.effects["y"])


def test_failures_are_bounded():
    def model(x):
        x.fail(x.a > 2.0)
        return linear(x)

    effects = effects_of(model, n=512)
    low, high = effects.bounds("y")
    exact = shapley_of_linear(np.ones(3), COVARIANCE)
    assert effects.n_used < effects.n_rows and np.all(low < exact) and np.all(exact < high)


def test_a_strong_correlation_gives_finite_effects():
    inputs = en.Inputs(a=stats.norm(), b=stats.lognorm(0.5), correlation={("a", "b"): -0.99})
    assert np.all(np.isfinite(effects_of(lambda x: {"y": x.a + x.b}, inputs, 64).effects["y"]))


def permuted(n=64):
    inputs = linear_inputs()
    rows = PermutedRows("sobol", list(inputs.germs.values()), inputs.copula, 3, "test").for_inputs(inputs, 4 * n)
    return inputs, rows


def test_the_first_inputs_of_a_row_stay_and_the_others_change():
    inputs, rows = permuted()
    ids = np.arange(4 * 64)
    x = inputs.from_normal(rows.points(ids, 3, 19))
    values = np.stack([x.a.samples, x.b.samples, x.c.samples], axis=1).reshape(64, 4, 3)
    orders = rows.orders(rows.row_points(np.arange(64), 19))
    for row, order in zip(values, orders):
        for part in range(4):
            np.testing.assert_allclose(row[part, order[:part]], row[3, order[:part]], rtol=1e-12, atol=1e-13)
            assert np.all(np.abs(row[part, order[part:]] - row[3, order[part:]]) > 1e-9)


def test_every_part_has_the_distribution_of_the_inputs():
    inputs, rows = permuted(4096)
    x = inputs.from_normal(rows.points(np.arange(4 * 4096), 3, 19))
    values = np.stack([x.a.samples, x.b.samples, x.c.samples]).reshape(3, -1, 4)
    for part in range(4):
        np.testing.assert_allclose(np.cov(values[:, :, part]), COVARIANCE, atol=0.05)
        assert stats.kstest(values[2, :, part] / 2.0, "norm").pvalue > 1e-3


def test_points_are_the_same_in_any_order():
    _, rows = permuted()
    ids = np.array([37, 2, 250, 3, 38])
    np.testing.assert_array_equal(rows.points(np.arange(256), 3, 23)[ids], rows.points(ids, 3, 23))


def test_rows_of_sobol_indices_are_two_points_and_their_mixtures():
    inputs = en.Inputs(v=[stats.norm(), stats.norm()], c=stats.norm())
    rows = PickFreezeRows("sobol", list(inputs.germs.values()), 3, "test").for_inputs(inputs, 4 * 8)
    u = rows.points(np.arange(32), 3, 5).reshape(8, 4, 3)
    np.testing.assert_array_equal(u[:, 2], np.stack([u[:, 1, 0], u[:, 1, 1], u[:, 0, 2]], axis=1))
    np.testing.assert_array_equal(u[:, 3], np.stack([u[:, 0, 0], u[:, 0, 1], u[:, 1, 2]], axis=1))
    whole = en.uq.Sobol().points(np.arange(8), 6, 5)
    np.testing.assert_array_equal(u[:, :2].reshape(8, 6), whole)
    assert rows.n_replicates == 8


def test_samplers_of_normal_points_are_refused():
    class Normal(en.uq.MonteCarlo):
        space = "normal"

    with pytest.raises(ValueError, match="shapley_effects: sampler must give points of the unit cube"):
        effects_of(sampler=Normal())


def test_the_model_must_be_callable():
    with pytest.raises(TypeError, match="shapley_effects: model must be callable"):
        effects_of(model="y")
