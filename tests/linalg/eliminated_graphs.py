"""Graphs and values for tests of eliminations."""

import numpy as np
import scipy.sparse as sp

from ensemble.linalg import CrsGraph
from ensemble.linalg.factorizations.orderings import elimination_of


def matrices(base, n_samples, dtype=float, seed=70913):
    """Graph and values around `base`; the last sample holds a NaN, the one before has a pivot of zero."""
    base = sp.csr_array(base)
    base.sort_indices()
    graph = CrsGraph(base.indptr, base.indices, base.shape)
    values = base.data[:, None] * np.exp(0.2 * np.random.default_rng(seed).standard_normal((base.nnz, n_samples)))
    if n_samples > 2:
        values[graph.diagonal_entries[graph.shape[0] // 2], -1] = np.nan
        values[(graph.row_of_entry == 3) | (graph.indices == 3), -2] = 0.0
    return graph, values.astype(dtype)


def network(n=60, seed=40289):
    """A tree with loops, its values unsymmetric."""
    rng = np.random.default_rng(seed)
    first = np.arange(1, n)
    other = np.maximum(0, first - rng.integers(1, 9, n - 1))
    rows, columns = np.append(first, rng.integers(0, n, n // 3)), np.append(other, rng.integers(0, n, n // 3))
    half = sp.csr_array((rng.random(rows.size), (rows, columns)), shape=(n, n))
    return sp.csr_array(half + 0.5 * half.T + 9.0 * sp.eye_array(n))


def banded(n, half):
    rng = np.random.default_rng(n)
    offsets = range(-half, half + 1)
    return sp.csr_array(sp.diags_array([rng.random(n - abs(k)) + 9.0 * (k == 0) for k in offsets], offsets=offsets))


def elimination(graph, symmetric, order):
    return elimination_of(graph, symmetric, np.arange(graph.shape[0]), "amd" if order is None else order)
