"""Standard normal numbers from a counter, in lanes: Philox 4x32-10 (Salmon et al. 2011), then Box and Muller.

Block `b` of sample `i` are four words of the counter (i, b) and the seed. They give two uniform numbers, of 52 bits in
float64 and of 24 in float32, and those two normal numbers. `steps.cuh` has the same functions for a CUDA device.
"""

from __future__ import annotations

from ensemble._compile.lanes.arithmetic import as_float32, as_int32, bits, fma, from_bits, polynomial, spread
from ensemble._compile.lanes.circular import HALF_PI, cos_rest, sin_rest
from ensemble._compile.lanes.functions import LN2_SHORT, LN2_SHORT_REST, MAGIC, MAGIC_BITS, SQRT_HALF_BITS, log_rest
from ensemble._compile.lanes.types import select, sqrt
from ensemble._compile.numba import inner

__all__ = ["normal_pair_float32", "normal_pair_float64", "philox"]

WORD = 0xFFFFFFFF


@inner
def philox(c0, c1, c2, k0, k1):
    """Ten rounds of Philox 4x32 of the counter (c0, c1, c2, 0): four words, each in the low half of an int64.

    Between rounds the high halves hold anything: a product of low halves is one instruction.
    """
    c3 = c0 ^ c0
    for _ in range(10):
        high, low = (c0 & WORD) * 0xD2511F53, (c2 & WORD) * 0xCD9E8D57
        c0, c1, c2, c3 = (low >> 32) ^ c1 ^ k0, low, (high >> 32) ^ c3 ^ k1, high
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return c0 & WORD, c1 & WORD, c2 & WORD, c3 & WORD


@inner
def words_of(number, block, seed):
    """The four words of a block of each sample."""
    pair = spread(block & WORD, number)
    return philox(number, number >> 32, pair, seed & WORD, (seed >> 32) & WORD)


# --- float64
ONE_BITS = 0x3FF0000000000000


@inner
def uniform(high, low):
    """``(w + 1/2) * 2**-52`` of the leading 52 bits w of two words: exact."""
    return from_bits(((high << 20) | (low >> 12)) | ONE_BITS) - (1.0 - 2.0**-53)


@inner
def log_of_uniform(u):
    """The logarithm of a number from 2**-53 to 1, to about one unit in the last place: no limits to look for."""
    pattern = bits(u)
    k = (pattern - SQRT_HALF_BITS) >> 52
    f = from_bits(pattern - (k << 52)) - 1.0
    exponent = from_bits(k + MAGIC_BITS) - MAGIC
    s = f / (2.0 + f)
    z = s * s
    square = 0.5 * f * f
    low = fma(s, fma(z, log_rest(z), square), exponent * LN2_SHORT_REST)
    return fma(exponent, LN2_SHORT, f - (square - low))


@inner
def cosine_and_sine(turns):
    """Of the angle ``2 pi turns``, to about one unit in the last place; `turns` from 0 to 1, with 53 bits."""
    quarters = 4.0 * turns
    shifted = quarters + MAGIC
    r = (quarters - (shifted - MAGIC)) * HALF_PI  # at most pi / 4, from an exact difference
    n, z = bits(shifted), r * r
    sine = fma(r * z, sin_rest(z), r)
    cosine = fma(z * z, cos_rest(z), fma(z, -0.5, 1.0))
    odd = (n & 1) != 0
    first, second = select(odd, sine, cosine), select(odd, cosine, sine)
    return from_bits(bits(first) ^ (((n + 1) & 2) << 62)), from_bits(bits(second) ^ ((n & 2) << 62))


@inner
def normal_pair_float64(number, block, seed):
    """Two standard normal numbers of each sample for `block`."""
    w0, w1, w2, w3 = words_of(number, block, seed)
    radius = sqrt(-2.0 * log_of_uniform(uniform(w0, w1)))
    cosine, sine = cosine_and_sine(uniform(w2, w3))
    return radius * cosine, radius * sine


# --- float32
MAGIC_32, MAGIC_BITS_32 = 12582912.0, 0x4B400000
"""1.5 * 2**23, to which a whole number is added in its last bits, and its bit pattern."""

SQRT_HALF_BITS_32 = 0x3F3504F3
LN2_32, LN2_REST_32 = 0.69313812256, 9.0580006145e-6

log_rest_32 = polynomial(0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841)
sin_rest_32 = polynomial(-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
cos_rest_32 = polynomial(4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)


@inner
def uniform_32(word):
    """``(w + 1/2) * 2**-24`` of the leading 24 bits w of a word, rounded once."""
    return fma(as_float32(as_int32(word >> 8)), 2.0**-24, 2.0**-25)


@inner
def log_of_uniform_32(u):
    """The logarithm of a number from 2**-25 to 1, to about one unit in the last place."""
    pattern = bits(u)
    k = (pattern - SQRT_HALF_BITS_32) >> 23
    f = from_bits(pattern - (k << 23)) - 1.0
    exponent = from_bits(k + MAGIC_BITS_32) - MAGIC_32
    s = f / (2.0 + f)
    z = s * s
    square = 0.5 * f * f
    low = fma(s, fma(z, log_rest_32(z), square), exponent * LN2_REST_32)
    return fma(exponent, LN2_32, f - (square - low))


@inner
def cosine_and_sine_32(turns):
    """Of the angle ``2 pi turns``, to about one unit in the last place; `turns` from 0 to 1."""
    quarters = 4.0 * turns
    shifted = quarters + MAGIC_32
    r = (quarters - (shifted - MAGIC_32)) * HALF_PI
    n, z = bits(shifted), r * r
    sine = fma(r * z, sin_rest_32(z), r)
    cosine = fma(z * z, cos_rest_32(z), fma(z, -0.5, 1.0))
    odd = (n & 1) != 0
    first, second = select(odd, sine, cosine), select(odd, cosine, sine)
    return from_bits(bits(first) ^ (((n + 1) & 2) << 30)), from_bits(bits(second) ^ ((n & 2) << 30))


@inner
def normal_pair_float32(number, block, seed):
    """Two standard normal numbers of each sample for `block`."""
    w0, _, w2, _ = words_of(number, block, seed)
    radius = sqrt(-2.0 * log_of_uniform_32(uniform_32(w0)))
    cosine, sine = cosine_and_sine_32(uniform_32(w2))
    return radius * cosine, radius * sine
