"""Matrices to try things on: each with any number of samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ensemble._check import integer, kind_of, message, random_generator, real_array, require
from ensemble._keywords import explains_calls
from ensemble.linalg import CrsMatrix

__all__ = ["anisotropic", "convection_diffusion", "poisson", "random_spd"]


def _stencil(shape: tuple[int, ...], weights: Any) -> Any:
    """Sum over axes of ``weights[axis]`` times the second difference, Dirichlet ends."""
    total = None
    for axis, n in enumerate(shape):
        ones = np.ones(n)
        second = sp.diags_array([-ones[1:], 2 * ones, -ones[1:]], offsets=[-1, 0, 1])
        before, after = int(np.prod(shape[:axis])), int(np.prod(shape[axis + 1 :]))
        term = weights[axis] * sp.kron(sp.kron(sp.eye_array(before), second), sp.eye_array(after))
        total = term if total is None else total + term
    return sp.csr_array(total)


def _shape(shape: Any, function: str) -> tuple[int, ...]:
    if not isinstance(shape, tuple | list):
        raise TypeError(message(function, "shape", "be a tuple of integers", kind_of(shape)))
    lengths: tuple[int, ...] = tuple(integer(n, function, "shape", minimum=1) for n in shape)
    require(len(lengths) > 0, function, "shape", "name one axis or more", "()")
    return lengths


@explains_calls("poisson")
def poisson(shape: tuple[int, ...], n_samples: int = 1, *, seed: int = 20731) -> CrsMatrix:
    """Return the second-difference matrix on a grid of `shape`; sample s is it times a factor between 1/2 and 2.

    Parameters
    ----------
    shape : tuple of int
        Grid points along each axis; unknowns are numbered with the last axis fastest.
    n_samples : int
        1: the plain matrix, shared by all samples.
    seed : int
        Seed of the factors.

    Examples
    --------
    >>> poisson((4,)).to_scipy().toarray()
    array([[ 2., -1.,  0.,  0.],
           [-1.,  2., -1.,  0.],
           [ 0., -1.,  2., -1.],
           [ 0.,  0., -1.,  2.]])
    """
    shape = _shape(shape, "poisson")
    integer(n_samples, "poisson", "n_samples", minimum=1)
    A = _stencil(shape, np.ones(len(shape)))
    if n_samples == 1:
        return CrsMatrix.from_scipy(A)
    factors = 2.0 ** random_generator(seed, "poisson").uniform(-1.0, 1.0, n_samples)
    return CrsMatrix.from_scipy([factor * A for factor in factors])


@explains_calls("anisotropic")
def anisotropic(
    shape: tuple[int, ...], n_samples: int = 1, *, strength: float = 10.0, seed: int = 20731, weights: Any = None
) -> CrsMatrix:
    """Return second differences with a weight of its own on each axis and sample, between 1 and `strength`.

    Parameters
    ----------
    shape : tuple of int
        Grid points along each axis; unknowns are numbered with the last axis fastest.
    n_samples : int
    strength : float, above zero
    seed : int
        Seed of the weights.
    weights : array, shape (n_axes, n_samples), optional
        The weights themselves; the three arguments before are then ignored.

    Examples
    --------
    >>> anisotropic((2, 2), weights=[[1.0, 5.0], [1.0, 2.0]]).diagonal().samples[0]
    array([ 4., 14.])
    """
    shape = _shape(shape, "anisotropic")
    integer(n_samples, "anisotropic", "n_samples", minimum=1)
    if weights is None:
        weights = (strength ** random_generator(seed, "anisotropic").uniform(0.0, 1.0, (n_samples, len(shape)))).T
    wanted = f"have shape ({len(shape)}, n_samples)"
    weights = real_array(weights, "anisotropic", "weights", wanted)
    fits = weights.ndim == 2 and weights.shape[0] == len(shape) and weights.shape[1] > 0
    require(fits, "anisotropic", "weights", wanted, f"shape {weights.shape}")
    return CrsMatrix.from_scipy([_stencil(shape, w) for w in weights.T])


@explains_calls("convection_diffusion")
def convection_diffusion(shape: tuple[int, ...], velocity: Any, diffusion: Any = 0.0) -> CrsMatrix:
    """Return first-order upwind differences of ``velocity . grad u - diffusion * laplacian u`` on the unit cube.

    Each axis of n points has spacing ``1 / (n + 1)``, and u is zero outside. Entries that vanish in a sample are stored
    as zeros.

    Parameters
    ----------
    shape : tuple of int
        Grid points along each axis; unknowns are numbered with the last axis fastest.
    velocity : array, shape (n_axes, n_samples) or (n_axes, *shape, n_samples), dimensionless
        The component along each axis, constant in space or at the grid points.
    diffusion : float or array, shape (n_samples,), dimensionless, zero or above
        The inverse of the Peclet number where the velocity is of size one.

    Examples
    --------
    >>> convection_diffusion((3,), [[1.0]]).to_scipy().toarray()
    array([[ 4.,  0.,  0.],
           [-4.,  4.,  0.],
           [ 0., -4.,  4.]])
    """
    name = "convection_diffusion"
    shape = _shape(shape, name)
    wanted = f"have shape ({len(shape)}, n_samples) or ({len(shape)}, *shape, n_samples)"
    velocity = real_array(velocity, name, "velocity", wanted)
    n_samples = velocity.shape[-1] if velocity.ndim else 0
    diffusion = real_array(diffusion, name, "diffusion", f"be a number or {n_samples} of them, zero or above")
    fits = velocity.shape in ((len(shape), n_samples), (len(shape), *shape, n_samples)) and n_samples > 0
    require(fits, name, "velocity", wanted, f"shape {velocity.shape}")
    fits = diffusion.shape in ((), (n_samples,)) and bool(np.all(diffusion >= 0.0))
    require(fits, name, "diffusion", f"be a number or {n_samples} of them, zero or above", repr(diffusion))
    graph = CrsMatrix.from_scipy(_stencil(shape, np.ones(len(shape)))).graph
    rows = graph.row_of_entry
    values, diagonal = np.zeros((graph.nnz, n_samples)), np.zeros((graph.shape[0], n_samples))
    for axis, n in enumerate(shape):
        w = velocity[axis] if velocity.ndim > 2 else np.broadcast_to(velocity[axis], (*shape, n_samples))
        w = (n + 1) * w.reshape(-1, n_samples)
        spread = (n + 1) ** 2 * diffusion
        before, after = spread + np.maximum(w, 0.0), spread + np.maximum(-w, 0.0)
        diagonal += before + after
        step = int(np.prod(shape[axis + 1 :]))
        for entries, weights in ((graph.indices == rows - step, before), (graph.indices == rows + step, after)):
            if n > 1:  # the step of an axis of one point is that of another axis
                values[entries] = -weights[rows[entries]]
    values[graph.diagonal_entries] = diagonal
    return CrsMatrix(graph, values)


@explains_calls("random_spd")
def random_spd(n: int, n_samples: int = 1, *, density: float = 0.05, seed: int = 20731) -> CrsMatrix:
    """Return random symmetric, strictly diagonally dominant matrices on one random graph.

    Examples
    --------
    >>> A = random_spd(20, n_samples=3)
    >>> A.shape, A.n_samples
    ((20, 20), 3)
    """
    integer(n, "random_spd", "n", minimum=1)
    integer(n_samples, "random_spd", "n_samples", minimum=1)
    rng = random_generator(seed, "random_spd")
    pattern = sp.triu(sp.random_array((n, n), density=density, rng=rng), k=1).tocsr()
    matrices = []
    for _ in range(n_samples):
        upper = sp.csr_array((rng.uniform(-1.0, 1.0, pattern.nnz), pattern.indices, pattern.indptr), shape=(n, n))
        off = upper + upper.T
        diagonal = np.asarray(abs(off).sum(axis=1)).reshape(-1) + rng.uniform(0.5, 1.5, n)
        matrices.append(sp.csr_array(off + sp.diags_array(diagonal)))
    return CrsMatrix.from_scipy(matrices)
