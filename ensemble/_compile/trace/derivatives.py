"""Derivatives of a graph by the chain rule: tangents forward, cotangents backward, the entries of the Jacobian matrix.

Values are arrays or traced values: in a trace, a derivative is more nodes, and can be differentiated again. What is
known beforehand is not computed: a derivative that is zero whatever the values are is None, one that is a known number
is a Python float.

The derivative of `floor`, `ceil`, `trunc`, `round`, `sign`, `floor_divide`, of integers and of conditions is zero; that
of `abs` is the sign; `where`, `maximum` and `minimum` have the derivative of the chosen operand; `interp` has the slope
of the line that begins at or before its operand.

A derivative of zero stays zero whatever it is multiplied by: ``sqrt(maximum(x, 0))`` has the derivative 0 at x = 0, and
what `where` does not choose adds nothing to an adjoint, though its own derivative may be infinite or NaN. `hypot` and
`atan2` have the derivative 0 at the origin.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ensemble._check import message
from ensemble._compile.trace.graph import Graph, Node
from ensemble._compile.trace.replay import node_values, value_of
from ensemble._typing import Namespace

__all__ = ["BROKEN", "FLAT", "UNBOUNDED", "jacobian", "jacobian_pattern", "no_rule", "plus", "pullback", "pushforward",
           "tangents", "times"]  # fmt: skip

Values = Mapping[int, Any] | Sequence[Any]

FLAT = ("ceil", "floor", "floor_divide", "round", "sign", "trunc")
"""Operations that are constant between jumps."""

UNBOUNDED = ("acos", "acosh", "asin", "atan2", "atanh", "divide", "hypot", "log", "log10", "log1p", "log2", "pow",
             "reciprocal", "sqrt")  # fmt: skip
"""Operations whose derivative may be infinite where the operands are finite."""

SINGULAR = ("acos", "acosh", "asin", "pow", "sqrt")
"""Those of them whose value is finite where the derivative is infinite."""

SELECTING = ("where", "maximum", "minimum")

BROKEN = (*FLAT, *SELECTING, "abs", "copysign", "interp", "remainder")
"""Operations that jump or bend where their operands are finite and smooth."""


# --- arithmetic with what is known
def plus(a: Any, b: Any) -> Any:
    """``a + b``, where None is zero and a Python float a known number."""
    if a is None:
        return b
    if b is None:
        return a
    total = a + b
    return None if type(total) is float and total == 0.0 else total


def times(a: Any, b: Any) -> Any:
    """``a * b`` in the same way."""
    if a is None or b is None:
        return None
    for factor, other in ((a, b), (b, a)):
        if type(factor) is float and factor in (0.0, 1.0, -1.0):
            return None if factor == 0.0 else other if factor == 1.0 else -other
    return a * b


def _without_zero_times_infinity(partial: Any, factor: Any, xp: Namespace) -> Any:
    """`partial`, or zero where `factor`, which it is multiplied by, is zero and it is infinite or NaN."""
    if partial is None or factor is None or type(partial) is float or type(factor) is float:
        return partial
    counts = (factor != 0.0) | (xp.abs(partial) < math.inf)
    return xp.where(counts, partial, xp.zeros_like(partial))


def no_rule(operation: str) -> TypeError:
    """The error of an operation that cannot be differentiated."""
    advice = "Write the function without it, or use a method that needs no derivatives."
    return TypeError(message("derivatives", "each operation of the function", "have a derivative", operation, advice))


# --- partial derivatives
Rule = Callable[[Sequence[Any], Any, Namespace], tuple[Any, ...]]
"""A function of operands, result and namespace that returns the derivative with respect to each operand."""

RULES: dict[str, Rule] = {
    "add": lambda x, r, xp: (1.0, 1.0),
    "subtract": lambda x, r, xp: (1.0, -1.0),
    "multiply": lambda x, r, xp: (x[1], x[0]),
    "fma": lambda x, r, xp: (x[1], x[0], 1.0),
    "divide": lambda x, r, xp: _quotient(r, 1.0 / x[1]),
    "negative": lambda x, r, xp: (-1.0,),
    "positive": lambda x, r, xp: (1.0,),
    "square": lambda x, r, xp: (2.0 * x[0],),
    "reciprocal": lambda x, r, xp: (-(r * r),),
    "sqrt": lambda x, r, xp: (0.5 / r,),
    "exp": lambda x, r, xp: (r,),
    "expm1": lambda x, r, xp: (r + 1.0,),
    "log": lambda x, r, xp: (1.0 / x[0],),
    "log1p": lambda x, r, xp: (1.0 / (1.0 + x[0]),),
    "log2": lambda x, r, xp: (1.0 / math.log(2.0) / x[0],),
    "log10": lambda x, r, xp: (1.0 / math.log(10.0) / x[0],),
    "sin": lambda x, r, xp: (xp.cos(x[0]),),
    "cos": lambda x, r, xp: (-xp.sin(x[0]),),
    "tan": lambda x, r, xp: (1.0 + r * r,),
    "asin": lambda x, r, xp: (1.0 / xp.sqrt((1.0 - x[0]) * (1.0 + x[0])),),
    "acos": lambda x, r, xp: (-1.0 / xp.sqrt((1.0 - x[0]) * (1.0 + x[0])),),
    "atan": lambda x, r, xp: (1.0 / (1.0 + x[0] * x[0]),),
    "sinh": lambda x, r, xp: (xp.cosh(x[0]),),
    "cosh": lambda x, r, xp: (xp.sinh(x[0]),),
    "tanh": lambda x, r, xp: (1.0 - r * r,),
    "asinh": lambda x, r, xp: (1.0 / xp.sqrt(x[0] * x[0] + 1.0),),
    "acosh": lambda x, r, xp: (1.0 / xp.sqrt((x[0] - 1.0) * (x[0] + 1.0)),),
    "atanh": lambda x, r, xp: (1.0 / ((1.0 - x[0]) * (1.0 + x[0])),),
    "atan2": lambda x, r, xp: _divided((x[1], -x[0]), x[0] * x[0] + x[1] * x[1], xp),
    "hypot": lambda x, r, xp: _divided((x[0], x[1]), r, xp),
    "abs": lambda x, r, xp: (xp.sign(x[0]),),
    "copysign": lambda x, r, xp: (xp.where(xp.signbit(x[0]) == xp.signbit(r), *_units(r, xp)), None),
    "remainder": lambda x, r, xp: (1.0, -xp.floor(x[0] / x[1])),
    "pow": lambda x, r, xp: (_power_slope(x[0], x[1], xp), None if type(x[1]) is float else _logarithm(x[0], xp) * r),
}


def _divided(values: tuple[Any, ...], by: Any, xp: Namespace) -> tuple[Any, ...]:
    """The values over `by`; zero at the origin, where all are."""
    by = xp.where(by == 0.0, xp.ones_like(by), by)
    return tuple(value / by for value in values)


def _quotient(result: Any, reciprocal: Any) -> tuple[Any, Any]:
    return reciprocal, -(result * reciprocal)


def _units(like: Any, xp: Namespace) -> tuple[Any, Any]:
    one = xp.ones_like(like)
    return one, -one


def _power_slope(x: Any, exponent: Any, xp: Namespace) -> Any:
    """The derivative of ``x**exponent`` with respect to x; zero where the exponent is, at x = 0, too."""
    if type(exponent) is float:
        return None if exponent == 0.0 else exponent * x ** (exponent - 1.0)
    less = exponent - 1.0
    return exponent * x ** xp.where(exponent == 0.0, xp.ones_like(less), less)


def _logarithm(x: Any, xp: Namespace) -> Any:
    """The factor of ``x**y`` in its derivative with respect to y; zero at x = 0."""
    if type(x) is float:
        return math.log(x) if x > 0.0 else 0.0 if x == 0.0 else math.nan
    return xp.log(xp.where(x == 0.0, xp.ones_like(x), x))


def _partials(node: Node, operands: Sequence[Any], result: Any, xp: Namespace) -> tuple[Any, ...]:
    if node.operation == "interp":
        return (value_of(dataclasses.replace(node, value=node.value.slopes()), operands, xp),)
    if node.operation not in RULES:
        raise no_rule(node.operation)
    return RULES[node.operation](operands, result, xp)


def _condition(node: Node, operands: Sequence[Any]) -> tuple[Any, int]:
    """When the first of the two candidates is chosen, and the place of that candidate."""
    if node.operation == "where":
        return operands[0], 1
    a, b = operands
    return ((a > b) if node.operation == "maximum" else (a < b)) | (a != a), 0


def _selected(condition: Any, a: Any, b: Any, like: Any, xp: Namespace) -> Any:
    """``where(condition, a, b)`` for derivatives."""
    if a is None and b is None:
        return None
    zero = xp.zeros_like(like)
    a, b = (zero if value is None else value + zero if type(value) is float else value for value in (a, b))
    return xp.where(condition, a, b)


def _operands(graph: Graph, known: Sequence[Any], node: Node) -> list[Any]:
    """The values that `node` takes; constants as Python floats."""
    inner = [graph.nodes[i] for i in node.inputs]
    return [
        float(n.value) if n.operation == "constant" and n.dtype.startswith("float") else known[i]
        for i, n in zip(node.inputs, inner, strict=True)
    ]


def _smooth(node: Node) -> bool:
    """Whether the derivative of `node` may be other than zero."""
    return node.dtype.startswith("float") and node.operation not in FLAT and node.operation != "constant"


# --- forward
def _pushed(node: Node, operands: Sequence[Any], result: Any, xp: Namespace, inner: Sequence[Any]) -> Any:
    """The tangent of `node` for the tangents of its operands."""
    if all(tangent is None for tangent in inner):
        return None
    if node.operation == "cast":
        return inner[0] if type(inner[0]) is float else xp.astype(inner[0], getattr(xp, node.dtype))
    if node.operation in SELECTING:
        condition, first = _condition(node, operands)
        return _selected(condition, inner[first], inner[first + 1], result, xp)
    total = None
    for partial, tangent in zip(_partials(node, operands, result, xp), inner, strict=True):
        if node.operation in SINGULAR:
            partial = _without_zero_times_infinity(partial, tangent, xp)
        total = plus(total, times(partial, tangent))
    return total


def tangents(graph: Graph, values: Values, seeds: Mapping[int, Any], xp: Namespace) -> tuple[list[Any], list[Any]]:
    """The outputs, and their derivatives in one direction.

    Parameters
    ----------
    graph : Graph
    values : sequence or mapping
        The values by position of the input.
    seeds : mapping
        The direction by position of the input; what is missing or None is zero, a Python float a known number.
    xp : namespace
        The namespace of the values.

    Returns
    -------
    outputs, output_tangents : lists
        A tangent is None where it is zero for all values, a Python float where it is known.
    """
    known, slopes = node_values(graph, values, xp), list[Any]()
    for k, node in enumerate(graph.nodes):
        if node.operation == "input":
            slopes.append(seeds.get(node.value))
        elif not _smooth(node):
            slopes.append(None)
        else:
            inner = [slopes[i] for i in node.inputs]
            slopes.append(_pushed(node, _operands(graph, known, node), known[k], xp, inner))
    return [known[k] for k in graph.outputs], [slopes[k] for k in graph.outputs]


def jacobian(graph: Graph, values: Values, wrt: Sequence[int], xp: Namespace) -> dict[tuple[int, int], Any]:
    """The entries ``{(output, position): derivative}`` of the outputs' Jacobian matrix that are not known to be zero.

    All columns are carried forward together, each value with the derivatives that it has alone.
    """
    rows = pushforward(graph, values, {position: {position: 1.0} for position in wrt}, xp, range(len(graph.outputs)))[1]
    return {(o, position): row[position] for o, row in enumerate(rows) for position in sorted(row)}


def pushforward(
    graph: Graph, values: Values, seeds: Mapping[int, Mapping[int, Any]], xp: Namespace, outputs: Sequence[int],
    held: Sequence[int] = (),
) -> tuple[list[Any], list[dict[int, Any]]]:  # fmt: skip
    """All outputs, and the derivatives of some of them in several directions that are carried forward together.

    Parameters
    ----------
    graph : Graph
    values : sequence or mapping
        The values by position of the input.
    seeds : mapping
        By position of the input, ``{direction: component}``; what is missing is zero, a Python float a known number.
    xp : namespace
        The namespace of the values.
    outputs : sequence of int
        Those whose derivatives are wanted.
    held : sequence of int
        Outputs that count as constants: nothing is differentiated through them.

    Returns
    -------
    all_outputs, output_tangents : lists
        For each of `outputs`, ``{direction: derivative}`` without those that are zero for all values.
    """
    known, rows = node_values(graph, values, xp), list[dict[int, Any]]()
    needed, constant = {graph.outputs[o] for o in outputs}, {graph.outputs[o] for o in held}
    for k in reversed(range(len(graph.nodes))):
        if k in needed and k not in constant:
            needed.update(graph.nodes[k].inputs)
    for k, node in enumerate(graph.nodes):
        row: dict[int, Any] = {}
        if k not in needed or k in constant:
            pass
        elif node.operation == "input":
            row = dict(seeds.get(node.value, {}))
        elif _smooth(node) and any(rows[i] for i in node.inputs):
            row = _row(node, _operands(graph, known, node), known[k], xp, [rows[i] for i in node.inputs])
        rows.append(row)
    return [known[k] for k in graph.outputs], [rows[graph.outputs[o]] for o in outputs]


def _row(
    node: Node, operands: Sequence[Any], result: Any, xp: Namespace, inner: Sequence[dict[int, Any]]
) -> dict[int, Any]:
    """The derivatives of `node` for those of its operands; partial derivatives are formed once."""
    places = list(dict.fromkeys(position for row in inner for position in row))
    if node.operation == "cast" or node.operation in SELECTING:
        pushed = {p: _pushed(node, operands, result, xp, [row.get(p) for row in inner]) for p in places}
    else:
        partials = _partials(node, operands, result, xp)
        pushed = dict.fromkeys(places)
        pairs = list(zip(partials, inner, strict=True))
        for partial, row in reversed(pairs) if node.operation == "fma" else pairs:  # so that each product is fused
            for p, value in row.items():
                singular = node.operation in SINGULAR
                factor = _without_zero_times_infinity(partial, value, xp) if singular else partial
                pushed[p] = plus(pushed[p], times(factor, value))
    return {p: value for p, value in pushed.items() if value is not None}


def jacobian_pattern(graph: Graph, wrt: Sequence[int]) -> set[tuple[int, int]]:
    """The pairs (output, position) where the derivative may be other than zero."""
    wanted, reached = set(wrt), list[set[int]]()
    for node in graph.nodes:
        if node.operation == "input":
            reached.append({node.value} & wanted)
        else:
            reached.append(set[int]().union(*(reached[i] for i in node.inputs)) if _smooth(node) else set())
    return {(o, position) for o, k in enumerate(graph.outputs) for position in reached[k]}


# --- backward
def pullback(graph: Graph, values: Values, cotangents: Sequence[Any], xp: Namespace) -> dict[int, Any]:
    """The derivative of ``sum cotangents[o] * output[o]`` by position of the input; what is missing is zero.

    Parameters
    ----------
    graph : Graph
    values : sequence or mapping
        The values by position of the input.
    cotangents : sequence
        One per output; None is zero.
    xp : namespace
        The namespace of the values.
    """
    known, sums = node_values(graph, values, xp), [None] * len(graph.nodes)
    for k, cotangent in zip(graph.outputs, cotangents, strict=True):
        sums[k] = plus(sums[k], cotangent)
    found: dict[int, Any] = {}
    masked: set[int] = set()  # nodes that may be evaluated where they are not chosen: all in them may be infinite
    steep: set[int] = set()  # those whose cotangent may be infinite
    for k in reversed(range(len(graph.nodes))):
        node, cotangent = graph.nodes[k], sums[k]
        if cotangent is None or not _smooth(node):
            continue
        if node.operation == "input":
            found[node.value] = cotangent
            continue
        operands = _operands(graph, known, node)
        if k in masked or node.operation in SELECTING:
            masked.update(node.inputs)
        if k in steep or node.operation in SINGULAR:
            steep.update(node.inputs)
        parts = _pulled(node, operands, known, k, cotangent, xp, (k in masked, k in steep))
        for i, part in zip(node.inputs, parts, strict=True):
            if _smooth(graph.nodes[i]):
                sums[i] = plus(sums[i], part)
    return found


def _pulled(
    node: Node, operands: Sequence[Any], known: Sequence[Any], k: int, cotangent: Any, xp: Namespace,
    infinite: tuple[bool, bool],
) -> list[Any]:  # fmt: skip
    """The parts of a cotangent that go to the operands of `node`.

    `infinite`: whether all partial derivatives, and whether the cotangent, may be so beside a factor of zero.
    """
    if node.operation == "cast":
        inner = known[node.inputs[0]]
        return [cotangent if type(cotangent) is float else xp.astype(cotangent, inner.dtype)]
    if node.operation in SELECTING:
        condition, first = _condition(node, operands)
        chosen = _selected(condition, cotangent, None, known[k], xp)
        return [*[None] * first, chosen, _selected(condition, None, cotangent, known[k], xp)]
    partials = _partials(node, operands, known[k], xp)
    if infinite[0] or node.operation in UNBOUNDED:
        partials = tuple(_without_zero_times_infinity(partial, cotangent, xp) for partial in partials)
    if not infinite[1]:
        return [times(partial, cotangent) for partial in partials]
    return [times(partial, _without_zero_times_infinity(cotangent, partial, xp)) for partial in partials]
