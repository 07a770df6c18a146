"""Confidence intervals against closed forms and SciPy."""

import numpy as np
import pytest
from scipy import stats

from ensemble._check import check_level
from ensemble.uq.study.intervals import binomial, order_statistics, student


def test_student_is_scipys():
    low, high = student(2.0, 0.5, 8, 0.9)
    assert (low, high) == pytest.approx(stats.t.interval(0.9, 7, 2.0, 0.5 / np.sqrt(8)), rel=1e-13)


@pytest.mark.parametrize("hits", [0, 1, 17, 99, 100])
def test_binomial_is_scipys_exact_interval(hits):
    exact = stats.binomtest(hits, 100).proportion_ci(0.95, method="exact")
    assert tuple(binomial(hits, 100, 0.95)) == pytest.approx(tuple(exact), rel=1e-8, abs=1e-300)  # SciPy searches


def test_binomial_takes_arrays():
    low, high = binomial(np.array([0, 50]), 50, 0.95)
    assert low[0] == 0.0 and high[1] == 1.0 and low.shape == (2,)


@pytest.mark.parametrize("n, q", [(20, 0.5), (100, 0.05), (1000, 0.99), (5, 0.001)])
def test_order_statistics_hold_the_quantile_as_often_as_they_say(n, q):
    low, high = order_statistics(n, q, 0.95)
    below = stats.binom(n, q)  # how many samples lie below the quantile
    at_low = 1.0 if low < 0 else below.sf(low)
    at_high = 0.0 if high >= n else below.sf(high)
    assert at_low - at_high >= 0.95


@pytest.mark.parametrize("level", [0.0, 1.0, 95, "0.9", None])
def test_levels_outside_are_refused(level):
    with pytest.raises(ValueError, match=r"f: level must be a number in \(0, 1\)"):
        check_level(level, "f")
