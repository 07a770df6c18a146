"""Slope limiters: called with arrays by the Array API engine, traced for the compiled engines.

``limiter(a, d, xp)`` gives the limited slope ``d phi(a / d)`` for the difference `d` across a face and the difference
`a` across the next face upwind, phi of LeVeque, Finite Volume Methods for Hyperbolic Problems (2002), eqs. 6.34-6.39.
It is zero where the signs differ, symmetric in `a` and `d`, and has no quotient ``a / d``, which may overflow.
"""

from __future__ import annotations

from collections.abc import Callable

from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._typing import Array, Namespace

__all__ = ["LIMITERS", "trace_limiter"]

# Minimum and maximum by `where`: the functions of the standard have a rule for NaN, which takes more instructions.


def smaller(a: Array, b: Array, xp: Namespace) -> Array:
    return xp.where(a < b, a, b)


def larger(a: Array, b: Array, xp: Namespace) -> Array:
    return xp.where(a > b, a, b)


def positive(a: Array, xp: Namespace) -> Array:
    return xp.where(a > 0, a, xp.zeros_like(a))


def negative(a: Array, xp: Namespace) -> Array:
    return xp.where(a < 0, a, xp.zeros_like(a))


def mc(a: Array, d: Array, xp: Namespace) -> Array:
    """Monotonized central: the mean of both, at most twice the smaller."""
    mean = 0.5 * (a + d)
    low = smaller(smaller(a + a, d + d, xp), mean, xp)
    return positive(low, xp) + negative(larger(larger(a + a, d + d, xp), mean, xp), xp)


def superbee(a: Array, d: Array, xp: Namespace) -> Array:
    """The larger of both, at most twice the smaller."""
    low = smaller(larger(a, d, xp), smaller(a + a, d + d, xp), xp)
    return positive(low, xp) + negative(larger(smaller(a, d, xp), larger(a + a, d + d, xp), xp), xp)


def van_leer(a: Array, d: Array, xp: Namespace) -> Array:
    """The harmonic mean of both."""
    size_a, size_d = xp.abs(a), xp.abs(d)
    small, large = smaller(size_a, size_d, xp), larger(size_a, size_d, xp)
    # with the larger in both quotients nothing overflows; where both are zero so is the numerator
    size = 2.0 * small / (1.0 + small / xp.where(large > 0, large, xp.ones_like(large)))
    return xp.where((a > 0) & (d > 0), size, xp.where((a < 0) & (d < 0), -size, xp.zeros_like(size)))


def minmod(a: Array, d: Array, xp: Namespace) -> Array:
    """The smaller of both."""
    return positive(smaller(a, d, xp), xp) + negative(larger(a, d, xp), xp)


def none(a: Array, d: Array, xp: Namespace) -> Array:
    """No slope: donor cells and corner transport only, of first order."""
    return xp.zeros_like(d)


LIMITERS: dict[str, Callable[[Array, Array, Namespace], Array]] = {
    "mc": mc, "superbee": superbee, "van_leer": van_leer, "minmod": minmod, "none": none,
}  # fmt: skip
"""``limiter(a, d, xp)`` by name."""


def trace_limiter(name: str, dtype: str) -> Graph:
    """The graph of a limiter in the precision `dtype`. Inputs: a, d."""
    limiter = LIMITERS[name]
    return trace(lambda a, d: limiter(a, d, a.__array_namespace__()), Scalar(dtype), Scalar(dtype), function="Gbees")
