"""Quotients, remainders and signs on lanes, as NumPy defines them."""

from __future__ import annotations

from ensemble._compile.lanes.arithmetic import absolute, any_lane, copysign, floor, fma, library_lanes, quotient, trunc
from ensemble._compile.lanes.types import select
from ensemble._compile.numba import inner

__all__ = ["floor_divide", "floor_divide_int", "remainder", "remainder_int", "sign"]

_fmod = library_lanes("fmod", 2)


@inner
def _remainder_of_truncation(a, b):
    """The C library's `fmod`: exact, with the sign of `a`."""
    ratio = a / b
    rest = fma(-trunc(ratio), b, a)  # one divisor too many where the ratio was rounded up to an integer
    rest = select((rest != 0.0) & ((rest < 0.0) != (a < 0.0)), rest + copysign(b, a), rest)
    size = absolute(ratio)
    outside = ~((size + 0.25 > size) & (b - b == 0.0))  # the rounded ratio may be another integer, or b is infinite
    return _fmod(outside, rest, a, b) if any_lane(outside) else rest


@inner
def floor_divide(a, b):
    """``numpy.floor_divide``: the floor of the exact quotient."""
    ratio = a / b
    rest = _remainder_of_truncation(a, b)
    whole = (a - rest) / b
    whole = select((rest != 0.0) & ((b < 0.0) != (rest < 0.0)), whole - 1.0, whole)
    below = floor(whole)
    below = select(whole - below > 0.5, below + 1.0, below)
    below = select(whole == 0.0, copysign(0.0, ratio), below)
    return select(b == 0.0, ratio, below)


@inner
def remainder(a, b):
    """``numpy.remainder``: with the sign of the divisor."""
    rest = _remainder_of_truncation(a, b)
    shifted = select((b < 0.0) != (rest < 0.0), rest + b, rest)
    shifted = select(rest == 0.0, copysign(0.0, b), shifted)
    return select(b == 0.0, rest, shifted)


@inner
def _divided(a, b):
    """Quotient and remainder of integers, rounded down, where `b` is neither 0 nor -1."""
    divisor = select((b == 0) | (b == -1), b * 0 + 1, b)
    whole = quotient(a, divisor)
    rest = a - whole * divisor
    over = (rest != 0) & ((rest < 0) != (b < 0))
    return select(over, whole - 1, whole), select(over, rest + b, rest)


@inner
def floor_divide_int(a, b):
    """``numpy.floor_divide`` of integers: rounded down; zero for a divisor of zero."""
    whole, _ = _divided(a, b)
    return select(b == 0, a * 0, select(b == -1, -a, whole))


@inner
def remainder_int(a, b):
    """``numpy.remainder`` of integers: with the sign of the divisor; zero for a divisor of zero or minus one."""
    _, rest = _divided(a, b)
    return select((b == 0) | (b == -1), a * 0, rest)


@inner
def sign(x):
    """-1, 0 or 1; NaN for NaN."""
    return select(x > 0, 1, select(x < 0, -1, select(x == 0, 0, x)))
