"""Spaces of other libraries, for forms of this one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import kind_of, message, require
from ensemble._keywords import explains_calls
from ensemble._optional import optional
from ensemble.apps.fem.mesh import read_only
from ensemble.apps.fem.spaces import TabulatedSpace

__all__ = ["BasisSpace", "from_skfem"]


class BasisSpace(TabulatedSpace):
    """The functions of a basis of scikit-fem; made by `from_skfem`.

    Attributes
    ----------
    basis : skfem.CellBasis or skfem.FacetBasis
        Its dof r is row r of a matrix and entry r of a flattened vector.
    n_components : int
        Components of the element: 1, or the axes of space for an `ElementVector`.
    """

    name = "BasisSpace"
    basis: Any
    n_components: int

    def boundary(self, facets: Any = None) -> np.ndarray:
        """The rows of the dofs on facets, ascending: those of ``basis.get_dofs(facets)``.

        Parameters
        ----------
        facets : str, callable, array of int or a set of names, optional
            A named boundary of the mesh, a condition on the midpoints of facets, or numbers of facets, as scikit-fem
            takes them; None: the whole boundary. For one component of a vector element, or one kind of dof, take
            ``basis.get_dofs(facets).all("u^1")``: its numbers are rows, too.
        """
        return np.sort(self.basis.get_dofs(facets).flatten())


@explains_calls("from_skfem")
def from_skfem(basis: Any) -> BasisSpace:
    """Return the functions, dofs and quadrature rule of a basis of scikit-fem [1]_ as a space for forms.

    A form that is assembled on the space gives the matrix of scikit-fem's ``assemble(basis)`` for all samples of its
    fields at once. Row r is dof r of the basis: also for an `ElementVector`, where scikit-fem gives component c of
    scalar dof j the number ``c + dim * j``, as `BilinearForm.assemble` does.

    Parameters
    ----------
    basis : skfem.CellBasis or skfem.FacetBasis
        Of an element with values and gradients (``ElementTriP1``, ``ElementTetP2``, ``ElementHex1``, ...), or of an
        `ElementVector` of one with as many components as space has axes. For the latter give vector functions to the
        form: ``bilinear_form(trial="vector", test="vector")``.

    Returns
    -------
    BasisSpace
        Its elements are those of the basis, facets for a `FacetBasis`, in their order. A field at nodes has shape
        (n_unknowns, ...) and is the sum over the functions of the basis, as ``basis.interpolate`` gives it; one per
        element has shape (n_elements, ...), one at the basis' points (n_elements, n_points, ...). `w.x`, `w.h` and, on
        facets, `w.n` are those of scikit-fem.

    Raises
    ------
    TypeError
        If `basis` is no basis of scikit-fem.
    ValueError
        If its element has no values or gradients of scalar functions, or a number of components other than 1 and dim.

    References
    ----------
    .. [1] Gustafsson, McBain (2020), scikit-fem: A Python package for finite element assembly, J. Open Source Softw.
       5(52), 2369.

    Examples
    --------
    >>> import skfem
    >>> from ensemble.apps import fem
    >>> space = fem.from_skfem(skfem.Basis(skfem.MeshTri().refined(2), skfem.ElementTriP2()))
    >>> space
    BasisSpace(n_unknowns=81, n_elements=32, dim=2)
    >>> fem.bilinear_form(lambda u, v, w: w.kappa * fem.dot(fem.grad(u), fem.grad(v))).assemble(space, kappa=1.5).shape
    (81, 81)
    >>> space.boundary(lambda x: x[0] == 0.0).size
    9
    """
    skfem = optional("skfem", "from_skfem")
    if not isinstance(basis, skfem.assembly.basis.AbstractBasis):
        raise TypeError(message("from_skfem", "basis", "be a basis of scikit-fem", kind_of(basis)))
    dim, vector = int(basis.mesh.dim()), isinstance(basis.elem, skfem.ElementVector)
    count = int(basis.elem.dim) if vector else 1
    wanted = f"have {dim} components, one per axis, if it is of a vector element"
    require(not vector or count == dim, "from_skfem", "basis", wanted, count)
    values, gradients = _tables(basis, vector, count, dim)
    unknowns = _unknowns(basis.element_dofs, count)
    space = BasisSpace(unknowns, int(basis.N) // count, values, gradients, basis.dx, **_own_fields(basis))
    space.basis, space.n_components = basis, count
    return space


def _own_fields(basis: Any) -> dict[str, np.ndarray]:
    """Coordinates `x`, sizes `h` and, on facets, normals `n` at the points of a basis."""
    given = {name: np.asarray(values) for name, values in basis.default_parameters().items()}
    found = {name: np.moveaxis(given[name], 0, -1) for name in ("x", "n") if name in given}
    return found | {"h": np.broadcast_to(given["h"], basis.dx.shape)}


def _tables(basis: Any, vector: bool, count: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Values (n_elements, n_points, k), or (n_points, k) where all elements have the same, and gradients."""
    functions = [_scalar_function(fields, vector, basis, dim) for fields in basis.basis[::count]]
    values = np.stack([value for value, _ in functions], axis=-1)
    gradients = np.stack([np.moveaxis(gradient, 0, -1) for _, gradient in functions], axis=2)
    equal = len(values) > 0 and bool((values == values[:1]).all())
    read_only(values, gradients)  # which a space need not copy then
    return values[0] if equal else values, gradients


def _scalar_function(fields: Any, vector: bool, basis: Any, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Value (n_elements, n_points) and gradient (dim, n_elements, n_points) of the first component of a function."""
    value, gradient = np.asarray(fields[0]), fields[0].grad
    if vector:
        value, gradient = value[0], None if gradient is None else gradient[0]
    shape = basis.dx.shape
    good = len(fields) == 1 and value.shape == shape and gradient is not None and gradient.shape == (dim, *shape)
    require(
        good, "from_skfem", "basis", "be of an element of scalar functions with gradients, or an ElementVector of one",
        type(basis.elem).__name__, "Make one basis, and one space, of each part of a composite element.",
    )  # fmt: skip
    return value, gradient


def _unknowns(dofs: np.ndarray, count: int) -> np.ndarray:
    """The scalar dof of each function of each element, shape (n_elements, k)."""
    unknowns = dofs[::count].T // count
    expected = (unknowns.T[:, None] * count + np.arange(count)[:, None]).reshape(dofs.shape)
    require(
        np.array_equal(dofs, expected), "from_skfem", "basis", f"number component c of scalar dof j {count} j + c",
        "another numbering",
    )  # fmt: skip
    return unknowns
