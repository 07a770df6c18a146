"""Slope limiters as slopes: the quotient of two differences, which limiters are functions of, may overflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["LIMITERS"]

# Each gives ``d * phi(a / d)`` for the difference `d` across a face and the difference `a` across the next face upwind,
# phi as in LeVeque, Finite Volume Methods for Hyperbolic Problems (2002), eqs. 6.34-6.39. Zero where the signs differ.


def _same_sign(a: Any, d: Any, size: Any, xp: Any) -> Any:
    """`size` with the sign that `a` and `d` share, else zero."""
    zero = 0.0 * size
    return xp.where((a > 0) & (d > 0), size, xp.where((a < 0) & (d < 0), -size, zero))


def mc(a: Any, d: Any, xp: Any) -> Any:
    """Monotonized central: the mean of both, at most twice the smaller."""
    twice = 2.0 * xp.minimum(xp.abs(a), xp.abs(d))
    return _same_sign(a, d, xp.minimum(xp.abs(0.5 * (a + d)), twice), xp)


def superbee(a: Any, d: Any, xp: Any) -> Any:
    """The larger of both, at most twice the smaller."""
    size_a, size_d = xp.abs(a), xp.abs(d)
    return _same_sign(a, d, xp.minimum(xp.maximum(size_a, size_d), 2.0 * xp.minimum(size_a, size_d)), xp)


def van_leer(a: Any, d: Any, xp: Any) -> Any:
    """The harmonic mean of both."""
    size_a, size_d = xp.abs(a), xp.abs(d)
    small, large = xp.minimum(size_a, size_d), xp.maximum(size_a, size_d)
    # with the larger in both quotients nothing overflows; where both are zero so is the numerator
    ratio = small / xp.where(large > 0, large, 1.0 + 0.0 * large)
    return _same_sign(a, d, 2.0 * small / (1.0 + ratio), xp)


def minmod(a: Any, d: Any, xp: Any) -> Any:
    """The smaller of both."""
    return _same_sign(a, d, xp.minimum(xp.abs(a), xp.abs(d)), xp)


def none(a: Any, d: Any, xp: Any) -> Any:
    """No slope: donor cells and corner transport only, of first order."""
    return 0.0 * d


LIMITERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mc": mc, "superbee": superbee, "van_leer": van_leer, "minmod": minmod, "none": none,
}  # fmt: skip
"""``limiter(a, d, xp)`` by name; every engine uses these bodies."""
