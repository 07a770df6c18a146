"""Large graphs as groups of equal operations, for the loops of `groups.py`.

Nodes of one operation whose operands are known are one group. Additions that follow each other are one group of chains:
each chain adds its terms, or products of two values, in the order of the graph. No product is fused with a sum: the
bits are those of the graph evaluated node by node.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.lanes.elementwise_loop import elementwise_loop
from ensemble._compile.lanes.library import assembly_of
from ensemble._compile.machine_code import Code, assembled, code_of
from ensemble._compile.trace.graph import Graph, Node
from ensemble._typing import Array

__all__ = ["ELEMENTWISE", "MULTIPLY", "PRODUCTS", "Groups", "groups_of", "sums_of"]

SUMS = ("add", "subtract")

ODD = frozenset(("asin", "asinh", "atan", "atanh", "sin", "sinh", "tan", "tanh"))
"""Functions with ``f(-x) = -f(x)`` to the bit."""

ELEMENTWISE, LINEAR, PRODUCTS, MULTIPLY = 0, 1, 2, 3

LONG = 8
"""Terms of a long sum."""

COLUMNS = 12
"""Entries of a group in the table: kind, nodes, first slot, operands or terms, address, and places of operands."""


class Groups(NamedTuple):
    """A graph as groups of operations on rows ("slots")."""

    table: Array
    index: Array
    """Slots of operands that do not follow each other."""
    coefficients: Array
    constants: Array
    """The values of the first slots."""
    inputs: Array
    """(n_inputs, 2): whether an input is a row of the state, and its row; the slots after the constants."""
    outputs: Array
    """The slot of each output."""
    n_slots: int
    largest: int
    """Nodes of the largest group."""
    codes: tuple[Code, ...]
    """The machine code, which is held."""


def sums_of(groups: Groups) -> float:
    """How many of the operations, of 1, are in sums of `LONG` terms or more."""
    kinds, nodes, terms = groups.table[:, 0], groups.table[:, 1], groups.table[:, 3]
    sums = (kinds == LINEAR) | (kinds == PRODUCTS)
    counts = nodes * np.where(sums, terms, 1)
    return float(counts[sums & (terms >= LONG)].sum() / max(counts.sum(), 1))


# --- nodes to groups
class Chain(NamedTuple):
    """A sum: the node that it begins with, and terms: a node, another node or None, and a coefficient."""

    base: int
    terms: list[tuple[int, int | None, float]]

    @property
    def reads(self) -> list[int]:
        """The nodes that it reads."""
        return [self.base, *(i for a, b, _ in self.terms for i in (a, b) if i is not None)]


def mirrored(graph: Graph) -> dict[int, int]:
    """Nodes ``f(b - a)`` of odd functions, each with an earlier node ``f(a - b)``: forces between pairs."""
    nodes = graph.nodes
    known: dict[tuple[str, tuple[int, ...]], int] = {}
    found: dict[int, int] = {}
    for k, node in enumerate(nodes):
        if node.operation in ODD and nodes[node.inputs[0]].operation == "subtract":
            pair = nodes[node.inputs[0]].inputs
            other = known.get((node.operation, pair[::-1]))
            if other is not None:
                found[k] = other
            known[node.operation, pair] = k
    return found


def chains_of(graph: Graph) -> tuple[dict[int, Chain], set[int]]:
    """The chains by their last nodes, and the nodes within them that nothing else reads."""
    nodes = graph.nodes
    uses = Counter(i for node in nodes for i in node.inputs) + Counter(graph.outputs)
    chains: dict[int, Chain] = {}
    within: set[int] = set()
    mirror = mirrored(graph)

    def single(k: int, operations: tuple[str, ...]) -> bool:
        return nodes[k].operation in operations and uses[k] == 1

    def term(k: int, sign: float) -> tuple[int, int | None, float]:
        """A node as a term; a product that nothing else reads is taken apart."""
        if single(k, ("multiply",)):
            a, b = nodes[k].inputs
            for one, other in ((a, b), (b, a)):
                if nodes[one].operation == "constant":
                    within.add(k)
                    return other, None, sign * float(nodes[one].value)
            if sign > 0.0:
                within.add(k)
                return a, b, 1.0
        return (mirror[k], None, -sign) if k in mirror else (k, None, sign)

    for k, node in enumerate(nodes):
        if node.operation in SUMS:
            a, b = node.inputs
            sign = 1.0 if node.operation == "add" else -1.0
            if a != b and a in chains and uses[a] == 1:
                within.add(a)
                chain = chains.pop(a)
            elif a != b and sign > 0.0 and b in chains and uses[b] == 1:
                within.add(b)
                chain, b = chains.pop(b), a
            elif sign > 0.0 and single(a, ("multiply",)) and not single(b, ("multiply",)):
                chain, b = Chain(b, []), a
            else:
                chain = Chain(a, [])
            chain.terms.append(term(b, sign) if a != b or chain.base != b else (b, None, sign))
            chains[k] = chain
    return chains, within


def needed_of(graph: Graph, chains: dict[int, Chain]) -> list[bool]:
    """Whether outputs need a node."""
    needed = [False] * len(graph.nodes)
    for k in graph.outputs:
        needed[k] = True
    for k in range(len(graph.nodes) - 1, -1, -1):
        if needed[k]:
            for i in chains[k].reads if k in chains else graph.nodes[k].inputs:
                needed[i] = True
    return needed


def _key(graph: Graph, node: Node) -> tuple[Any, ...]:
    """Return what nodes must have in common to be computed as one group."""
    kinds = tuple(graph.nodes[i].dtype for i in node.inputs)
    return (node.operation, kinds, node.dtype, node.value)


@functools.lru_cache(maxsize=256)
def _function(key: tuple[Any, ...], dtype: str) -> Code:
    """The loop of one operation on arrays of `dtype`, in which masks are 0 and 1."""
    operation, kinds, given, value = key
    nodes: list[Node] = []
    operands = []
    for position, kind in enumerate(kinds):
        nodes.append(Node("input", (), dtype, position))
        operands.append(len(nodes) - 1)
        if kind == "bool":
            zero = len(nodes)
            nodes += [Node("constant", (), dtype, 0.0), Node("not_equal", (zero - 1, zero), "bool")]
            operands[-1] = zero + 1
    nodes.append(Node(operation, tuple(operands), given, value))
    if given == "bool":
        nodes.append(Node("cast", (len(nodes) - 1,), dtype))
    graph = Graph(tuple(nodes), len(kinds), (len(nodes) - 1,), 0)
    return code_of(assembled([elementwise_loop(graph, range(len(kinds)), "elements")]), ["elements"], assembly_of)


class _Writer:
    """The arrays of the groups while they are made."""

    def __init__(self, graph: Graph, dtype: str) -> None:
        self.graph, self.dtype = graph, dtype
        self.slots: dict[int, int] = {}
        self.constants: dict[tuple[float, str], int] = {}
        self.index: list[np.ndarray] = []
        self.coefficients: list[np.ndarray] = []
        self.n_index, self.n_coefficients = 0, 0
        self.table: list[list[int]] = []
        self.codes: list[Code] = []

    def slot(self, k: int) -> int:
        node = self.graph.nodes[k]
        return self.constant(float(node.value)) if node.operation == "constant" else self.slots[k]

    def constant(self, value: float) -> int:
        return self.constants.setdefault((value, repr(value)), len(self.constants))

    def place(self, slots: list[int]) -> list[int]:
        """Where the slots stand in `index`, and the first of them where they follow each other, otherwise -1."""
        array = np.array(slots, np.int64)
        if array[-1] - array[0] == array.size - 1 and (np.diff(array) == 1).all():
            return [0, int(array[0])]
        self.index.append(array)
        self.n_index += array.size
        return [self.n_index - array.size, -1]

    def elementwise(self, key: tuple[Any, ...], members: list[int], first: int) -> None:
        code = _function(key, self.dtype)
        self.codes.append(code)
        row = [ELEMENTWISE, len(members), first, len(key[1]), code["elements"]]
        for position in range(len(key[1])):
            row += self.place([self.slot(self.graph.nodes[k].inputs[position]) for k in members])
        self.table.append(row + [0] * (COLUMNS - len(row)))

    def products(self, members: list[int], first: int) -> None:
        """Products of two slots, read where they are."""
        row = [MULTIPLY, len(members), first, 1, 0, 0, 0]
        for position in range(2):
            self.index.append(np.array([self.slot(self.graph.nodes[k].inputs[position]) for k in members], np.int64))
            row.append(self.n_index)
            self.n_index += len(members)
        self.table.append(row + [0] * (COLUMNS - len(row)))

    def chains(self, kind: int, chains: list[Chain], first: int) -> None:
        m, length = len(chains), len(chains[0].terms)
        row = [kind, m, first, length, 0, *self.place([self.slot(chain.base) for chain in chains])]
        slots = np.array([[self.slot(term[0]) for term in chain.terms] for chain in chains], np.int64).T
        shared = int(kind == LINEAR and m > 1 and bool((slots == slots[:, :1]).all()))
        self.index.append(np.ascontiguousarray(slots).reshape(-1))
        row.append(self.n_index)
        self.n_index += slots.size
        if kind == LINEAR:
            values = np.array([[term[2] for term in chain.terms] for chain in chains], self.dtype).T
            self.coefficients.append(np.ascontiguousarray(values).reshape(-1))
            row += [self.n_coefficients, shared]
            self.n_coefficients += values.size
        else:
            other = [[self.constant(c) if b is None else self.slot(b) for _, b, c in chain.terms] for chain in chains]
            self.index.append(np.ascontiguousarray(np.array(other, np.int64).T).reshape(-1))
            row += [self.n_index, 0]
            self.n_index += slots.size
        self.table.append(row + [0] * (COLUMNS - len(row)))


def groups_of(graph: Graph, n: int, dtype: str, least: int = 8) -> Groups | None:
    """The groups of a graph of `dtype` alone, whose inputs 1 to `n` are the state.

    None where it has other dtypes, or groups of less than `least` operations on average.

    The inputs before and after the state are rows of a second array, in order.
    """
    nodes = graph.nodes
    if any(node.dtype not in (dtype, "bool") for node in nodes):
        return None
    chains, within = chains_of(graph)
    needed = needed_of(graph, chains)
    level: list[int] = []
    groups: dict[tuple[Any, ...], list[int]] = {}
    constants: list[float] = []
    for k, node in enumerate(nodes):
        if node.operation in ("input", "constant") or k in within or not needed[k]:
            below = [level[i] for i in node.inputs]
            level.append(max(below, default=0))
            continue
        if k in chains:
            terms, read = chains[k].terms, chains[k].reads
            kind = PRODUCTS if any(b is not None for _, b, _ in terms) else LINEAR
            key: tuple[Any, ...] = (kind, len(terms))
            if kind == PRODUCTS:
                constants += [c for _, b, c in terms if b is None]
        else:
            read, key = list(node.inputs), _key(graph, node)
        constants += [float(nodes[i].value) for i in read if nodes[i].operation == "constant"]
        level.append(1 + max((level[i] for i in read), default=0))
        groups.setdefault((level[k], *key), []).append(k)
    members = [k for group in groups.values() for k in group]
    if sum(len(chains[k].terms) if k in chains else 1 for k in members) < least * len(groups):
        return None
    writer = _Writer(graph, dtype)
    constants += [float(nodes[k].value) for k in graph.outputs if nodes[k].operation == "constant"]
    for value in constants:
        writer.constant(value)
    inputs: list[Any] = []
    for k, node in enumerate(nodes):
        if node.operation == "input" and needed[k]:
            writer.slots[k] = len(writer.constants) + len(inputs)
            state = 1 <= node.value <= n
            inputs.append((int(state), node.value - 1 if state else node.value - n * (node.value > n)))
    n_slots = len(writer.constants) + len(inputs)
    for key in sorted(groups, key=lambda key: key[0]):
        members = groups[key]
        writer.slots |= {k: n_slots + place for place, k in enumerate(members)}
        if len(key) == 3:
            writer.chains(key[1], [chains[k] for k in members], n_slots)
        elif key[1] == "multiply":
            writer.products(members, n_slots)
        else:
            writer.elementwise(key[1:], members, n_slots)
        n_slots += len(members)
    return Groups(
        np.array(writer.table, np.int64).reshape(-1, COLUMNS),
        np.concatenate([np.zeros(1, np.int64), *writer.index])[1:] if writer.index else np.zeros(1, np.int64),
        np.concatenate([*writer.coefficients, np.zeros(1, dtype)]),
        np.array([value for value, _ in writer.constants], dtype),
        np.array(inputs, np.int64).reshape(-1, 2),
        np.array([writer.slot(k) for k in graph.outputs], np.int64),
        n_slots,
        max(map(len, groups.values()), default=1),
        tuple(writer.codes),
    )
