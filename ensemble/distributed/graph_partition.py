"""Domains of a graph: METIS by `pymetis` where it is installed, else bisection by breadth-first search."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from ensemble._kernels.sparse.breadth_first import breadth_first_rows
from ensemble.distributed.bisection import bisected_order
from ensemble.distributed.domains import domain_offsets
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.orderings import symmetric_pattern

__all__ = ["breadth_first_order", "graph_order", "metis_order"]

METIS_LIMIT = 2**31 - 1
"""Numbers in METIS' wheel have 32 bits."""


def graph_order(graph: CrsGraph, domains: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows in the order of their domains, and where each domain begins, both int64.

    METIS chooses the sizes of its domains itself; a domain without rows is left out. By breadth-first search they are
    those of `domain_offsets`.
    """
    pattern = symmetric_pattern(graph.row_of_entry, graph.indices, graph.shape[0])
    indptr, indices = pattern.indptr.astype(np.int64), pattern.indices.astype(np.int64)
    if importlib.util.find_spec("pymetis") is not None and indices.size < METIS_LIMIT and domains > 1:
        return metis_order(indptr, indices, domains)
    offsets = domain_offsets(graph.shape[0], domains)
    return breadth_first_order(indptr, indices, offsets), offsets


def breadth_first_order(indptr: np.ndarray, indices: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The rows in the order of domains of given sizes, by recursive bisection.

    A part is searched from a vertex at an end of a long path [1]_; the rows met first come first. Components that are
    not connected follow one another, so that a cut goes through one of them at most.

    Parameters
    ----------
    indptr, indices : array of int64
        A symmetric graph without diagonal entries.
    offsets : array of int64, shape (domains + 1,)

    References
    ----------
    .. [1] George, Liu (1979), ACM Trans. Math. Softw. 5, 284-295.
    """
    n = indptr.size - 1
    part_of, level, queue, found, place = (np.zeros(n, np.int64) for _ in range(5))

    def split(rows: np.ndarray, n_first: int, part: int) -> tuple[np.ndarray, np.ndarray, int, int]:
        breadth_first_rows(indptr, indices, rows, part, part_of, level, queue, found)
        place[found[: rows.size]] = np.arange(rows.size)
        first = place[rows] < n_first
        return rows[first], rows[~first], 2 * part, 2 * part + 1

    return bisected_order(offsets, split, 1)


def metis_order(indptr: np.ndarray, indices: np.ndarray, domains: int) -> tuple[np.ndarray, np.ndarray]:
    """The same by METIS, and the offsets that follow. Domains that follow one another touch where they can."""
    import pymetis

    adjacency = getattr(pymetis, "CSRAdjacency", None)  # since 2025.2; the names of the arrays go in 2027
    graph = {"adjacency": adjacency(indptr, indices)} if adjacency else {"xadj": indptr, "adjncy": indices}
    domain_of = np.asarray(pymetis.part_graph(domains, **graph)[1], np.int64)
    _, domain_of = np.unique(domain_of, return_inverse=True)
    place = _walk(_domain_graph(indptr, indices, domain_of))
    domain_of = place[domain_of]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(domain_of))]).astype(np.int64)
    return np.argsort(domain_of, kind="stable").astype(np.int64), offsets


def _domain_graph(indptr: np.ndarray, indices: np.ndarray, domain_of: np.ndarray) -> Any:
    """Entry (p, q): how many entries of the graph join domains p and q; the diagonal is empty."""
    import scipy.sparse as sp

    p, q = np.repeat(domain_of, np.diff(indptr)), domain_of[indices]
    off, count = p != q, int(domain_of.max(initial=-1)) + 1
    ones = np.ones(int(off.sum()), np.int64)
    return sp.csr_array((ones, (p[off], q[off])), shape=(count, count))


def _walk(graph: Any) -> np.ndarray:
    """The place of each domain in a walk: next comes a neighbour of the last one, that with most entries to the walk.

    Where all neighbours of the last domain are in the walk already, the next one is a neighbour of the latest domain
    that has others, and the first domain of the graph where none has.
    """
    count = graph.shape[0]
    place, bound = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    walk: list[int] = []
    for step in range(count):
        following = -1
        while walk and following < 0:
            near = graph.indices[graph.indptr[walk[-1]] : graph.indptr[walk[-1] + 1]]
            near = np.sort(near[place[near] < 0])
            if near.size:
                following = int(near[np.argmax(bound[near])])
            else:
                walk.pop()
        if following < 0:
            following = int(np.flatnonzero(place < 0)[0])
        place[following] = step
        walk.append(following)
        row = slice(graph.indptr[following], graph.indptr[following + 1])
        bound[graph.indices[row]] += graph.data[row]
    return place
