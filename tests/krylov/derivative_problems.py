"""A small family of matrices that depends on parameters, and its derivatives in closed form, for every library."""

import numpy as np

from ensemble.gallery import poisson
from ensemble.krylov import bicgstab, cg, direct, gmres, minres
from ensemble.linalg import CrsMatrix
from ensemble.scalar import Ensemble

N = 6
BASE = poisson((N,))
GRAPH = BASE.graph
RNG = np.random.default_rng(40093)
SYMMETRIC = np.zeros((GRAPH.nnz, 2))
SYMMETRIC[:, 0] = BASE.values[:, 0]
SYMMETRIC[GRAPH.diagonal_entries, 1] = 1.0
GENERAL = SYMMETRIC + np.column_stack([np.zeros(GRAPH.nnz), RNG.normal(size=GRAPH.nnz)]) * 0.05
SOLVERS = {"cg": cg, "minres": minres, "gmres": gmres, "bicgstab": bicgstab, "direct": direct}
MODES = {"cg": SYMMETRIC, "minres": SYMMETRIC, "gmres": GENERAL, "bicgstab": GENERAL, "direct": GENERAL}
"""Entries of a matrix for each of two parameters."""

SAMPLES = [(1, 1), (3, 1), (1, 2), (2, 2)]
"""Samples of A and of b."""


def parameters(n_samples):
    """Parameters, shape (2, n_samples), and right-hand sides, shape (n, n_samples)."""
    return RNG.uniform(1.0, 2.0, size=(2, n_samples))


def matrix(values, sample_set=None):
    """The matrix of these entries, shape (nnz, n_samples)."""
    return CrsMatrix(GRAPH, Ensemble(values, sample_set))


def dense(modes, k, s):
    """Sample s as NumPy's dense matrix, and its derivatives by the parameters."""
    made = np.zeros((3, N, N))
    made[:, GRAPH.row_of_entry, GRAPH.indices] = np.stack([modes @ k[:, s % k.shape[1]], *modes.T])
    return made[0], made[1:]


def gradients(modes, k, b):
    """Of the sum of all entries of the solution: by k and by b, from dense solves."""
    by_k, by_b = np.zeros_like(k), np.zeros_like(b)
    for s in range(max(k.shape[1], b.shape[1])):
        A, parts = dense(modes, k, s)
        x, y = np.linalg.solve(A, b[:, s % b.shape[1]]), np.linalg.solve(A.T, np.ones(N))
        by_k[:, s % k.shape[1]] -= [y @ (part @ x) for part in parts]
        by_b[:, s % b.shape[1]] += y
    return by_k, by_b
