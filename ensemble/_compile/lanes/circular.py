"""Circular functions on lanes of float64, and functions that call the C library lane by lane.

The accuracy and the fallback are those of `functions.py`.
"""

from __future__ import annotations

from ensemble._compile.lanes.arithmetic import absolute, any_lane, bits, fma, library_lanes, polynomial
from ensemble._compile.lanes.functions import MAGIC
from ensemble._compile.lanes.types import select
from ensemble._compile.numba import inner

__all__ = ["acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "hypot", "sin", "tan"]

HALF_PI, HALF_PI_REST, HALF_PI_LAST = 1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33
TWO_OVER_PI = 0.6366197723675814

FAR = 2.0**30
"""The largest angle that three parts of pi / 2 reduce in full precision."""

# sin r = r + r z q(z), cos r = 1 - z / 2 + z**2 q(z), z = r**2, abs(r) <= pi / 4
sin_rest = polynomial(
    -0.16666666666666666, 0.008333333333330948, -0.00019841269836756774, 2.7557316101617874e-06,
    -2.505113165023518e-08, 1.5918115263265974e-10,
)  # fmt: skip
cos_rest = polynomial(
    0.041666666666666664, -0.0013888888888887398, 2.480158729876456e-05, -2.7557317271145144e-07,
    2.087614614655861e-09, -1.1382623647474604e-11,
)  # fmt: skip

_cos, _sin, _tan = (library_lanes(name, 1) for name in ("cos", "sin", "tan"))
_atan2, _hypot = (library_lanes(name, 2) for name in ("atan2", "hypot"))


@inner
def _angle(x):
    """n, r, rest: ``x = n pi / 2 + r + rest``, abs(r) at most pi / 4; only the last bits of n are used."""
    shifted = fma(x, TWO_OVER_PI, MAGIC)
    k = shifted - MAGIC
    start = fma(-k, HALF_PI, x)  # exact
    product = k * HALF_PI_REST
    product_rest = fma(k, HALF_PI_REST, -product)
    difference = start - product
    part = difference - start
    lost = (start - (difference - part)) - (product + part)
    low = fma(-k, HALF_PI_LAST, lost - product_rest)
    r = difference + low
    return bits(shifted), r, (difference - r) + low


@inner
def _sine_parts(r, rest):
    z = r * r
    low = fma(r * z, sin_rest(z), fma(-0.5 * z, rest, rest))
    high = r + low
    return high, (r - high) + low


@inner
def _cosine_parts(r, rest):
    z = r * r
    half = 0.5 * z
    first = 1.0 - half
    low = ((1.0 - first) - half) + fma(z * z, cos_rest(z), -(fma(0.5 * r, r, -half) + r * rest))
    high = first + low
    return high, (first - high) + low


@inner
def sin(x):
    n, r, rest = _angle(x)
    sine, _ = _sine_parts(r, rest)
    cosine, _ = _cosine_parts(r, rest)
    result = select((n & 1) != 0, cosine, sine)
    result = select((n & 2) != 0, -result, result)
    result = select(absolute(x) < 1e-8, x, result)
    outside = ~(absolute(x) <= FAR)
    return _sin(outside, result, x) if any_lane(outside) else result


@inner
def cos(x):
    n, r, rest = _angle(x)
    sine, _ = _sine_parts(r, rest)
    cosine, _ = _cosine_parts(r, rest)
    result = select((n & 1) != 0, sine, cosine)
    result = select(((n + 1) & 2) != 0, -result, result)
    outside = ~(absolute(x) <= FAR)
    return _cos(outside, result, x) if any_lane(outside) else result


@inner
def tan(x):
    n, r, rest = _angle(x)
    sine, sine_rest = _sine_parts(r, rest)
    cosine, cosine_rest = _cosine_parts(r, rest)
    odd = (n & 1) != 0
    above, above_rest = select(odd, -cosine, sine), select(odd, -cosine_rest, sine_rest)
    below, below_rest = select(odd, sine, cosine), select(odd, sine_rest, cosine_rest)
    ratio = above / below
    missing = fma(-ratio, below, above) + (above_rest - ratio * below_rest)
    result = select(absolute(x) < 1e-8, x, ratio + missing / below)
    outside = ~(absolute(x) <= FAR)
    return _tan(outside, result, x) if any_lane(outside) else result


# --- functions of the C library
def _of_library(name):
    function = library_lanes(name, 1)

    @inner
    def call(x):
        return function(x == x, x, x)

    return call


acos, acosh, asin = (_of_library(name) for name in ("acos", "acosh", "asin"))
asinh, atan, atanh = (_of_library(name) for name in ("asinh", "atan", "atanh"))


@inner
def atan2(x, y):
    return _atan2((x == x) & (y == y), x + y, x, y)


@inner
def hypot(x, y):
    return _hypot((x == x) | (y == y), x + y, x, y)
