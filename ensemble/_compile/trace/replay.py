"""A graph evaluated a node at a time: on arrays, the reference of generated code; in a trace, nodes again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ensemble._compile.trace.bit_patterns import bits, from_bits, high_word
from ensemble._compile.trace.graph import Graph, Node
from ensemble._compile.trace.namespace import TracedNamespace
from ensemble._compile.trace.operations import WEAK
from ensemble._compile.trace.tracer import Traced
from ensemble._typing import Namespace

__all__ = ["constant", "node_values", "replay", "value_of"]

BIT_PATTERNS = {"bits": bits, "from_bits": from_bits, "high_word": high_word}


def constant(xp: Namespace, value: Any, dtype: str) -> Any:
    """A number of `dtype` that operations of `xp` take."""
    if isinstance(xp, TracedNamespace):
        return np.dtype(dtype).type(value)
    return xp.asarray(value, dtype=getattr(xp, dtype))


def value_of(node: Node, operands: Sequence[Any], xp: Namespace) -> Any:
    """What `node`, an operation or a cast or a constant, gives for its operands."""
    if node.operation == "constant":
        return constant(xp, node.value, node.dtype)
    if node.operation == "cast":
        return xp.astype(operands[0], getattr(xp, node.dtype))
    if node.operation == "interp":
        points, values = node.value.points, node.value.values
        if isinstance(xp, TracedNamespace):
            return xp.interp(operands[0], points, values)
        return xp.interp(operands[0], xp.asarray(points), xp.asarray(values))
    if node.operation == "fma":
        first = next(operand for operand in operands if isinstance(operand, Traced))
        return first.internal("fma", node.dtype, tuple(operands))
    if node.operation in BIT_PATTERNS:
        return BIT_PATTERNS[node.operation](*operands)
    return getattr(xp, node.operation)(*operands)


def node_values(graph: Graph, values: Mapping[int, Any] | Sequence[Any], xp: Namespace) -> list[Any]:
    """The value of every node of `graph`, in order; see `replay`."""
    known: list[Any] = []
    for node in graph.nodes:
        if node.dtype in WEAK:
            raise ValueError("replay: inputs must be arrays; got a graph of Python numbers.")
        given = node.operation == "input"
        known.append(values[node.value] if given else value_of(node, [known[i] for i in node.inputs], xp))
    return known


def replay(graph: Graph, values: Mapping[int, Any] | Sequence[Any], xp: Namespace) -> list[Any]:
    """The outputs of `graph` for values given by the position of the input; they broadcast.

    Values are arrays with their namespace, or traced values with theirs: then each operation is recorded again.
    """
    known = node_values(graph, values, xp)
    return [known[k] for k in graph.outputs]
