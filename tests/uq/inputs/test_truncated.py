"""Distributions between bounds, and observed numbers as a distribution."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.uq.inputs.stored import inputs_of_description

U = (np.arange(400) + 0.5) / 400.0


@pytest.mark.parametrize("low, high", [(0.8, 1.1), (-np.inf, 0.5), (1.7, np.inf), (2.6, 2.7), (-0.9, -0.7)])
def test_a_truncated_normal_is_that_of_scipy(low, high):
    inputs = en.Inputs(a=en.uq.Truncated(stats.norm(1.0, 0.2), low, high))
    expected = stats.truncnorm((low - 1.0) / 0.2, (high - 1.0) / 0.2, loc=1.0, scale=0.2)
    got = inputs.from_uniform(U[:, None]).a.samples
    np.testing.assert_allclose(got, expected.ppf(U), rtol=1e-9)
    assert got.min() >= low and got.max() <= high
    np.testing.assert_allclose(inputs.variables["a"].pdf(got), expected.pdf(got), rtol=1e-8)


@pytest.mark.parametrize("low, high", [(0.5, 2.0), (3.0, np.inf)])
def test_normal_space_and_back(low, high):
    inputs = en.Inputs(a=en.uq.Truncated(stats.lognorm(0.7), low, high), b=stats.norm(), correlation={("a", "b"): 0.6})
    z = np.random.default_rng(30911).normal(size=(200, 2))
    x = inputs.from_normal(z)
    back = inputs.to_normal({"a": x.a.samples, "b": x.b.samples})
    np.testing.assert_allclose(back, z, atol=1e-9)


def test_both_tails_are_exact():
    """At 20 deviations the distribution function is 1 in float64: the other end decides."""
    x = en.Inputs(a=en.uq.Truncated(stats.norm(), 20.0, 21.0)).from_uniform([[0.5]]).a.samples[0]
    assert x == pytest.approx(stats.norm.isf(0.5 * (stats.norm.sf(20.0) + stats.norm.sf(21.0))), rel=1e-12)


def test_chaos_of_a_truncated_input_is_exact():
    inputs = en.Inputs(a=en.uq.Truncated(stats.norm(), -1.0, 2.0), b=stats.uniform())
    study = en.propagate(lambda x: {"y": 3.0 * x.a + x.b}, inputs, 64, seed=5, progress=False)
    exact = 9.0 * stats.truncnorm(-1.0, 2.0).var()
    first = en.uq.chaos(inputs, study, degree=2).first["y"]
    np.testing.assert_allclose(first, np.array([exact, 1 / 12]) / (exact + 1 / 12), rtol=1e-8)


def test_a_description_says_the_bounds():
    inputs = en.Inputs(a=en.uq.Truncated(stats.norm(1.0, 0.2), low=0.0), v=en.uq.Vector(stats.expon(), 2))
    rebuilt = inputs_of_description(inputs.description())
    assert np.array_equal(rebuilt.samples(16, seed=1).a.samples, inputs.samples(16, seed=1).a.samples)
    other = en.Inputs(a=en.uq.Truncated(stats.norm(1.0, 0.2), low=0.1), v=en.uq.Vector(stats.expon(), 2))
    assert other.description() != inputs.description()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((stats.norm(), 2.0, 1.0), "low must be below high; got 2.0 and 1.0"),
        ((stats.uniform(), 2.0, 3.0), "must have values of the distribution between them; got 2 to 3"),
        ((stats.norm(), np.nan, 3.0), "low must be"),
        ((stats.poisson(3.0), 0.0, 3.0), "distribution must be continuous; got poisson"),
        ((5.0, 0.0, 3.0), "must be a frozen continuous distribution"),
    ],
)
def test_wrong_bounds_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        en.uq.Truncated(*arguments)


def test_observed_numbers_have_their_frequencies():
    data = [2.5, 1.0, 1.0, -3.25]
    x = en.Inputs(a=en.uq.empirical(data)).from_uniform(U[:, None]).a.samples
    assert {float(v): float(np.mean(x == v)) for v in np.unique(x)} == {-3.25: 0.25, 1.0: 0.5, 2.5: 0.25}


@pytest.mark.parametrize("data, message", [([], "vector of numbers"), ([1.0, np.nan], "be finite; got 1 that are not")])
def test_data_without_numbers_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        en.uq.empirical(data)
