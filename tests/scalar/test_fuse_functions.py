"""Functions of real numbers on lanes: their accuracy, their limits, and the same bits wherever a value stands."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble.scalar import Ensemble, fuse
from tests.scalar.fused import SPECIAL, assert_same_bits, bits, transcendental

FUNCTIONS = (
    "cos", "cosh", "exp", "expm1", "log", "log10", "log1p", "log2", "sin", "sinh", "tan", "tanh",
)  # fmt: skip
"""What `_lane_functions` computes itself."""


@fuse
def every(x):
    return {name: getattr(np, name)(x) for name in FUNCTIONS}


@fuse
def power(x, y):
    return x**y


def spread_out(rng, low, high, n=8_000):
    """Numbers of either sign, even in their logarithm."""
    return np.exp(rng.uniform(math.log(low), math.log(high), n)) * rng.choice([-1.0, 1.0], n)


def any_bits(rng, n=8_000):
    """Every kind of finite number, subnormal ones included."""
    values = rng.integers(0, 0x7FF0000000000000, n).view(np.float64)
    return values * rng.choice([-1.0, 1.0], n)


RANGES = {
    "small": lambda rng: rng.uniform(-1.0, 1.0, 8_000),
    "moderate": lambda rng: rng.uniform(-40.0, 40.0, 8_000),
    "up to overflow": lambda rng: rng.uniform(-750.0, 712.0, 8_000),
    "about one": lambda rng: 1.0 + spread_out(rng, 1e-16, 0.5),
    "near multiples of pi / 2": lambda rng: np.rint(rng.uniform(-6e8, 6e8, 8_000)) * (math.pi / 2),
    "angles": lambda rng: spread_out(rng, 1.0, 2.0**30),
    "tiny": lambda rng: spread_out(rng, 5e-324, 1e-5),
    "any": any_bits,
}


def units(got, exact):
    """Distance in units in the last place of the exact values; 0 where both are the same infinity or NaN."""
    nearest = exact.astype(np.float64)
    same = (got == nearest) | (np.isnan(got) & np.isnan(nearest))
    place = np.spacing(np.minimum(np.abs(nearest), 1.7e308)).astype(np.longdouble)
    distance = np.abs(got.astype(np.longdouble) - exact) / place
    return np.where(same & ~np.isfinite(nearest), 0.0, distance)


precise = pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="needs a long double of 64 bits")


@precise
@pytest.mark.parametrize("span", RANGES)
def test_functions_are_within_one_unit_in_the_last_place(span, rng):
    x = RANGES[span](rng)
    got = every(x)
    with np.errstate(all="ignore"):
        worst = {name: units(got[name], getattr(np, name)(x.astype(np.longdouble))).max() for name in FUNCTIONS}
    assert max(worst.values()) < 1.0, worst


@precise
@pytest.mark.parametrize(
    "low, high, exponent",
    [(1e-9, 1e9, 30.0), (0.5, 2.0, 1000.0), (0.999, 1.001, 7e5), (1e-300, 1e300, 1.02), (0.1, 10.0, 320.0)],
)
def test_powers_are_within_one_unit_in_the_last_place(low, high, exponent, rng):
    x, y = np.abs(spread_out(rng, low, high)), rng.uniform(-exponent, exponent, 8_000)
    with np.errstate(all="ignore"):
        exact = x.astype(np.longdouble) ** y.astype(np.longdouble)
        assert units(power(x, y), exact).max() < 1.0


LIMITS = np.array([*SPECIAL, 2.0**-1074, 2.0**-1022, 709.78, 709.79, -745.13, -745.14, 1.7976931348623157e308])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_limits_zeros_and_infinities_are_numpys(name):
    got = every(LIMITS)[name]
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(LIMITS)
    np.testing.assert_allclose(got, expected, rtol=4e-16, atol=0.0)
    np.testing.assert_array_equal(np.signbit(got)[got == 0.0], np.signbit(expected)[got == 0.0])
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))


def test_limits_of_powers_are_numpys():
    x, y = (a.ravel() for a in np.meshgrid(LIMITS, LIMITS))
    got = power(x, y)
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    np.testing.assert_allclose(got, expected, rtol=4e-16, atol=5e-324)
    zero = (got == 0.0) & (expected == 0.0)
    np.testing.assert_array_equal(np.signbit(got)[zero], np.signbit(expected)[zero])


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_angles_are_the_c_librarys(name, rng):
    x = spread_out(rng, 2.0**31, 1e308, 500)
    assert every(x)[name].tolist() == [getattr(math, name)(value) for value in x]


def test_single_precision_is_rounded_once(rng):
    x = rng.normal(scale=9.0, size=5000).astype(np.float32)
    with np.errstate(all="ignore"):
        for name, got in every(x).items():
            assert got.dtype == np.float32
            exact = getattr(np, name)(x.astype(np.float64))
            place = np.spacing(np.abs(exact).astype(np.float32))
            finite = np.isfinite(exact)
            assert (np.abs(got - exact) / place)[finite].max() < 0.5001, name


@given(st.lists(st.sampled_from([*SPECIAL, 0.3, 800.0, 1e10, -2.5]) | st.floats(), min_size=1, max_size=40))
def test_a_value_knows_nothing_of_its_neighbours(values):
    x = np.array(values)
    together, powers = every(x), power(x, x[::-1])
    for k in {0, len(x) // 2, len(x) - 1}:
        alone = every(x[k : k + 1])
        for name in FUNCTIONS:
            assert bits(together[name][k]) == bits(alone[name][0])
        assert bits(powers[k]) == bits(power(x[k : k + 1], x[::-1][k : k + 1])[0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(st.integers(1, 70), st.integers(1, 40))
def test_functions_of_the_library_give_the_same_bits_wherever_a_value_stands(dtype, n, n_samples):
    rng = np.random.default_rng(n * 1000 + n_samples)
    x = Ensemble(rng.normal(size=(n, n_samples)).astype(dtype))
    y = Ensemble(rng.normal(size=(n, 1)).astype(dtype))
    together = transcendental(x, y)
    s, row = n_samples // 2, n // 2
    alone = transcendental(x.sample(s), y.sample(0))
    entry = transcendental(x.samples[row : row + 1, s], y.samples[row, 0])
    for whole, sample, one in zip(together, alone, entry, strict=True):
        assert_same_bits(whole.sample(s), sample)
        assert bits(whole.samples[row, s]) == bits(one[0])


def test_functions_of_the_library_are_right():
    x, y = np.random.default_rng(41).normal(size=(2, 500))
    for got, expected in zip(transcendental(x, y), transcendental.original(x, y, np), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-14)
