"""An integrand's graph arranged for nested loops over the digits of a point's index.

A value is computed in the loop over the deepest digit that it depends on. So that little depends on the inner digits,
sums and products are reordered: the terms of a sum that depend on outer digits alone are added first, and terms with
the same inner factors become one product, ``a x + b x = (a + b) x``. A quadratic form in 15 variables then costs two
multiply-adds in the innermost loop instead of 225. Only sums and products that are used once are opened, so that
compensated sums stay as they are written.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ensemble._compile.trace.graph import Graph, Node, ancestors, renumbered
from ensemble._compile.trace.operations import OPERATIONS

__all__ = ["Arranged", "arranged", "digit_order"]

COSTS = {"divide": 8, "sqrt": 8, "reciprocal": 8, "floor_divide": 16, "remainder": 16, "interp": 40}
"""In additions; functions of the mathematical library count 20."""

Term = tuple[int, tuple[int, ...]]
"""A sign and factors."""


class Arranged(NamedTuple):
    """Nodes in order, their levels, and the outputs.

    The level of a node is the place, in the order of the loops, of the deepest digit that it depends on: -1 for none.
    Digits that lanes carry have no level; `wide` tells which nodes depend on them.
    """

    graph: Graph
    levels: tuple[int, ...]
    wide: tuple[bool, ...]

    def fused(self) -> dict[int, int]:
        """The products that are rounded once with the sum that they are a term of: their only user, on their level."""
        nodes = self.graph.nodes
        uses = Counter([i for node in nodes for i in node.inputs] + list(self.graph.outputs))
        found: dict[int, int] = {}
        for k, node in enumerate(nodes):
            if node.operation in ("add", "subtract") and node.dtype.startswith("float"):
                for i in reversed(node.inputs):
                    same = nodes[i].operation == "multiply" and self.levels[i] == self.levels[k]
                    if same and uses[i] == 1 and self.wide[i] == self.wide[k]:
                        found[k] = i
                        break
        return found


def digit_order(graph: Graph, dim: int) -> tuple[int, ...]:
    """The variables from the outermost loop to the innermost: the more costs on it, the further out."""
    depends = dependencies(graph, dim)
    costs = [0] * dim
    for node, mask in zip(graph.nodes, depends, strict=True):
        if node.operation in OPERATIONS and node.operation not in ("add", "subtract", "negative"):
            cost = COSTS.get(node.operation, 20 if OPERATIONS[node.operation].libm else 1)
            for i in range(dim):
                costs[i] += cost * (mask >> i & 1)
    return tuple(sorted(range(dim), key=lambda i: (-costs[i], i)))


def dependencies(graph: Graph, dim: int) -> list[int]:
    """The variables that each node depends on, as bits."""
    masks: list[int] = []
    for node in graph.nodes:
        mask = 1 << node.value if node.operation == "input" and node.value < dim else 0
        for i in node.inputs:
            mask |= masks[i]
        masks.append(mask)
    return masks


def arranged(graph: Graph, order: tuple[int, ...], n_lanes: int) -> Arranged:
    """The graph for loops over the variables in `order`; the last `n_lanes` of them are carried by lanes."""
    return Arranger(graph, order, n_lanes).result()


class Arranger:
    """Builds the nodes of `Arranged`."""

    def __init__(self, graph: Graph, order: tuple[int, ...], n_lanes: int) -> None:
        self.graph = graph
        n_loops = len(order) - n_lanes
        self.places = {variable: place for place, variable in enumerate(order[:n_loops])}
        self.lanes = set(order[n_loops:])
        self.nodes: list[Node] = []
        self.levels: list[int] = []
        self.wide: list[bool] = []
        self.known: dict[tuple[object, ...], int] = {}

    def add(self, operation: str, inputs: tuple[int, ...], dtype: str, value: object = None) -> int:
        """The number of this node, new or already there."""
        key = (operation, inputs, dtype, type(value), repr(value))
        if key not in self.known:
            level, wide = -1, False
            if operation == "input":
                level, wide = self.places.get(value, -1), value in self.lanes  # type: ignore[call-overload]
            for i in inputs:
                level, wide = max(level, self.levels[i]), wide or self.wide[i]
            self.known[key] = len(self.nodes)
            self.nodes.append(Node(operation, inputs, dtype, value))
            self.levels.append(level)
            self.wide.append(wide)
        return self.known[key]

    def rank(self, k: int) -> tuple[bool, int]:
        """Return the key that sorts values from the outer loops to the inner ones."""
        return self.wide[k], self.levels[k]

    def result(self) -> Arranged:
        """All nodes, rebuilt in order; those that a sum or product opens are left out."""
        nodes = self.graph.nodes
        uses = Counter([i for node in nodes for i in node.inputs] + list(self.graph.outputs))
        user = {i: node for node in nodes for i in node.inputs}
        self.opened = set()
        for k, node in enumerate(nodes):
            if uses[k] == 1 and k in user:
                above = is_sum(user[k]), is_product(user[k])
                if (is_sum(node) and above[0]) or (is_product(node) and any(above)):
                    self.opened.add(k)
        self.new: dict[int, int] = {}
        for k, node in enumerate(nodes):
            if k not in self.opened:
                self.new[k] = self.rebuilt(k, node)
        outputs = tuple(self.new[k] for k in self.graph.outputs)
        return self.trimmed(outputs)

    def rebuilt(self, k: int, node: Node) -> int:
        """Node `k` of the given graph."""
        if is_sum(node):
            return self.sum_of(self.terms(k), node.dtype)
        if is_product(node):
            return self.product(self.factors(k), node.dtype)
        return self.add(node.operation, tuple(self.new[i] for i in node.inputs), node.dtype, node.value)

    def terms(self, k: int) -> list[Term]:
        """The terms of sum `k`, in order."""
        found: list[Term] = []
        pending = [(1, k)]
        while pending:
            sign, at = pending.pop()
            node = self.graph.nodes[at]
            if is_sum(node) and (at == k or at in self.opened):
                signs = {"add": (1, 1), "subtract": (1, -1), "negative": (-1,)}[node.operation]
                parts = [(sign * s, i) for s, i in zip(signs, node.inputs, strict=True)]
                pending += reversed(parts)
            else:
                found.append((sign, self.factors(at) if at in self.opened else (self.new[at],)))
        return found

    def factors(self, k: int) -> tuple[int, ...]:
        """The factors of product `k`, from the outer loops to the inner ones."""
        found: list[int] = []
        pending = [k]
        while pending:
            at = pending.pop()
            if at == k or (at in self.opened and is_product(self.graph.nodes[at])):
                pending += reversed(self.graph.nodes[at].inputs)
            else:
                found.append(self.new[at])
        return tuple(sorted(found, key=lambda i: (*self.rank(i), i)))

    def product(self, factors: tuple[int, ...], dtype: str) -> int:
        """The product of factors in their order."""
        result = factors[0]
        for factor in factors[1:]:
            result = self.add("multiply", (result, factor), dtype)
        return result

    def sum_of(self, terms: list[Term], dtype: str) -> int:
        """The sum of `terms`, those of the outer loops first; terms of the same inner factors are one product."""
        ranks = [max(self.rank(i) for i in factors) for _, factors in terms]
        deepest = max(ranks)
        outer = [term for term, rank in zip(terms, ranks, strict=True) if rank[0] < deepest[0] or rank < deepest]
        parts: list[tuple[int, int]] = []
        if deepest == (False, -1):
            parts = [(sign, self.product(factors, dtype)) for sign, factors in terms]
        else:
            groups: dict[tuple[int, ...], list[Term]] = {}
            for (sign, factors), rank in zip(terms, ranks, strict=True):
                if rank == deepest:
                    deep = tuple(i for i in factors if self.rank(i) == deepest)
                    rest = tuple(i for i in factors if self.rank(i) != deepest)
                    groups.setdefault(deep, []).append((sign, rest))
            for deep, rests in groups.items():
                several = [rest for rest in rests if rest[1]]
                if len(several) > 1:
                    parts.append((1, self.product((self.sum_of(several, dtype), *deep), dtype)))
                    rests = [rest for rest in rests if not rest[1]]
                parts += [(sign, self.product((*rest, *deep), dtype)) for sign, rest in rests]
            if outer:
                parts.append((1, self.sum_of(outer, dtype)))
            parts.sort(key=lambda part: (self.levels[part[1]], self.wide[part[1]]))
        return self.added(parts, dtype)

    def added(self, parts: list[tuple[int, int]], dtype: str) -> int:
        """The parts, one after another."""
        sign, result = parts[0]
        if sign < 0:
            result = self.add("negative", (result,), dtype)
        for sign, part in parts[1:]:
            result = self.add("add" if sign > 0 else "subtract", (result, part), dtype)
        return result

    def trimmed(self, outputs: tuple[int, ...]) -> Arranged:
        """Drop the values that no output needs."""
        ascending = sorted(ancestors(self.nodes, outputs))
        nodes, moved = renumbered(self.nodes, ascending, outputs)
        graph = Graph(nodes, self.graph.n_inputs, moved, self.graph.structure)
        return Arranged(graph, tuple(self.levels[k] for k in ascending), tuple(self.wide[k] for k in ascending))


def is_sum(node: Node) -> bool:
    """Whether a node adds or subtracts real numbers."""
    return node.operation in ("add", "subtract", "negative") and node.dtype.startswith("float")


def is_product(node: Node) -> bool:
    """Whether a node multiplies real numbers."""
    return node.operation == "multiply" and node.dtype.startswith("float")
