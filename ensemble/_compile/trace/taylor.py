"""Taylor coefficients of a graph's values along a solution of an ordinary differential equation.

Each node is a power series in the step s; a coefficient follows from those of lower order by the recurrence of the
operation (Moore 1966, "Interval Analysis"; Jorba, Zou 2005, Experimental Mathematics 14, 99-117, section 2). Functions
follow from their differential equations: ``y' = u a'`` or ``y' = a' / u`` with another series u. As in `derivatives`,
None is a coefficient that is zero for all values, a Python float one that is known.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from ensemble._compile.trace.derivatives import FLAT, no_rule, plus, times
from ensemble._compile.trace.graph import Graph, Node
from ensemble._compile.trace.replay import value_of
from ensemble._typing import Namespace

__all__ = ["taylor_series"]


class Series:
    """A power series whose coefficient k follows from lower ones, computed at first use."""

    def __init__(self, first: Any, rule: Callable[[int], Any], is_fixed: bool = False) -> None:
        self.coefficients, self._rule, self.is_fixed = [first], rule, is_fixed
        self.steep: Any = None  # a factor of all coefficients that is infinite where there is no series
        self._slopes: dict[int, Any] = {}

    def __getitem__(self, k: int) -> Any:
        while len(self.coefficients) <= k:
            self.coefficients.append(self._rule(len(self.coefficients)))
        return self.coefficients[k]

    def slope(self, j: int) -> Any:
        """Coefficient j times j: of the derivative."""
        if j not in self._slopes:
            self._slopes[j] = times(float(j), self[j])
        return self._slopes[j]

    def scaled(self, factor: float) -> Series:
        """Its multiple."""
        return Series(times(factor, self[0]), lambda k: times(factor, self[k]))


Rule = Callable[[Sequence[Series], Any, Namespace], Series]
"""A function of the operands' series, the value of the operation and the namespace that returns its series."""


def fixed(value: Any) -> Series:
    """A value that does not change."""
    return Series(value, lambda k: None, True)


def minus(a: Any, b: Any) -> Any:
    """``a - b``, where None is zero."""
    if b is None:
        return a
    return times(-1.0, b) if a is None else a - b


def convolved(a: Series, b: Series, k: int, first: int = 0, last: int | None = None, weighted: bool = False) -> Any:
    """``sum a_j b_{k-j}`` for j from `first` to `last`, each term times j where `weighted`.

    Terms of the highest coefficients come last: the others are added while those are computed.
    """
    total = None
    for j in sorted(range(first, (k if last is None else last) + 1), key=lambda j: max(j, k - j)):
        total = plus(total, times(a.slope(j) if weighted else a[j], b[k - j]))
    return total


def added(a: Series, b: Series) -> Series:
    """The sum."""
    return Series(plus(a[0], b[0]), lambda k: plus(a[k], b[k]))


def subtracted(a: Series, b: Series) -> Series:
    """The difference."""
    return Series(minus(a[0], b[0]), lambda k: minus(a[k], b[k]))


def product(a: Series, b: Series) -> Series:
    """The product; a square takes half the terms."""
    if a is not b:
        return Series(times(a[0], b[0]), lambda k: convolved(a, b, k))

    def rule(k: int) -> Any:
        twice = times(2.0, convolved(a, a, k, 0, (k - 1) // 2))
        return twice if k % 2 else plus(twice, times(a[k // 2], a[k // 2]))

    return Series(times(a[0], a[0]), rule)


def _part(value: Any, factor: Any, xp: Namespace) -> Any:
    """``value * factor``; zero where `value` is, though the factor, one over a number, may be infinite."""
    if value is None or type(value) is float or type(factor) is float:
        return times(value, factor)
    counts = (value != 0.0) | (xp.abs(factor) < math.inf)
    return value * xp.where(counts, factor, xp.zeros_like(factor))


def quotient(a: Series, b: Series, first: Any = None) -> Series:
    """``a / b``: its products with b give a; `first` is its value where that is known."""
    reciprocal = 1.0 / b[0]
    first = times(a[0], reciprocal) if first is None else first
    result = Series(first, lambda k: times(minus(a[k], convolved(b, result, k, 1)), reciprocal))
    return result


def root(a: Series, first: Any, xp: Namespace) -> Series:
    """The square root, from its value: its square gives a. It stays at zero where a does."""
    half = 0.5 / first

    def rule(k: int) -> Any:
        twice = times(2.0, convolved(result, result, k, 1, (k - 1) // 2))
        square = None if k % 2 else times(result[k // 2], result[k // 2])
        return _part(minus(a[k], plus(twice, square)), half, xp)

    result = Series(first, rule)
    result.steep = half
    return result


def driven(first: Any, a: Series, u: Callable[[], Series]) -> Series:
    """y with ``y' = u a'``; u may depend on y."""
    return Series(first, lambda k: times(1.0 / k, convolved(a, u(), k, 1, weighted=True)))


def driven_inverse(first: Any, a: Series, u: Series, xp: Namespace | None = None) -> Series:
    """y with ``y' = a' / u``; with `xp`, where u may be zero, it does not change where a does not."""
    reciprocal = 1.0 / u[0]

    def rule(k: int) -> Any:
        known = times(1.0 / k, convolved(result, u, k, 1, k - 1, weighted=True))
        change = minus(a[k], known)
        return times(change, reciprocal) if xp is None else _part(change, reciprocal, xp)

    result = Series(first, rule)
    result.steep = None if xp is None else reciprocal
    return result


def power(a: Series, c: Any, first: Any, xp: Namespace) -> Series:
    """Return the series of ``y = a**c``, `c` fixed, from ``a y' = c a' y``."""
    reciprocal = 1.0 / a[0]

    def rule(k: int) -> Any:
        with_slope = convolved(a, result, k, 1, weighted=True)
        own = convolved(result, a, k, 1, k - 1, weighted=True)
        return _part(times(1.0 / k, minus(times(c, with_slope), own)), reciprocal, xp)

    result = Series(first, rule)
    result.steep = reciprocal
    return result


def _exponential(x: Sequence[Series], r: Any, xp: Namespace) -> Series:
    result = driven(r, x[0], lambda: result)
    return result


def _pair(x: Sequence[Series], r: Any, xp: Namespace, sign: float, companion: str, is_sine: bool) -> Series:
    """Sine or cosine with its companion, circular (sign = -1) or hyperbolic (1)."""
    own = driven(r, x[0], lambda: other if is_sine else other.scaled(sign))
    other: Series = driven(getattr(xp, companion)(x[0][0]), x[0], lambda: own.scaled(sign) if is_sine else own)
    return own


def _tangent(x: Sequence[Series], r: Any, xp: Namespace, sign: float) -> Series:
    result: Series = driven(r, x[0], lambda: slope)
    slope = added(fixed(1.0), product(result, result).scaled(sign))
    return result


def _inverse(constant: float, sign: float, rooted: bool, factor: float = 1.0) -> Rule:
    """An inverse function, whose derivative is ``factor / u`` with ``u = constant + sign a**2`` or its root."""

    def series(x: Sequence[Series], r: Any, xp: Namespace) -> Series:
        u = added(fixed(constant), product(x[0], x[0]).scaled(sign))
        u = root(u, xp.sqrt(u[0]), xp) if rooted else u
        return driven_inverse(r, x[0].scaled(factor), u, xp if rooted else None)

    return series


def _chosen(condition: Any, a: Series, b: Series, xp: Namespace) -> Series:
    def rule(k: int) -> Any:
        parts = [part[k] for part in (a, b)]
        if all(part is None for part in parts):
            return None
        like = next(part[0] for part in (a, b) if type(part[0]) is not float)
        zero = xp.zeros_like(like)
        return xp.where(condition, *(zero if p is None else zero + p if type(p) is float else p for p in parts))

    return Series(None, rule)


def _extreme(x: Sequence[Series], condition: Any, r: Any, xp: Namespace) -> Series:
    return Series(r, _chosen(condition, x[0], x[1], xp).__getitem__)


def _general_power(x: Sequence[Series], r: Any, xp: Namespace) -> Series:
    base, exponent = x
    logarithm = driven_inverse(xp.log(base[0]), base, base)
    result = _exponential([product(exponent, logarithm)], r, xp)
    result.steep = 1.0 / base[0]
    return result


def _norm(x: Sequence[Series]) -> Series:
    return added(product(x[0], x[0]), product(x[1], x[1]))


def _angle(x: Sequence[Series], r: Any, xp: Namespace) -> Series:
    """``(x1^2 + x0^2) y' = x1 x0' - x0 x1'``."""
    u = _norm(x)
    reciprocal = 1.0 / u[0]

    def rule(k: int) -> Any:
        turned = minus(convolved(x[0], x[1], k, 1, weighted=True), convolved(x[1], x[0], k, 1, weighted=True))
        known = convolved(result, u, k, 1, k - 1, weighted=True)
        return _part(times(1.0 / k, minus(turned, known)), reciprocal, xp)

    result = Series(r, rule)
    result.steep = reciprocal
    return result


def _multiple(x: Series, factor: Any, r: Any) -> Series:
    """A series whose derivative is that of `x` times a fixed value."""
    return Series(r, lambda k: times(x[k], factor))


RULES: dict[str, Rule] = {
    "add": lambda x, r, xp: added(*x),
    "subtract": lambda x, r, xp: subtracted(*x),
    "multiply": lambda x, r, xp: product(*x),
    "fma": lambda x, r, xp: added(product(x[0], x[1]), x[2]),
    "divide": lambda x, r, xp: quotient(x[0], x[1], r),
    "negative": lambda x, r, xp: x[0].scaled(-1.0),
    "positive": lambda x, r, xp: x[0],
    "square": lambda x, r, xp: product(x[0], x[0]),
    "reciprocal": lambda x, r, xp: quotient(fixed(1.0), x[0], r),
    "sqrt": lambda x, r, xp: root(x[0], r, xp),
    "pow": lambda x, r, xp: power(x[0], x[1][0], r, xp) if x[1].is_fixed else _general_power(x, r, xp),
    "exp": _exponential,
    "expm1": lambda x, r, xp: subtracted(_exponential(x, r + 1.0, xp), fixed(1.0)),
    "log": lambda x, r, xp: driven_inverse(r, x[0], x[0]),
    "log1p": lambda x, r, xp: driven_inverse(r, x[0], added(fixed(1.0), x[0])),
    "log2": lambda x, r, xp: driven_inverse(r, x[0].scaled(1.0 / math.log(2.0)), x[0]),
    "log10": lambda x, r, xp: driven_inverse(r, x[0].scaled(1.0 / math.log(10.0)), x[0]),
    "sin": lambda x, r, xp: _pair(x, r, xp, -1.0, "cos", True),
    "cos": lambda x, r, xp: _pair(x, r, xp, -1.0, "sin", False),
    "sinh": lambda x, r, xp: _pair(x, r, xp, 1.0, "cosh", True),
    "cosh": lambda x, r, xp: _pair(x, r, xp, 1.0, "sinh", False),
    "tan": lambda x, r, xp: _tangent(x, r, xp, 1.0),
    "tanh": lambda x, r, xp: _tangent(x, r, xp, -1.0),
    "atan": _inverse(1.0, 1.0, False),
    "atanh": _inverse(1.0, -1.0, False),
    "asin": _inverse(1.0, -1.0, True),
    "acos": _inverse(1.0, -1.0, True, -1.0),
    "asinh": _inverse(1.0, 1.0, True),
    "acosh": _inverse(-1.0, 1.0, True),
    "atan2": _angle,
    "hypot": lambda x, r, xp: root(_norm(x), r, xp),
    "abs": lambda x, r, xp: _multiple(x[0], xp.sign(x[0][0]), r),
    "copysign": lambda x, r, xp: _multiple(x[0], xp.sign(x[0][0]) * xp.sign(r), r),
    "remainder": lambda x, r, xp: Series(
        r, subtracted(x[0], _multiple(x[1], xp.floor(x[0][0] / x[1][0]), None)).__getitem__
    ),
    "maximum": lambda x, r, xp: _extreme(x, (x[0][0] > x[1][0]) | (x[0][0] != x[0][0]), r, xp),
    "minimum": lambda x, r, xp: _extreme(x, (x[0][0] < x[1][0]) | (x[0][0] != x[0][0]), r, xp),
    "where": lambda x, r, xp: Series(r, _chosen(x[0][0], x[1], x[2], xp).__getitem__),
}


def _series_of(node: Node, operands: Sequence[Series], xp: Namespace) -> Series:
    """The series of a node whose operands' series are known."""
    if node.operation == "constant" and node.dtype.startswith("float"):
        return fixed(float(node.value))
    value = value_of(node, [operand[0] for operand in operands], xp)
    real = node.dtype.startswith("float") and node.operation not in FLAT
    if not real or all(operand.is_fixed for operand in operands):
        return fixed(value)
    if node.operation == "cast":
        dtype, inner = getattr(xp, node.dtype), operands[0]

        def converted(k: int) -> Any:
            known = inner[k] is None or type(inner[k]) is float
            return inner[k] if known else xp.astype(inner[k], dtype)

        return Series(value, converted)
    if node.operation == "interp":
        line = value_of(dataclasses.replace(node, value=node.value.slopes()), [operands[0][0]], xp)
        return _multiple(operands[0], line, value)
    if node.operation not in RULES:
        raise no_rule(node.operation)
    series = RULES[node.operation](operands, value, xp)
    series.coefficients[0] = value
    return series


def taylor_series(
    graph: Graph, time: Any, state: Sequence[Any], parameters: Sequence[Any], order: int, xp: Namespace,
    steep: list[Any] | None = None,
) -> tuple[list[list[Any]], list[list[Any]]]:  # fmt: skip
    """The series of the solution of ``dy/dt = f(t, y, p)`` through a point, and those of its derivatives.

    Parameters
    ----------
    graph : Graph
        f: its inputs are t, the n values y and the parameters, its outputs the n derivatives.
    time, state, parameters : values
        The point.
    order : int
        Order of the last coefficient, at least 1.
    xp : namespace
        The namespace of the values.
    steep : list, optional
        Is given factors that are infinite where a function, as a root at zero, has a value and no series. Its
        coefficients are zero there, or not finite.

    Returns
    -------
    list of n lists of ``order + 1`` coefficients
        ``y_i(t + s) = sum_k x[i][k] s**k``; a coefficient is None where it is zero for all values.
    list of n lists of `order` coefficients
        Those of ``dy_i/dt``, from which the others follow.

    Raises
    ------
    TypeError
        For an operation that has no recurrence.
    """
    outputs: list[Series] = []

    def unknown(i: int) -> Series:
        return Series(state[i], lambda k: times(1.0 / k, outputs[i][k - 1]))

    n = len(state)
    inputs = [Series(time, lambda k: 1.0 if k == 1 else None), *map(unknown, range(n)), *map(fixed, parameters)]
    series: list[Series] = []
    for node in graph.nodes:
        operands = [series[i] for i in node.inputs]
        series.append(inputs[node.value] if node.operation == "input" else _series_of(node, operands, xp))
        if steep is not None and not (series[-1].steep is None or type(series[-1].steep) is float):
            steep.append(series[-1].steep)
    outputs += [series[k] for k in graph.outputs]
    for k in range(order):  # in the order of the nodes: each finds what it needs, and recursion stays shallow
        for one in series:
            _ = one[k]
    coefficients = [[one[k] for k in range(order + 1)] for one in inputs[1 : n + 1]]
    return coefficients, [[one[k] for k in range(order)] for one in outputs]
