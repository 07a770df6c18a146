"""Linear functions on facets of the boundary: natural and Robin conditions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._check import array_of, require, require_type, require_unmasked
from ensemble._kernels.fem.form_plan import Element
from ensemble._kernels.fem.forms import ElementTables
from ensemble.apps.fem.quadrature import triangle_rule
from ensemble.apps.fem.spaces import MeshSpace
from ensemble.apps.fem.tet_mesh import TetMesh

__all__ = ["BoundarySpace"]


class BoundarySpace(MeshSpace):
    """Continuous linear functions of a mesh on its boundary facets, for integrals over the boundary.

    A form on this space gives vectors and matrices of all unknowns of the mesh; rows of other nodes are empty. The
    graph is that of the facets: ``A + B`` adds such a matrix `B` to one of the elements. `w.n` is the outward unit
    normal, `w.h` the square root of twice the area, in m. Fields per element have one value per facet.

    Parameters
    ----------
    mesh : TetMesh
    facets : callable or array of int or bool, optional
        ``facets(x, y, z)`` of the centroids gives a bool per facet of ``mesh.boundary_facets``; or the numbers of
        facets, as `TetMesh.facets_where` gives them; or a bool per facet; None: all.
    numbers : array of int, shape (n_nodes,), optional
        The unknown of each node, as for `LinearSpace`. Facets on which nodes were merged are still facets of the mesh:
        leave them out.
    gradients : bool
        Whether forms take gradients: those of the element that has the facet, so that matrices couple its four nodes.

    Attributes
    ----------
    facets, elements : arrays of int, shape (n_elements,)
        The number of each facet in ``mesh.boundary_facets``, and of the element that has it.

    Raises
    ------
    ValueError
        If no facet is chosen, a number is no facet or stands twice, or for `numbers` as in `LinearSpace`.

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> mesh = fem.TetMesh.box(2)
    >>> top = fem.BoundarySpace(mesh, lambda x, y, z: z == 1.0)
    >>> top
    BoundarySpace(n_unknowns=27, n_elements=8)
    >>> exchange = fem.bilinear_form(lambda u, v, w: w.alpha * u * v)
    >>> float(exchange.assemble(top, alpha=3.0).values.sum().round(12))
    3.0
    """

    name = "BoundarySpace"

    def __init__(self, mesh: TetMesh, facets: Any = None, numbers: Any = None, *, gradients: bool = False) -> None:
        require_type(mesh, TetMesh, self.name, "mesh", "be a TetMesh")
        count = len(mesh.boundary_facets)
        if facets is None:
            chosen = np.arange(count)
        elif callable(facets):
            chosen = mesh.facets_where(facets)
        else:
            require_unmasked(facets, "BoundarySpace", "facets")
            chosen = array_of(facets, "BoundarySpace", "facets", f"be different numbers from 0 to {count - 1}")
            chosen = np.flatnonzero(chosen) if chosen.dtype == bool and chosen.shape == (count,) else chosen
            if chosen.size == 0 and mesh.part is not None:
                chosen = chosen.reshape(-1).astype(np.int64)
            require(chosen.size > 0 or mesh.part is not None, "BoundarySpace", "facets", "choose a facet", "none")
            whole = chosen.ndim == 1 and chosen.dtype.kind in "iu" and np.unique(chosen).size == chosen.size
            inside = whole and bool(((chosen >= 0) & (chosen < count)).all())
            wanted = f"be different numbers from 0 to {count - 1}"
            seen = (
                f"{chosen.dtype} {chosen.shape}"
                if not whole
                else f"{chosen.min(initial=count)} to {chosen.max(initial=0)}"
            )
            require(inside, "BoundarySpace", "facets", wanted, seen)
        # another rank may have what this one has not
        somewhere = chosen.size > 0 if mesh.part is None else mesh.part.anywhere(chosen.size > 0)
        require(somewhere, "BoundarySpace", "facets", "choose a facet", "none")
        nodes = mesh.boundary_facets[chosen]
        self.facets, self.elements, self.has_gradients = chosen, mesh.boundary_elements[chosen], bool(gradients)
        if gradients:  # and the corner opposite, whose function is zero on the facet
            corners = mesh.tets[self.elements]
            opposite = corners[(corners[:, :, None] != nodes[:, None, :]).all(axis=2)]
            nodes = np.concatenate([nodes, opposite[:, None]], axis=1)
        super().__init__(mesh, nodes, numbers)

    @functools.cached_property
    def _products(self) -> np.ndarray:
        """Outward normals of twice the area, shape (n_elements, 3), in m^2."""
        a, b, c = (self.mesh.points[self.nodes[:, i]] for i in range(3))
        products: np.ndarray = np.cross(b - a, c - a)
        return products

    @property
    def areas(self) -> np.ndarray:
        """The area of each facet, shape (n_elements,), in m^2."""
        areas: np.ndarray = 0.5 * np.linalg.norm(self._products, axis=1)
        return areas

    @property
    def normals(self) -> np.ndarray:
        """The outward unit normal of each facet, shape (n_elements, 3), dimensionless."""
        normals: np.ndarray = self._products / np.linalg.norm(self._products, axis=1, keepdims=True)
        return normals

    @property
    def sizes(self) -> np.ndarray:
        """The square root of twice the area of each facet, shape (n_elements,), in m."""
        sizes: np.ndarray = np.sqrt(2.0 * self.areas)
        return sizes

    @property
    def own_fields(self) -> dict[str, tuple[str, tuple[int, ...], Callable[[], np.ndarray]]]:
        """`x`, `h`, and the normal `n`."""
        return super().own_fields | {"n": ("element", (3,), lambda: self.normals)}

    @functools.cached_property
    def _by_degree(self) -> dict[int, ElementTables]:
        return {}

    def tables(self, degree: int) -> ElementTables:
        """The facets with a rule that is exact for polynomials of `degree`."""
        if degree not in self._by_degree:
            shape, weights = triangle_rule(degree)
            more = {}
            if self.has_gradients:
                shape = np.concatenate([shape, np.zeros((weights.size, 1))], axis=1)
                own = self._gradients[:, None]
                more["gradients"] = np.ascontiguousarray(np.broadcast_to(own, (len(own), weights.size, *own.shape[2:])))
            element = Element(self.nodes.shape[1], weights.size, 3, False)
            dx = self.areas[:, None] * weights
            self._by_degree[degree] = self._tables(element, shape=shape, weights=weights, dx=dx, **more)
        return self._by_degree[degree]

    @functools.cached_property
    def _gradients(self) -> np.ndarray:
        """Gradients of the four functions of each element, shape (n_elements, 4, 3), in 1/m."""
        corners = self.mesh.points[self.nodes]
        columns = np.linalg.inv(corners[:, 1:] - corners[:, :1])  # column i is the gradient of function i + 1
        rows = np.swapaxes(columns, 1, 2)
        return np.concatenate([-rows.sum(axis=1, keepdims=True), rows], axis=1)
