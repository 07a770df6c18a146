"""Complex matrices and vectors that tests of factorisations share."""

import numpy as np

from ensemble import gallery
from ensemble.linalg import CrsMatrix, Diagonal
from ensemble.scalar import Ensemble

N = 144


def numbers(rng, *shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def columns(x):
    """The samples of a vector, in the last axis; one where it is no Ensemble."""
    return x.samples if isinstance(x, Ensemble) else x[..., None]


def helmholtz(n_samples, dtype=np.complex128):
    """Damped waves on a square, complex symmetric."""
    laplacian = gallery.poisson((12, 12))
    values = laplacian.values * np.linspace(1.0, 1.3, n_samples)
    A = CrsMatrix(laplacian.graph, values) + Diagonal(np.full(N, -0.2 + 0.1j))
    return A.astype(dtype)


def convection(rng, n_samples):
    """Neither symmetric nor Hermitian."""
    A = helmholtz(n_samples)
    return CrsMatrix(A.graph, A.values * (1.0 + 0.2 * numbers(rng, A.nnz, 1)))
