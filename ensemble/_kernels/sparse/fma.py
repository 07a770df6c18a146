"""The fused multiply-add of the reference implementations: a * b + c rounded once, in plain Array API arithmetic.

float32 goes by way of float64, which holds the product exactly; float64 by error-free transformations. Either way the
last rounding but one is to odd, so that rounding again to nearest gives what one rounding would (Boldo, Melquiond 2008,
IEEE Trans. Comput. 57, 462-471, figure 5). Subnormal and overflowing intermediate values are not handled.
"""

from __future__ import annotations

from typing import Any

from ensemble._backend import array_namespace

__all__ = ["fma"]

SPLITTER = 2.0**27 + 1.0
"""Cuts a float64 in two halves of 26 bits."""


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, elementwise, rounded once."""
    xp = array_namespace(a, b, c)
    plain = a * b + c
    if plain.dtype == xp.float32:
        a, b, c = (xp.astype(v, xp.float64) for v in (a, b, c))
        fused = xp.astype(to_odd(xp, a * b, c), xp.float32)
    else:
        high, low = exact_product(a, b)
        rest, tail = exact_sum(c, low)
        top, middle = exact_sum(high, rest)
        fused = top + to_odd(xp, tail, middle)
    return xp.where(xp.isfinite(plain) & xp.isfinite(fused), fused, plain)


def exact_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b and its rounding error (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def exact_product(a: Any, b: Any) -> tuple[Any, Any]:
    """a * b and its rounding error (Dekker)."""
    (a_high, a_low), (b_high, b_low) = split(a), split(b)
    product = a * b
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def split(a: Any) -> tuple[Any, Any]:
    """`a` as the sum of two numbers of half its digits."""
    scaled = SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high


def to_odd(xp: Any, a: Any, b: Any) -> Any:
    """a + b; where that is not exact, the neighbour whose last bit is odd."""
    total, error = exact_sum(a, b)
    infinity = xp.asarray(xp.inf, dtype=total.dtype)
    outward = xp.nextafter(total, xp.where(total < 0.0, -infinity, infinity))
    even = total + (outward - total) * 0.5 == total  # half way between neighbours, rounding goes to the even one
    toward = xp.nextafter(total, xp.where(error < 0.0, -infinity, infinity))
    return xp.where(even & (error != 0.0), toward, total)
