"""Forward derivatives: numbers that carry their partial derivatives through arithmetic and functions.

Values and partials are arrays of any Array API library, or Ensembles; a partial of None is zero and costs nothing.

The rules are those of `ensemble._compile.trace.derivatives`: a factor of zero makes a product zero though the other is
infinite or NaN, `where`, `maximum` and `minimum` have the derivative of what they choose, the second operand where both
are equal, and `hypot` and `atan2` have the derivative 0 at the origin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._check import message
from ensemble._compile.trace.operations import ARRAY_API_NAMES

__all__ = ["Dual", "DualNamespace", "jacobian_of"]

Partials = tuple[Any, ...]


class Dual:
    """A value and its partial derivatives."""

    __slots__ = ("partials", "value")

    def __init__(self, value: Any, partials: Partials) -> None:
        self.value, self.partials = value, partials

    def __add__(self, other: Any) -> Dual:
        return _combined(self, other, lambda a, b: a + b, lambda a, b: (1.0, 1.0))

    def __sub__(self, other: Any) -> Dual:
        return _combined(self, other, lambda a, b: a - b, lambda a, b: (1.0, -1.0))

    def __rsub__(self, other: Any) -> Dual:
        return _combined(other, self, lambda a, b: a - b, lambda a, b: (1.0, -1.0))

    def __mul__(self, other: Any) -> Dual:
        return _combined(self, other, lambda a, b: a * b, lambda a, b: (b, a))

    def __truediv__(self, other: Any) -> Dual:
        return _combined(self, other, lambda a, b: a / b, lambda a, b: (1.0 / b, -a / (b * b)))

    def __rtruediv__(self, other: Any) -> Dual:
        return _combined(other, self, lambda a, b: a / b, lambda a, b: (1.0 / b, -a / (b * b)))

    def __pow__(self, n: Any) -> Dual:
        if isinstance(n, Dual):
            return _combined(self, n, lambda a, b: a**b, lambda a, b: (b * a ** (b - 1), a**b * _log(a)))
        return _combined(self, n, lambda a, b: a**b, lambda a, b: (b * a ** (b - 1), None))

    def __rpow__(self, other: Any) -> Dual:
        return _combined(other, self, lambda a, b: a**b, lambda a, b: (None, a**b * _log(a)))

    def _without_derivative(self, other: Any) -> Dual:
        advice = "Give the Jacobian, or take multiples off with where."
        raise TypeError(message("differentiation", "operators", "have a known derivative", "% or //", advice))

    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = _without_derivative

    def __neg__(self) -> Dual:
        return Dual(-self.value, tuple(None if p is None else -p for p in self.partials))

    def __pos__(self) -> Dual:
        return self

    def __abs__(self) -> Dual:
        out: Dual = DualNamespace(array_namespace(self.value)).abs(self)
        return out

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other: Any) -> Any:
        return self.value < _value(other)

    def __le__(self, other: Any) -> Any:
        return self.value <= _value(other)

    def __gt__(self, other: Any) -> Any:
        return self.value > _value(other)

    def __ge__(self, other: Any) -> Any:
        return self.value >= _value(other)

    def __eq__(self, other: object) -> Any:
        return self.value == _value(other)

    def __ne__(self, other: object) -> Any:
        return self.value != _value(other)

    __hash__ = None  # type: ignore[assignment]  # equal where values are, which is an array

    def __bool__(self) -> bool:
        advice = "Write xp.where(condition, a, b) for a branch."
        raise TypeError(message("differentiation", "a truth value", "not be asked of the state", "if or while", advice))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Take calls of NumPy's ufuncs, and operators whose left operand is NumPy's array."""
        name = ARRAY_API_NAMES.get(ufunc.__name__, ufunc.__name__)
        if method != "__call__" or options:
            return NotImplemented
        if name in OPERATORS:
            return OPERATORS[name](*(a if isinstance(a, Dual) else Dual(a, (None,) * self.count) for a in inputs))
        return getattr(DualNamespace(array_namespace(self.value)), name)(*inputs)

    @property
    def count(self) -> int:
        """With respect to how many variables."""
        return len(self.partials)


def _value(a: Any) -> Any:
    return a.value if isinstance(a, Dual) else a


def _log(a: Any) -> Any:
    return array_namespace(a).log(a) if hasattr(a, "shape") else math.log(a)


def _scaled(slope: Any, partial: Any) -> Any:
    """Multiply a slope by a partial derivative; zero times infinity or NaN is zero."""
    if partial is None or slope is None:
        return None
    if isinstance(slope, float) and slope == 1.0:
        return partial
    first = slope if isinstance(partial, float) else _nonzero(partial, slope)
    return first * (partial if isinstance(slope, float) else _nonzero(slope, partial))


def _nonzero(factor: Any, a: Any) -> Any:
    """`a`, or zero where `factor` is zero."""
    if isinstance(a, float):
        return a  # finite
    xp = array_namespace(factor, a)
    return xp.where(factor == 0, xp.zeros((), dtype=a.dtype), a)


def _sum(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _combined(a: Any, b: Any, value: Callable[..., Any], slopes: Callable[..., tuple[Any, Any]]) -> Dual:
    """A function of two operands by the chain rule."""
    x, y = _value(a), _value(b)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        by_a, by_b = slopes(x, y)
    count = (a if isinstance(a, Dual) else b).count
    none = (None,) * count
    of_a = a.partials if isinstance(a, Dual) else none
    of_b = b.partials if isinstance(b, Dual) else none
    partials = tuple(_sum(_scaled(by_a, p), _scaled(by_b, q)) for p, q in zip(of_a, of_b, strict=True))
    return Dual(value(x, y), partials)


OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b, "pow": lambda a, b: a**b, "negative": lambda a: -a,
    "less": lambda a, b: a < b, "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b, "greater_equal": lambda a, b: a >= b,
    "equal": lambda a, b: a == b, "not_equal": lambda a, b: a != b,
}  # fmt: skip

SLOPES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sin": lambda xp, x, y: xp.cos(x),
    "cos": lambda xp, x, y: -xp.sin(x),
    "tan": lambda xp, x, y: 1.0 + y * y,
    "asin": lambda xp, x, y: 1.0 / xp.sqrt(1.0 - x * x),
    "acos": lambda xp, x, y: -1.0 / xp.sqrt(1.0 - x * x),
    "atan": lambda xp, x, y: 1.0 / (1.0 + x * x),
    "sinh": lambda xp, x, y: xp.cosh(x),
    "cosh": lambda xp, x, y: xp.sinh(x),
    "tanh": lambda xp, x, y: 1.0 - y * y,
    "asinh": lambda xp, x, y: 1.0 / xp.sqrt(x * x + 1.0),
    "acosh": lambda xp, x, y: 1.0 / xp.sqrt(x * x - 1.0),
    "atanh": lambda xp, x, y: 1.0 / (1.0 - x * x),
    "exp": lambda xp, x, y: y,
    "expm1": lambda xp, x, y: y + 1.0,
    "log": lambda xp, x, y: 1.0 / x,
    "log1p": lambda xp, x, y: 1.0 / (1.0 + x),
    "log2": lambda xp, x, y: 1.4426950408889634 / x,
    "log10": lambda xp, x, y: 0.4342944819032518 / x,
    "sqrt": lambda xp, x, y: 0.5 / y,
    "square": lambda xp, x, y: 2.0 * x,
    "abs": lambda xp, x, y: xp.sign(x),
}
"""The derivative of y = function(x) by the function's name."""


class DualNamespace:
    """The functions of an Array API namespace on duals; of what is no dual, the namespace's own."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def __getattr__(self, name: str) -> Any:
        plain = getattr(self._xp, name)
        if not callable(plain):
            return plain

        def function(*arguments: Any, **options: Any) -> Any:
            if not any(isinstance(a, Dual) for a in arguments):
                return plain(*arguments, **options)
            if name not in SLOPES or len(arguments) != 1 or options:
                known = ", ".join(sorted([*SLOPES, "atan2", "hypot", "maximum", "minimum", "pow", "where"]))
                advice = f"Give the Jacobian, or use {known}."
                raise TypeError(message("differentiation", "functions", "have a known derivative", name, advice))
            x = arguments[0].value
            xp = array_namespace(x)
            y = getattr(xp, name)(x)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                slope = SLOPES[name](xp, x, y)
            return Dual(y, tuple(_scaled(slope, p) for p in arguments[0].partials))

        return function

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        if not (isinstance(a, Dual) or isinstance(b, Dual)):
            return self._xp.where(condition, a, b)
        xp, (x, y) = _arrays(condition, _value(a), _value(b))
        first = xp.where(condition, xp.ones((), dtype=x.dtype), xp.zeros((), dtype=x.dtype))
        return _combined(a, b, lambda *_: xp.where(condition, x, y), lambda *_: (first, 1.0 - first))

    def maximum(self, a: Any, b: Any) -> Any:
        x, y = _value(a), _value(b)
        return self.where((x > y) | (x != x), a, b)

    def minimum(self, a: Any, b: Any) -> Any:
        x, y = _value(a), _value(b)
        return self.where((x < y) | (x != x), a, b)

    def pow(self, a: Any, b: Any) -> Any:
        return a**b

    def hypot(self, a: Any, b: Any) -> Any:
        if not (isinstance(a, Dual) or isinstance(b, Dual)):
            return self._xp.hypot(a, b)
        xp, (x, y) = _arrays(None, _value(a), _value(b))
        length = xp.hypot(x, y)
        whole = xp.where(length == 0, xp.ones((), dtype=length.dtype), length)
        return _combined(a, b, lambda *_: length, lambda *_: (x / whole, y / whole))

    def atan2(self, a: Any, b: Any) -> Any:
        if not (isinstance(a, Dual) or isinstance(b, Dual)):
            return self._xp.atan2(a, b)
        xp, (y, x) = _arrays(None, _value(a), _value(b))
        square = x * x + y * y
        square = xp.where(square == 0, xp.ones((), dtype=square.dtype), square)
        return _combined(a, b, lambda *_: xp.atan2(y, x), lambda *_: (x / square, -y / square))


def _arrays(condition: Any, *values: Any) -> tuple[Any, list[Any]]:
    """Convert values, some of them plain numbers, to arrays of one namespace, that of the Ensembles among them."""
    arrays = [v for v in (condition, *values) if hasattr(v, "shape")]
    xp = array_namespace(*arrays)
    dtype = next(v.dtype for v in values if hasattr(v, "shape"))
    return xp, [v if hasattr(v, "shape") else xp.asarray(float(v), dtype=dtype) for v in values]


def jacobian_of(
    function: Callable[..., Sequence[Any]], x: Sequence[Any], *arguments: Any, xp: Any
) -> tuple[list[Any], list[list[Any]]]:
    """Evaluate ``function(x, *arguments, xp)`` and its Jacobian, a list of rows; None is a derivative of zero."""
    n = len(x)
    duals = tuple(Dual(v, tuple(1.0 if j == i else None for j in range(n))) for i, v in enumerate(x))
    out = list(function(duals, *arguments, DualNamespace(xp)))
    values = [_value(c) for c in out]
    return values, [list(c.partials) if isinstance(c, Dual) else [None] * n for c in out]
