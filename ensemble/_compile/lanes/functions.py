"""Functions of real numbers on lanes of float64: the same additions and products in every lane, no library calls.

Each reduces its argument to a short interval, evaluates a polynomial there (interpolated at Chebyshev nodes with 60
digits) and forms the result as an unevaluated sum of two numbers, rounded once at the end: the error is less than
one unit in the last place; see `tests/scalar/test_fuse_functions.py`. Lanes outside the range of a
reduction (a sine of more than a billion, a power of a negative number) are passed to the C library, one by one. A
result depends on its own operand alone, not on the width, the lane or the other lanes.

The reductions are those of W. J. Cody and W. Waite, Software Manual for the Elementary Functions (1980), and, for the
logarithm as ``2 atanh(f / (2 + f))``, of P. T. P. Tang, ACM Trans. Math. Softw. 16 (1990) 378. Sums of two numbers:
T. J. Dekker, Numer. Math. 18 (1971) 224.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.lanes.arithmetic import (
    absolute,
    any_lane,
    bits,
    copysign,
    fma,
    from_bits,
    library_lanes,
    polynomial,
    rint,
    spread,
)  # fmt: skip
from ensemble._compile.lanes.types import select
from ensemble._compile.numba import inner

__all__ = ["cosh", "exp", "expm1", "log", "log1p", "log2", "log10", "power", "sinh", "tanh"]

MAGIC = 6755399441055744.0
"""1.5 * 2**52: the sum with a number below 2**51 holds the nearest integer in its last bits."""
MAGIC_BITS = 0x4338000000000000

LN2, LN2_REST = 0.6931471805599453, 2.3190468138462996e-17
LN2_SHORT, LN2_SHORT_REST = 0.6931471803691238, 1.9082149292705877e-10
"""Its last 21 bits are zero: a product with an exponent is exact."""
LOG2_E, LOG2_E_REST = 1.4426950408889634, 2.0355273740931033e-17
LOG10_E, LOG10_E_REST = 0.4342944819032518, 1.098319650216765e-17
LOG10_2_SHORT, LOG10_2_REST = 0.3010299955494702, 1.1451100898021838e-10
TWO_THIRDS, TWO_THIRDS_REST = 0.6666666666666666, 3.700743415417188e-17
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
SMALLEST_NORMAL = 2.2250738585072014e-308
LARGEST = 1.7976931348623157e308

# e**r = 1 + r + r**2 q(r), abs(r) <= log(2) / 2
_exp_rest = polynomial(
    0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326136, 0.0013888888888883748, 0.00019841269874820627,
    2.4801587325547743e-05, 2.7557255400206422e-06, 2.75572736431103e-07, 2.510521700472075e-08, 2.0914686968086876e-09,
)  # fmt: skip
# 2 atanh(s) = 2 s + s z q(z), z = s**2, abs(s) <= (sqrt(2) - 1) / (sqrt(2) + 1)
log_rest = polynomial(
    0.666666666666667, 0.39999999999899444, 0.2857142862600327, 0.22222211130259878, 0.18182889455674947,
    0.15331710618210773, 0.14616585424888623,
)  # fmt: skip
# ... = 2 s + s z (2 / 3 + z q(z))
_log_last = polynomial(
    0.4, 0.28571428571429364, 0.22222222221655885, 0.18181818335392802, 0.1538459496251843, 0.1333480469384731,
    0.11706236339491206, 0.11723178623876518,
)  # fmt: skip

_pow = library_lanes("pow", 2)


# --- exponentials
@inner
def _scaled(x, k):
    """``x * 2**k`` for abs(k) up to 2000, `k` an integer: two factors, so that a subnormal result is rounded once."""
    n = bits(k + MAGIC) - MAGIC_BITS
    half = n >> 1
    return x * from_bits((half + 1023) << 52) * from_bits((n - half + 1023) << 52)


@inner
def _exp_parts(x, rest):
    """k, high, low: ``exp(x + rest) = 2**k (1 + high + low)``, abs(high) below 0.42."""
    k = rint(x * LOG2_E)
    start = fma(-k, LN2, x)  # exact
    taken = k * LN2_REST - rest
    r = start - taken
    rest = (start - r) - taken
    low = fma(r * r, _exp_rest(r), fma(rest, r, rest))
    high = r + low
    return k, high, (r - high) + low


@inner
def _exp_sum(x, rest, shift):
    """``exp(x + rest) * 2**shift``."""
    x = select(x > 720.0, 720.0, select(x < -760.0, -760.0, x))
    k, high, low = _exp_parts(x, rest)
    one = 1.0 + high
    return _scaled(one + (((1.0 - one) + high) + low), k + shift)


@inner
def exp(x):
    return _exp_sum(x, spread(0.0, x), 0.0)


@inner
def _expm1_parts(x):
    """high, low: their sum is ``exp(x) - 1``, for x from -60 to 708."""
    k, high, low = _exp_parts(x, spread(0.0, x))
    power = from_bits((bits(k + MAGIC) - MAGIC_BITS + 1023) << 52)
    one = power - 1.0
    one_rest = (power - one) - 1.0  # not zero from 2**54 on
    high, low = high * power, low * power
    total = one + high
    part = total - one
    low = ((one - (total - part)) + (high - part)) + low + one_rest
    high = total + low
    return high, (total - high) + low


@inner
def expm1(x):
    inside = select(x < -60.0, -60.0, select(x > 708.0, 708.0, x))
    high, low = _expm1_parts(inside)
    result = select(x > 708.0, exp(x), high + low)
    return select(absolute(x) < 1e-17, x, result)


@inner
def tanh(x):
    a = absolute(x)
    inside = select(a > 20.0, 20.0, a)
    high, low = _expm1_parts(2.0 * inside)
    ratio, rest = _ratio(high, low, 2.0)
    return select(x != x, x, copysign(ratio + rest, x))


@inner
def _ratio(high, low, plus):
    """``e / (e + plus)`` and its rounding error; e = high + low, not negative."""
    divisor = high + plus
    part = divisor - high
    divisor_rest = (high - (divisor - part)) + (plus - part) + low
    ratio = high / divisor
    return ratio, (fma(-ratio, divisor, high) + (low - ratio * divisor_rest)) / divisor


@inner
def _beyond(a, x, result):
    """`result`, or ``exp(a) / 2`` where that is near overflow, with the sign of `x`."""
    outside = a > 708.0
    if any_lane(outside):
        return select(outside, copysign(_exp_sum(a, spread(0.0, a), -1.0), x), result)
    return result


@inner
def sinh(x):
    a = absolute(x)
    high, low = _expm1_parts(select(a > 708.0, 0.0, a))
    ratio, rest = _ratio(high, low, 1.0)  # sinh a = (e + e / (e + 1)) / 2, e = expm1(a)
    total = high + ratio
    part = total - high
    lost = (high - (total - part)) + (ratio - part)
    result = 0.5 * (total + (lost + (low + rest)))
    return _beyond(a, x, copysign(result, x))


@inner
def cosh(x):
    a = absolute(x)
    k, high, low = _exp_parts(select(a > 708.0, 0.0, a), spread(0.0, x))
    power = 0.5 * from_bits((bits(k + MAGIC) - MAGIC_BITS + 1023) << 52)
    one = 1.0 + high
    low = (((1.0 - one) + high) + low) * power
    grown = one * power
    shrunk = 0.25 / grown
    total = grown + shrunk
    return _beyond(a, a, total + (((grown - total) + shrunk) + low))


# --- logarithms
@inner
def _split(x):
    """k, f: ``x = 2**k (1 + f)``, 1 + f between sqrt(1/2) and sqrt(2); `x` positive and finite."""
    small = x < SMALLEST_NORMAL
    pattern = bits(select(small, x * 2.0**54, x))
    k = (pattern - SQRT_HALF_BITS) >> 52
    f = from_bits(pattern - (k << 52)) - 1.0
    exponent = from_bits(k + MAGIC_BITS) - MAGIC
    return select(small, exponent - 54.0, exponent), f


@inner
def _log_parts(f):
    """high, low: their sum is ``log(1 + f)``."""
    s = f / (2.0 + f)
    z = s * s
    half = 0.5 * f
    square = half * f
    high = f - square
    low = ((f - high) - square) - fma(half, f, -square)
    return high, fma(s, square + z * log_rest(z), low)


@inner
def _ends(x, result):
    """`result`, a logarithm, where `x` is positive and finite; the limits elsewhere."""
    result = select(x > LARGEST, x, result)
    return select(x > 0.0, result, select(x == 0.0, -np.inf, x * np.nan))


@inner
def _log_sum(k, high, low):
    start = k * LN2_SHORT
    total = start + high
    return total + (((start - total) + high) + fma(k, LN2_SHORT_REST, low))


@inner
def log(x):
    k, f = _split(x)
    high, low = _log_parts(f)
    return _ends(x, _log_sum(k, high, low))


@inner
def log1p(x):
    u = 1.0 + x
    part = u - x
    rest = (1.0 - part) + (x - (u - part))  # u + rest = 1 + x
    k, f = _split(u)
    high, low = _log_parts(f)
    result = _ends(u, _log_sum(k, high, low + rest / u))
    return select((x == 0.0) | (x != x), x, result)


@inner
def log2(x):
    k, f = _split(x)
    high, low = _log_parts(f)
    product = high * LOG2_E
    rest = fma(high, LOG2_E, -product) + fma(low, LOG2_E, high * LOG2_E_REST)
    total = k + product
    return _ends(x, total + (((k - total) + product) + rest))


@inner
def log10(x):
    k, f = _split(x)
    high, low = _log_parts(f)
    product = high * LOG10_E
    rest = fma(high, LOG10_E, -product) + fma(low, LOG10_E, high * LOG10_E_REST)
    start = k * LOG10_2_SHORT
    total = start + product
    return _ends(x, total + (((start - total) + product) + fma(k, LOG10_2_REST, rest)))


# --- powers
@inner
def _log_precise(x):
    """high, low: their sum is ``log(x)`` to about 2**-65."""
    k, f = _split(x)
    divisor = 2.0 + f
    divisor_rest = (2.0 - divisor) + f
    inverse = 1.0 / divisor
    s = f * inverse
    s_rest = (fma(-s, divisor, f) - s * divisor_rest) * inverse
    z = s * s
    z_rest = fma(s, s, -z) + 2.0 * s * s_rest
    tail = z * _log_last(z)
    c = TWO_THIRDS + tail
    c_rest = (TWO_THIRDS - c) + tail + TWO_THIRDS_REST
    cube = s * z
    cube_rest = fma(s, z, -cube) + fma(s_rest, z, s * z_rest)
    term = cube * c
    term_rest = fma(cube, c, -term) + fma(cube_rest, c, cube * c_rest)
    start = k * LN2_SHORT
    first = start + 2.0 * s
    first_rest = (start - first) + 2.0 * s
    high = first + term
    low = ((first - high) + term) + (first_rest + (term_rest + fma(k, LN2_SHORT_REST, 2.0 * s_rest)))
    total = high + low
    return total, (high - total) + low


@inner
def power(x, y):
    high, low = _log_precise(x)
    product = y * high
    rest = fma(y, high, -product) + y * low
    result = _exp_sum(product, rest, 0.0)
    outside = ~((x >= SMALLEST_NORMAL) & (x <= LARGEST) & (absolute(y) < 1e18) & (absolute(product) < 700.0))
    return _pow(outside, result, x, y) if any_lane(outside) else result
