"""Which unknowns form a coarse unknown: decided by the graph alone, so that all samples share it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.multigrid.aggregation import aggregate, coupled_rows
from ensemble._kernels.sparse.product_graphs import product_graph, transpose_graph
from ensemble.linalg import CrsGraph
from ensemble.multigrid.hierarchy import entry_by_entry


def aggregates_of(A: Any, block_size: int = 1, strong: Any = None) -> tuple[np.ndarray, int]:
    """The aggregate of each row, -1 for boundary rows, and how many aggregates there are.

    Neighbours are the stored entries, whatever their values. A boundary row is one whose off-diagonal entries are zero
    in every sample (an eliminated Dirichlet row with its explicit zeros, say): it stays out of the hierarchy. This is
    the one thing that couples samples: a row that is decoupled in some samples only is in the hierarchy of all. With
    ``block_size > 1``, `block_size` consecutive rows are one node of the graph.

    With a `StrongGraph`, neighbours are strong couplings alone. A node without any joins the aggregate of the neighbour
    on which it depends most; without such a neighbour it stays out, and the smoother alone solves for it.
    """
    entries = entry_by_entry(A)
    coupled = coupled_rows(entries.graph_arrays, entries.values)
    included = coupled.reshape(-1, block_size).any(axis=1)
    if strong is None:
        by_node = block_size == 1 or entries is not A
        graph = (A.graph.indptr, A.graph.indices) if by_node else node_graph(A.graph, block_size)
        member, count = aggregate(graph[0][:-1], graph[0][1:], graph[1], included)
    else:
        begins, ends = strong.nodes[0][:-1], strong.nodes[0][1:]
        member, count = aggregate(begins, ends, strong.nodes[1], included & (ends > begins))
        if strong.nearest is not None:
            isolated = np.flatnonzero((strong.nearest >= 0) & included)
            member[isolated] = member[strong.nearest[isolated]]
    if block_size == 1:
        return member, count
    return np.where(coupled, np.repeat(member, block_size), np.int32(-1)), count


def node_graph(graph: CrsGraph, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """The graph of nodes of `block_size` rows: two nodes are neighbours where any of their rows are."""
    n_nodes = graph.shape[0] // block_size
    rows = np.arange(graph.shape[0], dtype=np.int32)
    gather = (np.arange(n_nodes + 1, dtype=np.int32) * block_size, rows)  # node -> its rows
    to_node = (np.arange(graph.shape[0] + 1, dtype=np.int32), rows // block_size)  # row -> its node
    by_node = product_graph(*gather, graph.indptr, graph.indices, graph.shape[1])
    return product_graph(*by_node, *to_node, n_nodes)


def compile_graph_functions() -> None:
    """Compile, or load, what each set-up calls on the host, for a thread beside other compilations."""
    graph = np.array([0, 1], np.int32), np.zeros(1, np.int32)
    aggregate(graph[0][:-1], graph[0][1:], graph[1], np.ones(1, bool))
    product_graph(*graph, *graph, 1)
    transpose_graph(*graph, 1)
