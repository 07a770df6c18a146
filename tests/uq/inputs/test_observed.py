"""Inputs from observations: kernel densities and empirical copulas."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en

DATA = np.random.default_rng(4).gamma(3.0, 2.0, size=200)


def test_a_kernel_density_is_scipy_s():
    kde = en.uq.Kde(DATA, width=0.8)
    peer = stats.gaussian_kde(DATA, bw_method=0.8 / DATA.std(ddof=1))
    x = np.linspace(-3.0, 30.0, 50)
    np.testing.assert_allclose(kde.pdf(x), peer(x), rtol=1e-10)
    np.testing.assert_allclose(kde.cdf(x), [peer.integrate_box_1d(-np.inf, end) for end in x], atol=1e-12)


def test_the_default_width_is_silverman_s():
    quartiles = np.subtract(*np.quantile(DATA, [0.75, 0.25])) / 1.349
    assert en.uq.Kde(DATA).width == pytest.approx(0.9 * min(DATA.std(ddof=1), quartiles) * 200**-0.2, rel=1e-12)


@pytest.mark.parametrize("scale, shift", [(1.0, 0.0), (1e6, -4e7), (1e-9, 0.0)])
@pytest.mark.parametrize("data", [DATA, [0.0, 1000.0], [1.0, 1.0, 2.0, 2.0, 2.0]], ids=["gamma", "far", "ties"])
def test_quantiles_are_the_inverse_of_the_distribution_function(data, scale, shift):
    kde = en.uq.Kde(scale * np.asarray(data) + shift)
    u = np.concatenate([[1e-12, 1e-6], np.linspace(0.001, 0.999, 333), [1.0 - 1e-6, 1.0 - 1e-12]])
    x = kde.from_uniform(u[None])
    assert np.all(np.diff(x) > 0.0)
    np.testing.assert_allclose(kde.cdf(x), u, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(kde.to_normal(x)[0], stats.norm.ppf(u), atol=1e-4)


def test_points_of_the_whole_cube_stay_finite():
    assert np.all(np.isfinite(en.uq.Kde(DATA).from_uniform(np.array([[0.0, 2.0**-54, 1.0 - 2.0**-53, 1.0]]))))


def test_a_kernel_density_is_an_input_like_others():
    inputs = en.Inputs(load=en.uq.Kde(DATA), other=stats.norm(), correlation={("load", "other"): 0.7})
    x = inputs.samples(4096, seed=2)
    load, other = x.load.samples, x.other.samples
    assert stats.spearmanr(load, other)[0] == pytest.approx(6.0 / np.pi * np.arcsin(0.35), abs=0.03)
    assert load.mean() == pytest.approx(DATA.mean(), rel=0.02)
    whole = inputs.samples(64, seed=2, sampler="monte_carlo")
    np.testing.assert_array_equal(whole.load.samples[5], whole.take([5]).load.samples[0])


def table():
    rng = np.random.default_rng(7)
    a = rng.normal(size=400)
    return np.stack([a, a**2 + 0.3 * rng.normal(size=400), rng.uniform(size=400)], axis=1)


def test_components_depend_on_each_other_as_the_observations_do():
    data = table()
    inputs = en.Inputs(v=en.uq.EmpiricalCopula(data, [stats.norm(), stats.expon(), stats.uniform()]))
    v = inputs.samples(4096, seed=5).v.samples
    for k, law in enumerate([stats.norm(), stats.expon(), stats.uniform()]):
        assert stats.kstest(v[k], law.cdf).statistic < 0.02
    expected, found = (stats.spearmanr(values)[0] for values in (data, v.T))
    np.testing.assert_allclose(found, expected, atol=0.03)
    # a parabola has no rank correlation; the dependence is there all the same
    peaks = np.abs(stats.norm.ppf(stats.rankdata(data[:, 0]) / 401.0)), data[:, 1]
    assert stats.spearmanr(np.abs(v[0]), v[1])[0] == pytest.approx(stats.spearmanr(*peaks)[0], abs=0.05)


def test_without_distributions_the_components_have_those_of_the_observations():
    data = table()
    v = en.Inputs(v=en.uq.EmpiricalCopula(data)).samples(4096, seed=5).v.samples
    np.testing.assert_allclose(v.mean(axis=1), data.mean(axis=0), atol=0.1)


def test_values_lead_back_to_their_germs():
    inputs = en.Inputs(v=en.uq.EmpiricalCopula(table(), [stats.norm(), stats.expon(), stats.uniform()]))
    x = inputs.samples(64, seed=5)
    z = inputs.to_normal({"v": x.v.samples})
    np.testing.assert_allclose(inputs.from_normal(z).v.samples, x.v.samples, rtol=1e-8)
    far = np.array([[3.0], [0.0], [0.5]])  # no observation has these ranks together
    with pytest.raises(ValueError, match="values of its distribution"):
        inputs.to_normal({"v": far})


def test_a_study_knows_its_observations_again(tmp_path):
    run = lambda data, **more: en.propagate(
        lambda x: {"y": x.a}, en.Inputs(a=en.uq.Kde(data)), 64, seed=1, store=tmp_path / "s", progress=False, **more
    )
    run(DATA)
    run(DATA, resume=True)
    with pytest.raises(ValueError, match="a"):
        run(DATA + 1.0, resume=True)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: en.uq.Kde([1.0]), "vector of numbers"),
        (lambda: en.uq.Kde([1.0, np.nan]), "be finite"),
        (lambda: en.uq.Kde([2.0, 2.0]), "hold different numbers"),
        (lambda: en.uq.Kde([1.0, 2.0], width=0.0), "width"),
        (lambda: en.uq.EmpiricalCopula([1.0, 2.0]), "table of numbers"),
        (lambda: en.uq.EmpiricalCopula(np.eye(3), [stats.norm()]), "one for each column"),
        (lambda: en.uq.EmpiricalCopula(np.eye(3), [1.0, 2.0, 3.0]), "distribution of one number"),
    ],
)
def test_what_is_no_observation_is_refused(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()
