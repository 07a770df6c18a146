"""Quantiles with weights, and confidence intervals, against SciPy and by counting."""

import numpy as np
import pytest
import scipy.stats

from ensemble._backend import to_numpy
from ensemble.scalar import Ensemble, SampleSet, sample_confidence_interval, sample_quantile
from ensemble.scalar.statistics.quantiles import tail_factor

LEVELS = [0.0, 0.1, 0.25, 0.5, 0.9, 1.0]


def test_an_inverted_distribution_function_counts_weights_as_samples():
    rng = np.random.default_rng(27743)
    values, weights = rng.normal(size=(3, 9)), rng.integers(0, 4, size=9)
    x = Ensemble(values, SampleSet(weights=weights))
    repeated = Ensemble(np.repeat(values, weights, axis=-1))
    expected = np.quantile(repeated.samples, LEVELS, axis=-1, method="inverted_cdf")
    np.testing.assert_array_equal(sample_quantile(x, LEVELS, method="inverted_cdf"), expected)
    np.testing.assert_array_equal(sample_quantile(repeated, LEVELS, method="inverted_cdf"), expected)


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="sample_quantile: method must be one of 'linear', 'inverted_cdf'"):
        sample_quantile(Ensemble(np.ones(3)), 0.5, method="median_unbiased")


def test_nan_stays_in_its_entry():
    x = Ensemble(np.array([[1.0, np.nan, 2.0], [1.0, 2.0, 3.0]]))
    np.testing.assert_array_equal(sample_quantile(x, 0.5, method="inverted_cdf"), [np.nan, 2.0])


def test_an_interval_is_students_and_longer_on_the_side_of_the_long_tail(x):
    low, high = sample_confidence_interval(x, 0.9)
    values = to_numpy(x.samples)
    mean, skewness = np.mean(values, axis=-1), scipy.stats.skew(values, axis=-1)
    expected = scipy.stats.t.interval(0.9, 4, mean, scipy.stats.sem(values, axis=-1))
    longer = tail_factor(np.abs(skewness), 5, 5, 0.9)
    np.testing.assert_allclose(to_numpy(low), mean - (mean - expected[0]) * np.where(skewness < 0.0, longer, 1.0))
    np.testing.assert_allclose(to_numpy(high), mean + (expected[1] - mean) * np.where(skewness > 0.0, longer, 1.0))


@pytest.mark.parametrize("factor", [1.0, -1e-3])
def test_an_interval_holds_the_mean_of_a_lognormal(factor):
    """Student's alone holds it in 0.89 of the cases; 4000 have a standard deviation of 0.0035."""
    draws = factor * np.random.default_rng(57).lognormal(size=(4000, 64))
    low, high = sample_confidence_interval(Ensemble(draws))
    exact = factor * np.exp(0.5)
    assert np.mean((low < exact) & (exact < high)) > 0.93


def test_an_interval_holds_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(98947).normal(size=(4000, 6))
    low, high = sample_confidence_interval(Ensemble(draws), 0.8)
    # 4000 trials of probability 0.8 have a standard deviation of 0.0063; 4 of these
    assert abs(np.mean((low < 0.0) & (high > 0.0)) - 0.8) < 0.026


def test_padding_does_not_move_an_interval():
    padded = Ensemble(np.array([1.0, 2.0, 4.0, np.nan]), SampleSet(weights=[1, 1, 1, 0]))
    np.testing.assert_allclose(
        sample_confidence_interval(padded), sample_confidence_interval(Ensemble(np.array([1.0, 2.0, 4.0]))), rtol=1e-15
    )


def test_shared_data_is_certain():
    low, high = sample_confidence_interval(Ensemble(np.array([[2.0]])))
    assert low == high == 2.0


@pytest.mark.parametrize(
    "x, level, text",
    [
        (Ensemble(np.ones(3)), 1.0, r"level must be in \(0, 1\); got 1.0"),
        (Ensemble(np.ones(2), SampleSet(weights=[1, 0])), 0.9, "x must have samples worth more than one; got 1"),
    ],
)
def test_an_interval_needs_a_level_and_two_samples(x, level, text):
    with pytest.raises(ValueError, match=f"sample_confidence_interval: {text}"):
        sample_confidence_interval(x, level)


@pytest.mark.parametrize("method", ["linear", "inverted_cdf"])
def test_the_ends_are_the_extremes_whatever_the_weights(method):
    rng = np.random.default_rng(90011)
    for _ in range(200):
        weights = 10.0 ** rng.uniform(-300.0, 300.0, 5)
        x = Ensemble(rng.normal(size=5), SampleSet(weights=weights))
        ends = sample_quantile(x, [0.0, 1.0], method=method)
        np.testing.assert_array_equal(ends, [x.samples.min(), x.samples.max()])
