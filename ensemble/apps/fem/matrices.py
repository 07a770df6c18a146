"""The matrices that are asked for most, as ready-made forms."""

from __future__ import annotations

from typing import Any

from ensemble.apps.fem.arguments import Vector, dot, grad, mul
from ensemble.apps.fem.forms import bilinear_form
from ensemble.linalg import CrsMatrix

__all__ = ["mass_matrix", "stiffness_matrix"]


@bilinear_form
def mass(u: Any, v: Any, w: Any) -> Any:
    """The integrand ``density u v``."""
    return w.density * u * v


@bilinear_form
def stiffness(u: Any, v: Any, w: Any) -> Any:
    """The integrand ``grad(v) . diffusivity grad(u)`` of a scalar or tensor."""
    if isinstance(w.diffusivity, Vector):
        return dot(grad(v), mul(w.diffusivity, grad(u)))
    return w.diffusivity * dot(grad(u), grad(v))


def mass_matrix(mesh: Any, density: Any = 1.0, **options: Any) -> CrsMatrix:
    """The integrals of ``density phi_i phi_j`` over a mesh.

    Parameters
    ----------
    mesh : TetMesh or a space
    density : number, array, Ensemble or Field
        A number, one per node or one per element; see `BilinearForm.assemble`.
    **options
        `out`, `backend` and `check` of `BilinearForm.assemble`.

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
    made: CrsMatrix = mass.assemble(mesh, density=density, **options)
    return made


def stiffness_matrix(mesh: Any, diffusivity: Any = 1.0, **options: Any) -> CrsMatrix:
    """The integrals of ``grad(phi_i) . diffusivity grad(phi_j)`` over a mesh.

    Parameters
    ----------
    mesh : TetMesh or a space
    diffusivity : number, array, Ensemble or Field
        A number or tensor (3, 3), one per node or one per element; see `BilinearForm.assemble`.
    **options
        `out`, `backend` and `check` of `BilinearForm.assemble`.

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
    made: CrsMatrix = stiffness.assemble(mesh, diffusivity=diffusivity, **options)
    return made
