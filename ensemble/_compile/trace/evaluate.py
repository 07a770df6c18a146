"""A graph evaluated on arrays: the reference of what is generated from it."""

from __future__ import annotations

from typing import Any

from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.operations import WEAK
from ensemble._typing import Array, Namespace

__all__ = ["evaluate"]


def evaluate(xp: Namespace, graph: Graph, inputs: dict[int, Array]) -> list[Any]:
    """The outputs of `graph` for arrays given by the position of the input; they broadcast."""
    known: dict[int, Any] = {}
    for k, node in enumerate(graph.nodes):
        if node.dtype in WEAK:
            raise ValueError("evaluate: inputs must be arrays; got a graph of Python numbers.")
        operands = [known[i] for i in node.inputs]
        if node.operation == "input":
            known[k] = inputs[node.value]
        elif node.operation == "constant":
            known[k] = xp.asarray(node.value, dtype=getattr(xp, node.dtype))
        elif node.operation == "cast":
            known[k] = xp.astype(operands[0], getattr(xp, node.dtype))
        elif node.operation == "interp":
            known[k] = xp.interp(operands[0], xp.asarray(node.value.points), xp.asarray(node.value.values))
        else:
            known[k] = getattr(xp, node.operation)(*operands)
    return [known[k] for k in graph.outputs]
