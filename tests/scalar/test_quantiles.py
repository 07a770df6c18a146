"""Quantiles with weights, and confidence intervals, against SciPy and by counting."""

import warnings

import numpy as np
import pytest
import scipy.stats

from ensemble._backend import to_numpy
from ensemble.scalar import (
    Ensemble,
    SampleSet,
    probability,
    sample_confidence_interval,
    sample_corr,
    sample_cov,
    sample_max,
    sample_mean,
    sample_min,
    sample_quantile,
    sample_std,
    sample_var,
)
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
        (Ensemble(np.ones(3)), 1.0, r"level must be a number in \(0, 1\); got 1.0"),
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


@pytest.mark.parametrize(
    "weights, level, expected",
    [
        ([1, 99], 0.5, 3.0),
        ([99, 1], 0.5, 1.0),
        ([1, 3], 0.5, 3.0),
        ([1, 1], 0.5, 2.0),
        ([1, 2], 0.25, 2.0),  # the rise is one unit of the two that lie between the middles of the outer stretches
        ([99, 1], 0.75, 1.0),
        ([1, 0], 0.5, 1.0),
        ([0, 1], 0.1, 3.0),
        ([2.0**-1070, 1.0], 0.5, 3.0),
    ],
)
def test_of_two_samples_the_heavier_holds_the_levels_that_its_weight_covers(weights, level, expected):
    x = Ensemble(np.array([1.0, 3.0]), SampleSet(weights=weights))
    assert sample_quantile(x, level) == expected


def test_a_sample_that_outweighs_all_others_is_the_median():
    rng = np.random.default_rng(60289)
    for n in (2, 3, 4, 7):
        for heavy in range(n):
            values, weights = rng.permutation(n) * 1.0, rng.uniform(0.1, 1.0, n)
            weights[heavy] = 2.0 * weights.sum()
            x = Ensemble(values, SampleSet(weights=weights))
            assert sample_quantile(x, 0.5) == sample_quantile(x, 0.5, method="inverted_cdf") == values[heavy]


def test_a_weighted_quantile_lies_near_that_of_as_many_copies():
    rng = np.random.default_rng(75571)
    for _ in range(200):
        n = int(rng.integers(2, 9))
        values, weights = np.sort(rng.normal(size=n)), rng.integers(1, 30, size=n)
        level = rng.uniform()
        share = weights.max() / weights.sum()  # a rise is no wider than the lighter of its two samples
        copies = np.repeat(values, weights)
        low, high = np.quantile(copies, np.clip([level - share, level + share], 0, 1), method="inverted_cdf")
        assert low <= sample_quantile(Ensemble(values, SampleSet(weights=weights)), level) <= high


def test_weighted_quantiles_rise_with_the_level_and_only_know_ratios_of_weights(base):
    rng = np.random.default_rng(33617)
    values, weights = rng.normal(size=(2, 6)), rng.uniform(0.1, 3.0, 6)
    levels = np.linspace(0.0, 1.0, 41)
    got, scaled = (
        to_numpy(sample_quantile(Ensemble(base.asarray(values), SampleSet(weights=k * weights)), levels))
        for k in (1.0, 8.0)
    )
    np.testing.assert_array_equal(got, scaled)
    assert np.all(np.diff(got, axis=0) >= 0.0)
    padded = Ensemble(
        base.asarray(np.concatenate([values, np.full((2, 1), np.nan)], axis=1)), SampleSet(weights=[*weights, 0.0])
    )
    np.testing.assert_array_equal(got, to_numpy(sample_quantile(padded, levels)))


EQUAL = {
    "mean": sample_mean,
    "var": lambda x: sample_var(x, ddof=1.0),
    "std": sample_std,
    "min": sample_min,
    "max": sample_max,
    "median": lambda x: sample_quantile(x, 0.5),
    "quantiles": lambda x: sample_quantile(x, LEVELS),
    "inverted": lambda x: sample_quantile(x, LEVELS, method="inverted_cdf"),
    "cov": lambda x: sample_cov(x, ddof=1.0),
    "corr": sample_corr,
    "probability": lambda x: probability(x > 0.0),
    "interval": sample_confidence_interval,
}


@pytest.mark.parametrize("n_samples", [2, 3, 5])
@pytest.mark.parametrize("name", EQUAL)
def test_equal_weights_are_no_weights_and_weights_of_zero_no_samples(name, n_samples):
    values = np.random.default_rng(83).normal(size=(3, n_samples))
    bare = EQUAL[name](Ensemble(values))
    for weight in (1.0, 0.1, 3.0):
        np.testing.assert_array_equal(
            EQUAL[name](Ensemble(values, SampleSet(weights=np.full(n_samples, weight)))), bare
        )
        padded = np.insert(values, 1, np.nan, axis=1)
        weights = np.insert(np.full(n_samples, weight), 1, 0.0)
        np.testing.assert_array_equal(EQUAL[name](Ensemble(padded, SampleSet(weights=weights))), bare)


def test_statistics_of_one_sample_that_counts_are_its_values():
    values = np.array([[1.5, np.nan], [-2.0, np.inf]])
    x = Ensemble(values, SampleSet(weights=[7.0, 0.0]))
    for statistic in (sample_mean, sample_min, sample_max, lambda y: sample_quantile(y, 0.3)):
        np.testing.assert_array_equal(statistic(x), values[:, 0])
    np.testing.assert_array_equal(sample_var(x), [0.0, 0.0])
    np.testing.assert_array_equal(sample_quantile(x, [0.0, 1.0])[1], values[:, 0])
    with pytest.raises(ValueError, match="ddof must be smaller than the number of samples; got 1 for 1 samples"):
        sample_var(x, ddof=1)


@pytest.mark.parametrize("n", [2, 3, 5, 9, 40])
def test_quantiles_do_not_depend_on_the_order_of_equal_samples_with_other_weights(n):
    rng = np.random.default_rng(n)
    for _ in range(60):
        values, weights = rng.integers(0, 4, size=(2, n)) * 1.0, rng.integers(1, 6, size=n) * 1.0
        order = rng.permutation(n)
        one = sample_quantile(Ensemble(values, SampleSet(weights=weights)), LEVELS)
        other = sample_quantile(Ensemble(values[:, order], SampleSet(weights=weights[order])), LEVELS)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
        mirrored = sample_quantile(Ensemble(-values, SampleSet(weights=weights)), [1.0 - level for level in LEVELS])
        np.testing.assert_allclose(mirrored, -one, rtol=1e-9, atol=1e-9)


def test_quantiles_of_equal_samples_with_whole_weights_are_those_of_copies():
    """Between neighbours of which one has a sample of weight 1."""
    values, weights = np.array([2.0, 1.0, 2.0, 2.0, 3.0]), np.array([1.0, 4.0, 3.0, 2.0, 5.0])
    x = Ensemble(values, SampleSet(weights=weights))
    expected = np.quantile(np.repeat(values, weights.astype(int)), LEVELS)
    np.testing.assert_allclose(sample_quantile(x, LEVELS), expected, rtol=1e-12)


def test_quantiles_of_jax_arrays_warn_of_no_types():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("error")
        x = Ensemble(jax.numpy.asarray([1.0, 3.0]), SampleSet(weights=[1.0, 99.0]))
        assert float(sample_quantile(x, 0.5)) == 3.0
        assert float(sample_quantile(x, 0.5, method="inverted_cdf")) == 3.0
