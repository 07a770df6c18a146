"""Arrays that count the floating-point operations done with them: any Array API code runs on them unchanged."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._check import message

__all__ = ["Counted", "count_flops"]

ELEMENTWISE = ("add", "subtract", "multiply", "divide", "reciprocal", "square", "sqrt", "exp", "log", "log1p", "hypot")
"""Functions of one operation an entry of their result."""

REDUCTIONS = {"sum": 0, "prod": 0, "cumulative_sum": 0, "mean": 1}
"""Functions of one operation for every entry that goes in beyond the first, and so many more for each that comes
out."""

FREE = (
    "abs", "all", "any", "arange", "asarray", "astype", "broadcast_to", "concat", "empty_like", "equal", "expand_dims",
    "eye", "finfo", "flip", "greater", "greater_equal", "isdtype", "isfinite", "isnan", "less", "less_equal",
    "logical_and", "logical_not", "logical_or", "matrix_transpose", "max", "maximum", "min", "minimum", "moveaxis",
    "negative", "not_equal", "ones", "ones_like", "permute_dims", "repeat", "reshape", "result_type", "sign", "squeeze",
    "stack", "take", "where", "zeros", "zeros_like", "float32", "float64", "int64", "bool",
)  # fmt: skip
"""What costs nothing: moving, making, comparing and choosing entries, and changes of sign."""


def matmul_flops(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Of products of (..., n, m) and (..., m, k) matrices, ``n k (2 m - 1)`` each."""
    *_, n, m = first
    batch = np.broadcast_shapes(first[:-2], second[:-2])
    return math.prod(batch) * n * second[-1] * (2 * m - 1)


def solve_flops(matrix: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Of LU factors of (..., n, n) matrices, ``n (n - 1) / 2 + n (n - 1) (2 n - 1) / 3``, and two triangular solves of
    k columns, ``k (2 n^2 - n)``."""
    n, k = matrix[-1], right[-1]
    batch = np.broadcast_shapes(matrix[:-2], right[:-2])
    return math.prod(batch) * (n * (n - 1) // 2 + n * (n - 1) * (2 * n - 1) // 3 + k * (2 * n * n - n))


class _Linalg:
    def __init__(self, xp: CountingNamespace) -> None:
        self._xp = xp

    def solve(self, matrix: Any, right: Any) -> Counted:
        self._xp.flops += solve_flops(matrix.shape, right.shape)
        return self._xp.wrapped(np.linalg.solve(_bare(matrix), _bare(right)))

    def diagonal(self, matrix: Any) -> Counted:
        """Costs nothing: it is where it was."""
        return self._xp.wrapped(np.linalg.diagonal(_bare(matrix)))


class CountingNamespace:
    """NumPy's functions on `Counted` arrays; `flops` is what they have done so far."""

    __name__ = "counting"

    def __init__(self) -> None:
        self.flops = 0
        self.linalg = _Linalg(self)

    def wrapped(self, value: Any) -> Any:
        """Arrays become counted ones, anything else stays."""
        return Counted(value, self) if isinstance(value, np.ndarray | np.generic) else value

    def matmul(self, first: Any, second: Any) -> Counted:
        self.flops += matmul_flops(first.shape, second.shape)
        return self.wrapped(_bare(first) @ _bare(second))

    def __getattr__(self, name: str) -> Any:
        if name in ELEMENTWISE:
            cost = lambda inputs, out: out.size
        elif name in REDUCTIONS:
            cost = lambda inputs, out: inputs[0].size + (REDUCTIONS[name] - 1) * out.size
        elif name in FREE:
            cost = lambda inputs, out: 0
        else:
            raise AttributeError(f"counting arrays know no function {name!r}")
        known = getattr(np, name)
        if isinstance(known, type):
            return known

        def counted(*arguments: Any, **options: Any) -> Any:
            bare = [_bare(a) for a in arguments]
            out = known(*bare, **{key: _bare(value) for key, value in options.items()})
            if isinstance(out, np.ndarray | np.generic):
                self.flops += cost(bare, out)
            return self.wrapped(out)

        return counted


def _bare(value: Any) -> Any:
    if isinstance(value, Counted):
        return value.values
    return type(value)(_bare(v) for v in value) if isinstance(value, list | tuple) else value


def _binary(name: str, turned: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Counted, other: Any) -> Any:
        pair = (other, self) if turned else (self, other)
        return getattr(self.xp, name)(*pair)

    return method


class Counted:
    """A NumPy array whose arithmetic is counted by its namespace.

    Products and sums of entries, divisions, roots and elementary functions count one each; comparisons, choices, copies
    and changes of sign nothing. A matrix product of (n, m) and (m, k) counts ``n k (2 m - 1)``, a solve what LU takes.
    """

    def __init__(self, values: Any, xp: CountingNamespace) -> None:
        self.values, self.xp = np.asarray(values), xp

    def __array_namespace__(self, *, api_version: str | None = None) -> CountingNamespace:
        return self.xp

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    mT = property(lambda self: Counted(self.values.mT, self.xp))  # noqa: N815 (the standard's name)

    def __getitem__(self, key: Any) -> Counted:
        return Counted(self.values[_bare(key)], self.xp)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.values[_bare(key)] = _bare(value)

    def __repr__(self) -> str:
        return f"Counted({self.values!r})"

    __add__, __radd__ = _binary("add"), _binary("add", True)
    __sub__, __rsub__ = _binary("subtract"), _binary("subtract", True)
    __mul__, __rmul__ = _binary("multiply"), _binary("multiply", True)
    __truediv__, __rtruediv__ = _binary("divide"), _binary("divide", True)
    __matmul__, __rmatmul__ = _binary("matmul"), _binary("matmul", True)
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")

    def __neg__(self) -> Counted:
        return Counted(operator.neg(self.values), self.xp)


def count_flops(function: Callable[..., Any], *arguments: Any) -> int:
    """The floating-point operations of ``function(*arguments)``.

    Parameters
    ----------
    function : callable
        Array API code. It is called once, on counted copies of the arrays.
    *arguments : arrays, and tuples of arrays
        NumPy arrays are counted, anything else is handed on as it is.

    Returns
    -------
    int
        Additions, subtractions, products, divisions, roots and elementary functions, one each; see `Counted`.

    Raises
    ------
    TypeError
        If `function` is no callable.
    AttributeError
        If it calls an array function whose operations are not known.

    Examples
    --------
    >>> import numpy as np
    >>> count_flops(lambda A, x: A @ x, np.ones((3, 4)), np.ones((4, 1)))  # 3 rows of 4 products and 3 sums
    21
    """
    if not callable(function):
        raise TypeError(message("count_flops", "function", "be callable", f"a {type(function).__name__}"))
    xp = CountingNamespace()

    def counted(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return Counted(value.copy(), xp)
        return tuple(counted(v) for v in value) if isinstance(value, tuple) else value

    function(*(counted(a) for a in arguments))
    return xp.flops
