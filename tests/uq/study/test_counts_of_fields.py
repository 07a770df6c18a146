"""Counts, extremes and moments of large outputs: runs of entries at a time give what every entry gives alone."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.scalar.statistics import histograms
from ensemble.scalar.statistics.histograms import Histograms, ranges
from ensemble.scalar.statistics.moments import sum_last
from ensemble.uq.study import streams


def samples(n_entries, n_samples, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_entries, n_samples)) * 10.0 ** rng.integers(-3, 4, (n_entries, 1))


@pytest.mark.parametrize("n_samples", [1, 3, 40, 200])
def test_the_counts_of_every_entry_are_those_of_the_entry_alone(monkeypatch, n_samples):
    monkeypatch.setattr(histograms, "CACHED_COUNTS", 64 * 7)  # runs of seven entries
    values = samples(50, n_samples, 4)
    values[3] = 2.5
    values[4, :] = np.where(values[4] > 0.0, 0.0, values[4])
    together = Histograms(50, 64)
    for part in np.array_split(values, 3, axis=1):
        together.add(part)
    for k in range(50):
        alone = Histograms(1, 64)
        alone.add(values[k : k + 1])
        for name in ("counts", "low", "high", "at_low", "at_high", "exponents", "first"):
            assert np.array_equal(getattr(together, name)[k : k + 1], getattr(alone, name)), name
        assert together.counts[k].sum() == n_samples


def test_values_of_the_largest_and_smallest_size_are_counted():
    values = np.array([[1e308, -1e308, 3.0], [5e-324, 1e-310, 0.0], [1.0, 1.0, 1.0]])
    counted = Histograms(3, 64)
    counted.add(values)
    assert np.array_equal(counted.counts.sum(axis=1), [3, 3, 3])
    assert np.array_equal(counted.low, values.min(axis=1)) and np.array_equal(counted.high, values.max(axis=1))


@pytest.mark.parametrize("n", [1, 2, 7, 63, 64, 300])
def test_the_ranges_of_short_and_long_rows_are_theirs(n):
    values = samples(1000, n, 5)
    low, high = ranges(values)
    assert np.array_equal(low, values.min(axis=1)) and np.array_equal(high, values.max(axis=1))


@pytest.mark.parametrize("n", range(1, 12))
def test_the_sum_of_a_few_samples_has_the_bits_of_numpy(n):
    values = samples(3000, n, 6)
    assert sum_last(np, values).tobytes() == values.sum(axis=-1).tobytes()
    assert sum_last(np, values[0]).tobytes() == values[0].sum(axis=-1).tobytes()
    assert sum_last(np, values.T.copy().T).tobytes() == values.T.copy().T.sum(axis=-1).tobytes()


def test_a_field_counted_in_parts_has_the_statistics_of_its_samples(monkeypatch):
    monkeypatch.setattr(streams, "UNCOUNTED_MEMORY", 5000)
    inputs = en.Inputs(a=stats.norm(), b=stats.uniform())
    weights = np.linspace(-1.0, 1.0, 300)

    def model(x):
        x.fail(x.b.samples > 0.9)
        return {"y": x.a * weights + x.b}

    options = {"seed": 3, "progress": False, "ensemble_size": 48}
    counted = en.propagate(model, inputs, 2048, keep="statistics", **options)
    kept = en.propagate(model, inputs, 2048, keep="all", **options)
    assert np.allclose(counted.mean("y"), kept.mean("y"), rtol=1e-12)
    width = 2.0 * (weights.max() * 8.0 + 1.0) / 1023.0
    assert np.all(np.abs(counted.quantile("y", 0.5) - kept.quantile("y", 0.5)) < 2.0 * width)
