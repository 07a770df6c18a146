"""Complex problems that tests of hierarchies share."""

import numpy as np

from ensemble import gallery
from ensemble.linalg import CrsMatrix, Diagonal
from ensemble.multigrid import GaussSeidel, Jacobi
from ensemble.scalar import Ensemble

TRANSPORT_CELLS = 20
N_OF_TRANSPORT = TRANSPORT_CELLS * TRANSPORT_CELLS
CELLS = 16
N = CELLS * CELLS


def numbers(rng, *shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def columns(x):
    """The samples of a vector, in the last axis; one where it is no Ensemble."""
    return x.samples if isinstance(x, Ensemble) else x[..., None]


def laplacian(n_samples):
    L = gallery.poisson((CELLS, CELLS))
    return CrsMatrix(L.graph, L.values * np.linspace(1.0, 1.3, n_samples))


def hermitian(n_samples, flux=0.02):
    """A charge in a magnetic field: hopping with phases, positive definite (Peierls' substitution)."""
    L = laplacian(n_samples)
    rows, to = L.graph.row_of_entry.astype(int), L.graph.indices.astype(int)
    phase = flux * (to // CELLS - rows // CELLS) * (rows % CELLS) * 1j
    return CrsMatrix(L.graph, L.values * np.exp(phase)[:, None])


def shifted(n_samples, shift=-0.05 + 0.05j):
    """A Laplacian of damped waves, complex symmetric."""
    return laplacian(n_samples) + Diagonal(np.full(N, shift))


def schroedinger(n_samples):
    """A step of Crank and Nicolson: I + i L."""
    L = laplacian(n_samples)
    return CrsMatrix(L.graph, 1j * L.values) + Diagonal(np.ones(N, complex))


PROBLEMS = {"hermitian": hermitian, "shifted": shifted, "schroedinger": schroedinger}
SMOOTHERS = {"Chebyshev": {}, "Jacobi": {"smoother": Jacobi()}, "Gauss-Seidel": {"smoother": GaussSeidel()}}


def convection(n_samples):
    velocity = np.array([[1.0], [0.3]]) * np.ones(n_samples)
    return gallery.convection_diffusion(
        (TRANSPORT_CELLS, TRANSPORT_CELLS), velocity, diffusion=np.full(n_samples, 1e-3)
    )


def harmonic(n_samples):
    """Transport that oscillates: a frequency per sample on the diagonal."""
    A = convection(n_samples)
    size = np.abs(A.diagonal().samples).max()
    return A + Diagonal(Ensemble(1j * size * np.linspace(0.01, 0.05, n_samples) * np.ones((N_OF_TRANSPORT, 1))))
