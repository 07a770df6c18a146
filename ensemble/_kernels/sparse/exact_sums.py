"""Exact sums of floating-point numbers, in any order: each number is added to integer digits of a fixed place.

A double is an integer of 53 bits times a power of two from 2^-1074 on. It is cut into digits of `DIGIT_BITS` bits whose
places are fixed, and digits are added as int64. Integer sums do not depend on their order, so digits of several
processes may be added by one all-reduce; the rounded total is that of the exact sum. Infinities and NaN are counted.

The digits of one sum have shape (`ROW_LENGTH`,): `DIGITS` digits, the lowest first, and the numbers of NaN, +infinity
and -infinity.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ensemble._compile import cuda
from ensemble._compile.numba import compiled_serial, inner
from ensemble._compile.registry import into, kernel
from ensemble._typing import Array

__all__ = ["ROW_LENGTH", "add_domain_sums", "domain_digits", "exact_totals", "rounded", "rounded_digits"]

CUDA = cuda.KernelModule("sparse/exact_sums", ["domain_digits", "rounded_digits", "exact_totals"])

DIGIT_BITS = 40
DIGITS = 54
"""2^-1074 to 2^1024 are 2098 bits; two more digits hold the carries of 2^23 numbers."""

ROW_LENGTH = DIGITS + 3
MASK = (1 << DIGIT_BITS) - 1
FRACTION = (1 << 52) - 1


def add_domain_sums(partials: np.ndarray, starts: np.ndarray, digits: np.ndarray) -> None:
    """Add the sum of rows ``starts[d]`` to ``starts[d + 1]`` of `partials`, in order, to `digits`, for each d.

    `partials` has shape (n_blocks, n_columns), `digits` (n_columns, `ROW_LENGTH`). At most 2^22 sums may be added
    before digits are carried.
    """
    wide = np.empty(partials.shape[1])
    _add_domain_sums(partials, starts, np.empty_like(wide, partials.dtype), wide, wide.view(np.int64), digits)


@compiled_serial
def _add_domain_sums(partials, starts, sums, wide, bits, digits):
    for d in range(starts.size - 1):
        sums[:] = 0.0
        for block in range(starts[d], starts[d + 1]):
            for s in range(sums.size):
                sums[s] += partials[block, s]
        for s in range(sums.size):
            wide[s] = sums[s]
        for s in range(sums.size):
            _add_number(bits[s], digits, s)


@inner
def _add_number(word, digits, s):
    """Add a number, given by its bits, to the digits of sum `s`."""
    fraction = word & FRACTION
    exponent = (word >> 52) & 2047
    if exponent == 2047:
        place = DIGITS if fraction != 0 else (DIGITS + 1 if word > 0 else DIGITS + 2)
        digits[s, place] += 1
        return
    if exponent > 0:
        fraction |= 1 << 52
        exponent -= 1
    place, shift = exponent // DIGIT_BITS, exponent % DIGIT_BITS
    low = (fraction & ((1 << (DIGIT_BITS - shift)) - 1)) << shift
    rest = fraction >> (DIGIT_BITS - shift)
    middle, high = rest & MASK, rest >> DIGIT_BITS
    if word < 0:
        low, middle, high = -low, -middle, -high
    digits[s, place] += low
    digits[s, place + 1] += middle
    digits[s, place + 2] += high


@inner
def _magnitude(digits, s):
    """Carry the digits of sum `s` so that each is from 0 to `MASK`; returns whether the sum was negative."""
    carry = 0
    for k in range(DIGITS):
        value = digits[s, k] + carry
        carry = value >> DIGIT_BITS
        digits[s, k] = value & MASK
    if carry >= 0:
        return False
    borrow = 1  # two's complement: the magnitude is the complement plus one
    for k in range(DIGITS):
        value = (MASK - digits[s, k]) + borrow
        borrow = value >> DIGIT_BITS
        digits[s, k] = value & MASK
    return True


@inner
def _window(digits, s):
    """The leading 64 bits of the magnitude of sum `s`, the last one set where lower bits are, and the power of two."""
    top = DIGITS - 1
    while top > 0 and digits[s, top] == 0:
        top -= 1
    length, value = 0, digits[s, top]
    while value > 0:
        value >>= 1
        length += 1
    if top == 0 or top * DIGIT_BITS + length <= 63:  # a whole number of the smallest unit
        return digits[s, 0] + (digits[s, 1] << DIGIT_BITS if top > 0 else 0), -1074
    # 62 bits: `left` bits of the digits below the top one
    word, left, k = digits[s, top], 62 - length, top - 1
    while left >= DIGIT_BITS and k >= 0:
        word = (word << DIGIT_BITS) | digits[s, k]
        left -= DIGIT_BITS
        k -= 1
    lost = False
    if left > 0 and k >= 0:
        word = (word << left) | (digits[s, k] >> (DIGIT_BITS - left))
        lost = (digits[s, k] & ((1 << (DIGIT_BITS - left)) - 1)) != 0
        left, k = 0, k - 1
    while k >= 0 and not lost:
        lost = digits[s, k] != 0
        k -= 1
    return word | 1 if lost else word, top * DIGIT_BITS + length - 62 - 1074 + left


@compiled_serial
def _rounded(digits, total):
    for s in range(total.size):
        nan, above, below = digits[s, DIGITS] > 0, digits[s, DIGITS + 1] > 0, digits[s, DIGITS + 2] > 0
        if nan or (above and below):
            total[s] = np.nan
        elif above or below:
            total[s] = np.inf if above else -np.inf
        else:
            negative = _magnitude(digits, s)
            word, exponent = _window(digits, s)
            size = math.ldexp(np.float64(word), exponent)
            total[s] = -size if negative else size


def rounded(digits: np.ndarray) -> np.ndarray:
    """The sums that `digits`, shape (n_sums, `ROW_LENGTH`), stand for, each rounded once: float64, shape (n_sums,).

    The digits are changed. A sum beyond all numbers is infinite.
    """
    total = np.empty(digits.shape[0])
    _rounded(digits, total)
    return total


# --- several sums at once, from their partial sums
@kernel
def domain_digits(partials: Array, starts: Array, digits: Array) -> Array:
    """Add the sum of each domain's partial sums, in order, to `digits`, in place.

    `partials` has shape (n_sums, n_chunks, n_samples), `digits` (n_sums, n_samples, `ROW_LENGTH`), int64. Domain d has
    the chunks ``starts[d]`` to ``starts[d + 1]``.
    """
    n_sums, _, n_samples = partials.shape
    for k, d, s in np.ndindex(n_sums, starts.shape[0] - 1, n_samples):
        total = partials.dtype.type(0)
        for chunk in range(int(starts[d]), int(starts[d + 1])):
            total = total + partials[k, chunk, s]
        number = float(total)
        if not np.isfinite(number):
            digits[k, s, DIGITS + (0 if np.isnan(number) else 1 if number > 0 else 2)] += 1
            continue
        above, below = abs(number).as_integer_ratio()
        whole = above * (2**1074 // below)  # of the smallest unit
        for place in range(DIGITS):
            digit = (whole >> (DIGIT_BITS * place)) & MASK
            digits[k, s, place] += digit if number > 0 else -digit
    return digits


@domain_digits.register("numba")
def _(partials: Array, starts: Array, digits: Array) -> Array:
    for each, own in zip(partials, digits, strict=True):
        add_domain_sums(each, starts, own)
    return digits


@domain_digits.register("cuda")
def _(partials: Array, starts: Array, digits: Array) -> Array:
    n_sums, n_chunks, n_samples = partials.shape
    n_domains = starts.shape[0] - 1
    grid = (-(-n_domains * n_samples // cuda.THREADS), n_sums)
    extent = (np.int64(n_chunks), np.int64(n_domains), np.int32(n_samples))
    CUDA.launch("domain_digits", _one_by_one(partials), grid, cuda.THREADS, (partials, starts, digits, *extent))
    return digits


@kernel
def rounded_digits(digits: Array, out: Array) -> Array:
    """The sums that `digits`, shape (n_sums, n_samples, `ROW_LENGTH`), stand for, each rounded once; zeros the digits.

    `out`, shape (n_sums, n_samples), must be given: its type is that of the result, to which the float64 is rounded.
    """
    total = np.zeros(digits.shape[:2])
    for k, s in np.ndindex(*total.shape):
        whole = sum(int(digit) << (DIGIT_BITS * place) for place, digit in enumerate(digits[k, s, :DIGITS]))
        try:
            total[k, s] = whole / 2**1074  # of integers: rounded once
        except OverflowError:
            total[k, s] = np.inf if whole > 0 else -np.inf
        nan, above, below = (digits[k, s, DIGITS + place] > 0 for place in range(3))
        if nan or above or below:
            total[k, s] = np.nan if nan or (above and below) else np.inf if above else -np.inf
    digits[...] = 0
    with np.errstate(over="ignore"):
        return into(out, total.astype(out.dtype))


@rounded_digits.register("numba")
def _(digits: Array, out: Array) -> Array:
    total = rounded(digits.reshape(-1, ROW_LENGTH))
    digits[...] = 0
    with np.errstate(over="ignore"):
        return into(out, total.astype(out.dtype, copy=False).reshape(out.shape))


@rounded_digits.register("cuda")
def _(digits: Array, out: Array) -> Array:
    n_sums = out.shape[0] * out.shape[1]
    grid = (-(-n_sums // cuda.THREADS),)
    CUDA.launch("rounded_digits", _one_by_one(out), grid, cuda.THREADS, (digits, out, np.int64(n_sums)))
    return out


@kernel
def exact_totals(partials: Array, starts: Array, digits: Array, turns: Array, out: Array) -> Array:
    """`domain_digits` and `rounded_digits` in one: the sums over all domains to `out`, which must be given.

    `digits` and `turns`, int32, shape (n_sums,), are work space of zeros, and are left so.
    """
    domain_digits.reference(partials, starts, digits)
    return rounded_digits.reference(digits, out)


@exact_totals.register("numba")
def _(partials: Array, starts: Array, digits: Array, turns: Array, out: Array) -> Array:
    domain_digits.implementations["numba"](partials, starts, digits)
    return rounded_digits.implementations["numba"](digits, out)


@exact_totals.register("cuda")
def _(partials: Array, starts: Array, digits: Array, turns: Array, out: Array) -> Array:
    n_sums, n_chunks, n_samples = partials.shape
    n_domains = starts.shape[0] - 1
    grid = (max(1, -(-n_domains * n_samples // cuda.THREADS)), n_sums)
    arguments = (partials, starts, digits, turns, out, np.int64(n_chunks), np.int64(n_domains), np.int32(n_samples))
    CUDA.launch("exact_totals", _one_by_one(partials), grid, cuda.THREADS, arguments)
    return out


def _one_by_one(floats: Any) -> cuda.Layout:
    """A thread carries one number."""
    return cuda.Layout("double" if floats.dtype.itemsize == 8 else "float", 1, 1, 1)
