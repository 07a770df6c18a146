"""Categories, mixtures, vectors: values, frequencies, refusals."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import uq


def test_categories_have_their_frequencies():
    material = en.Categorical({"steel": 0.3, "none": 0.0, "wood": 0.7})
    x = en.Inputs(m=material).samples(5000, sampler="monte_carlo", seed=30201)
    counts = np.bincount(x.m.samples, minlength=3)
    assert counts[1] == 0 and stats.chisquare(counts[[0, 2]], [1500, 3500]).pvalue > 1e-3
    assert x.m.dtype == np.int64 and x.sample(0).m in ("steel", "wood")


def test_labels_without_probabilities_are_equally_probable():
    assert en.Categorical(["a", "b"]).probabilities.tolist() == [0.5, 0.5]
    assert en.Categorical([1, 2.5]).labels == (1, 2.5)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_cube_and_normal_space_give_the_same_category(share):
    inputs = en.Inputs(m=en.Categorical({"a": share, "b": 1.0 - share}))
    z = np.random.default_rng(30202).normal(size=(500, 1))
    assert np.array_equal(inputs.from_normal(z).m.samples, inputs.from_uniform(stats.norm.cdf(z)).m.samples)


@pytest.mark.parametrize(
    "probabilities, error, match",
    [
        ({}, ValueError, "name one label or more"),
        ({"a": 0.5, "b": 0.6}, ValueError, r"add up to 1; got \[0.5, 0.6\], of sum 1.1"),
        ({"a": -0.5, "b": 1.5}, ValueError, "be zero or above"),
        ({"a": np.nan, "b": 1.0}, ValueError, "be zero or above"),
        (["a", "a"], ValueError, "labels must differ"),
        ([(1, 2)], TypeError, "labels must be texts or numbers"),
    ],
)
def test_categories_that_cannot_be_are_refused(probabilities, error, match):
    with pytest.raises(error, match=match):
        en.Categorical(probabilities)


PARTS = [0.0, stats.expon(scale=5.0), stats.poisson(3.0), stats.norm()]


def test_a_mixture_is_the_exact_inverse_of_its_distribution_function():
    mixture = uq.Mixture(PARTS, [0.1, 0.4, 0.2, 0.3])
    u = np.random.default_rng(30203).random((2000, 1))
    x = en.Inputs(a=mixture).from_uniform(u).a.samples
    assert np.all(mixture.cdf(x) >= u[:, 0]) and np.all(mixture.cdf(np.nextafter(x, -np.inf)) < u[:, 0])


def test_a_mixture_has_its_jumps():
    x = en.Inputs(a=uq.Mixture(PARTS, [0.1, 0.4, 0.2, 0.3])).samples(2**12, seed=30204).a.samples
    assert abs(np.mean(x == 0.0) - (0.1 + 0.2 * np.exp(-3.0))) < 0.005
    assert abs(np.mean(x == 3.0) - 0.2 * stats.poisson.pmf(3, 3.0)) < 0.005


def test_the_upper_tail_of_a_mixture_is_exact_in_normal_space():
    x = en.Inputs(a=uq.Mixture([0.0, stats.expon()], [0.6, 0.4])).from_normal([[8.5]])
    np.testing.assert_allclose(float(x.a), -np.log(stats.norm.sf(8.5) / 0.4), rtol=1e-13)


def test_a_sample_of_a_mixture_is_the_same_alone():
    inputs = en.Inputs(a=uq.Mixture(PARTS, [0.1, 0.4, 0.2, 0.3]))
    u = np.random.default_rng(30205).random((50, 1))
    assert [float(inputs.from_uniform([row]).a) for row in u] == inputs.from_uniform(u).a.samples.tolist()


@pytest.mark.parametrize(
    "parts, weights, error, match",
    [
        ([], [], ValueError, "parts must name one distribution or more"),
        ([0.0, 1.0], [0.5, 0.6], ValueError, "weights must be 2 numbers above zero that add up to 1"),
        ([0.0], [0.5, 0.5], ValueError, "weights must be 1 numbers"),
        ([0.0, "x"], [0.5, 0.5], TypeError, r"parts\[1\] must be a frozen distribution"),
        ([np.nan], [1.0], ValueError, r"parts\[0\] must be finite"),
    ],
)
def test_mixtures_that_cannot_be_are_refused(parts, weights, error, match):
    with pytest.raises(error, match=match):
        uq.Mixture(parts, weights)


def test_alike_components_are_those_of_a_list():
    law = stats.gamma(2.0)
    both = uq.Vector(law, 2), [law, stats.gamma(2.0)]
    one, other = (en.Inputs(v=v).samples(16, seed=30206).v.samples for v in both)
    assert np.array_equal(one, other)
    z = np.random.default_rng(30207).normal(size=(9, 2))
    one, other = (en.Inputs(v=v).from_normal(z).v.samples for v in both)
    assert np.array_equal(one, other)


def test_a_joint_normal_has_its_covariance():
    covariance = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.5]])
    x = en.Inputs(v=stats.multivariate_normal([1.0, 2.0, 3.0], covariance)).samples(2**14, seed=30208)
    np.testing.assert_allclose(np.cov(x.v.samples), covariance, atol=0.01)
    singular = en.Inputs(v=stats.multivariate_normal([0.0, 0.0], [[1.0, 1.0], [1.0, 1.0]], allow_singular=True))
    v = singular.samples(64, seed=30209).v.samples
    np.testing.assert_allclose(v[0], v[1], atol=1e-12)


@pytest.mark.parametrize("size", [None, 0, 2.5])
def test_a_vector_of_one_distribution_needs_its_size(size):
    with pytest.raises((TypeError, ValueError), match="size of Vector must be an integer of at least 1"):
        uq.Vector(stats.norm(), size)


@pytest.mark.parametrize(
    "value, match",
    [([stats.norm(), stats.multivariate_normal([0.0, 0.0])], r"v\[1\] must be"), ([], "v must hold one number")],
)
def test_vectors_are_of_numbers(value, match):
    with pytest.raises((TypeError, ValueError), match=match):
        en.Inputs(v=value)


CHI2 = {
    "norm": stats.norm(), "gamma": stats.gamma(2.0), "poisson": stats.poisson(3.0), "beta": stats.beta(0.5, 0.5),
    "uniform": stats.uniform(-1.0, 2.0), "lognorm": stats.lognorm(1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", CHI2)
def test_marginals_pass_the_chi_squared_test(name):
    law = CHI2[name]
    x = en.Inputs(a=law).samples(5000, sampler="monte_carlo", seed=30210).a.samples
    edges = np.unique(law.ppf(np.linspace(0.05, 0.95, 19)))
    probabilities = np.diff([0.0, *law.cdf(edges), 1.0])
    counts = np.bincount(np.searchsorted(edges, x), minlength=edges.size + 1)
    kept = probabilities > 1e-12
    assert stats.chisquare(counts[kept], 5000 * probabilities[kept]).pvalue > 1e-3
