"""The smoothed prolongator: one damped Jacobi step on the tentative one, with each sample's own damping."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.galerkin import product_graph, smooth_prolongator
from ensemble.linalg import CrsGraph, CrsMatrix


def prolongator_graph(A: CrsGraph, T: CrsGraph) -> CrsGraph:
    """The graph of A T, without the rows in which T has no entry (boundary rows)."""
    indptr, indices = product_graph(A.indptr, A.indices, T.indptr, T.indices, T.shape[1])
    inside = np.diff(T.indptr) > 0
    length = np.diff(indptr)
    kept = np.zeros_like(indptr)
    np.cumsum(np.where(inside, length, 0), out=kept[1:])
    return CrsGraph(kept, indices[np.repeat(inside, length)], T.shape)


def smoothed_prolongator(
    A: CrsMatrix, T: CrsMatrix, graph: CrsGraph, dinv: Any, omega: Any, out: Any = None
) -> CrsMatrix:
    """``P = T - omega D^-1 A T`` with one `omega` a sample (4/3 over its own largest eigenvalue)."""
    values = smooth_prolongator(
        (A.graph.indptr, A.graph.indices), A.values, dinv, omega, (T.graph.indptr, T.graph.indices),
        T.values.astype(A.dtype, copy=False), (graph.indptr, graph.indices), out,
    )  # fmt: skip
    return CrsMatrix(graph, values)
