"""Domains of a graph: METIS by `pymetis` where it is installed, else bisection by breadth-first search."""

from __future__ import annotations

import importlib.util

import numpy as np

from ensemble._kernels.sparse.breadth_first import breadth_first_rows
from ensemble.distributed.bisection import bisected_order
from ensemble.distributed.domains import domain_offsets
from ensemble.distributed.offsets import offsets_of
from ensemble.linalg.factorizations.orderings import symmetric_pattern
from ensemble.linalg.graph import CrsGraph

__all__ = ["breadth_first_order", "graph_order", "metis_order"]

METIS_LIMIT = 2**31 - 1
"""Numbers in METIS' wheel have 32 bits."""


def graph_order(graph: CrsGraph, domains: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows in the order of their domains, and where each domain begins, both int64.

    METIS chooses the sizes of its domains itself. Where it leaves domains without rows, as it does for few rows in
    each, and where it is not installed, the cut is by breadth-first search with the sizes of `domain_offsets`.
    """
    pattern = symmetric_pattern(graph.row_of_entry, graph.indices, graph.shape[0])
    indptr, indices = pattern.indptr.astype(np.int64), pattern.indices.astype(np.int64)
    if importlib.util.find_spec("pymetis") is not None and indices.size < METIS_LIMIT and domains > 1:
        order, offsets = metis_order(indptr, indices, domains)
        if np.all(np.diff(offsets) > 0):
            return order, offsets
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

    def split(rows: np.ndarray, n_first: int, equal: int, part: int) -> tuple[np.ndarray, np.ndarray, int, int]:
        breadth_first_rows(indptr, indices, rows, part, part_of, level, queue, found)
        place[found[: rows.size]] = np.arange(rows.size)
        first = place[rows] < n_first
        return rows[first], rows[~first], 2 * part, 2 * part + 1

    return bisected_order(offsets, split, 1)[0]


def metis_order(indptr: np.ndarray, indices: np.ndarray, domains: int) -> tuple[np.ndarray, np.ndarray]:
    """The same by METIS, and the offsets that follow.

    The numbers of METIS are kept: they come from recursive bisection, so that ranges of them are compact. A walk from
    domain to neighbouring domain has more of them touch the next one (60 of 63 on a box, 51 by METIS), yet the halo of
    2 to 16 ranks was 9 to 25 % larger.
    """
    import pymetis

    adjacency = getattr(pymetis, "CSRAdjacency", None)  # since 2025.2; the names of the arrays go in 2027
    graph = {"adjacency": adjacency(indptr, indices)} if adjacency else {"xadj": indptr, "adjncy": indices}
    domain_of = np.asarray(pymetis.part_graph(domains, **graph)[1], np.int64)
    offsets = offsets_of(np.bincount(domain_of, minlength=domains))
    return np.argsort(domain_of, kind="stable").astype(np.int64), offsets
