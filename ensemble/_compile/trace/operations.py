"""The scalar operations that a traced body may use: their dtypes, and how each is written for each target.

The targets: "python", for one number under Numba; "lanes", for many at once in SIMD registers; "cuda".

Dtypes follow NumPy's promotion. The three weak ones, `pybool`, `pyint` and `pyfloat`, are Python's own numbers that
are passed at run time: they take the dtype of the other operand.
"""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._backend import to_numpy

__all__ = [
    "ARRAY_API_NAMES",
    "DTYPES",
    "INTERNAL",
    "OPERATIONS",
    "WEAK",
    "Operation",
    "Table",
    "common",
    "floating",
    "strong",
    "supported",
    "table_of",
]

DTYPES = ("bool", "int32", "int64", "float32", "float64")
"""Dtypes of traced values."""

WEAK = {"pybool": False, "pyint": 0, "pyfloat": 0.0}
"""Python's number types, each with one of its values: for NumPy's promotion rules."""


def strong(dtype: str) -> str:
    """The dtype of a weak number that is combined with no array."""
    return {"pybool": "bool", "pyint": "int64", "pyfloat": "float64"}.get(dtype, dtype)


@functools.cache
def common(*dtypes: str) -> str:
    """The dtype of an operation on values of `dtypes`; weak where all of them are."""
    if all(dtype in WEAK for dtype in dtypes):
        return max(dtypes, key=list(WEAK).index)
    name: str = np.result_type(
        *(WEAK.get(dtype, np.dtype(dtype) if dtype in DTYPES else None) for dtype in dtypes)
    ).name
    return name


def floating(dtype: str) -> str:
    """The dtype of a function of real numbers: integers go to float64."""
    dtype = strong(dtype)
    return dtype if dtype.startswith("float") else "float64"


@dataclass(frozen=True)
class Operation:
    """One scalar operation; `{0}`, `{1}`, ... in the texts stand for its operands."""

    name: str
    arity: int
    rule: str  # the dtypes: arithmetic, same, float, compare, predicate, logical, bitwise, select
    python: str
    cuda: str
    python_int: str | None = None  # where integers need other words
    cuda_int: str | None = None
    lanes: str | None = None  # where lanes need other words than `python`
    host: Callable[..., Any] | None = None  # on Python's own numbers, which never enter a kernel unrounded
    libm: bool = False  # computed by the mathematical library: not correctly rounded

    def text(self, target: str, integer: bool) -> str:
        """The words for `target`."""
        if target == "lanes" and self.lanes is not None:
            return self.lanes
        target = "python" if target == "lanes" else target
        other = getattr(self, f"{target}_int")
        text: str = other if integer and other is not None else getattr(self, target)
        return text


def _infix(name: str, symbol: str, rule: str, host: Callable[..., Any]) -> Operation:
    text = f"{{0}} {symbol} {{1}}"
    # C++ leaves the overflow of signed integers undefined; unsigned ones wrap around
    wrapped = f"((unsigned long long){{0}} {symbol} (unsigned long long){{1}})" if rule == "arithmetic" else None
    return Operation(name, 2, rule, text, text, cuda_int=wrapped, host=host)


def _called(name: str, rule: str, python: str, cuda: str | None = None, arity: int = 1, **more: Any) -> Operation:
    places = ", ".join(f"{{{k}}}" for k in range(arity))
    return Operation(name, arity, rule, f"{python}({places})", f"{cuda or python}({places})", **more)


_LIBM_UNARY = (
    "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 sin sinh tan tanh"  # the C names, too
)

_ALL = [
    _infix("add", "+", "arithmetic", operator.add),
    _infix("subtract", "-", "arithmetic", operator.sub),
    _infix("multiply", "*", "arithmetic", operator.mul),
    _infix("divide", "/", "float", operator.truediv),
    _called("floor_divide", "arithmetic", "floor_divide", arity=2, python_int="floor_divide_int({0}, {1})",
            cuda_int="floor_divide_int({0}, {1})", host=operator.floordiv),
    _called("remainder", "arithmetic", "remainder", "floor_remainder", arity=2, python_int="remainder_int({0}, {1})",
            cuda_int="remainder_int({0}, {1})", host=operator.mod),
    _called("pow", "float", "power", "pow", arity=2, host=operator.pow, libm=True),
    Operation("negative", 1, "same", "-{0}", "-{0}", host=operator.neg),
    Operation("positive", 1, "same", "{0}", "{0}", host=operator.pos),
    _called("abs", "same", "abs", "fabs", python_int="({0} if {0} >= 0 else -{0})", cuda_int="({0} >= 0 ? {0} : -{0})",
            lanes="absolute({0})", host=operator.abs),
    _called("sign", "same", "sign"),
    _called("floor", "same", "np.floor", "floor", python_int="{0}", cuda_int="{0}", lanes="floor({0})"),
    _called("ceil", "same", "np.ceil", "ceil", python_int="{0}", cuda_int="{0}", lanes="ceil({0})"),
    _called("trunc", "same", "np.trunc", "trunc", python_int="{0}", cuda_int="{0}", lanes="trunc({0})"),
    _called("round", "same", "np.rint", "rint", python_int="{0}", cuda_int="{0}", lanes="rint({0})"),
    Operation("square", 1, "same", "{0} * {0}", "{0} * {0}"),
    Operation("reciprocal", 1, "float", "1.0 / {0}", "1 / {0}"),
    _called("sqrt", "float", "np.sqrt", "sqrt", lanes="sqrt({0})"),
    *(_called(name, "float", name, libm=True) for name in _LIBM_UNARY.split()),
    _called("atan2", "float", "atan2", arity=2, libm=True),
    _called("hypot", "float", "hypot", arity=2, libm=True),
    _called("copysign", "float", "copysign", arity=2),
    # NumPy's rule: NaN where one operand is NaN, and of two equal zeros the second
    Operation("maximum", 2, "order", "({0} if ({0} > {1}) | ({0} != {0}) else {1})",
              "({0} > {1} || {0} != {0} ? {0} : {1})", lanes="select(({0} > {1}) | ({0} != {0}), {0}, {1})"),
    Operation("minimum", 2, "order", "({0} if ({0} < {1}) | ({0} != {0}) else {1})",
              "({0} < {1} || {0} != {0} ? {0} : {1})", lanes="select(({0} < {1}) | ({0} != {0}), {0}, {1})"),
    _infix("equal", "==", "compare", operator.eq),
    _infix("not_equal", "!=", "compare", operator.ne),
    _infix("less", "<", "compare", operator.lt),
    _infix("less_equal", "<=", "compare", operator.le),
    _infix("greater", ">", "compare", operator.gt),
    _infix("greater_equal", ">=", "compare", operator.ge),
    Operation("isnan", 1, "predicate", "{0} != {0}", "{0} != {0}"),
    Operation("isinf", 1, "predicate", "abs({0}) == np.inf", "fabs({0}) == INFINITY", lanes="absolute({0}) == np.inf"),
    Operation("isfinite", 1, "predicate", "abs({0}) < np.inf", "fabs({0}) < INFINITY",
              lanes="absolute({0}) < np.inf"),
    Operation("signbit", 1, "predicate", "copysign(1.0, {0}) < 0", "(signbit({0}) != 0)"),
    _infix("logical_and", "&", "logical", operator.and_),
    _infix("logical_or", "|", "logical", operator.or_),
    _infix("logical_xor", "^", "logical", operator.xor),
    Operation("logical_not", 1, "logical", "not {0}", "!{0}", lanes="~{0}", host=operator.not_),
    _infix("bitwise_and", "&", "bitwise", operator.and_),
    _infix("bitwise_or", "|", "bitwise", operator.or_),
    _infix("bitwise_xor", "^", "bitwise", operator.xor),
    Operation("bitwise_invert", 1, "bitwise", "not {0}", "!{0}", python_int="~{0}", cuda_int="~{0}",
              lanes="~{0}", host=operator.invert),
    Operation("where", 3, "select", "({1} if {0} else {2})", "({0} ? {1} : {2})", lanes="select({0}, {1}, {2})"),
]  # fmt: skip

OPERATIONS = {operation.name: operation for operation in _ALL}
"""Every operation by its Array API name."""

INTERNAL = {
    "fma": Operation("fma", 3, "float", "fma({0}, {1}, {2})", "fma({0}, {1}, {2})"),
    "bits": Operation("bits", 1, "same", "bits({0})", "bits_of({0})"),
    "high_word": Operation("high_word", 1, "same", "high_word({0})", "((long long)((unsigned long long){0} >> 32))"),
    "from_bits": Operation("from_bits", 1, "same", "from_bits({0})", "from_bits({0})"),
}
"""Operations that no body of a user can call: the graph passes and the library's own bodies make them."""

ARRAY_API_NAMES = {
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh", "arctan": "atan", "arctanh": "atanh", "arctan2": "atan2", "concatenate": "concat",
    "conjugate": "conj", "invert": "bitwise_invert", "left_shift": "bitwise_left_shift", "power": "pow",
    "right_shift": "bitwise_right_shift", "true_divide": "divide",
}  # fmt: skip
"""The Array API's names of NumPy's functions, where they differ."""

COMPOSED = ("astype", "clip", "full_like", "interp", "ones_like", "zeros_like")
"""Functions of a traced namespace that are written with the operations, or take more than numbers."""


class Table:
    """Points and values that lines go through: the `value` of a node "interp", which has one operand.

    Equal tables are equal, and have the same name in emitted code.
    """

    def __init__(self, points: np.ndarray, values: np.ndarray) -> None:
        self.points, self.values = points, values
        self.name = "table_" + hashlib.blake2b(points.tobytes() + values.tobytes(), digest_size=8).hexdigest()

    def slopes(self) -> Table:
        """The slope of each line, from its first point on, and zero outside.

        Lines between a point and the last number before the next one are level.
        """
        before = np.nextafter(self.points, -np.inf)
        levels = np.concatenate([[0.0], np.diff(self.values) / np.diff(self.points), [0.0]])
        points = np.stack([before, self.points], axis=1).reshape(-1)
        values = np.stack([levels[:-1], levels[1:]], axis=1).reshape(-1)
        new = np.concatenate([[True], np.diff(points) > 0.0])  # numbers that follow each other
        return Table(points[new], values[new])

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


def supported() -> str:
    """All names that a traced body may call, for messages."""
    return ", ".join(sorted((*OPERATIONS, *COMPOSED)))


def table_of(function: str, points: Any, values: Any, where: str) -> Table:
    """The checked table of `interp` of the function called so, which stands at `where`."""
    what = f"{function}: the tables of interp must"
    xs, fs = (np.ascontiguousarray(to_numpy(side), dtype=np.float64) for side in (points, values))
    if xs.ndim != 1 or xs.shape != fs.shape or not xs.size:
        raise ValueError(f"{what} be two arrays of one length; got shapes {xs.shape} and {fs.shape}{where}.")
    if not (np.all(np.diff(xs) > 0.0) and np.all(np.isfinite(xs)) and np.all(np.isfinite(fs))):
        advice = "Sort them, each point once."
        raise ValueError(f"{what} be finite, with points that ascend; got others{where}. {advice}")
    return Table(xs, fs)
