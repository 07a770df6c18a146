"""Which elements each row and each entry of a matrix gathers, rows in an order of space: tables for devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._compile.numba import compiled_procedure
from ensemble._kernels.sparse.element_map import ElementMap
from ensemble._kernels.sparse.product_graphs import transpose_graph

__all__ = ["Gather"]


class Gather:
    """The incidences of an `ElementMap`, permuted to the order `rows` of its rows.

    Attributes
    ----------
    rows : array of int32, shape (n_rows,)
        The row that stands at each place.
    starts, incidences : arrays of int32, shapes (n_rows + 1,) and (n_elements * k,)
        The pairs (element, local row) of the row at each place, as ``element * k + local row``; elements ascend.
    longest : int
        The most pairs of a row.
    copies : dict
        What was copied to devices.
    """

    def __init__(self, made: ElementMap, order: Callable[[], np.ndarray]) -> None:
        self._made, self._order = made, order
        self.longest = int(np.diff(made.first).max(initial=0))
        self._blocks: dict[int, np.ndarray] = {}
        self._entries: dict[int, tuple[np.ndarray, ...]] = {}
        self.copies: dict[Any, Any] = {}
        self._padded: np.ndarray | None = None
        self._block_nodes: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._pair_elements: np.ndarray | None = None

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """See the class; worked out by the first kernel of a device."""
        return self._order()

    @functools.cached_property
    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        starts, chosen = permuted(self._made.first, self.rows)
        return starts, self._made.incidences[chosen].astype(np.int32)

    @property
    def starts(self) -> np.ndarray:
        """See the class."""
        return self._pairs[0]

    @property
    def incidences(self) -> np.ndarray:
        """See the class."""
        return self._pairs[1]

    def entries(self, capacity: int) -> tuple[np.ndarray, ...]:
        """(block_starts, source_starts, sources, targets) of the entries of the matrix, block after block.

        Block b has the entries ``block_starts[b]:block_starts[b + 1]``, those with most sources first: neighbouring
        threads then finish together. Entry m is entry ``targets[m]`` of the matrix and the sum over
        ``sources[source_starts[m]:source_starts[m + 1]]``, where source ``t * k + j`` is column j of pair t of
        `incidences`.
        """
        if capacity in self._entries:
            return self._entries[capacity]
        made = self._made
        entry_starts, targets = permuted(made.indptr, self.rows)
        k = made.slots.shape[1]
        slots = made.slots.reshape(-1, k)[self.incidences]
        base = np.repeat(entry_starts[:-1], np.diff(self.starts))
        keys = (base[:, None] + slots).reshape(-1)
        block_starts = entry_starts[self.blocks(capacity)]
        block = np.repeat(np.arange(block_starts.size - 1), np.diff(block_starts))
        counts = np.bincount(keys, minlength=targets.size)
        order = np.lexsort((-counts, block))
        place = np.empty(order.size, dtype=np.int32)
        place[order] = np.arange(order.size, dtype=np.int32)
        count = np.arange(keys.size + 1, dtype=np.int32)
        source_starts, _, sources = transpose_graph(count, place[keys], targets.size)
        self._entries[capacity] = block_starts, source_starts, sources, targets[order]
        return self._entries[capacity]

    def padded(self, points: np.ndarray) -> np.ndarray:
        """Points with a fourth number; those of a space are made once."""
        if self._padded is None:
            self._padded = np.zeros((len(points), 4))
            if points.size:
                self._padded[:, :3] = points
        return self._padded

    def block_nodes(self, nodes: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(corners, starts, chosen): the distinct nodes of each block, those of a space worked out once.

        Block b has the nodes ``chosen[starts[b]:starts[b + 1]]``; ``corners[p]`` are the places of the nodes of the
        element of pair p among them, modulo 65536.
        """
        if capacity not in self._block_nodes:
            blocks, k = self.blocks(capacity), nodes.shape[1]
            seen, place = np.full(nodes.max(initial=0) + 1, -1, np.int32), np.zeros(nodes.max(initial=0) + 1, np.int32)
            starts, chosen = np.zeros(blocks.size, np.int32), np.empty(nodes.size * k, np.int32)
            corners = np.empty((nodes.size, k), np.uint16)
            flat = np.ascontiguousarray(nodes).reshape(-1)
            args = blocks, self.starts, self.incidences, flat, k, seen, place, starts, chosen, corners.reshape(-1)
            n_chosen = _distinct_nodes(*args)
            self._block_nodes[capacity] = corners, starts, chosen[:n_chosen].copy()
        return self._block_nodes[capacity]

    def pair_elements(self, elements: np.ndarray) -> np.ndarray:
        """The number in fields of the element of each pair; those of a space are made once."""
        if self._pair_elements is None:
            self._pair_elements = elements[self.incidences // self._made.slots.shape[1]]
        return self._pair_elements

    def blocks(self, capacity: int) -> np.ndarray:
        """Places at which blocks of consecutive rows begin that have at most `capacity` pairs each; and the end.

        A row of more pairs is a block of its own.
        """
        if capacity not in self._blocks:
            bounds, n_rows = [0], self.rows.size
            while bounds[-1] < n_rows:
                limit = self.starts[bounds[-1]] + capacity
                end = int(np.searchsorted(self.starts, limit, side="right")) - 1
                bounds.append(max(end, bounds[-1] + 1))
            self._blocks[capacity] = np.array(bounds, dtype=np.int32)
        return self._blocks[capacity]


def permuted(first: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The starts of rows in a new order, and the old place of each of their entries; both int32."""
    lengths = np.diff(first)[rows]
    starts = np.zeros(rows.size + 1, dtype=np.int32)
    np.cumsum(lengths, out=starts[1:])
    old = np.arange(starts[-1], dtype=np.int32) + np.repeat(first[:-1][rows] - starts[:-1], lengths).astype(np.int32)
    return starts, old


@compiled_procedure
def _distinct_nodes(blocks, starts, incidences, nodes, k, seen, place, node_starts, chosen, corners):
    """Fill the tables of `Gather.block_nodes`, flat arrays; how many nodes are chosen. `seen` holds -1."""
    count = 0
    for b in range(blocks.size - 1):
        first = count
        for p in range(starts[blocks[b]], starts[blocks[b + 1]]):
            element = incidences[p] // k
            for c in range(k):
                node = nodes[element * k + c]
                if seen[node] != b:
                    seen[node], place[node] = b, count - first
                    chosen[count] = node
                    count += 1
                corners[p * k + c] = place[node]
        node_starts[b + 1] = count
    return count
