"""The smoothed prolongator: one damped Jacobi step on the tentative one, with each sample's own damping."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import asarray_like
from ensemble._kernels.multigrid.galerkin import prolongator_tasks, smooth_prolongator
from ensemble._kernels.sparse.graph_rows import kept_rows
from ensemble._kernels.sparse.product_graphs import product_graph
from ensemble._typing import Array
from ensemble.linalg import CrsGraph, CrsMatrix


def prolongator_graph(A: CrsGraph, T: CrsGraph) -> CrsGraph:
    """The graph of A T, without the rows in which T has no entry (boundary rows)."""
    indptr, indices = product_graph(A.indptr, A.indices, T.indptr, T.indices, T.shape[1])
    return CrsGraph.unchecked(*kept_rows(indptr, indices, np.diff(T.indptr) > 0), T.shape)


def smoothed_prolongator(
    A: Any, T: CrsMatrix, graph: CrsGraph, dinv: Array, omega: Array, tasks: Any = None, out: Array = None
) -> CrsMatrix:
    """``P = T - omega D^-1 A T`` with one `omega` per sample (4/3 over its own largest eigenvalue).

    `tasks` is what `smoothing_tasks` found, or None.
    """
    t, p = (g.arrays_on(A.values) for g in (T.graph, graph))
    tentative = asarray_like(T.values.astype(A.dtype, copy=False), A.values)
    return CrsMatrix(graph, smooth_prolongator(A.graph_arrays, A.values, dinv, omega, t, tentative, p, tasks, out))


def smoothing_tasks(A: Any, T: CrsMatrix, graph: CrsGraph) -> Any:
    """The symbolic part of `smoothed_prolongator`, on the device of the values."""
    return prolongator_tasks(A.values, *(g.arrays_on(A.values) for g in (A.graph, T.graph, graph)))
