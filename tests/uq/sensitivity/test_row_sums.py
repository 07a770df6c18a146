"""Sums over rows: the estimators, their independence of groups, failed rows, intervals, bounds."""

import numpy as np
import pytest

from ensemble.uq.sensitivity import row_sums
from ensemble.uq.sensitivity.row_sums import enclosed_ratio, student_factor
from ensemble.uq.sensitivity.shapley_sums import ShapleySums
from ensemble.uq.sensitivity.sobol_sums import SobolSums

D, R = 3, 4


def values_of(rng, n_rows, n_outputs=1):
    """Outputs of a model with interaction on rows A, B, AB_i, samples last."""
    a, b = rng.normal(size=(2, n_rows, D))
    slopes = rng.uniform(0.5, 2.0, (n_outputs, D))

    def model(x):
        return x @ slopes.T + 0.5 * (x[:, :1] * x[:, 1:2]) + 40.0

    parts = [model(a), model(b)]
    for i in range(D):
        mixed = a.copy()
        mixed[:, i] = b[:, i]
        parts.append(model(mixed))
    return np.stack(parts, axis=1).reshape(-1, n_outputs).T.copy()


def sums_of(values, failed=None, sizes=None):
    sums = SobolSums(D, R)
    failed = np.zeros(values.shape[1], bool) if failed is None else failed
    start = 0
    for size in sizes or [values.shape[1]]:
        sums.update(values[:, start : start + size], failed[start : start + size])
        start += size
    sums.finish()
    return sums


def by_definition(y, shift):
    """First and total indices of one output, rows ``(n, D + 2)``, written out."""
    a, b, mixed = y[:, 0] - shift, y[:, 1] - shift, y[:, 2:] - shift
    variance = np.concatenate([a, b]).var()
    first = np.mean(b[:, None] * (mixed - a[:, None]), axis=0) / variance
    return first, np.mean((mixed - a[:, None]) ** 2, axis=0) / (2.0 * variance)


def test_the_indices_are_those_of_the_cited_table(rng):
    values = values_of(rng, 64, 2)
    sums = sums_of(values)
    first, total = sums.estimates(2, 0.95)
    for k in range(2):
        expected = by_definition(values[k].reshape(64, -1), sums.shift[k])
        np.testing.assert_allclose((first.value[:, k], total.value[:, k]), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("sizes", [[1] * 320, [7] * 45 + [5], [320], [33, 2, 150, 135], [39, 281]])
def test_no_bit_depends_on_the_groups(rng, sizes):
    values = values_of(rng, 64, 3)
    failed = np.zeros(320, bool)
    failed[[3, 44, 301]] = True
    values[:, failed] = np.nan
    whole, parts = sums_of(values, failed), sums_of(values, failed, sizes)
    for one, other in zip(whole.estimates(2, 0.9), parts.estimates(2, 0.9)):
        np.testing.assert_array_equal(one.value, other.value)
        np.testing.assert_array_equal(one.half_width, other.half_width)
        np.testing.assert_array_equal(one.bounds, other.bounds)


def test_an_output_has_the_bits_that_it_has_alone(rng, monkeypatch):
    monkeypatch.setattr(row_sums, "BLOCK", 4)
    values = values_of(rng, 40, 10)
    together = sums_of(values).estimates(2, 0.95)
    for k in range(10):
        alone = sums_of(values[k : k + 1]).estimates(2, 0.95)
        for one, other in zip(together, alone):
            np.testing.assert_array_equal(one.value[:, k : k + 1], other.value)
            np.testing.assert_array_equal(one.half_width[:, k : k + 1], other.half_width)


def test_a_failed_sample_takes_out_its_row_and_no_other(rng):
    values = values_of(rng, 40)
    failed = np.zeros(200, bool)
    failed[[11, 13, 100]] = True
    spoilt = values.copy()
    spoilt[:, failed] = np.nan
    sums = sums_of(spoilt, failed)
    assert (sums.rows_seen, sums.n_used) == (40, 38)
    kept = np.delete(values.reshape(40, -1), [2, 20], axis=0)
    first, total = sums.estimates(2, 0.95)
    expected = by_definition(kept, sums.shift[0])
    np.testing.assert_allclose((first.value[:, 0], total.value[:, 0]), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("where", ["low", "high", "both", "true", "random"])
def test_bounds_enclose_what_missing_values_in_the_range_can_give(rng, where):
    values = values_of(rng, 40)
    failed = np.zeros((40, D + 2), bool)
    failed[[5, 17, 30], [0, 3, 1]] = True
    spoilt = np.where(failed.ravel(), np.nan, values)
    low, high = np.nanmin(spoilt), np.nanmax(spoilt)
    sums = sums_of(spoilt, failed.ravel())
    estimates = sums.estimates(2, 0.95)
    rows = values.reshape(40, -1).copy()
    missing = np.any(failed, axis=1)
    shape = rows[missing].shape
    rows[missing] = {
        "low": np.full(shape, low),
        "high": np.full(shape, high),
        "both": np.where(rng.random(shape) < 0.5, low, high),
        "true": np.clip(rows[missing], low, high),
        "random": rng.uniform(low, high, shape),
    }[where]
    for estimate, index in zip(estimates, by_definition(rows, sums.shift[0])):
        assert np.all(estimate.bounds[0, :, 0] <= index) and np.all(index <= estimate.bounds[1, :, 0])
        assert np.all(estimate.bounds[1] - estimate.bounds[0] > 0.0)


def test_bounds_of_shapley_effects_enclose_too(rng):
    order = np.argsort(rng.random((40, D)), axis=1)
    values = rng.normal(size=(40, D + 1)).cumsum(axis=1)
    spoilt = values.copy()
    spoilt[[3, 9], [1, 2]] = np.nan
    sums = ShapleySums(D, R, lambda rows: order[rows])
    sums.update(spoilt.reshape(1, -1), np.isnan(spoilt).ravel())
    (estimate,) = sums.estimates(1, 0.95)
    filled = values.copy()
    filled[[3, 9]] = rng.uniform(np.nanmin(spoilt), np.nanmax(spoilt), (2, D + 1))
    whole = ShapleySums(D, R, lambda rows: order[rows])
    whole.update(filled.reshape(1, -1), np.zeros(filled.size, bool))
    index = whole.estimates(1, 0.95)[0].value
    assert np.all(estimate.bounds[0] <= index) and np.all(index <= estimate.bounds[1])


def test_without_failures_the_bounds_are_the_indices(rng):
    first, _ = sums_of(values_of(rng, 24)).estimates(2, 0.95)
    np.testing.assert_array_equal(first.bounds[0], first.value)
    assert first.bounds.base is not None


def test_constant_outputs_have_no_index_and_leave_the_others_alone(rng):
    values = values_of(rng, 24, 3)
    alone = sums_of(values[2:]).estimates(2, 0.95)[0].value
    values[0], values[1] = 3.0, 0.1 + 1e-17 * rng.normal(size=120)
    first, total = sums_of(values).estimates(2, 0.95)
    assert np.all(np.isnan(first.value[:, :2])) and np.all(np.isnan(total.half_width[:, :2]))
    np.testing.assert_array_equal(first.value[:, 2:], alone)


def test_a_large_mean_costs_no_accuracy(rng):
    values = values_of(rng, 64)
    moved = sums_of(values + 2.0**30).estimates(2, 0.95)
    for one, other in zip(sums_of(values).estimates(2, 0.95), moved):
        np.testing.assert_allclose(one.value, other.value, atol=2e-6)  # 2^30 leaves values 22 bits


def test_moments_are_those_of_the_independent_points(rng):
    values = values_of(rng, 48)
    points = values.reshape(48, -1)[:, :2]
    mean, variance = sums_of(values).moments()
    np.testing.assert_allclose((mean[0], variance[0]), (points.mean(), points.var()), rtol=1e-12)


def test_one_replicate_has_no_interval(rng):
    sums = SobolSums(D, 1)
    sums.update(values_of(rng, 16), np.zeros(80, bool))
    first, _ = sums.estimates(2, 0.95)
    assert np.all(np.isfinite(first.value)) and np.all(np.isnan(first.half_width))


def test_fewer_rows_than_the_pilot_are_added_at_the_end(rng):
    sums = SobolSums(D, R)
    sums.update(values_of(rng, 3), np.zeros(15, bool))
    assert sums.n_used == 0
    sums.finish()
    assert sums.n_used == 3 and np.all(np.isfinite(sums.estimates(2, 0.95)[0].value))


def test_shapley_effects_are_differences_of_squares_in_the_order_of_each_row(rng):
    order = np.argsort(rng.random((16, D)), axis=1)
    y = rng.normal(size=(16, D + 1))
    sums = ShapleySums(D, R, lambda rows: order[rows])
    sums.update(y.reshape(1, -1), np.zeros(y.size, bool))
    expected = np.zeros(D)
    for row, one in zip(y, order):
        for place, i in enumerate(one):
            expected[i] += (row[-1] - row[place]) ** 2 - (row[-1] - row[place + 1]) ** 2
    value = sums.estimates(1, 0.95)[0].value[:, 0]
    np.testing.assert_allclose(value, expected / np.sum((y[:, -1] - y[:, 0]) ** 2), rtol=1e-12)
    assert value.sum() == pytest.approx(1.0, abs=1e-14)


def test_enclosed_ratios_take_the_signs_into_account():
    low, high = enclosed_ratio(np.array([-2.0, 1.0]), np.array([-1.0, 4.0]), np.array([2.0, 2.0]), np.array([4.0, 4.0]))
    np.testing.assert_array_equal(low, [-1.0, 0.25])
    np.testing.assert_array_equal(high, [-0.25, 2.0])


def test_the_factor_is_students_quantile():
    assert student_factor(0.95, 8) == pytest.approx(2.364624)
    assert np.isnan(student_factor(0.95, 1))
