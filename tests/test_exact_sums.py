"""Sums by integer digits are the exact sums, rounded once, in whatever order numbers are added."""

import math
from fractions import Fraction

import numpy as np
import pytest

from ensemble._kernels.sparse.exact_sums import ROW_LENGTH, add_domain_sums, rounded


def digits_of(numbers):
    digits = np.zeros((numbers.shape[1], ROW_LENGTH), np.int64)
    add_domain_sums(np.ascontiguousarray(numbers, np.float64), np.arange(len(numbers) + 1), digits)
    return digits


def exact(numbers):
    total = sum(Fraction(float(x)) for x in numbers)
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


EXPONENTS = {"all numbers": (-1074, 1023), "near one": (-20, 20), "subnormal": (-1074, -1020), "huge": (1000, 1023)}


@pytest.mark.parametrize("name", EXPONENTS)
def test_a_sum_is_the_exact_one_rounded_once(name):
    rng = np.random.default_rng(20731)
    for _ in range(200):
        n = rng.integers(1, 60)
        numbers = np.ldexp(rng.standard_normal((n, 3)), rng.integers(*EXPONENTS[name], size=(n, 3)))
        if n % 2:  # most of it cancels
            numbers = np.concatenate([numbers, -numbers * (1.0 + 1e-16 * rng.integers(0, 2, size=numbers.shape))])
        with np.errstate(over="ignore"):
            assert rounded(digits_of(numbers)).tolist() == [exact(numbers[:, s]) for s in range(3)]


def test_a_sum_halfway_between_two_numbers_goes_to_the_even_one():
    half = np.ldexp(1.0, -53)
    for first, more, want in ((1.0, 0.0, 1.0), (1.0, 5e-324, 1.0 + 2 * half), (1.0 + 2 * half, 0.0, 1.0 + 4 * half)):
        assert rounded(digits_of(np.array([[first], [half], [more]])))[0] == want


def test_parts_in_any_order_and_grouping_have_the_same_digits():
    rng = np.random.default_rng(3)
    numbers = np.ldexp(rng.standard_normal((300, 2)), rng.integers(-300, 300, size=(300, 2)))
    want = rounded(digits_of(numbers))
    for _ in range(20):
        order = rng.permutation(300)
        cuts = np.sort(rng.integers(0, 300, size=4))
        parts = [digits_of(part) for part in np.split(numbers[order], cuts)]
        assert np.array_equal(rounded(sum(parts)), want)


def test_infinities_and_nan_stay_in_their_sums():
    numbers = np.array([[1.0, np.inf, np.inf, np.nan, 0.0], [2.0, 1.0, -np.inf, 1.0, -0.0]])
    assert np.array_equal(rounded(digits_of(numbers)), [3.0, np.inf, np.nan, np.nan, 0.0], equal_nan=True)
    assert rounded(digits_of(np.zeros((0, 2)))).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_domains_are_summed_block_by_block_and_then_exactly(dtype):
    half = np.finfo(dtype).eps / 2
    partials = np.array([[1.0], [half], [half], [-1.0], [half]], dtype)
    digits = np.zeros((1, ROW_LENGTH), np.int64)
    add_domain_sums(partials, np.array([0, 3, 3, 4, 5]), digits)
    assert rounded(digits).tolist() == [float(half)]  # 1 + half + half is 1 in a domain, and 1 - 1 + half exact
