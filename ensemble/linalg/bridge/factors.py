"""Factorisations of matrices of PyTorch, JAX and other libraries: NumPy's factors, with derivatives of products."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, is_traced
from ensemble.linalg.bridge.host import (
    array_in,
    dtype_of,
    host_matrix,
    is_elsewhere,
    one_library,
    refuse,
    require_no_gradient,
)
from ensemble.linalg.bridge.rules import rules_of
from ensemble.linalg.bridge.system import HostSystem
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.operators import is_shared, samples_of, set_of, wrap_like
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import common_set

__all__ = ["given_back", "logdet", "product", "source_and_host"]


def source_and_host(A: CrsMatrix, name: str) -> tuple[CrsMatrix | None, CrsMatrix]:
    """The matrix `A` of another library, None where it is of NumPy or CuPy, and the matrix to factorise.

    The second is `A` itself where its numbers are not known yet: factors are then made when the function runs.
    """
    if not is_elsewhere(A):
        return None, A
    return A, A if is_traced(A.values) else host_matrix(A, name)


def _on_host(F: Any, values: np.ndarray) -> Any:
    """The factorisation with NumPy's factors: `F`, or that of `values` where those of `F` are not known."""
    return F.update(CrsMatrix(F.graph, values)) if F.is_deferred else F


def _used_values(F: Any) -> Any:
    """The source's values as the factorisation reads them: of a symmetric one, those on and above the diagonal."""
    values = F.source.values
    xp = array_namespace(values)
    values = xp.astype(values, getattr(xp, dtype_of(F.name, values).name), copy=False)
    return xp.take(values, asarray_like(_mirror(F.graph), values), axis=0) if F.plan.symmetric else values


def _mirror(graph: CrsGraph) -> np.ndarray:
    """For each entry the place of the one on or above the diagonal that it equals."""
    rows, columns = graph.row_of_entry.astype(np.int64), graph.indices.astype(np.int64)
    upper = np.minimum(rows, columns) * graph.shape[1] + np.maximum(rows, columns)
    return np.searchsorted(graph.keys, upper)


def product(F: Any, x: Any, transposed: bool) -> Any:
    """``F @ x``, or ``F.T @ x``, of arrays of another library, with the derivatives of both."""
    name = f"{F.name}{'.T' * transposed} @"
    if F.source is None:
        one_library(name, x=x, A=F)
    one_library(name, x=x, A=F.source)
    given = samples_of(x)
    columns = tuple(given.shape[1:-1])
    n_samples = max(F.n_samples, given.shape[-1])
    has_rule = hasattr(F, "logdet")
    if not has_rule:
        require_no_gradient(name, "A", F.source)
        if is_traced(given):
            raise refuse(name, "x", given, "hold numbers that are known")
    values = _used_values(F) if has_rule else None

    def solve(own: Any, r: np.ndarray, adjoint: bool = False) -> tuple[np.ndarray, np.ndarray]:
        G = F if own is None else _on_host(F, own)
        wide = np.ascontiguousarray(np.broadcast_to(r, (r.shape[0], n_samples)) if G.n_samples > 1 else r)
        return G._solve(wide[:, None, :], transposed != adjoint)[:, 0, :], np.ones(wide.shape[-1], bool)

    def primal(own: Any, r: np.ndarray, _: Any) -> Any:
        y, good = solve(own, r)
        none = np.zeros(good.size)
        return SimpleNamespace(
            x=Ensemble(y), converged=good, iterations=none.astype(np.int64), true_residual_norms=none, target=none
        )

    graph = F.graph if has_rule else None
    if transposed and graph is not None:
        graph, values = _transposed(graph, values)
    system = HostSystem(name, graph, (F.shape[0], n_samples), primal, solve, lambda own, r: solve(own, r, True))
    xp = array_namespace(given)
    flat = xp.reshape(given, (given.shape[0], -1, given.shape[-1]))
    made = [_column(F, system, values, flat[:, j, :]) for j in range(flat.shape[1])]
    y = xp.reshape(xp.stack(made, axis=1), (F.shape[0], *columns, n_samples))
    return wrap_like(x, y, is_shared(F), common_set(set_of(x), F.sample_set))


def _column(F: Any, system: HostSystem, values: Any, b: Any) -> Any:
    xp = array_namespace(b)
    b = xp.astype(b, getattr(xp, dtype_of(F.name, b).name), copy=False)
    if values is not None and values.dtype != b.dtype:
        values = xp.astype(values, b.dtype)
    return rules_of(values, b).outcome(system, values, b, None)[0]


def _transposed(graph: CrsGraph, values: Any) -> tuple[Any, Any]:
    """What has the rows and columns of the transpose in the order of the values."""
    return SimpleNamespace(row_of_entry=graph.indices, indices=graph.row_of_entry), values


def logdet(F: Any) -> Ensemble:
    """``F.logdet()`` of a matrix of another library; its gradient is the transposed inverse on the graph."""

    def compute(values: np.ndarray) -> np.ndarray:
        return np.asarray(_on_host(F, values).logdet_on_host().samples, values.dtype)

    def differentiate(values: np.ndarray) -> np.ndarray:
        return np.asarray(_on_host(F, values).entries_on_host().values, values.dtype)

    values = _used_values(F)
    return Ensemble(rules_of(values).logdet(compute, differentiate, values), F.sample_set)


def given_back(F: Any, function: str, found: Ensemble) -> Ensemble:
    """A result without a rule of derivatives in the library that the matrix came from."""
    if F.source is None:
        return found
    require_no_gradient(function, "A", F.source)
    return Ensemble(asarray_like(found.samples, array_in(F.source)), found.sample_set)
