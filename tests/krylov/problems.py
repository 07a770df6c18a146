"""Nonsymmetric problems, and how the answers of two runs compare, for the tests of all solvers."""

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble.krylov import bicgstab, cg, gmres
from ensemble.linalg import CrsMatrix, Diagonal
from ensemble.scalar import Ensemble

SOLVERS = {
    "bicgstab": bicgstab,
    "gmres": gmres,
    "gmres_short": lambda *args, **options: gmres(*args, restart=6, **options),
    "gmres_flexible": lambda *args, **options: gmres(*args, restart=9, flexible=True, **options),
}
METHODS = {
    "bicgstab": (bicgstab, {}),
    "gmres": (gmres, {"restart": 14}),
    "gmres_short": (gmres, {"restart": 5}),
    "gmres_flexible": (gmres, {"restart": 9, "flexible": True}),
}
EVERY_METHOD = {"cg": (cg, {}), "cg_flexible": (cg, {"flexible": True}), **METHODS}
"""Methods that stay on a device, and their options."""

COUPLINGS = ["independent", "ensemble"]

each_solver = pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)


def nonsymmetric(n, n_samples, seed, spread=3.0, density=0.15):
    """Random graphs with values of each sample's own; the diagonal dominates more from sample to sample."""
    rng = np.random.default_rng(seed)
    pattern = sp.random_array((n, n), density=density, rng=rng).tocsr()
    matrices = []
    for s in range(n_samples):
        off = sp.csr_array((rng.uniform(-1.0, 1.0, pattern.nnz), pattern.indices, pattern.indptr), shape=(n, n))
        rows = np.asarray(abs(off).sum(axis=1)).reshape(-1)
        matrices.append(off + sp.diags_array((0.6 + spread * s / n_samples) * rows + 0.1))
    return CrsMatrix.from_scipy(matrices if n_samples > 1 else matrices[0])


def convection(n, peclet, n_samples=1):
    """Central differences of -u'' + c u' on a line; sample s has (s + 1) times the flow."""
    off = [peclet * (s + 1) / 2 for s in range(n_samples)]
    return CrsMatrix.from_scipy(
        [sp.diags_array([-1.0 - c, 2.0, -1.0 + c], offsets=[-1, 0, 1], shape=(n, n)).tocsr() for c in off]
    )


def jacobi_of(A):
    diagonal = A.diagonal().samples
    return Diagonal(Ensemble(np.where(np.abs(diagonal) > 1e-3, 1.0 / np.where(diagonal == 0.0, 1.0, diagonal), 1.0)))


def equal(one, other, i, j=0):
    """As `same`, for samples that may hold NaN."""
    n = one.iterations[i] + 1
    x = np.reshape(getattr(other.x, "samples", other.x), (one.x.shape[0], -1))[:, j]
    return (
        np.array_equal(one.x.samples[:, i], x, equal_nan=True)
        and one.iterations[i] == other.iterations[j]
        and one.status[i] == other.status[j]
        and np.array_equal(one.residual_norms[:n, i], other.residual_norms[:n, j], equal_nan=True)
    )


def jacobi(A):
    return Diagonal(1.0 / A.diagonal())


def true_residuals(A, x, b):
    return np.linalg.norm(b - (A @ Ensemble(x)).samples, axis=0)


def same(one, other, i, j=0):
    """Solution, iterations, status and history of sample i of one run are those of sample j of another, to the bit."""
    n = one.iterations[i] + 1
    return (
        np.array_equal(
            one.x.samples[:, i], np.reshape(getattr(other.x, "samples", other.x), (one.x.shape[0], -1))[:, j]
        )
        and one.iterations[i] == other.iterations[j]
        and one.status[i] == other.status[j]
        and np.array_equal(one.residual_norms[:n, i], other.residual_norms[:n, j])
    )


def bad_samples():
    """Zero rhs, singular, NaN in the matrix, skew-symmetric, tiny rhs, infinity in the rhs, good, good."""
    rng = np.random.default_rng(90127)
    A = nonsymmetric(40, 8, seed=90128, spread=1.0)
    b = rng.standard_normal((40, 8))
    rows, columns = A.graph.row_of_entry, A.graph.indices
    b[:, 0] = 0.0
    A.values[rows == 39, 1] = 0.0  # the last equation says 0 = b
    A.values[3, 2] = np.nan
    position = {(i, j): k for k, (i, j) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True))}
    A.values[:, 3] = [
        (1.0 if i < j else -1.0) * A.values[min(k, position[j, i]), 3] if i != j and (j, i) in position else 0.0
        for (i, j), k in position.items()
    ]
    b[:, 4] *= 1e-12
    b[7, 5] = np.inf
    return A, b
