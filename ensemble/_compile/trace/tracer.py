"""Records a Python function of scalars into an expression graph.

`trace` calls the function once with symbolic values, `Traced`. Common subexpressions are shared, constants are folded,
and the order of operations stays the function's: nothing is reassociated. `numba_source` and `cuda_source` write the
graph as source. Longer than 400 lines: traced numbers and their tracer refer to each other.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from ensemble._check import kind_of
from ensemble._compile.trace.graph import Graph, Node, ancestors, renumbered
from ensemble._compile.trace.namespace import TracedNamespace
from ensemble._compile.trace.operations import (
    ARRAY_API_NAMES,
    DTYPES,
    OPERATIONS,
    WEAK,
    Table,
    common,
    floating,
    strong,
    supported,
    table_of,
)
from ensemble._containers import mapped

__all__ = ["Scalar", "Traced", "Tracer", "trace"]

HERE = str(Path(__file__).parents[1])


PLAIN = frozenset(["add", "subtract", "multiply", "divide"])
FLOATS = frozenset(["float64", "float32"])
"""Operations on two numbers of one of these dtypes need no promotion."""

OF_MASKS = {"multiply": "logical_and", "add": "logical_or"}
"""What NumPy takes arithmetic of two bools for."""

UNARY = {name: name for name, operation in OPERATIONS.items() if operation.arity == 1}
UNARY |= {name: known for name, known in ARRAY_API_NAMES.items() if known in UNARY}
"""Operations on one number by NumPy's names."""


class Scalar:
    """A symbolic argument: one number of `dtype`, or a Python number (`pybool`, `pyint`, `pyfloat`)."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


def caller() -> str:
    """`` at FILE:LINE`` of the body's code, for messages."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return "" if frame is None else f" at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _binary(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Traced, other: Any) -> Any:
        if getattr(type(other), "traced_operand", False):  # its reflected method implements this operation
            return NotImplemented
        if self._tracer.arrays is not None and isinstance(other, np.ndarray) and other.ndim:
            return NotImplemented  # an array's own operators call its ufuncs
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
    def dtype(self) -> np.dtype[Any]:
        """Its NumPy dtype."""
        return np.dtype(self._tracer.dtype_of(self))

    def internal(self, operation: str, dtype: str, operands: tuple[Any, ...] | None = None) -> Traced:
        """An operation that bodies of users have no name for, on this value alone or on `operands`."""
        numbers = (self._node,) if operands is None else tuple(map(self._tracer.number, operands))
        return Traced(self._tracer, self._tracer.add(operation, numbers, dtype))

    def __array_namespace__(self, api_version: str | None = None) -> TracedNamespace:
        return self._names("xp")

    def _names(self, name: str) -> Any:
        return (self._tracer.arrays or TracedNamespace)(self._tracer, name)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        arrays = self._tracer.arrays
        if arrays is not None and any(np.ndim(each) for each in inputs if type(each) is not Traced):
            return arrays(self._tracer, "np").ufunc(ufunc, method, inputs, options)
        if method != "__call__" or options:
            raise self._tracer.unsupported(f"np.{ufunc.__name__}.{method}, or an option of it")
        return getattr(self._names("np"), ufunc.__name__)(*inputs)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        return getattr(self._names("np"), function.__name__)(*arguments, **options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self._tracer.arrays is None or (dtype is not None and np.dtype(dtype) != object):
            self._refused_array()
        alone = np.empty((), object)
        alone[()] = self
        return alone

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._tracer.arrays is not None and name in UNARY:  # by ufuncs of NumPy for arrays of objects
            return functools.partial(self._tracer.apply, UNARY[name], self)
        function = self._tracer.function
        advice = "The body is called with single numbers: it has no shapes, axes or methods."
        raise AttributeError(f"{function}: a traced value must be used as a number; got .{name}{caller()}. {advice}")

    def __repr__(self) -> str:
        return f"<traced {self._tracer.nodes[self._node].dtype}>"

    __hash__ = None  # type: ignore[assignment]
    __bool__ = _refuse("a truth value (if, while, and, or, not, max, min)", "Use xp.where(condition, a, b).")
    __float__ = __int__ = __complex__ = __index__ = _NUMBER
    _refused_array = _refuse("turned into an array", "Use the functions of xp.")
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


class Tracer:
    """Records nodes; the same operation on the same operands is one node."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.nodes: list[Node] = []
        self.gradients: dict[int, tuple[int, ...]] = {}
        """The nodes of the gradient of inputs that are fields of a finite-element form, by node."""
        self._known: dict[tuple[Any, ...], int] = {}
        self.arrays: Callable[[Tracer, str], Any] | None = None
        """The namespace of traced arrays; None: traced numbers meet no arrays."""

    def add(self, operation: str, inputs: tuple[int, ...], dtype: str, value: Any = None) -> int:
        """The number of this node, new or already there."""
        key = (operation, inputs, dtype) if value is None else (operation, inputs, dtype, type(value), repr(value))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = len(self.nodes)
            self.nodes.append(Node(operation, inputs, dtype, value))
        return known

    def number(self, value: Any) -> int:
        """The node of a traced value, of a number, or of a NumPy array without axes."""
        if type(value) is Traced and value._tracer is self:
            return value._node
        if type(value) is np.float64:  # entries of matrices, by the thousand
            return self.add("constant", (), "float64", float(value))
        if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 and value.dtype.name in DTYPES:
            return self.add("constant", (), value.dtype.name, value.item())
        if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
            kind = next(name for name, kind in WEAK.items() if isinstance(value, type(kind)))
            return self.add("constant", (), kind, type(WEAK[kind])(value))
        seen = "a value of another trace" if type(value) is Traced else kind_of(value)
        advice = "Pass arrays as arguments of the function, not as globals."
        raise TypeError(f"{self.function}: operands must be traced values or numbers; got {seen}{caller()}. {advice}")

    def cast(self, k: int, dtype: str) -> int:
        """Node `k` as `dtype`; a constant is converted here and now."""
        node = self.nodes[k]
        if node.dtype == dtype:
            return k
        if node.operation == "constant":
            return self.add("constant", (), dtype, np.dtype(dtype).type(node.value).item())
        return self.add("cast", (k,), dtype)

    def apply(self, name: str, *operands: Any) -> Traced:
        """The value of operation `name`."""
        numbers = [self.number(value) for value in operands]
        kinds = [self.nodes[k].dtype for k in numbers]
        if name in OF_MASKS and "bool" in kinds and set(kinds) <= {"bool", "pybool"}:
            return self.apply(OF_MASKS[name], *operands)
        if name in PLAIN and len(numbers) == 2 and kinds[0] == kinds[1] and kinds[0] in FLOATS:
            return Traced(self, self._folded(name, (numbers[0], numbers[1]), kinds[0]))
        host = OPERATIONS[name].host
        if host is not None and all(kind in WEAK for kind in kinds) and self._python_can(name, kinds):
            return self._on_host(name, numbers, kinds)
        if name == "pow":
            chain = self._power(numbers)
            if chain is not None:
                return Traced(self, chain)
        taken, given = self._dtypes(name, kinds)
        numbers = [self.cast(k, dtype) for k, dtype in zip(numbers, taken, strict=True)]
        if name == "positive" or (name in ("floor", "ceil", "trunc", "round") and not given.startswith("float")):
            return Traced(self, numbers[0])
        return Traced(self, self._folded(name, tuple(numbers), given))

    def dtype_of(self, value: Any) -> str:
        """The dtype of a traced value or number; that of an array where it is weak."""
        return strong(self.nodes[self.number(value)].dtype)

    def converted(self, value: Any, dtype: str) -> Traced:
        """`value` as `dtype`."""
        return Traced(self, self.cast(self.number(value), dtype))

    def interpolate(self, x: Any, points: Any, values: Any, left: Any, right: Any) -> Traced:
        """``numpy.interp`` in float64."""
        table = self._table(points, values)
        result = self.converted(x, "float64")
        k = result._node
        if self.nodes[k].operation == "constant":
            value = float(np.interp(self.nodes[k].value, table.points, table.values))
            result = Traced(self, self.add("constant", (), "float64", value))
        else:
            result = Traced(self, self.add("interp", (k,), "float64", table))
        if left is not None:
            result = self.apply("where", self.apply("less", x, float(table.points[0])), left, result)
        if right is not None:
            result = self.apply("where", self.apply("greater", x, float(table.points[-1])), right, result)
        return result

    def _table(self, points: Any, values: Any) -> Table:
        sides = [side if isinstance(side, list | tuple) else [side] for side in (points, values)]
        if any(isinstance(part, Traced) for side in sides for part in side):
            what = f"{self.function}: the tables of interp must"
            raise TypeError(f"{what} be plain arrays, known before; got traced values{caller()}.")
        return table_of(self.function, points, values, caller())

    def _python_can(self, name: str, kinds: list[str]) -> bool:
        masks = {"logical": {"pybool"}, "bitwise": {"pybool", "pyint"}}
        return set(kinds) <= masks.get(OPERATIONS[name].rule, set(WEAK))

    def _on_host(self, name: str, numbers: list[int], kinds: list[str]) -> Traced:
        """Python numbers among themselves keep Python's arithmetic."""
        nodes = [self.nodes[k] for k in numbers]
        if name == "pow" and "pyfloat" not in kinds:
            advice = "Name the exponent in static=, or make it a float."
            raise TypeError(
                f"{self.function}: an int to the power of an int must be known; got two arguments. {advice}"
            )
        comparing = OPERATIONS[name].rule in ("compare", "logical")
        kind = "pybool" if comparing else "pyfloat" if name in ("divide", "pow") else common("pyint", *kinds)
        if name.startswith("bitwise_") and set(kinds) == {"pybool"} and name != "bitwise_invert":
            kind = "pybool"
        if all(node.operation == "constant" for node in nodes):
            value = OPERATIONS[name].host(*(node.value for node in nodes))  # type: ignore[misc]
            return Traced(self, self.add("constant", (), kind, value))
        return Traced(self, self.add(name, tuple(numbers), kind))

    def _power(self, numbers: list[int]) -> int | None:
        """A small whole exponent is repeated multiplication, 0.5 a square root; None: neither."""
        base, exponent = (self.nodes[k] for k in numbers)
        if exponent.operation != "constant" or base.dtype in ("bool", *WEAK):
            return None
        if common(base.dtype, exponent.dtype) != base.dtype:
            return None
        power, x = exponent.value, numbers[0]
        if power == 0.5:
            return self.apply("sqrt", Traced(self, x))._node
        if power == -1.0 and base.dtype.startswith("float"):
            return self.apply("reciprocal", Traced(self, x))._node
        if power != int(power if abs(power) < 65 else 0) or not 0 < power <= 64:
            return None
        result, square, left = None, x, int(power)
        while left:
            if left & 1:
                result = square if result is None else self.add("multiply", (result, square), base.dtype)
            left >>= 1
            if left:
                square = self.add("multiply", (square, square), base.dtype)
        return result

    def _dtypes(self, name: str, kinds: list[str]) -> tuple[list[str], str]:
        """The dtypes that the operands are converted to, and the dtype of the result."""
        rule = OPERATIONS[name].rule
        if rule == "logical":
            return ["bool"] * len(kinds), "bool"
        if rule == "select":
            chosen = strong(common(*kinds[1:]))
            return ["bool", chosen, chosen], chosen
        shared = strong(common(*kinds))
        if rule in ("arithmetic", "same", "float") and shared == "bool":
            raise self._refused(name, "numbers", "bool", "Convert with xp.astype, or use the logical functions.")
        if rule == "bitwise" and shared.startswith("float"):
            raise self._refused(name, "integers or bools", shared, "Use the logical functions for masks.")
        if rule == "float":
            if name == "pow" and not shared.startswith("float"):
                advice = "Convert with xp.astype, or use an exponent that is a positive whole constant."
                raise self._refused(name, "floating-point numbers", shared, advice)
            if name == "reciprocal" and not shared.startswith("float"):  # of which NumPy takes whole quotients
                raise self._refused(name, "floating-point numbers", shared, "Write 1.0 / x.")
            shared = floating(shared)
        if rule == "predicate":
            shared = floating(shared)
        return [shared] * len(kinds), "bool" if rule in ("compare", "predicate") else shared

    def _refused(self, name: str, needed: str, seen: str, advice: str) -> TypeError:
        return TypeError(f"{self.function}: operands of {name} must be {needed}; got {seen}{caller()}. {advice}")

    def unsupported(self, what: str) -> TypeError:
        """The error of a function that no traced value may be given to."""
        return TypeError(
            f"{self.function}: functions of traced values must be elementwise and known; got {what}{caller()}. "
            f"Supported: {supported()}."
        )

    def _folded(self, name: str, numbers: tuple[int, ...], dtype: str) -> int:
        """The node of an operation, evaluated where all its operands are constants."""
        nodes = [self.nodes[k] for k in numbers]
        for node in nodes:
            if node.operation != "constant":
                return self.add(name, numbers, dtype)
        function: Any = {"where": np.where, "abs": np.abs, "round": np.rint}.get(name) or getattr(np, name)
        with np.errstate(all="ignore"):
            value = function(*(np.dtype(node.dtype).type(node.value) for node in nodes))
        return self.add("constant", (), dtype, np.dtype(dtype).type(value).item())

    def graph(self, n_inputs: int, result: Any) -> Graph:
        """What `result` needs, and nothing else, renumbered."""
        outputs: list[int] = []

        def place(value: Any) -> int:
            k = self.number(value)
            outputs.append(self.cast(k, strong(self.nodes[k].dtype)))
            return len(outputs) - 1

        structure = mapped(place, result)
        nodes, places = renumbered(self.nodes, sorted(ancestors(self.nodes, outputs)), outputs)
        return Graph(nodes, n_inputs, places, structure)


def trace(body: Callable[..., Any], *arguments: Any, function: str = "trace", **keywords: Any) -> Graph:
    """Call `body` once with symbolic scalars and record what it computes.

    Parameters
    ----------
    body : callable
        Arithmetic, comparisons, functions of ``x.__array_namespace__()`` or of NumPy, loops over fixed ranges.
    *arguments, **keywords : Scalar, or anything
        Each `Scalar`, also inside tuples, lists and dicts, is an input of the graph, numbered in order; everything else
        is passed to `body` unchanged.
    function : str
        The name that messages start with.

    Returns
    -------
    Graph

    Raises
    ------
    TypeError
        If `body` needs the truth value or the Python number of a traced value, or uses an unsupported function or
        dtype.

    Examples
    --------
    >>> def drift(x, t):
    ...     return x[1] * t, -9.81 * x[0] + x[1] * t
    >>> graph = trace(drift, (Scalar("float64"), Scalar("float64")), Scalar("float64"))
    >>> graph.n_inputs, graph.dtypes
    (3, ('float64', 'float64'))
    >>> sum(node.operation == "multiply" for node in graph.nodes)
    2
    """
    tracer = Tracer(function)
    n_inputs = 0

    def symbolic(value: Any) -> Any:
        nonlocal n_inputs
        if isinstance(value, Scalar):
            n_inputs += 1
            return Traced(tracer, tracer.add("input", (), value.dtype, n_inputs - 1))
        return value

    traced = [mapped(symbolic, value) for value in arguments]
    try:
        result = body(*traced, **mapped(symbolic, keywords))
    except ValueError as error:
        if isinstance(error.__cause__, TypeError):  # NumPy's, of a traced value that is put into an array of numbers
            raise error.__cause__ from None
        raise
    return tracer.graph(n_inputs, result)
