"""The tracer: a plain Python function of scalars becomes an expression graph.

`trace` calls the function once with symbolic scalars. Common subexpressions are shared, constants are folded, and the
order of operations stays what the function says: nothing is reassociated. `numba_source` and `cuda_source` write the
graph out as source.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._compile.trace.operations import DTYPES, OPERATIONS, WEAK, Table, common, floating, strong
from ensemble._compile.trace.traced import Traced, caller

__all__ = ["Graph", "Node", "Scalar", "mapped", "trace"]


@dataclass(frozen=True)
class Scalar:
    """A symbolic argument: one number of `dtype`, or a Python number (`pybool`, `pyint`, `pyfloat`)."""

    dtype: str


@dataclass(frozen=True)
class Node:
    """One value: an input (`value` is its position), a constant, a cast, or an operation on earlier nodes."""

    operation: str
    inputs: tuple[int, ...]
    dtype: str
    value: Any = None


@dataclass(frozen=True)
class Graph:
    """What a body computes: nodes in order, which of them are outputs, and how the outputs were nested.

    `structure` is the body's result with each value replaced by its position in `outputs`. Nodes of weak dtype are
    Python arithmetic on Python numbers: they are evaluated by `scalars` before a kernel runs.
    """

    nodes: tuple[Node, ...]
    n_inputs: int
    outputs: tuple[int, ...]
    structure: Any

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtype of each output."""
        return tuple(self.nodes[k].dtype for k in self.outputs)

    @property
    def entering(self) -> tuple[int, ...]:
        """The casts that carry a weak number into the kernel, in order: each is a scalar parameter of it."""
        return tuple(k for k, node in enumerate(self.nodes) if is_entry(self.nodes, node))

    def uses(self, position: int) -> bool:
        """Whether input `position` is used at all."""
        return any(node.operation == "input" and node.value == position for node in self.nodes)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that are interpolated in, each once."""
        return tuple(dict.fromkeys(node.value for node in self.nodes if node.operation == "interp"))

    @property
    def libm(self) -> bool:
        """Whether some operation is answered by the mathematical library."""
        return any(node.operation in OPERATIONS and OPERATIONS[node.operation].libm for node in self.nodes)

    def scalars(self, values: Any) -> list[Any]:
        """The run-time numbers of `entering`, of their dtypes, from the values of all inputs."""
        known: dict[int, Any] = {}
        for k, node in self._weak:
            if node.operation == "input":
                known[k] = values[node.value]
            elif node.operation == "constant":
                known[k] = node.value
            else:
                known[k] = OPERATIONS[node.operation].host(*(known[i] for i in node.inputs))  # type: ignore[misc]
        return [kind(known[k]) for kind, k in self._conversions]

    @functools.cached_property
    def _weak(self) -> list[tuple[int, Node]]:
        return [(k, node) for k, node in enumerate(self.nodes) if node.dtype in WEAK]

    @functools.cached_property
    def _conversions(self) -> list[tuple[Any, int]]:
        return [(np.dtype(self.nodes[k].dtype).type, self.nodes[k].inputs[0]) for k in self.entering]

    def nest(self, results: Any) -> Any:
        """`results`, one an output, nested as the body nested them."""
        return mapped(self.structure, results.__getitem__)


def is_entry(nodes: Any, node: Node) -> bool:
    """Whether `node` casts a weak number to an array's dtype."""
    return node.operation == "cast" and nodes[node.inputs[0]].dtype in WEAK


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """`value` with `function` applied to every leaf of its tuples, lists and dicts."""
    if isinstance(value, dict):
        return {key: mapped(part, function) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(part, function) for part in value))
    if isinstance(value, tuple | list):
        return type(value)(mapped(part, function) for part in value)
    return function(value)


class Tracer:
    """Records nodes; the same operation on the same operands is one node."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.nodes: list[Node] = []
        self._known: dict[Any, int] = {}

    def add(self, operation: str, inputs: tuple[int, ...], dtype: str, value: Any = None) -> int:
        """The number of this node, new or already there."""
        key = (operation, inputs, dtype, type(value), repr(value))
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(Node(operation, inputs, dtype, value))
        return self._known[key]

    def number(self, value: Any) -> int:
        """The node of a traced value, of a number, or of a NumPy array without axes."""
        if type(value) is Traced and value._tracer is self:
            return value._node
        if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 and value.dtype.name in DTYPES:
            return self.add("constant", (), value.dtype.name, value.item())
        if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
            kind = next(name for name, kind in WEAK.items() if isinstance(value, type(kind)))
            return self.add("constant", (), kind, type(WEAK[kind])(value))
        seen = "a value of another trace" if type(value) is Traced else f"a {type(value).__name__}"
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

    def interpolate(self, x: Any, table: Table) -> Traced:
        """The value at `x` of the lines through a table, as `numpy.interp` has it: in float64."""
        k = self.cast(self.number(x), "float64")
        node = self.nodes[k]
        if node.operation == "constant":
            return Traced(
                self, self.add("constant", (), "float64", float(np.interp(node.value, table.points, table.values)))
            )
        return Traced(self, self.add("interp", (k,), "float64", table))

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
        """The dtypes that the operands are brought to, and the dtype of the result."""
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
            shared = floating(shared)
        if rule == "predicate":
            shared = floating(shared)
        return [shared] * len(kinds), "bool" if rule in ("compare", "predicate") else shared

    def _refused(self, name: str, needed: str, seen: str, advice: str) -> TypeError:
        return TypeError(f"{self.function}: operands of {name} must be {needed}; got {seen}{caller()}. {advice}")

    def _folded(self, name: str, numbers: tuple[int, ...], dtype: str) -> int:
        """The node of an operation, evaluated where all its operands are constants."""
        nodes = [self.nodes[k] for k in numbers]
        if not all(node.operation == "constant" for node in nodes):
            return self.add(name, numbers, dtype)
        function: Any = {"where": np.where, "abs": np.abs, "round": np.rint}.get(name) or getattr(np, name)
        with np.errstate(all="ignore"):
            value = function(*(np.dtype(node.dtype).type(node.value) for node in nodes))
        return self.add("constant", (), dtype, np.dtype(dtype).type(value).item())

    def graph(self, n_inputs: int, result: Any) -> Graph:
        """What `result` needs, and nothing else, numbered anew."""
        outputs: list[int] = []

        def place(value: Any) -> int:
            k = self.number(value)
            outputs.append(self.cast(k, strong(self.nodes[k].dtype)))
            return len(outputs) - 1

        structure = mapped(result, place)
        kept: dict[int, None] = {}
        pending = list(outputs)
        while pending:
            k = pending.pop()
            if k not in kept:
                kept[k] = None
                pending.extend(self.nodes[k].inputs)
        new = {old: k for k, old in enumerate(sorted(kept))}
        nodes = [self.nodes[old] for old in sorted(kept)]
        nodes = [Node(n.operation, tuple(new[i] for i in n.inputs), n.dtype, n.value) for n in nodes]
        return Graph(tuple(nodes), n_inputs, tuple(new[k] for k in outputs), structure)


def trace(body: Callable[..., Any], *arguments: Any, function: str = "trace", **keywords: Any) -> Graph:
    """Call `body` once with symbolic scalars and record what it computes.

    Parameters
    ----------
    body : callable
        Arithmetic, comparisons, functions of ``x.__array_namespace__()`` or of NumPy, loops over fixed ranges.
    *arguments, **keywords : Scalar, or anything
        Each `Scalar`, also inside tuples, lists and dicts, is an input of the graph, numbered in order; everything else
        is handed to `body` as it is.
    function : str
        The name that messages start with.

    Returns
    -------
    Graph

    Raises
    ------
    TypeError
        If `body` asks a traced value for a truth value or a Python number, or uses an unsupported function or dtype.

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

    traced = [mapped(value, symbolic) for value in arguments]
    result = body(*traced, **mapped(keywords, symbolic))
    return tracer.graph(n_inputs, result)
