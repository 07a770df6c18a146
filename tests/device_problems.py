"""Problems that tests of the device kernels share."""

import numpy as np

from ensemble import Ensemble
from ensemble.gallery import convection_diffusion, poisson
from ensemble.krylov import cg, gmres
from ensemble.linalg import BcrsMatrix, CrsMatrix
from ensemble.multigrid import approximate_ideal_restriction, smoothed_aggregation


def affine_arrays(n_rows, n_terms, n_samples, seed=60317):
    """Rows of 0 to 30 entries, one much longer, a stretch of empty ones; NaN in x, infinity in a coefficient."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 31, n_rows)
    lengths[n_rows // 3 : n_rows // 2], lengths[3] = 0, 70
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = rng.integers(0, 50, indptr[-1]).astype(np.int32)
    terms, x = rng.standard_normal((indptr[-1], n_terms)), rng.standard_normal((50, n_samples))
    coefficients = rng.standard_normal((n_terms - 1, n_samples))
    x[7, 1], coefficients[0, 2] = np.nan, np.inf
    return indptr, indices, terms, coefficients, x


def problem(n_samples, seed=41503):
    """Random symmetric positive definite matrices on the graph of a small Poisson problem."""
    rng = np.random.default_rng(seed)
    A = poisson((9, 8, 7))
    scale = np.exp(0.3 * rng.standard_normal((A.shape[0], n_samples)))
    rows, columns = A.graph.row_of_entry, A.graph.indices
    A = CrsMatrix(A.graph, A.values * scale[rows] * scale[columns])
    return A, Ensemble(rng.standard_normal((A.shape[0], n_samples)))


def block_problem(n_samples, seed=20963):
    """Random symmetric positive definite blocks on the graph of a small Poisson problem."""
    rng = np.random.default_rng(seed)
    A = poisson((6, 6, 5))
    K = rng.standard_normal((3, 3, n_samples))
    K = np.einsum("abs,cbs->acs", K, K) + 3.0 * np.eye(3)[..., None]
    A = BcrsMatrix(A.graph, A.values[:, None, None, :] * K)
    return A, Ensemble(rng.standard_normal((A.shape[0], n_samples)))


def solved(A, b, **options):
    return cg(A, b, M=smoothed_aggregation(A, coarse_size=60), rtol=1e-9, **options)


def convection(n_samples, n=15):
    """Convection in another direction in each sample, and right-hand sides."""
    A = convection_diffusion((n, n), np.linspace([0.2, 0.9], [0.9, 0.2], n_samples, axis=1), 1e-3)
    return A, Ensemble(np.random.default_rng(64007).standard_normal((n * n, n_samples)))


def solved_by_reduction(A, b):
    M = approximate_ideal_restriction(A, coarse_size=20)
    return gmres(A, b, M=M.update(A), rtol=1e-9)
