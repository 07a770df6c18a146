"""Quantiles and shares from counts in bins."""

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble.scalar.statistics.histograms import Histograms
from tests.conftest import examples

PARTS = ("counts", "low", "high", "at_low", "at_high", "exponents", "first")


def samples(n=2000):
    rng = np.random.default_rng(61729)
    z = rng.normal(size=n)
    return np.stack([z, np.exp(3 * z), np.full(n, 3.7), 1e300 * z, 1e-310 * z, 1e6 + z, np.zeros(n), np.round(z)])


def filled(values, n_bins=128, step=None):
    histograms = Histograms(len(values), n_bins)
    for first in range(0, values.shape[1], step or values.shape[1]):
        histograms.add(values[:, first : first + (step or values.shape[1])])
    return histograms


@pytest.mark.parametrize("step", [1, 37, 1000])
def test_counts_depend_on_neither_grouping_nor_order(step):
    values = samples()
    shuffled = values[:, np.random.default_rng(20417).permutation(values.shape[1])]
    whole, parts = filled(values), filled(shuffled, step=step)
    for name in PARTS:
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))


@pytest.mark.parametrize("step", [1, 37, 2000])
def test_samples_that_are_not_present_leave_no_trace(step):
    values = samples()
    present = np.random.default_rng(20417).random(values.shape) < 0.5
    present[3], present[4, 5:] = False, False
    masked = Histograms(len(values), 128)
    for first in range(0, values.shape[1], step):
        part = slice(first, first + step)
        masked.add_present(np.where(present, values, np.nan)[:, part], present[:, part])
    for row, there in enumerate(present):
        if not there.any():
            assert not masked.counts[row].any() and np.isnan(masked.quantile(0.5)[row])
            continue
        alone = filled(values[row : row + 1, there])
        for name in PARTS:
            np.testing.assert_array_equal(getattr(masked, name)[row], getattr(alone, name)[0])


def test_two_accumulators_add_up():
    values = samples()
    whole, first, second = filled(values), filled(values[:, :300]), filled(values[:, 300:])
    kept = second.counts.copy()
    first.merge(second)
    for name in PARTS:
        np.testing.assert_array_equal(getattr(whole, name), getattr(first, name))
    np.testing.assert_array_equal(second.counts, kept)
    first.merge(Histograms(8, 128))
    np.testing.assert_array_equal(whole.counts, first.counts)


@pytest.mark.parametrize("n_bins", [64, 128, 1024])
def test_the_width_keeps_its_bound(n_bins):
    values = samples()
    bound = 2 * (values.max(axis=1) / (n_bins - 1) - values.min(axis=1) / (n_bins - 1))
    rounding = np.spacing(np.abs(values).max(axis=1))
    assert np.all(filled(values, n_bins).width() <= np.maximum(bound, rounding))


@pytest.mark.parametrize("q", [0.0, 0.01, 0.05, 0.5, 0.95, 1.0])
def test_quantiles_are_off_by_at_most_a_width(q):
    values = samples()
    histograms = filled(values)
    exact = np.quantile(values, q, axis=1, method="nearest")
    assert np.all(np.abs(histograms.quantile(q) - exact) <= histograms.width())


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=30), st.integers(0, 29))
def test_every_sample_is_counted_once(numbers, cut):
    values = np.array([numbers])
    histograms = Histograms(1, 64)
    histograms.add(values[:, :cut])
    histograms.add(values[:, cut:])
    assert histograms.counts.sum() == values.size
    assert histograms.quantile(0.0) == values.min() and histograms.quantile(1.0) == values.max()


COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def numbers_around(row):
    """Numbers at, beside and between samples, at the ends of bins, and far away."""
    picked = np.sort(row)[:: max(1, row.size // 12)]
    beside = [np.nextafter(picked, end) for end in (-np.inf, np.inf)]
    return np.r_[picked, *beside, 0.5 * (picked[1:] + picked[:-1]), np.arange(-2.0, 3.0), -np.inf, np.inf]


@pytest.mark.parametrize("comparison", COMPARISONS)
@pytest.mark.parametrize("step", [37, 2000])
def test_shares_lie_between_their_bounds(comparison, step):
    """Outputs that are cut off, that are constant, of one value among others, and of all sizes."""
    z = samples()
    uniform = np.random.default_rng(90017).random(z.shape[1])  # which fills the last bin, too
    values = np.vstack(
        [z, np.maximum(z[0] - 1.0, 0.0), np.minimum(z[0], 0.5), np.where(z[0] > 1.0, 0.3, z[0]), uniform]
    )
    histograms = filled(values, 128, step)
    for number in np.unique(np.concatenate([numbers_around(row) for row in values])):
        exact = COMPARISONS[comparison](values, number).mean(axis=1)
        share, least, most = histograms.share(comparison, float(number))
        assert np.all(least <= exact) and np.all(exact <= most), number
        assert (
            np.all(least <= share) and np.all(share <= most) and np.all(most - least <= histograms.counts.max() / 2000)
        )
        ends = (number <= values.min(axis=1)) | (number >= values.max(axis=1))
        np.testing.assert_array_equal(share[ends], exact[ends])
        np.testing.assert_array_equal(most[ends], least[ends])


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_shares_of_integers_are_exact(comparison):
    rng = np.random.default_rng(40961)
    values = np.stack([rng.poisson(3.0, 500), rng.integers(-60, 60, 500), rng.integers(0, 2, 500)])
    histograms = Histograms(3, 128, whole=True)
    histograms.add(values)
    for number in np.arange(-62.0, 62.0, 0.25):
        exact = COMPARISONS[comparison](values, number).mean(axis=1)
        for share in histograms.share(comparison, float(number)):
            np.testing.assert_allclose(share, exact, rtol=0.0, atol=1e-15)


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_shares_of_many_integers_lie_between_their_bounds(comparison):
    rng = np.random.default_rng(40961)
    values = np.stack([rng.integers(-5000, 5000, 900), np.floor(rng.exponential(40.0, 900) ** 2).astype(np.int64)])
    histograms = Histograms(2, 64, whole=True)
    histograms.add(values)
    low, high = values.min(axis=1), values.max(axis=1)
    for number in np.concatenate([*map(numbers_around, values), low, low + 0.5, high - 0.5, high]):
        exact = COMPARISONS[comparison](values, number).mean(axis=1)
        _, least, most = histograms.share(comparison, float(number))
        assert np.all(least <= exact) and np.all(exact <= most), number
        ends = (number < low + 1) | (number > high - 1)
        np.testing.assert_array_equal(least[ends], most[ends])


def test_no_samples_have_no_quantile():
    histograms = Histograms(2)
    histograms.add(np.zeros((2, 0)))
    assert np.all(np.isnan(histograms.quantile(0.5))) and np.all(np.isnan(histograms.quantile(1.0)))
    for share in histograms.share("<", 0.0):
        assert np.all(np.isnan(share))


def test_large_fields_have_fewer_bins():
    assert Histograms(10).n_bins == 1024 and Histograms(200_000).n_bins == 128
