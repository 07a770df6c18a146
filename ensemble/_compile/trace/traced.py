"""`Traced`: the symbolic scalar that a body is called with, and its namespace."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._compile.trace.operations import COMPOSED, DTYPES, OPERATIONS, Table, strong, supported

if TYPE_CHECKING:
    from ensemble._compile.trace.tracer import Tracer

__all__ = ["Traced", "TracedNamespace", "caller"]

HERE = str(Path(__file__).parents[1])

NUMPY_NAMES = {
    "absolute": "abs", "fabs": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctanh": "atanh", "arctan2": "atan2", "power": "pow", "true_divide": "divide", "rint": "round",
    "invert": "bitwise_invert", "mod": "remainder",
}  # fmt: skip
"""NumPy's names of the operations, where they differ."""


def caller() -> str:
    """`` at FILE:LINE`` of the body's code, for messages."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back  # type: ignore[assignment]
    return "" if frame is None else f" at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _binary(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Traced, other: Any) -> Any:
        operands = (other, self) if reflected else (self, other)
        return self._tracer.apply(name, *operands)

    return method


def _unary(name: str) -> Callable[[Any], Any]:
    return lambda self: self._tracer.apply(name, self)


def _refuse(what: str, advice: str) -> Callable[..., Any]:
    def method(self: Traced, *arguments: Any) -> Any:
        function = self._tracer.function
        raise TypeError(f"{function}: a traced value must not be {what}; got one{caller()}. {advice}")

    return method


_NUMBER = _refuse("turned into a Python number", "Use the functions of xp, or name the argument in static=.")


class Traced:
    """One number of which only the dtype is known; operations on it are recorded."""

    __slots__ = ("_node", "_tracer")

    def __init__(self, tracer: Tracer, node: int) -> None:
        self._tracer, self._node = tracer, node

    @property
    def dtype(self) -> Any:
        """Its NumPy dtype."""
        return np.dtype(strong(self._tracer.nodes[self._node].dtype))

    def __array_namespace__(self, api_version: str | None = None) -> TracedNamespace:
        return TracedNamespace(self._tracer)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            raise _unsupported(self._tracer, f"np.{ufunc.__name__}.{method}, or an option of it")
        return getattr(TracedNamespace(self._tracer, "np"), ufunc.__name__)(*inputs)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        return getattr(TracedNamespace(self._tracer, "np"), function.__name__)(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = self._tracer.function
        advice = "The body is called with single numbers: it has no shapes, axes or methods."
        raise AttributeError(f"{function}: a traced value must be used as a number; got .{name}{caller()}. {advice}")

    def __repr__(self) -> str:
        return f"<traced {self._tracer.nodes[self._node].dtype}>"

    __hash__ = None  # type: ignore[assignment]
    __bool__ = _refuse("a truth value (if, while, and, or, not, max, min)", "Use xp.where(condition, a, b).")
    __float__ = __int__ = __complex__ = __index__ = _NUMBER
    __array__ = _refuse("turned into an array", "Use the functions of xp.")
    __iter__ = __len__ = __getitem__ = _refuse("indexed or looped over", "It is one number.")
    __add__, __radd__ = _binary("add"), _binary("add", True)
    __sub__, __rsub__ = _binary("subtract"), _binary("subtract", True)
    __mul__, __rmul__ = _binary("multiply"), _binary("multiply", True)
    __truediv__, __rtruediv__ = _binary("divide"), _binary("divide", True)
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _binary("floor_divide", True)
    __mod__, __rmod__ = _binary("remainder"), _binary("remainder", True)
    __pow__, __rpow__ = _binary("pow"), _binary("pow", True)
    __and__, __rand__ = _binary("bitwise_and"), _binary("bitwise_and", True)
    __or__, __ror__ = _binary("bitwise_or"), _binary("bitwise_or", True)
    __xor__, __rxor__ = _binary("bitwise_xor"), _binary("bitwise_xor", True)
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __eq__, __ne__ = _binary("equal"), _binary("not_equal")
    __neg__, __pos__ = _unary("negative"), _unary("positive")
    __abs__, __invert__ = _unary("abs"), _unary("bitwise_invert")


def _unsupported(tracer: Tracer, what: str) -> TypeError:
    return TypeError(
        f"{tracer.function}: functions of traced values must be elementwise and known; got {what}{caller()}. "
        f"Supported: {supported()}."
    )


def table_of(tracer: Tracer, points: Any, values: Any) -> Table:
    """The table of ``interp``, checked."""
    what = f"{tracer.function}: the tables of interp must"
    sides = [side if isinstance(side, list | tuple) else [side] for side in (points, values)]
    if any(isinstance(part, Traced) for side in sides for part in side):
        raise TypeError(f"{what} be plain arrays, known before; got traced values{caller()}.")
    xs, fs = (np.ascontiguousarray(to_numpy(side), dtype=np.float64) for side in (points, values))
    if xs.ndim != 1 or xs.shape != fs.shape or not xs.size:
        raise ValueError(f"{what} be two arrays of one length; got shapes {xs.shape} and {fs.shape}{caller()}.")
    if not (np.all(np.diff(xs) > 0.0) and np.all(np.isfinite(xs)) and np.all(np.isfinite(fs))):
        raise ValueError(
            f"{what} be finite, with points that ascend; got others{caller()}. Sort them, each point once."
        )
    return Table(xs, fs)


class TracedNamespace:
    """The part of the Array API that can be traced: elementwise functions, dtypes, constants."""

    e, inf, nan, pi, newaxis = np.e, np.inf, np.nan, np.pi, None

    def __init__(self, tracer: Tracer, name: str = "xp") -> None:
        self._tracer, self.__name__ = tracer, name

    def __eq__(self, other: object) -> bool:
        # Values of one trace have one namespace: libraries collect those of all operands and want a single one.
        if not isinstance(other, TracedNamespace):
            return False
        return self._tracer is other._tracer and self.__name__ == other.__name__

    def __hash__(self) -> int:
        return hash((id(self._tracer), self.__name__))

    def __getattr__(self, name: str) -> Any:
        known = NUMPY_NAMES.get(name, name)
        if name in DTYPES:
            return np.dtype(name)
        if known not in OPERATIONS:
            tracer = self.__dict__.get("_tracer")
            if tracer is None or name.startswith("__"):
                raise AttributeError(name)
            raise _unsupported(tracer, f"{self.__name__}.{name}")
        return self._operation(known)

    def __dir__(self) -> list[str]:
        return sorted((*OPERATIONS, *COMPOSED, *DTYPES, "e", "inf", "nan", "pi"))

    def _operation(self, name: str) -> Callable[..., Traced]:
        operation, tracer = OPERATIONS[name], self._tracer

        def function(*operands: Any) -> Traced:
            if len(operands) != operation.arity:
                raise _unsupported(tracer, f"{name} with {len(operands)} operands")
            return tracer.apply(name, *operands)

        function.__name__ = name
        return function

    def _like(self, x: Any, value: Any, dtype: Any) -> Traced:
        tracer = self._tracer
        kind = strong(tracer.nodes[tracer.number(x)].dtype) if dtype is None else self._dtype(dtype)
        return Traced(tracer, tracer.cast(tracer.number(value), kind))

    def _dtype(self, dtype: Any) -> str:
        name = np.dtype(dtype).name
        if name not in DTYPES:
            raise _unsupported(self._tracer, f"dtype {name} (known: {', '.join(DTYPES)})")
        return name

    def astype(self, x: Any, dtype: Any, *, copy: bool = True) -> Traced:
        """`x` converted to `dtype`."""
        return self._like(x, x, dtype)

    def clip(self, x: Any, min: Any = None, max: Any = None, **names: Any) -> Traced:
        """`x`, kept between `min` and `max`."""
        min, max = names.get("a_min", min), names.get("a_max", max)
        result = x if min is None else self.maximum(x, min)
        return result if max is None else self.minimum(result, max)

    def interp(self, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Traced:
        """The value at `x` of the lines through points `xp` and `fp`, plain arrays that are known now."""
        tracer = self._tracer
        table = table_of(tracer, xp, fp)
        result = tracer.interpolate(x, table)
        if left is not None:
            result = self.where(self.less(x, float(table.points[0])), left, result)
        if right is not None:
            result = self.where(self.greater(x, float(table.points[-1])), right, result)
        return result

    def full_like(self, x: Any, fill_value: Any, *, dtype: Any = None) -> Traced:
        """`fill_value` in the dtype of `x`."""
        return self._like(x, fill_value, dtype)

    def zeros_like(self, x: Any, *, dtype: Any = None) -> Traced:
        """Zero in the dtype of `x`."""
        return self._like(x, 0, dtype)

    def ones_like(self, x: Any, *, dtype: Any = None) -> Traced:
        """One in the dtype of `x`."""
        return self._like(x, 1, dtype)
