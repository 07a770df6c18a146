"""The order of the nodes of a traced body: copies for each register of lanes, and parts that need not alternate.

The operations of a body follow from each other. A processor starts two per cycle only where others, which do not wait
for them, stand close by: those of another register. Where all registers are at the same operation, the values of all
are alive at once and do not fit the registers of the processor; copies that follow each other at a distance need fewer.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

from ensemble._compile.processor import register_bytes
from ensemble._compile.trace.graph import Graph, Node, ancestors, renumbered

__all__ = ["interleaved", "staggered"]

DISTANCE = {64: 24, 32: 32, 16: 24}
"""Nodes between a copy and the next one, by the bytes of a register (`ensemble/_compile/EXPERIMENTS.md`).

Measured again by `benchmarks ode`.
"""

APART = 12
"""Nodes of the leading part between an other part and the next one (`benchmarks ode`)."""

LEAST, MOST = 16, 128
"""Nodes of parts that follow each other, each as a block of its own: LLVM mixes instructions of one block.

Measured again by `benchmarks ode`.
"""


def interleaved(graph: Graph, count: int, distance: int | None = None) -> Graph:
    """`count` copies of a graph; each evaluates a node when the one before it is `distance` nodes ahead.

    By default that is `DISTANCE`.

    Copy `r` has the inputs ``count i + r`` in place of i, and likewise for the outputs: rows of lanes of all copies
    together are rows of `count` times as many lanes.
    """
    if count == 1:
        return graph
    distance = DISTANCE[register_bytes()] if distance is None else distance
    order = sorted((k + distance * r, r) for k in range(len(graph.nodes)) for r in range(count))
    places: dict[tuple[int, int], int] = {}
    nodes: list[Node] = []
    for due, r in order:
        k = due - distance * r
        node = graph.nodes[k]
        inputs = tuple(places[i, r] for i in node.inputs)
        value = node.value * count + r if node.operation == "input" else node.value
        places[k, r] = len(nodes)
        nodes.append(dataclasses.replace(node, inputs=inputs, value=value))
    outputs = tuple(places[k, r] for k in graph.outputs for r in range(count))
    return dataclasses.replace(graph, nodes=tuple(nodes), n_inputs=graph.n_inputs * count, outputs=outputs)


def staggered(graph: Graph, leading: Sequence[int]) -> tuple[Graph, tuple[int, ...]]:
    """The graph with what its outputs `leading` do not need part by part, as far as parts do not read each other.

    Tangents in several directions are such parts. In the order of a trace each operation is followed by its derivative
    in all directions, whose values are alive at once. Also returns the first nodes of parts that are blocks.
    """
    nodes = graph.nodes
    needed = ancestors(nodes, (graph.outputs[k] for k in leading))
    needed |= {k for k, node in enumerate(nodes) if node.operation in ("input", "constant")}
    label = list(range(len(nodes)))  # the first node of the part, as far as it is known

    def first(k: int) -> int:
        while label[k] != k:
            k = label[k]
        return k

    others = [k for k in range(len(nodes)) if k not in needed]
    for k in others:
        for i in nodes[k].inputs:
            if i not in needed:
                a, b = sorted((first(i), first(k)))
                label[b] = a
    parts = {k: number for number, k in enumerate(dict.fromkeys(first(k) for k in others), start=1)}
    number = [0 if k in needed else parts[first(k)] for k in range(len(nodes))]
    sizes = {part: size for part, size in collections.Counter(number[k] for k in others).items() if size >= LEAST}
    blocks = len(sizes) > 1 and max(sizes.values()) <= MOST
    distance = len(nodes) if blocks else APART * (1 + len(parts))
    order = sorted(range(len(nodes)), key=lambda k: (k + distance * number[k], number[k]))
    moved, outputs = renumbered(nodes, order, graph.outputs)
    numbers = [number[k] for k in order]
    starts = (k for k in range(1, len(order)) if numbers[k] != numbers[k - 1] and numbers[k] in sizes)
    return dataclasses.replace(graph, nodes=moved, outputs=outputs), tuple(starts) if blocks else ()
