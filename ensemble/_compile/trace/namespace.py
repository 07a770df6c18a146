"""The functions that take traced values: elementwise functions of the Array API, and NumPy's names of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ensemble._compile.trace.graph import SELDOM
from ensemble._compile.trace.operations import ARRAY_API_NAMES, COMPOSED, DTYPES, OPERATIONS

__all__ = ["NUMPY_NAMES", "TracedNamespace"]

NUMPY_NAMES = ARRAY_API_NAMES | {"fabs": "abs", "mod": "remainder", "rint": "round"}
"""NumPy's names of the operations, where they differ."""


Traced = Any
"""A traced value; `tracer.py` defines it, above this module."""


class Recorder(Protocol):
    """What the namespace asks of the tracer that it belongs to."""

    nodes: list[Any]

    def apply(self, name: str, *operands: Any) -> Traced:
        """Record an operation."""

    def converted(self, value: Any, dtype: str) -> Traced:
        """Record a value in a dtype."""

    def dtype_of(self, value: Any) -> str:
        """Return the dtype of a value."""

    def number(self, value: Any) -> int:
        """Return the number of the node of a value."""

    def add(self, operation: str, inputs: Any, dtype: str, value: Any = None) -> int:
        """Record a node; returns its number."""

    def interpolate(self, x: Any, xp: Any, fp: Any, left: Any, right: Any) -> Traced:
        """Record a linear interpolation."""

    def unsupported(self, what: str) -> Exception:
        """Make the error about what cannot be traced."""


class TracedNamespace:
    """The part of the Array API that can be traced: elementwise functions, dtypes, constants."""

    e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None

    def __init__(self, tracer: Recorder, name: str) -> None:
        self._tracer: Any = tracer  # of derived classes, which know the tracer itself, more than a `Recorder`
        self.__name__ = name

    @property
    def tracer(self) -> Any:
        """What records the operations."""
        return self._tracer

    def __eq__(self, other: object) -> bool:
        """Whether it is of the same trace: array-api-compat requires that all operands have equal namespaces."""
        if not isinstance(other, TracedNamespace):
            return NotImplemented
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
            raise tracer.unsupported(f"{self.__name__}.{name}")
        return self._operation(known)

    def __dir__(self) -> list[str]:
        return sorted((*OPERATIONS, *COMPOSED, *DTYPES, "e", "inf", "nan", "pi"))

    def _operation(self, name: str) -> Callable[..., Traced]:
        operation, tracer = OPERATIONS[name], self._tracer

        def function(*operands: Any) -> Traced:
            if len(operands) != operation.arity:
                raise tracer.unsupported(f"{name} with {len(operands)} operands")
            return tracer.apply(name, *operands)

        function.__name__ = name
        return function

    def _like(self, x: Any, value: Any, dtype: Any) -> Traced:
        return self._tracer.converted(value, self._tracer.dtype_of(x) if dtype is None else self._dtype(dtype))

    def _dtype(self, dtype: Any) -> str:
        name: str = np.dtype(dtype).name
        if name not in DTYPES:
            raise self._tracer.unsupported(f"dtype {name} (known: {', '.join(DTYPES)})")
        return name

    def astype(self, x: Any, dtype: Any, *, copy: bool = True) -> Traced:
        """`x` converted to `dtype`."""
        return self._like(x, x, dtype)

    def seldom(self, condition: Any, a: Any, b: Any) -> Traced:
        """``where(condition, a, b)``: loops on lanes compute what only `a` needs where the condition holds for one."""
        chosen, tracer = self._operation("where")(condition, a, b), self._tracer
        node = tracer.nodes[tracer.number(chosen)]
        if node.operation != "where":
            return chosen
        return type(chosen)(tracer, tracer.add("where", node.inputs, node.dtype, SELDOM))

    def clip(self, x: Any, min: Any = None, max: Any = None, **names: Any) -> Traced:
        """`x`, kept between `min` and `max`."""
        min, max = names.get("a_min", min), names.get("a_max", max)
        result: Traced = x if min is None else self.maximum(x, min)
        return result if max is None else self._operation("minimum")(result, max)

    def interp(self, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Traced:
        """The value at `x` of the lines through points `xp` and `fp`, plain arrays that are known now."""
        return self._tracer.interpolate(x, xp, fp, left, right)

    def full_like(self, x: Any, fill_value: Any, *, dtype: Any = None) -> Traced:
        """`fill_value` in the dtype of `x`."""
        return self._like(x, fill_value, dtype)

    def zeros_like(self, x: Any, *, dtype: Any = None) -> Traced:
        """Zero in the dtype of `x`."""
        return self._like(x, 0, dtype)

    def ones_like(self, x: Any, *, dtype: Any = None) -> Traced:
        """One in the dtype of `x`."""
        return self._like(x, 1, dtype)
