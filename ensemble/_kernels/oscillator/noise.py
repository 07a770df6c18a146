"""Standard normal numbers from a counter, in lanes: Philox 4x32-10 (Salmon et al. 2011), then Box and Muller.

Block `b` of sample `i` are four words of the counter (i, b) and the seed. They give two uniform numbers, of 52 bits in
float64 and of 24 in float32, and those two normal numbers. `steps.cuh` has the same functions for a CUDA device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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


# --- two uniform numbers of four words
ONE_BITS = 0x3FF0000000000000


@inner
def uniform(high, low):
    """``(w + 1/2) * 2**-52`` of the leading 52 bits w of two words: exact."""
    return from_bits(((high << 20) | (low >> 12)) | ONE_BITS) - (1.0 - 2.0**-53)


@inner
def uniform_32(word, _):
    """``(w + 1/2) * 2**-24`` of the leading 24 bits w of a word, in float32, rounded once."""
    return fma(as_float32(as_int32(word >> 8)), 2.0**-24, 2.0**-25)


# --- two normal numbers of two uniform ones
class Digits(NamedTuple):
    """What the functions below need to know of a type of numbers."""

    uniform: Any
    fraction: int
    """Bits of the fraction."""
    sign: int
    """By how much bit 1 of an integer is shifted to be the sign."""
    magic: float
    """1.5 times the number from which on there are whole numbers only: a whole number is added in its last bits."""
    magic_bits: int
    sqrt_half_bits: int
    ln2: float
    ln2_rest: float
    log_rest: Any
    sin_rest: Any
    cos_rest: Any


DIGITS = {
    "float64": Digits(
        uniform, 52, 62, MAGIC, MAGIC_BITS, SQRT_HALF_BITS, LN2_SHORT, LN2_SHORT_REST, log_rest, sin_rest, cos_rest
    ),
    "float32": Digits(
        uniform_32, 23, 30, 12582912.0, 0x4B400000, 0x3F3504F3, 0.69313812256, 9.0580006145e-6,
        polynomial(0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841),
        polynomial(-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4),
        polynomial(4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5),
    ),
}  # fmt: skip


def _normal_pair(digits: Digits) -> Any:
    """The function of a type that gives two standard normal numbers of each sample for a block."""
    uniform_of, fraction, sign, magic, magic_bits, sqrt_half_bits, ln2, ln2_rest, log_of, sin_of, cos_of = digits

    @inner
    def log_of_uniform(u):  # of a number between 0 and 1, to about one unit in the last place: no limits to look for
        pattern = bits(u)
        k = (pattern - sqrt_half_bits) >> fraction
        f = from_bits(pattern - (k << fraction)) - 1.0
        exponent = from_bits(k + magic_bits) - magic
        s = f / (2.0 + f)
        z = s * s
        square = 0.5 * f * f
        low = fma(s, fma(z, log_of(z), square), exponent * ln2_rest)
        return fma(exponent, ln2, f - (square - low))

    @inner
    def cosine_and_sine(turns):  # of the angle 2 pi turns, turns from 0 to 1, to about one unit in the last place
        quarters = 4.0 * turns
        shifted = quarters + magic
        r = (quarters - (shifted - magic)) * HALF_PI  # at most pi / 4, from an exact difference
        n, z = bits(shifted), r * r
        sine = fma(r * z, sin_of(z), r)
        cosine = fma(z * z, cos_of(z), fma(z, -0.5, 1.0))
        odd = (n & 1) != 0
        first, second = select(odd, sine, cosine), select(odd, cosine, sine)
        return from_bits(bits(first) ^ (((n + 1) & 2) << sign)), from_bits(bits(second) ^ ((n & 2) << sign))

    @inner
    def normal_pair(number, block, seed):
        w0, w1, w2, w3 = words_of(number, block, seed)
        radius = sqrt(-2.0 * log_of_uniform(uniform_of(w0, w1)))
        cosine, sine = cosine_and_sine(uniform_of(w2, w3))
        return radius * cosine, radius * sine

    return normal_pair


normal_pair_float64, normal_pair_float32 = (_normal_pair(DIGITS[dtype]) for dtype in ("float64", "float32"))
"""``(number, block, seed)``: two standard normal numbers of each sample for a block."""
