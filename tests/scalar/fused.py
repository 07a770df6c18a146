"""Fused functions, special values and a comparison by bits that the tests of `fuse` share."""

import math

import numpy as np

from ensemble.scalar import fuse

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -7.25, 1e300, -1e-300, 5e-324, math.inf, -math.inf, math.nan]

WHOLE = [0, 1, -1, 2, 7, -13, 2**31 - 1, -(2**31)]


def bits(values):
    """The bytes of `values`, with one NaN for all: which operand's payload survives is left open by IEEE 754."""
    values = np.asarray(values)
    if values.dtype.kind == "f":
        values = np.where(values != values, values.dtype.type(np.nan), values)
    return values.tobytes() + str(values.dtype).encode()


def assert_same_bits(got, expected):
    __tracebackhide__ = True
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert bits(got) == bits(expected)


@fuse
def transcendental(x, y, xp):
    positive = xp.abs(x) + 0.25
    waves = xp.sin(x) * xp.cos(x) + xp.tan(y) - xp.tanh(x)
    growth = xp.exp(-positive) + xp.expm1(y) + xp.log(positive) + xp.log1p(positive) + positive**y
    angles = xp.atan2(x, y) + xp.hypot(x, y) + xp.asin(xp.sin(x)) + xp.acosh(1.0 + positive)
    return waves, growth, angles + xp.copysign(positive, y)


@fuse
def combined(x, y, z):
    return x * y - z
