"""What the evaluations of a loop change: carried values, counters, and the nodes that they need."""

from __future__ import annotations

from ensemble._compile.trace.graph import Graph, Node, ancestors

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
    own = {node.value: k for k, node in enumerate(nodes) if node.operation == "input"}
    read = ancestors(nodes, (output for k, output in enumerate(outputs) if not is_input(nodes[output], k)))
    changing = {k for k in range(n_carried) if own.get(k) in read and not is_input(nodes[outputs[k]], k)}
    counters = [k for k in sorted(changing) if _counts(graph, k)]
    within = ancestors(nodes, (outputs[k] for k in (*(changing - set(counters)), *range(n_carried, first))))
    for k in counters[:]:
        if own[k] in within:
            counters.remove(k)
            within |= ancestors(nodes, [outputs[k]])
    return changing - set(counters), counters, within


def _counts(graph: Graph, number: int) -> bool:
    """Whether a carried input is replaced by itself plus one."""
    node = graph.nodes[graph.outputs[number]]
    operands = [graph.nodes[k] for k in node.inputs]
    one = any(each.operation == "constant" and each.value == 1.0 for each in operands)
    return node.operation == "add" and one and any(is_input(each, number) for each in operands)
