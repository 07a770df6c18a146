"""Matrices whose factorisations need exchanges, and samples around them."""

import numpy as np
import scipy.sparse as sp

from ensemble.linalg import CrsGraph, CrsMatrix


def shuffled(n, rng, small=0.3):
    """A matrix with a dominant entry in each row, on no diagonal; the graph's choice of pivots finds few of them."""
    base = sp.random_array((n, n), density=4.0 / n, rng=rng, data_sampler=rng.standard_normal)
    size = np.where(rng.random(n) < small, 1e-12, 1.0)
    base = sp.csr_array(sp.diags_array(size) @ base + sp.diags_array(3.0 + rng.random(n)))[rng.permutation(n)]
    base.sort_indices()
    return base


def saddle(n, rng):
    """Symmetric, with a block of zeros that are not stored: some constraints have a diagonal that is none."""
    m = n // 3
    H = sp.diags_array(np.geomspace(1e-3, 1e3, n - m)) + sp.random_array((n - m, n - m), density=2.0 / n, rng=rng)
    C = sp.random_array((m, n - m), density=4.0 / n, rng=rng) + sp.eye_array(m, n - m)
    found = sp.csr_array(sp.block_array([[H + H.T, C.T], [C, None]]))
    found.sort_indices()
    return found


def with_zeros(n, rng):
    """Stored zeros where the diagonal is, and none stored in a few rows."""
    found = sp.csr_array(shuffled(n, rng) + sp.diags_array(np.r_[np.zeros(5), np.full(n - 5, 7.0)]))
    diagonal = np.repeat(np.arange(n), np.diff(found.indptr)) == found.indices
    found.data[diagonal & (rng.random(found.nnz) < 0.5)] = 0.0
    return found


KINDS = {"shuffled": shuffled, "saddle": saddle, "zeros": with_zeros}


def family_of(base, family, n_samples, rng):
    """Entries times lognormal numbers, or rows and columns."""
    graph = CrsGraph(base.indptr, base.indices, base.shape)
    if family == "values":
        return CrsMatrix(graph, base.data[:, None] * np.exp(0.05 * rng.standard_normal((graph.nnz, n_samples))))
    rows, columns = np.exp(2.0 * rng.standard_normal((2, base.shape[0], n_samples)))
    return CrsMatrix(graph, base.data[:, None] * rows[graph.row_of_entry] * columns[graph.indices])


def fresh(A, s):
    """Sample `s` on a graph that has met no other."""
    graph = A.graph
    return CrsMatrix(CrsGraph(graph.indptr.copy(), graph.indices.copy(), graph.shape), A.values[:, s].copy())


def largest_backward_error(A, x, b):
    worst = 0.0
    for s in range(A.n_samples):
        matrix = A.to_scipy(s)
        r = np.abs(b[:, s] - matrix @ x[:, s])
        worst = max(worst, (r / (abs(matrix).sum(axis=1) * np.abs(x[:, s]).max() + np.abs(b[:, s]))).max())
    return worst
