"""Sparse expansions: exact recovery, many inputs from few samples, honest errors; pairs and groups of inputs."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.uq.sensitivity.sparse_terms import angle_order
from tests.uq.sensitivity.problems import (
    ISHIGAMI_FIRST,
    ISHIGAMI_TOTAL,
    ISHIGAMI_VARIANCE,
    V13,
    ishigami,
    ishigami_inputs,
)


def expansion_of(model, inputs, n, **options):
    study = en.propagate(model, inputs, n, seed=5, progress=False)
    return en.uq.chaos(inputs, study, **({"method": "sparse"} | options))


def test_orthogonal_columns_are_taken_up_by_the_size_of_their_correlation():
    rng = np.random.default_rng(2)
    x = np.linalg.qr(rng.normal(size=(40, 12)))[0]
    weights = rng.permutation(np.arange(1.0, 13.0))
    assert list(angle_order(x, x @ weights, 12)) == list(np.argsort(-weights))


def test_the_terms_of_a_polynomial_are_found():
    inputs = en.Inputs(**{f"x{i}": stats.uniform(-1.0, 2.0) for i in range(8)})
    model = lambda x: {"y": 1.0 + x.x0 + 2.0 * x.x1 * x.x2 + 0.5 * x.x3**3}
    found = expansion_of(model, inputs, 64, degree=4)
    assert found.n_terms == 495 > 64
    chosen = {tuple(row) for row, c in zip(found.indices, found.coefficients["y"], strict=True) if abs(c) > 1e-9}
    unit = lambda *powers: tuple(dict(powers).get(i, 0) for i in range(8))
    assert chosen == {unit(), unit((0, 1)), unit((1, 1), (2, 1)), unit((3, 1)), unit((3, 3))}
    assert found.mean("y") == pytest.approx(1.0, abs=1e-10)
    assert found.var("y") == pytest.approx(1.0 / 3.0 + 4.0 / 9.0 + 0.25 / 7.0, rel=1e-10)
    assert found.loo_error["y"] < 1e-18 and found.notes == ()


def test_ishigami_from_fewer_samples_than_terms():
    found = expansion_of(ishigami, ishigami_inputs(), 128, degree=12)
    assert found.n_terms == 455
    np.testing.assert_allclose(found.first["y"], ISHIGAMI_FIRST, atol=0.01)
    np.testing.assert_allclose(found.total["y"], ISHIGAMI_TOTAL, atol=0.01)


def test_pairs_and_groups_share_the_variance():
    found = expansion_of(ishigami, ishigami_inputs(), 128, degree=10)
    second = found.second["y"]
    assert second[0, 2] == second[2, 0] == pytest.approx(V13 / ISHIGAMI_VARIANCE, abs=1e-2)
    assert abs(second[0, 1]) < 3e-3 and np.isnan(np.diag(second)).all()
    pair = found.closed("y", ["x1", "x3"])
    assert pair == pytest.approx(found.first["y"][0] + found.first["y"][2] + second[0, 2], rel=1e-12)
    assert found.closed("y", ["x1", "x2", "x3"]) == pytest.approx(1.0, rel=1e-12)
    assert found.closed("y", "x2") == pytest.approx(found.first["y"][1], rel=1e-12)
    with pytest.raises(KeyError, match="inputs must be among"):
        found.closed("y", ["x4"])


def test_noise_is_not_taken_for_a_polynomial_without_a_word():
    inputs = en.Inputs(**{f"x{i}": stats.norm() for i in range(6)})
    samples = inputs.samples(60, seed=3, sampler="monte_carlo")
    noise = np.random.default_rng(8).normal(size=60)
    with pytest.warns(UserWarning, match="Its Sobol' indices"):
        found = en.uq.chaos(inputs, samples, noise, degree=4, method="sparse")
    assert "Its Sobol' indices" in found.notes[0]


def test_entries_of_a_field_have_terms_of_their_own_and_constants_none():
    inputs = en.Inputs(a=stats.norm(), b=stats.norm())
    found = expansion_of(lambda x: {"f": np.stack([x.a, x.b**2, 0.0 * x.a + 3.0])}, inputs, 32, degree=3)
    used = np.abs(found.coefficients["f"]) > 1e-9
    assert used.sum(axis=0).tolist() == [1, 2, 1]
    assert found.mean("f")[2] == 3.0 and found.second["f"].shape == (2, 2, 3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:chaos")
@pytest.mark.parametrize("method", ["regression", "sparse"])
def test_intervals_of_resamples_hold_the_exact_indices(method):
    inputs = en.Inputs(a=stats.norm(), b=stats.norm())
    first, total = np.array([0.5, 0.25]), np.array([0.75, 0.5])  # y = a + a b / sqrt(2) + ..., variances 1, 1/2, 1/2
    inside = []
    for seed in range(30):
        x = inputs.samples(128, seed=seed, sampler="monte_carlo")
        noise = 0.15 * np.random.default_rng(seed).normal(size=128)
        y = x.a.samples + np.sqrt(0.5) * (x.b.samples + x.a.samples * x.b.samples) + noise
        found = en.uq.chaos(inputs, x, y, degree=2, method=method, n_resamples=40)
        for kind, exact in (("first", first), ("total", total)):
            low, high = found.interval("y", kind)
            inside.append((low <= exact) & (exact <= high))
    assert np.mean(inside) > 0.85
    low, high = found.interval("y", "std")
    assert low < found.std("y") < high
    with pytest.raises(ValueError, match="n_resamples"):
        en.uq.chaos(inputs, x, y, degree=2).interval("y")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:chaos")
@pytest.mark.parametrize(("method", "degree"), [("regression", 2), ("sparse", 4)])
def test_intervals_hold_the_exact_indices_of_a_function_that_is_no_polynomial(method, degree):
    """The G-function of Sobol', whose kinks miss 4 to 30 % of the variance; half of all intervals held it without."""
    a = np.array([0.0, 0.5, 3.0, 9.0])
    parts = 1.0 / (3.0 * (1.0 + a) ** 2)
    variance = np.prod(1.0 + parts) - 1.0
    exact = {
        "first": parts / variance,
        "total": parts * np.prod(1.0 + parts) / (1.0 + parts) / variance,
        "std": np.sqrt(variance),
    }
    inputs = en.Inputs(**{f"x{i}": stats.uniform() for i in range(4)})
    inside = []
    for seed in range(8):
        x = inputs.samples(100, seed=seed, sampler="monte_carlo")
        y = np.prod([(np.abs(4.0 * x[f"x{i}"].samples - 2.0) + c) / (1.0 + c) for i, c in enumerate(a)], axis=0)
        found = en.uq.chaos(inputs, x, {"y": y, "3 y": 3.0 * y}, degree=degree, method=method, n_resamples=20)
        for kind, value in exact.items():
            low, high = found.interval("y", kind)
            inside += np.atleast_1d((low <= value) & (value <= high)).tolist()
            scaled = np.array(found.interval("3 y", kind)) / (3.0 if kind == "std" else 1.0)
            np.testing.assert_allclose(scaled, [low, high], rtol=1e-9)
    assert np.mean(inside) > 0.9


@pytest.mark.filterwarnings("ignore:chaos")
def test_an_interval_of_as_many_terms_as_samples_is_not_known():
    inputs = en.Inputs(a=stats.norm(), b=stats.norm())
    x = inputs.samples(6, seed=1, sampler="monte_carlo")
    found = en.uq.chaos(inputs, x, {"y": np.exp(x.a.samples), "c": np.full(6, 2.0)}, degree=2, n_resamples=10)
    assert np.isnan(found.interval("y")).all() and np.isnan(found.interval("y", "std")).all()
    assert found.interval("c", "std") == (0.0, 0.0)


def test_a_sparse_expansion_stands_for_the_model():
    inputs = ishigami_inputs()
    found = expansion_of(ishigami, inputs, 128, degree=10)
    fresh = inputs.samples(1000, seed=77, sampler="monte_carlo")
    exact, fitted = ishigami(fresh)["y"], found(fresh)["y"]
    error = np.mean((np.asarray(exact.samples) - np.asarray(fitted.samples)) ** 2) / ISHIGAMI_VARIANCE
    assert error < 1e-2
