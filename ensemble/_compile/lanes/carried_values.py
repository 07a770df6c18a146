"""What the evaluations of a loop change: carried values, counters, and the nodes that they need."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable

from ensemble._compile.trace.graph import Graph, Node

__all__ = ["is_input", "repeated"]


def is_input(node: Node, number: int) -> bool:
    """Whether a node is the input of this number."""
    return node.operation == "input" and node.value == number


def repeated(graph: Graph, n_carried: int, first: int) -> tuple[set[int], list[int], set[int]]:
    """What each evaluation of a loop computes: the carried inputs that it changes, counters, and the nodes.

    The outputs from `n_carried` to `first` are masks that end the loop. A counter is a carried input to which each
    evaluation adds one and which it does not read otherwise: its value in the last evaluation follows from the number
    of evaluations.
    """
    nodes, outputs = graph.nodes, graph.outputs
    before: list[int] = []  # the nodes that a node reads, itself included, as bits
    for k, node in enumerate(nodes):
        before.append(functools.reduce(operator.or_, (before[i] for i in node.inputs), 1 << k))

    def read_by(chosen: Iterable[int]) -> int:
        return functools.reduce(operator.or_, (before[k] for k in chosen), 0)

    own = {node.value: k for k, node in enumerate(nodes) if node.operation == "input"}
    read = read_by(output for k, output in enumerate(outputs) if not is_input(nodes[output], k))
    changing = {k for k in range(n_carried) if k in own and read >> own[k] & 1 and not is_input(nodes[outputs[k]], k)}
    counters = [k for k in sorted(changing) if _counts(graph, k)]
    within = read_by(outputs[k] for k in (*(changing - set(counters)), *range(n_carried, first)))
    for k in counters[:]:
        if within >> own[k] & 1:
            counters.remove(k)
            within |= before[outputs[k]]
    return changing - set(counters), counters, {k for k in range(len(nodes)) if within >> k & 1}


def _counts(graph: Graph, number: int) -> bool:
    """Whether a carried input is replaced by itself plus one."""
    node = graph.nodes[graph.outputs[number]]
    operands = [graph.nodes[k] for k in node.inputs]
    one = any(each.operation == "constant" and each.value == 1.0 for each in operands)
    return node.operation == "add" and one and any(is_input(each, number) for each in operands)
