"""Elementary effects: models whose effects are known at every level, failures, extension, vectors."""

import itertools

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from tests.uq.sensitivity.problems import g_function, g_inputs


def effects_of(model, inputs, n=64, **options):
    return en.uq.morris(model, inputs, n, **({"seed": 417, "progress": False} | options))


def exact(function, n_inputs, n_levels):
    """Mean size, mean and standard deviation of all elementary effects on the grid, by enumeration."""
    levels = (np.arange(n_levels) + 0.5) / n_levels
    grid = np.array(list(itertools.product(levels, repeat=n_inputs))).T
    found = []
    for i in range(n_inputs):
        moved = grid.copy()
        moved[i] += np.where(grid[i] < 0.5, 0.5, -0.5)
        effect = (function(moved) - function(grid)) / (moved[i] - grid[i])
        found.append((np.abs(effect).mean(), effect.mean(), effect.std()))
    return np.array(found).T


@pytest.mark.parametrize("n_levels", [2, 4, 8])
@pytest.mark.parametrize("sampler", ["monte_carlo", "sobol"])
def test_effects_are_those_of_all_points_of_the_grid(n_levels, sampler):
    inputs = en.Inputs(a=stats.uniform(), b=stats.uniform(), c=stats.uniform())
    function = lambda x: x[0] ** 2 * (1.0 - 2.0 * x[1]) + x[2]
    found = effects_of(
        lambda x: {"y": function([x.a, x.b, x.c])}, inputs, 2048, n_levels=n_levels, sampler=sampler, level=0.999
    )
    for kind, value in zip(("mu_star", "mu", "sigma"), exact(function, 3, n_levels), strict=True):
        low, high = found.interval("y", kind)
        slack = 1e-9 + 1e-3 * np.abs(value)  # of the sample's n - 1
        assert np.all((low - slack <= value) & (value <= high + slack)), kind
        assert np.all(high - low < 0.3)


def test_a_linear_model_has_the_same_effect_everywhere():
    inputs = en.Inputs(a=stats.uniform(2.0, 3.0), b=stats.uniform(), idle=stats.uniform())
    found = effects_of(lambda x: {"y": x.a - 5.0 * x.b}, inputs, 4)
    np.testing.assert_allclose(found.mu["y"], [3.0, -5.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(found.mu_star["y"], [3.0, 5.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(found.sigma["y"], 0.0, atol=1e-7)
    assert found.n_samples == 16


def test_the_order_of_importance_is_that_of_the_g_function():
    found = effects_of(g_function, g_inputs(), 200)
    assert np.all(np.diff(found.mu_star["y"]) < 0.0)


@pytest.mark.slow
def test_intervals_hold_the_mean_size_about_as_often_as_they_say():
    inputs = en.Inputs(a=stats.uniform(), b=stats.uniform())
    value = exact(lambda x: np.exp(2.0 * x[0]) * x[1], 2, 4)[0]
    inside = []
    for seed in range(100):
        low, high = effects_of(lambda x: {"y": np.exp(2.0 * x.a) * x.b}, inputs, 64, seed=3100 + seed).interval("y")
        inside.append((low <= value) & (value <= high))
    assert 0.89 <= np.mean(inside) <= 0.99


def test_normal_inputs_stay_finite_and_a_vector_is_one_input():
    inputs = en.Inputs(a=stats.norm(), v=en.uq.Vector(stats.norm(), 3))
    found = effects_of(lambda x: {"y": x.a + x.v[0] + x.v[2]}, inputs, 32)
    step = stats.norm.ppf([0.625, 0.875]) - stats.norm.ppf([0.125, 0.375])
    assert found.inputs == ("a", "v")
    np.testing.assert_allclose(found.mu["y"][0], step.mean() / 0.5, rtol=0.1)
    assert found.mu_star["y"].shape == (2,) and np.all(found.mu_star["y"] > 0.5)


def test_fields_and_constant_outputs_have_effects():
    found = effects_of(lambda x: {"f": np.stack([x.x0, 2.0 * x.x1, 0.0 * x.x0])}, g_inputs(), 8)
    np.testing.assert_allclose(found.mu_star["f"][:2], [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]], atol=1e-12)
    assert found.notes == ()


def test_a_longer_study_goes_on_from_a_shorter_one(tmp_path):
    store = tmp_path / "morris.zarr"
    effects_of(g_function, g_inputs(), 16, store=store)
    longer = effects_of(g_function, g_inputs(), 48, store=store, resume=True)
    alone = effects_of(g_function, g_inputs(), 48)
    np.testing.assert_array_equal(longer.mu_star["y"], alone.mu_star["y"])
    with pytest.raises(ValueError, match="sampler"):
        effects_of(g_function, g_inputs(), 64, store=store, resume=True, n_levels=8)


def test_failed_samples_take_their_rows_out_and_bounds_hold_the_rest():
    def fragile(x):
        x.fail(x.x0 > 0.8, "too large")
        return g_function(x)

    found = effects_of(fragile, g_inputs(), 128)
    whole = effects_of(g_function, g_inputs(), 128)
    assert 0 < found.n_used < 128
    for kind in ("mu_star", "mu", "sigma"):
        low, high = found.bounds("y", kind)
        value = getattr(whole, kind)["y"][1:]  # of inputs that do not decide what fails
        assert np.all((low[1:] <= value) & (value <= high[1:])), kind


def test_arguments_that_cannot_be_are_refused():
    model = lambda x: {"y": x.a}
    inputs = en.Inputs(a=stats.norm(), b=stats.norm(), correlation={("a", "b"): 0.5})
    with pytest.raises(ValueError, match="inputs must be independent"):
        effects_of(model, inputs)
    with pytest.raises(ValueError, match="n_levels must be even; got 3"):
        effects_of(model, g_inputs(), n_levels=3)
