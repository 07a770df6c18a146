"""Finite-element spaces: what a form needs to know of a mesh and its functions.

Longer than 400 lines: the spaces share their tables and their checks.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._check import array_of, integer, kind_of, message, require, require_type, require_unmasked
from ensemble._compile.kept_memory import empty
from ensemble._kernels.fem.form_plan import Element
from ensemble._kernels.fem.forms import ElementTables
from ensemble._kernels.fem.mesh_arrays import CHUNK, bounds_of, order_of_keys, rows_in_order, spatial_keys
from ensemble._kernels.fem.thread_parts import ThreadParts
from ensemble._kernels.sparse.compact_order import compact_order, graph_points
from ensemble._kernels.sparse.element_map import ElementMap, element_map
from ensemble._kernels.sparse.gather import Gather
from ensemble.apps.fem.mesh import read_only
from ensemble.apps.fem.quadrature import tetrahedron_rule
from ensemble.apps.fem.tet_mesh import TetMesh
from ensemble.linalg import CrsGraph

__all__ = ["LinearSpace", "MeshSpace", "Space", "TabulatedSpace", "space_of"]

NOTHING = np.zeros(0)

RUN = 2
"""Rows that a device takes together; its blocks have a few of them."""


class Space:
    """Functions on elements, one unknown per function and component; what all spaces share.

    Attributes
    ----------
    nodes : array of int, shape (n_elements, k)
        Where the coefficients of a nodal field of each element stand.
    unknowns : array of int, shape (n_elements, k)
        The row of the matrix of each function; equal to `nodes` unless nodes were merged.
    n_nodes, n_unknowns, n_elements : int
    dim : int
        Axes of space.
    n_points : int or None
        Quadrature points of each element; None where the rule is that of each form.
    has_gradients : bool
        Whether forms may take gradients.
    """

    nodes: np.ndarray
    unknowns: np.ndarray
    n_nodes: int
    n_unknowns: int
    dim: int
    n_points: int | None = None
    has_gradients = True
    part: Any = None
    """The rank's part of a mesh that is shared out, see `TetMesh`."""
    name = "Space"

    def __getstate__(self) -> dict[str, Any]:
        """What copies and files hold: not what was worked out from it, nor copies on devices."""
        made = {name for c in type(self).__mro__ for name, v in vars(c).items() if type(v) is functools.cached_property}
        return {name: value for name, value in self.__dict__.items() if name not in made}

    @property
    def n_elements(self) -> int:
        """The number of elements."""
        return int(self.nodes.shape[0])

    @functools.cached_property
    def element_map(self) -> ElementMap:
        """The graph of the matrices on this space and the place of each entry of each visited element; made once."""
        return element_map(self.visited_unknowns, self.n_unknowns, self._rows)

    @functools.cached_property
    def _rows(self) -> np.ndarray:
        """Rows in an order of space where that is known, int32."""
        return np.arange(self.n_unknowns, dtype=np.int32)

    @functools.cached_property
    def _gather(self) -> Gather:
        return Gather(self.element_map, functools.partial(_near_rows, self.element_map, self._row_points))

    @property
    def _row_points(self) -> np.ndarray | None:
        """A point of each unknown, shape (n_unknowns, dim), where points are known."""
        return None

    @functools.cached_property
    def visits(self) -> np.ndarray:
        """The order in which elements are added, int32: neighbours in space follow each other."""
        return spatial_order(*self._places, part=self.part)

    @functools.cached_property
    def visited_unknowns(self) -> np.ndarray:
        """`unknowns` in the order of `visits`, int32."""
        visited, rows = empty(self.unknowns.shape, np.int32), np.ascontiguousarray(self.unknowns)
        rows_in_order(rows.reshape(-1), self.visits, (0,) * rows.shape[1], visited.reshape(-1))
        return visited

    @property
    def centroids(self) -> np.ndarray:
        """A point of each element, shape (n_elements, dim), in m: its first corner, or the first of its rule."""
        points, rows = self._places
        return points if rows is None else points[rows]

    @property
    def _places(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Points, and the one of each element where there are others."""
        raise NotImplementedError

    @functools.cached_property
    def graph(self) -> CrsGraph:
        """The graph of scalar matrices, of blocks in matrices of vector functions."""
        made = self.element_map
        return CrsGraph.unchecked(made.indptr, made.indices, (self.n_unknowns, self.n_unknowns))

    def tables(self, degree: int) -> ElementTables:
        """The elements with a rule that is exact for polynomials of `degree`."""
        raise NotImplementedError

    @property
    def coordinates(self) -> tuple[str, np.ndarray]:
        """Where `w.x` comes from: the kind of field and its values."""
        raise NotImplementedError

    @property
    def sizes(self) -> np.ndarray:
        """The size h of each element: the d-th root of the determinant of its Jacobian, shape (n_elements,)."""
        raise NotImplementedError

    @property
    def own_fields(self) -> dict[str, tuple[str, tuple[int, ...], Callable[[], np.ndarray]]]:
        """The fields that every form can read: the place, the shape of one value, and a function that gives all."""
        return {
            "x": (self.coordinates[0], (self.dim,), lambda: self.coordinates[1]),
            "h": ("element", (), lambda: self.sizes),
        }

    @functools.cached_property
    def rank_graphs(self) -> dict[Any, Any]:
        """What `MeshPart.matrix` keeps of matrices on this space."""
        return {}

    @functools.cached_property
    def _parts(self) -> ThreadParts:
        return ThreadParts(self.element_map, self.visited_unknowns)

    def parts(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(first, elements, rows) of `count` parts with about equally many incidences; see `ElementTables`."""
        return self._parts(count)

    def _tables(self, element: Element, **arrays: np.ndarray) -> ElementTables:
        made = self.element_map
        empty = {"points": NOTHING, "gradients": NOTHING, "dx": NOTHING}
        return ElementTables(
            element=element, elements=self.visits,
            nodes=self.visited_unknowns if self.nodes is self.unknowns else self.nodes[self.visits].astype(np.int32),
            unknowns=self.visited_unknowns, indptr=made.indptr, slots=made.slots, parts=self._parts,
            gather=self._gather,
            **(empty | arrays),
        )  # fmt: skip


class MeshSpace(Space):
    """Continuous linear functions on elements or facets of a mesh, whose nodes may share unknowns.

    Attributes
    ----------
    mesh : TetMesh
    numbers : array of int, shape (n_nodes,), or None
        The unknown of each node; None: its own.
    """

    def __init__(self, mesh: TetMesh, nodes: np.ndarray, numbers: Any) -> None:
        self.mesh, self.nodes, self.n_nodes, self.dim = mesh, nodes, mesh.n_nodes, 3
        self.unknowns, self.n_unknowns, self.numbers = self.nodes, self.n_nodes, None
        self.part = mesh.part
        if numbers is not None:
            require(self.part is None, self.name, "numbers", "be None for a mesh over ranks", kind_of(numbers))
            require_unmasked(numbers, self.name, "numbers")
            wanted = f"be {self.n_nodes} integers, one per node"
            numbers = array_of(numbers, self.name, "numbers", wanted)
            good = numbers.shape == (self.n_nodes,) and numbers.dtype.kind in "iu"
            require(good, self.name, "numbers", wanted, f"{numbers.dtype} {numbers.shape}")
            numbers = numbers.astype(np.int64)
            inside = bool(np.all((numbers >= 0) & (numbers < self.n_nodes)))
            whole = inside and bool(np.all(np.bincount(numbers)))
            require(whole, self.name, "numbers", "name every unknown from 0 on", "a gap or a negative number")
            self.numbers = numbers = numbers.astype(np.int32)
            self.n_unknowns = int(numbers.max()) + 1
            self.unknowns = numbers[self.nodes]

    def __repr__(self) -> str:
        return f"{self.name}(n_unknowns={self.n_unknowns}, n_elements={self.n_elements})"

    @property
    def coordinates(self) -> tuple[str, np.ndarray]:
        """Coordinates are a nodal field of the mesh."""
        return "node", self.mesh.points

    @property
    def _places(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The first corners."""
        return self.mesh.points, np.ascontiguousarray(self.nodes[:, 0], dtype=np.int32)

    @property
    def _row_points(self) -> np.ndarray:
        """Return the points of the rows: those of nodes, and of nodes that share an unknown the first."""
        points: np.ndarray = self.mesh.points
        if self.numbers is not None:
            points = np.empty((self.n_unknowns, 3))
            points[self.numbers] = self.mesh.points
        return points

    @functools.cached_property
    def _rows(self) -> np.ndarray:
        return spatial_order(self._row_points)


class LinearSpace(MeshSpace):
    """Continuous linear functions on a mesh of tetrahedra.

    Parameters
    ----------
    mesh : TetMesh
    numbers : array of int, shape (n_nodes,), optional
        The unknown of each node, as `periodic` or `merge_nodes` gives it; None: its own.

    Raises
    ------
    ValueError
        If `numbers` does not have one entry per node, or skips an unknown.

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> space = fem.LinearSpace(fem.TetMesh.box(2))
    >>> space.n_unknowns, space.graph.nnz
    (27, 223)
    """

    name = "LinearSpace"

    def __init__(self, mesh: TetMesh, numbers: Any = None) -> None:
        require_type(mesh, TetMesh, self.name, "mesh", "be a TetMesh")
        super().__init__(mesh, mesh.tets, numbers)

    @functools.cached_property
    def _by_degree(self) -> dict[int, ElementTables]:
        return {}

    def tables(self, degree: int) -> ElementTables:
        """The elements with a rule that is exact for polynomials of `degree`."""
        if degree not in self._by_degree:
            shape, weights = tetrahedron_rule(degree)
            element = Element(4, weights.size, 3, True)
            self._by_degree[degree] = self._tables(element, points=self.mesh.points, shape=shape, weights=weights)
        return self._by_degree[degree]

    @property
    def sizes(self) -> np.ndarray:
        """The cube root of six times the volume of each element, shape (n_elements,), in m."""
        sizes: np.ndarray = np.cbrt(6.0 * self.mesh.volumes)
        return sizes


class TabulatedSpace(Space):
    """Functions given by their values and gradients at the quadrature points of each element.

    Parameters
    ----------
    unknowns : array of int, shape (n_elements, k)
    n_unknowns : int
    shape : array, shape (n_points, k) or (n_elements, n_points, k)
        Values of the functions at the points, the same on every element or those of each.
    gradients : array, shape (n_elements, n_points, k, dim)
    dx : array, shape (n_elements, n_points)
        Weights of the rule times determinants of the Jacobian.
    x : array, shape (n_elements, n_points, dim)
        Coordinates of the points, in m.
    h : array, shape (n_elements, n_points), optional
        What `w.h` is, in m; by default the root of the element's measure.
    n : array, shape (n_elements, n_points, dim), optional
        What `w.n` is: outward unit normals of facets, dimensionless.

    Raises
    ------
    TypeError
        If `unknowns` are no integers, or an array holds no real numbers.
    ValueError
        If an unknown is out of range, an array has another shape or a number that is not finite.
    """

    name = "TabulatedSpace"

    def __init__(
        self, unknowns: Any, n_unknowns: int, shape: Any, gradients: Any, dx: Any, x: Any, *, h: Any = None,
        n: Any = None,
    ) -> None:  # fmt: skip
        given = [("shape", shape), ("gradients", gradients), ("dx", dx), ("x", x), ("h", h), ("n", n)]
        arrays = {name: _real(name, array) for name, array in given if array is not None or name not in ("h", "n")}
        self.n_nodes = self.n_unknowns = integer(n_unknowns, self.name, "n_unknowns", minimum=1)
        self.nodes = self.unknowns = _checked_unknowns(unknowns, self.n_unknowns)
        seen = arrays["gradients"].shape
        require(len(seen) == 4, self.name, "gradients", "have four axes", f"shape {seen}")
        self.dim, self.n_points = int(seen[3]), int(seen[1])
        require(self.n_points > 0, self.name, "gradients", "have one point or more", f"shape {seen}")
        (n_elements, k), points = self.unknowns.shape, self.n_points
        shapes = {
            "shape": (*((n_elements,) if arrays["shape"].ndim == 3 else ()), points, k),
            "gradients": (n_elements, points, k, self.dim), "dx": (n_elements, points), "h": (n_elements, points),
            "x": (n_elements, points, self.dim), "n": (n_elements, points, self.dim),
        }  # fmt: skip
        for name, array in arrays.items():
            require(array.shape == shapes[name], self.name, name, f"have shape {shapes[name]}", f"shape {array.shape}")
        self.shape, self.gradients, self.dx, self.x = (arrays.pop(name) for name in ("shape", "gradients", "dx", "x"))
        self._more = arrays

    def __repr__(self) -> str:
        return f"{self.name}(n_unknowns={self.n_unknowns}, n_elements={self.n_elements}, dim={self.dim})"

    @functools.cached_property
    def _made(self) -> ElementTables:
        n_points, k = self.shape.shape[-2:]
        weights = np.ones(n_points)
        element = Element(k, n_points, self.dim, False, self.shape.ndim == 3)
        return self._tables(element, shape=self.shape, weights=weights, gradients=self.gradients, dx=self.dx)

    def tables(self, degree: int) -> ElementTables:
        """The elements with the rule that they were tabulated at, whatever the degree."""
        return self._made

    @property
    def own_fields(self) -> dict[str, tuple[str, tuple[int, ...], Callable[[], np.ndarray]]]:
        """`x` and `h`; `n` on facets."""
        more = {k: ("point", a.shape[2:], functools.partial(np.asarray, a)) for k, a in self._more.items()}
        return super().own_fields | more

    @property
    def coordinates(self) -> tuple[str, np.ndarray]:
        """Coordinates are known at the points."""
        return "point", self.x

    @property
    def _places(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The first points of the rule."""
        return np.ascontiguousarray(self.x[:, 0]), None

    @property
    def sizes(self) -> np.ndarray:
        """The root of the element's measure, shape (n_elements,), in m."""
        size: np.ndarray = np.abs(self.dx.sum(axis=1)) ** (1.0 / self.dim)
        return size


def _real(name: str, array: Any) -> np.ndarray:
    """A table of a `TabulatedSpace` as finite float64 numbers."""
    require_unmasked(array, TabulatedSpace.name, name)
    given = array_of(array, TabulatedSpace.name, name, "hold real numbers")
    if given.dtype.kind not in "biuf":
        raise TypeError(message(TabulatedSpace.name, name, "hold real numbers", f"dtype {given.dtype}"))
    made = np.ascontiguousarray(given, dtype=np.float64)
    require(bool(np.isfinite(made).all()), TabulatedSpace.name, name, "be finite", "NaN or infinity")
    return _kept(made, given)


def _checked_unknowns(unknowns: Any, n_unknowns: int) -> np.ndarray:
    """The rows of each element, whose range the assembly loops do not check."""
    name = TabulatedSpace.name
    given = array_of(unknowns, name, "unknowns", "be integers of shape (n_elements, k)")
    if given.ndim != 2 or given.dtype.kind not in "iu":
        seen = f"{given.dtype} of shape {given.shape}"
        raise TypeError(message(name, "unknowns", "be integers of shape (n_elements, k)", seen))
    outside = np.flatnonzero(((given < 0) | (given >= n_unknowns)).any(axis=1))
    seen = f"others in {outside.size} elements, the first {outside[0]}" if outside.size else ""
    require(not outside.size, name, "unknowns", f"lie between 0 and {n_unknowns - 1}", seen)
    return _kept(np.ascontiguousarray(given, dtype=np.int32), given)


def _kept(made: np.ndarray, given: np.ndarray) -> np.ndarray:
    """`made`, read-only; a copy where it is memory of `given` that its owner may write to."""
    if np.may_share_memory(made, given):
        owner: Any = given
        while isinstance(owner, np.ndarray) and not owner.flags.writeable:
            owner = owner.base
        made = made if owner is None else made.copy()
    return read_only(made)


def _near_rows(made: ElementMap, points: np.ndarray | None) -> np.ndarray:
    """Rows in an order in which neighbours follow each other; by the graph where rows have no points."""
    return compact_order(graph_points(made.indptr, made.indices) if points is None else points, RUN)


def spatial_order(points: np.ndarray, rows: np.ndarray | None = None, part: Any = None) -> np.ndarray:
    """Points along a Z-curve through a grid of 32 cells per axis, int32: what is near in space is near in the order.

    With `rows` the order of ``points[rows]``. With `part` the grid is that of all ranks, so that the order of a rank's
    elements is theirs in the whole mesh.
    """
    rows = np.arange(len(points), dtype=np.int32) if rows is None else rows
    dim, n_chunks = points.shape[1], -(-rows.size // CHUNK)
    bounds = np.empty((2, n_chunks, dim))
    bounds_of(points, rows, *bounds)
    low, high = bounds[0].min(axis=0, initial=np.inf), bounds[1].max(axis=0, initial=-np.inf)
    low, high = (low, high) if part is None else part.bounds(low, high)
    scale = np.where(high > low, 31.999 / np.where(high > low, high - low, 1.0), 0.0)
    spread = np.array([sum((cell >> bit & 1) << dim * bit for bit in range(5)) for cell in range(32)], dtype=np.int16)
    keys, order = np.empty(rows.size, dtype=np.int16), np.empty(rows.size, dtype=np.int32)
    spatial_keys(points, rows, low, scale, spread, keys)
    order_of_keys(keys, order)
    return order


def space_of(mesh: Any, function: str) -> Space:
    """A space, or the linear functions on a mesh; those of one mesh are made once."""
    if isinstance(mesh, Space):
        return mesh
    if isinstance(mesh, TetMesh):
        if "_linear_space" not in mesh.__dict__:
            # A copy, of the same arrays: a space of the mesh itself would refer back to it, and both outlive their use.
            mesh.__dict__["_linear_space"] = LinearSpace(copy.copy(mesh))
        space: Space = mesh.__dict__["_linear_space"]
        return space
    advice = "from_skfem(basis) makes a space of a basis of scikit-fem."
    raise TypeError(message(function, "mesh", "be a TetMesh or a space", kind_of(mesh), advice))
