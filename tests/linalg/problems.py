"""Matrices of the tests of linear algebra."""

import scipy.sparse as sp

from ensemble.linalg import CrsGraph, CrsMatrix


def random_matrix(rng, n, m, n_samples, density=0.3):
    """Normal values on one random graph."""
    pattern = sp.random_array((n, m), density=density, rng=rng, format="csr")
    pattern.sort_indices()
    graph = CrsGraph(pattern.indptr, pattern.indices, (n, m))
    return CrsMatrix(graph, rng.standard_normal((graph.nnz, n_samples)))
