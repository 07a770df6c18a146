"""The expression graph of a traced function: nodes in the order of their evaluation."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._compile.trace.operations import OPERATIONS, WEAK, Table
from ensemble._containers import mapped

__all__ = ["SELDOM", "Graph", "Node", "ancestors", "renumbered", "seldom_read"]


SELDOM = "seldom"
"""The value of a node "where" whose condition seldom holds."""


@dataclass(frozen=True)
class Node:
    """One value: an input (`value` is its position), a constant, a cast, or an operation on earlier nodes.

    Zeros of different signs are different constants: compiled code is kept by its graph.
    """

    operation: str
    inputs: tuple[int, ...]
    dtype: str
    value: Any = None

    def __eq__(self, other: object) -> bool:
        if type(other) is not Node:
            return NotImplemented
        own, its = self.value, other.value
        same = (self.operation, self.inputs, self.dtype, own) == (other.operation, other.inputs, other.dtype, its)
        return same and (type(own) is not float or math.copysign(1.0, own) == math.copysign(1.0, its))


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

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """Computed once: graphs are keys of compiled code."""
        return hash((self.nodes, self.n_inputs, self.outputs))

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtype of each output."""
        return tuple(self.nodes[k].dtype for k in self.outputs)

    @property
    def entering(self) -> tuple[int, ...]:
        """The casts that carry a weak number into the kernel, in order: each is a scalar parameter of it."""
        return tuple(
            k
            for k, node in enumerate(self.nodes)
            if node.operation == "cast" and self.nodes[node.inputs[0]].dtype in WEAK
        )

    @functools.cached_property
    def input_dtypes(self) -> dict[int, str]:
        """The dtype of each input that is used, by its position."""
        return {node.value: node.dtype for node in self.nodes if node.operation == "input"}

    @property
    def strong_inputs(self) -> list[int]:
        """The positions of the inputs that are parameters of a kernel, in order."""
        return sorted(position for position, dtype in self.input_dtypes.items() if dtype not in WEAK)

    @property
    def parameters(self) -> dict[str, str]:
        """The dtype of each parameter of a kernel by its name, in order: strong inputs `a<position>`, casts `s<k>`."""
        inputs = {f"a{position}": self.input_dtypes[position] for position in self.strong_inputs}
        return inputs | {f"s{k}": self.nodes[cast].dtype for k, cast in enumerate(self.entering)}

    def definitions(self, expression: Callable[[Graph, Node], str]) -> Iterator[tuple[int, str]]:
        """The nodes that a kernel evaluates, each with its right-hand side in source: a parameter or `expression`."""
        entering = {k: f"s{place}" for place, k in enumerate(self.entering)}
        for k, node in enumerate(self.nodes):
            if node.dtype not in WEAK:
                given = f"a{node.value}" if node.operation == "input" else entering.get(k)
                yield k, given or expression(self, node)

    def uses(self, position: int) -> bool:
        """Whether input `position` is used at all."""
        return position in self.input_dtypes

    @property
    def tables(self) -> tuple[Table, ...]:
        """List the tables of the graph's interpolations, each once."""
        return tuple(dict.fromkeys(node.value for node in self.nodes if node.operation == "interp"))

    @property
    def libm(self) -> bool:
        """Whether some operation is a function of the mathematical library."""
        return any(node.operation in OPERATIONS and OPERATIONS[node.operation].libm for node in self.nodes)

    def scalars(self, values: Sequence[Any]) -> list[Any]:
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

    def nest(self, results: Sequence[Any]) -> Any:
        """`results`, one per output, nested as the body nested them."""
        return tuple(results) if self._is_flat else mapped(results.__getitem__, self.structure)

    @functools.cached_property
    def _is_flat(self) -> bool:
        return type(self.structure) is tuple and self.structure == tuple(range(len(self.outputs)))


def ancestors(nodes: Sequence[Node], chosen: Iterable[int]) -> set[int]:
    """The nodes that some nodes read, directly or not, themselves included."""
    found: set[int] = set()
    pending = list(chosen)
    while pending:
        k = pending.pop()
        if k not in found:
            found.add(k)
            pending.extend(nodes[k].inputs)
    return found


def seldom_read(graph: Graph) -> dict[int, list[int]]:
    """For each node "where" whose condition seldom holds, the nodes that its first choice alone reads, in order."""
    chosen = [k for k, node in enumerate(graph.nodes) if node.operation == "where" and node.value == SELDOM]
    if not chosen:
        return {}
    users: list[set[int]] = [set() for _ in graph.nodes]
    for k in ancestors(graph.nodes, graph.outputs):
        for i in graph.nodes[k].inputs:
            users[i].add(k)
    kept, found = set(graph.outputs), {}
    for k in chosen:
        condition, first, second = graph.nodes[k].inputs
        own = {k}
        for i in range(first, -1, -1):
            node = graph.nodes[i]
            reads = node.operation not in ("input", "constant") and users[i] and users[i] <= own
            if reads and i not in kept and i not in (condition, second):
                own.add(i)
        found[k] = sorted(own - {k})
    return found


def renumbered(
    nodes: Sequence[Node], order: Sequence[int], outputs: Iterable[int]
) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """The nodes of `order`, in which each follows its inputs, and the outputs, with their new numbers."""
    new = {old: k for k, old in enumerate(order)}
    chosen = (nodes[old] for old in order)
    moved = (Node(n.operation, tuple(new[i] for i in n.inputs), n.dtype, n.value) for n in chosen)
    return tuple(moved), tuple(new[k] for k in outputs)
