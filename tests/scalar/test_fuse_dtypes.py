"""Dtypes of fused functions are those of NumPy."""

import array_api_strict
import numpy as np
import pytest

from ensemble.scalar import Ensemble, fuse
from tests.scalar.fused import SPECIAL, WHOLE, assert_same_bits, combined


# --- dtypes
def test_integers_wrap_around_and_divide_like_numpy(rng):
    a = np.array([*WHOLE, *rng.integers(-99, 99, 40)], np.int32)
    b = np.roll(a, 3)

    @fuse
    def f(a, b):
        return a + b, a * b, -a, abs(a), a // b, a % b, a**3, a & b, a | b, a ^ b, ~a, a / b

    with np.errstate(all="ignore"):
        expected = f.original(a, b)
    for got, one in zip(f(a, b), expected, strict=True):
        assert_same_bits(got, one)


def test_floor_division_of_floats_is_numpys(rng):
    a = np.array([*SPECIAL, *rng.normal(scale=9.0, size=300), *rng.normal(scale=1e9, size=40)])
    b = np.array([*rng.permutation(SPECIAL), *rng.normal(size=300), *rng.normal(scale=1e-3, size=40)])
    with np.errstate(over="ignore"):
        c, d = a.astype(np.float32), b.astype(np.float32)
    mask = a > 0.0

    @fuse
    def f(a, b, c, d, mask):
        return a // b, a % b, c // d, c % d, mask % 2, mask // d

    with np.errstate(all="ignore"):
        expected = f.original(a, b, c, d, mask)
    for got, one in zip(f(a, b, c, d, mask), expected, strict=True):
        assert_same_bits(got, one)


def test_maximum_of_numpy(rng):
    a, b = rng.choice([1.0, 2.0, np.nan, -np.inf, np.inf], (2, 200))

    @fuse
    def f(a, b, xp):
        return xp.maximum(a, b), xp.minimum(a, b), xp.clip(a, -1.0, b), np.clip(b, 0.0, None)

    for got, one in zip(f(a, b), f.original(a, b, np), strict=True):
        assert_same_bits(got, one)


def test_questions_to_floats(rng):
    x = rng.choice(SPECIAL, 50)

    @fuse
    def f(x, xp):
        return xp.isnan(x), xp.isinf(x), xp.isfinite(x), xp.signbit(x), xp.sign(x), xp.reciprocal(x)

    with np.errstate(all="ignore"):
        expected = f.original(x, np)
    for got, one in zip(f(x), expected, strict=True):
        assert_same_bits(got, one)


def test_numbers_keep_the_dtype_of_the_array():
    x = np.arange(5, dtype=np.float32)

    @fuse
    def f(x, k):
        return x * k, k * 2.0 + x, x > k

    for k in (0.1, 3, np.float32(0.1), np.float64(0.1)):
        for got, one in zip(f(x, k), f.original(x, k), strict=True):
            assert_same_bits(got, one)


def test_python_numbers_among_themselves_are_pythons():
    x = np.arange(4, dtype=np.float32)

    @fuse
    def f(x, a, b):
        return x + a / b * 3.0 - a // b + abs(-a) ** 0.5

    assert_same_bits(f(x, 0.1, 0.3), f.original(x, 0.1, 0.3))
    assert_same_bits(f(x, 7, 3), f.original(x, 7, 3))
    with pytest.raises(ZeroDivisionError):
        f(x, 1.0, 0.0)
    with pytest.raises(OverflowError):
        combined(np.ones(3, np.int32), 2**40, 1)


def test_conversions():
    x = np.array([0.0, 1.5, -2.5, 100.25])

    @fuse
    def f(x, xp):
        whole = xp.astype(x, xp.int32)
        return whole, xp.astype(whole, xp.float32) / 3, xp.astype(x, xp.bool), xp.zeros_like(x) + xp.pi

    for got, one in zip(f(x), f.original(x, np), strict=True):
        assert_same_bits(got, one)


@pytest.mark.parametrize("dtype", [np.complex128, np.int8, np.uint16, np.float16, ">f8"])
def test_other_dtypes_take_the_function_itself(dtype):
    x = Ensemble(np.arange(6).reshape(2, 3).astype(dtype))
    got = combined(x, x, x)
    assert_same_bits(got.samples, x.samples * x.samples - x.samples)


def test_other_libraries_take_the_function_itself(rng):
    x = Ensemble(array_api_strict.asarray(rng.normal(size=(2, 3))))

    @fuse
    def f(x, xp):
        return xp.where(x > 0.0, xp.sqrt(xp.abs(x)), x)

    got = f(x)
    plain = np.asarray(x.samples)
    assert_same_bits(np.asarray(got.samples), np.where(plain > 0.0, np.sqrt(np.abs(plain)), plain))
    out = Ensemble(array_api_strict.zeros((2, 3)))
    assert f(x, out=out) is out
    assert_same_bits(np.asarray(out.samples), np.asarray(got.samples))
