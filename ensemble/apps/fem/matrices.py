"""The matrices that are asked for most, as ready-made forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import array_of, positive, require
from ensemble.apps.fem.arguments import Vector, dot, grad, mul
from ensemble.apps.fem.assembly import assembled
from ensemble.apps.fem.element_kernels import edge_lengths
from ensemble.apps.fem.fields import Field, constant, per_element
from ensemble.apps.fem.forms import bilinear_form, linear_form
from ensemble.apps.fem.spaces import space_of
from ensemble.apps.fem.tet_mesh import TetMesh
from ensemble.linalg import CrsGraph, CrsMatrix, GalerkinProduct

__all__ = ["mass_matrix", "pressure_stabilisation", "stiffness_matrix"]


@bilinear_form
def mass(u: Any, v: Any, w: Any) -> Any:
    """The integrand ``density u v``."""
    return w.density * u * v


@bilinear_form
def stiffness(u: Any, v: Any, w: Any) -> Any:
    """The integrand ``grad(v) . diffusivity grad(u)`` of a scalar or tensor."""
    if isinstance(w.diffusivity, Vector):
        rows = [len(row) if isinstance(row, Vector) else 0 for row in w.diffusivity]
        d, seen = len(grad(u)), f"a vector of {len(rows)}" if 0 in rows else f"shape ({len(rows)}, {rows[0]})"
        require(rows == [d] * d, "stiffness_matrix", "diffusivity", f"be a number or ({d}, {d}) at a point", seen)
        return dot(grad(v), mul(w.diffusivity, grad(u)))
    return w.diffusivity * dot(grad(u), grad(v))


def mass_matrix(
    mesh: Any, density: Any = 1.0, *, out: Any = None, backend: str | None = None, check: bool = True
) -> CrsMatrix:
    """Compute the integrals of ``density phi_i phi_j`` over a mesh.

    Parameters
    ----------
    mesh : TetMesh or a space
    density : number, array, Ensemble or Field
        A number, one per node or one per element; see `BilinearForm.assemble`.
    out, backend, check
        As in `BilinearForm.assemble`.

    Returns
    -------
    CrsMatrix, shape (n, n)

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> M = fem.mass_matrix(fem.TetMesh.box(2))
    >>> float(M.values.sum().round(12))
    1.0
    """
    made: CrsMatrix = assembled(mesh, [mass], [out], backend, check, {"density": density})[0]
    return made


def stiffness_matrix(
    mesh: Any, diffusivity: Any = 1.0, *, out: Any = None, backend: str | None = None, check: bool = True
) -> CrsMatrix:
    """Compute the integrals of ``grad(phi_i) . diffusivity grad(phi_j)`` over a mesh.

    Parameters
    ----------
    mesh : TetMesh or a space
    diffusivity : number, array, Ensemble or Field
        A number or tensor (3, 3), one per node or one per element; see `BilinearForm.assemble`.
    out, backend, check
        As in `BilinearForm.assemble`.

    Returns
    -------
    CrsMatrix, shape (n, n)

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> K = fem.stiffness_matrix(fem.TetMesh.box(2), diffusivity=3.0)
    >>> float(abs(K.values.sum()).round(12))
    0.0
    """
    if not isinstance(diffusivity, Field):
        if isinstance(diffusivity, list | tuple):
            diffusivity = array_of(diffusivity, "stiffness", "diffusivity", "be a number or an array of real numbers")
        shape = (space_of(mesh, "stiffness").dim,) * 2
        if np.shape(diffusivity) == shape:  # also on as many elements: no vector is taken
            diffusivity = constant(diffusivity)
    made: CrsMatrix = assembled(mesh, [stiffness], [out], backend, check, {"diffusivity": diffusivity})[0]
    return made


@bilinear_form
def scaled_stiffness(u: Any, v: Any, w: Any) -> Any:
    """The integrand ``grad(v) . lengths grad(u) / 2``."""
    return 0.5 * dot(grad(v), mul(w.lengths, grad(u)))


@linear_form
def lumped_mass(v: Any, w: Any) -> Any:
    """The integrand whose vector is the row sums of the mass matrix."""
    return v


def pressure_stabilisation(mesh: Any, theta: float = 1.0, *, backend: str | None = None) -> CrsMatrix:
    """Compute the matrix ``K^T M^-1 K / theta`` that stabilises pressure and velocity of equal order.

    K is the stiffness matrix with half the edge-length tensor of each element as its diffusivity, M the lumped mass
    matrix. Rows reach the neighbours of neighbours.

    Parameters
    ----------
    mesh : TetMesh
    theta : float
        Implicitness of the pressure gradient, dimensionless.
    backend
        As in `BilinearForm.assemble`.

    Returns
    -------
    CrsMatrix, shape (n, n)
        Symmetric and positive semidefinite, with zero row sums; in m^3.

    Raises
    ------
    ValueError
        If `theta` is not positive.

    References
    ----------
    .. [1] Li et al., the atmospheric model Fluidity-Atmosphere: `assemble_kmk_matrix`, with `edge_lengths`.

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> mesh = fem.TetMesh.box(3)
    >>> A = fem.pressure_stabilisation(mesh)
    >>> A.graph.nnz > fem.stiffness_matrix(mesh).graph.nnz, float(abs(A.values.sum()).round(12))
    (True, 0.0)
    """
    theta = positive(theta, "pressure_stabilisation", "theta")
    if isinstance(mesh, TetMesh):
        mesh.require_whole("pressure_stabilisation")
    K = scaled_stiffness.assemble(mesh, lengths=per_element(edge_lengths(mesh)), backend=backend)
    inverse = 1.0 / (theta * lumped_mass.assemble(mesh, backend=backend))
    n = K.shape[0]
    diagonal = CrsMatrix(CrsGraph(range(n + 1), range(n), (n, n)), inverse)
    return GalerkinProduct(diagonal.graph, K.graph)(diagonal, K)
