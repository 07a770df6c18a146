"""Random matrices of blocks that several test modules share."""

import scipy.sparse as sp

from ensemble.linalg import BcrsMatrix, CrsGraph


def random_blocks(rng, n, m, block_shape, n_samples, density=0.3):
    """Normal numbers on a random graph of `n` by `m` blocks; of one sample, shared."""
    pattern = sp.random_array((n, m), density=density, rng=rng, format="csr")
    pattern.sort_indices()
    graph = CrsGraph(pattern.indptr, pattern.indices, (n, m))
    matrix = BcrsMatrix(graph, rng.standard_normal((graph.nnz, *block_shape, n_samples)))
    return matrix.sample(0) if n_samples == 1 else matrix
