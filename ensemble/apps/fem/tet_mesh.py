"""Meshes of tetrahedra: checked when made, generated from boxes, renumbered and refined.

Longer than 400 lines: a third of them describe arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._kernels.fem.mesh_arrays import CHUNK, count_faulty_tets, has_doubles
from ensemble._keywords import explains_construction
from ensemble._typing import Communicator
from ensemble.apps.fem.mesh import cell_counts, read_only
from ensemble.apps.fem.mesh_files import FileContents, facet_values, read_tets, tets_of
from ensemble.apps.fem.tet_geometry import Condition, doubles, named, places_where, squared_lengths, tet_volumes

__all__ = ["TetMesh"]

FLAT = 1e-12
"""Six times the volume over the cube of the longest edge, up to which an element is degenerate."""

FACETS = np.array([[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 2, 1]])
"""The nodes of facet i, opposite to corner i; their normal points outwards."""

EDGES = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])

KUHN = np.array([[0, 1, 3, 7], [0, 3, 2, 7], [0, 2, 6, 7], [0, 6, 4, 7], [0, 4, 5, 7], [0, 5, 1, 7]], dtype=np.int32)
"""Six tetrahedra around the diagonal of a cell; corner b lies at the far end of axis d if bit d of b is set."""


@explains_construction("TetMesh")
@dataclass(frozen=True, eq=False)
class TetMesh:
    """Linear tetrahedra in space; their arrays are read-only copies, because volumes and tables made of them are kept.

    Parameters
    ----------
    points : array, shape (n_nodes, 3), in m
    tets : array of int, shape (n_elements, 4)
        The corners of each element, ordered so that ``det(x1 - x0, x2 - x0, x3 - x0) > 0``.
    comm : communicator of mpi4py, or `distributed.serial()`, optional
        Share the nodes out to its ranks by their coordinates. `points` and `tets` are those of rank 0; on the others
        they are not used and may be None. The mesh of a rank has its own nodes and one layer of elements around them:
        `points`, `tets` and all that is worked out from them are those of the rank. Forms give a `DistributedCrsMatrix`
        and vectors of its rows, see `BilinearForm.assemble`.
    domains : int, optional
        Domains of that partition, see `Partition`; bits depend on their number.

    Attributes
    ----------
    part : MeshPart or None
        With `comm`: ``part.partition``, the `Partition` of the nodes; ``part.own``, the slice of the rank's own nodes
        among `points`, whose order is that of ``part.partition.rows``; ``part.nodes`` and ``part.elements``, the
        caller's numbers of `points` and `tets`; ``part.blocked(3)``, the `Partition` of three unknowns for each node.
    point_data, cell_data, facet_data : dict of arrays
        What `read` found in a file: values by name, one per node, per element, and per facet of `boundary_facets`.

    Raises
    ------
    TypeError
        If `points` are not real numbers or `tets` not integers.
    ValueError
        If a coordinate is not finite, a node does not exist or belongs to no element, an element has a node twice, has
        no positive volume, or stands twice. The message names elements or nodes.

    Examples
    --------
    >>> mesh = TetMesh.box(2)
    >>> mesh.n_nodes, mesh.n_elements, float(mesh.volumes.sum().round(12))
    (27, 48, 1.0)
    """

    points: np.ndarray
    tets: np.ndarray
    point_data: dict[str, np.ndarray] = field(default_factory=dict, init=False)
    cell_data: dict[str, np.ndarray] = field(default_factory=dict, init=False)
    facet_data: dict[str, np.ndarray] = field(default_factory=dict, init=False)
    part: Any = field(default=None, init=False)
    comm: InitVar[Communicator | None] = None
    domains: InitVar[int | None] = None

    def __post_init__(self, comm: Communicator | None, domains: int | None) -> None:
        wanted = "be None without comm, which shares domains out"
        _check.require(comm is not None or domains is None, "TetMesh", "domains", wanted, domains)
        if comm is not None:
            self._share(comm, domains, lambda: TetMesh(self.points, self.tets))
            return
        given = {}
        for name, width, kinds, what in (("points", 3, "biuf", "real numbers"), ("tets", 4, "iu", "integers")):
            _check.require_unmasked(getattr(self, name), "TetMesh", name)
            wanted = f"have shape (n, {width}), n > 0"
            array = given[name] = _check.array_of(getattr(self, name), "TetMesh", name, wanted)
            if array.dtype.kind not in kinds:
                raise TypeError(_check.message("TetMesh", name, f"be {what}", f"dtype {array.dtype}"))
            _check.require(array.shape[1:] == (width,) and array.size > 0, "TetMesh", name, wanted, array.shape)
        points, tets = given["points"], given["tets"]
        object.__setattr__(self, "points", np.array(points, dtype=np.float64, order="C"))
        bad = np.flatnonzero(~np.isfinite(self.points).all(axis=1))
        _check.require(not bad.size, "TetMesh", "points", "be finite", named("node", bad))
        if tets.min() < 0 or tets.max() >= len(points):
            bad = np.flatnonzero(((tets < 0) | (tets >= len(points))).any(axis=1))
            seen = f"others in {named('element', bad)}"
            _check.require(False, "TetMesh", "tets", f"be nodes from 0 to {len(points) - 1}", seen)
        object.__setattr__(self, "tets", np.array(tets, dtype=np.int32, order="C"))
        volumes, used = np.empty(self.n_elements), np.zeros(self.n_nodes, dtype=bool)
        faulty = np.empty(-(-self.n_elements // CHUNK), dtype=np.int64)
        flat = self.tets.reshape(-1)
        keys = np.empty(self.n_elements, dtype=np.uint32)
        count_faulty_tets(self.points.reshape(-1), flat, FLAT, volumes, keys, used, faulty)
        if faulty.any() or not used.all() or has_doubles(flat, keys):
            self._name_faulty()
        self.__setstate__({"volumes": volumes})

    def _share(self, comm: Any, domains: int | None, make: Callable[[], TetMesh]) -> None:
        """Take this rank's part of the mesh that ``make()`` gives on rank 0."""
        from ensemble.apps.fem.mesh_part import shared_mesh
        from ensemble.distributed.agreement import require_communicator

        require_communicator(comm, "TetMesh")

        def whole() -> tuple[TetMesh, np.ndarray]:
            mesh = make()
            return mesh, mesh._alone

        names = ("points", "tets", "volumes", "part")
        self.__setstate__(dict(zip(names, shared_mesh(comm, domains, whole), strict=True)))

    def __getstate__(self) -> dict[str, Any]:
        """What copies and files hold: not what was worked out from it."""
        names = (*(each.name for each in fields(self)), "volumes")
        return {name: self.__dict__[name] for name in names if name in self.__dict__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        read_only(self.points, self.tets, self.volumes)

    def _name_faulty(self) -> None:
        """Raise the error that names repeated nodes, elements without volume, doubles or unused nodes."""
        ordered = np.sort(self.tets, axis=1)
        bad = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        _check.require(
            not bad.size, "TetMesh", "tets", "name four nodes each", f"a node twice in {named('element', bad)}"
        )
        corners = [self.points[self.tets[:, i]] for i in range(4)]
        longest = np.sqrt(np.max([squared_lengths(corners[b] - corners[a]) for a, b in EDGES], axis=0))
        flat = np.flatnonzero(~(np.abs(self.volumes) * 6.0 > FLAT * longest**3))
        _check.require(not flat.size, "TetMesh", "tets", "have a volume", f"none in {named('element', flat)}")
        inverted = np.flatnonzero(self.volumes < 0.0)
        _check.require(
            not inverted.size, "TetMesh", "tets", "be ordered so that their volume is positive",
            f"a negative volume in {named('element', inverted)}", "TetMesh.oriented(points, tets) swaps two corners.",
        )  # fmt: skip
        bad = doubles(ordered)
        _check.require(
            not bad.size, "TetMesh", "tets", "stand once", f"the nodes of another in {named('element', bad)}"
        )
        used = np.zeros(self.n_nodes, dtype=bool)
        used[self.tets] = True
        _check.require(
            bool(used.all()), "TetMesh", "points", "belong to an element each",
            f"none for {named('node', np.flatnonzero(~used))}", "Leave them out and renumber tets.",
        )  # fmt: skip

    @classmethod
    def oriented(cls, points: Any, tets: Any) -> TetMesh:
        """The mesh with the last two corners swapped in elements whose volume is negative."""
        if np.ma.is_masked(points) or np.ma.is_masked(tets):
            return cls(points, tets)  # raises the error
        points = _check.array_of(points, "TetMesh", "points", "have shape (n, 3), n > 0")
        tets = _check.array_of(tets, "TetMesh", "tets", "have shape (n, 4), n > 0").copy()
        numbers = points.dtype.kind in "biuf" and tets.dtype.kind in "iu"
        shaped = points.ndim == tets.ndim == 2 and points.shape[1] == 3 and tets.shape[1] == 4 and tets.size
        if numbers and shaped and tets.min() >= 0 and tets.max() < len(points):
            swapped = tet_volumes(points.astype(np.float64), tets) < 0.0
            tets[swapped] = tets[swapped][:, [0, 1, 3, 2]]
        return cls(points, tets)

    @classmethod
    def read(cls, path: str | Path) -> TetMesh:
        """Read the tetrahedra of a file of any format that meshio [1]_ reads: ``.msh``, ``.vtu``, ``.xdmf``, ...

        Cells of other kinds are left out, and so are nodes that belong to no tetrahedron; the others keep their order,
        elements too. Corners are swapped where a volume is negative. `point_data` and `cell_data` of the mesh are the
        values that the file has at nodes and on tetrahedra. `facet_data` are those that it has on triangles, for the
        boundary facets among them; on all other boundary facets they are 0, or NaN for real numbers. Tags of Gmsh are
        ``cell_data["gmsh:physical"]`` and ``facet_data["gmsh:physical"]``.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        TetMesh

        Raises
        ------
        ImportError
            If meshio is not installed: ``pip install 'ensemble-arrays[fem]'``.
        OSError
            If the file is absent or cannot be opened.
        ValueError
            If meshio does not read it, or it has no linear tetrahedra; the message names the cells that it has. As
            `TetMesh`, for what is no mesh.

        References
        ----------
        .. [1] Schlömer, meshio: Tools for mesh files, doi:10.5281/zenodo.1173115.
        """
        return cls._of(read_tets(path))

    @classmethod
    def from_meshio(cls, mesh: Any) -> TetMesh:
        """The tetrahedra of a ``meshio.Mesh``, taken as `read` takes those of a file; TypeError if it is none."""
        return cls._of(tets_of(mesh))

    @classmethod
    def _of(cls, found: FileContents) -> TetMesh:
        mesh = cls.oriented(found.points, found.tets)
        data = found.triangle_data
        facets = facet_values(mesh.boundary_facets, found.triangles, data) if data else {}
        mesh.__dict__.update(point_data=found.point_data, cell_data=found.cell_data, facet_data=facets)
        return mesh

    @classmethod
    def box(
        cls,
        cells: int | tuple[int, int, int],
        *,
        lengths: tuple[float, float, float] = (1.0, 1.0, 1.0),
        jitter: float = 0.0,
        terrain: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
        seed: int | None = None,
        comm: Communicator | None = None,
        domains: int | None = None,
    ) -> TetMesh:
        """Divide a box with one corner at the origin into cells of six tetrahedra (Kuhn's).

        Parameters
        ----------
        cells : int or three ints, each at least 1
            Cells along x, y and z; nodes are numbered with x fastest.
        lengths : three floats, in m
        jitter : float from 0 to 0.2, dimensionless
            Inner nodes are moved by up to this fraction of a cell along each axis.
        terrain : callable, optional
            Height h(x, y) of the ground in m; a node at height z moves to ``z + h (1 - z / lengths[2])``.
        seed : int, optional
            Of the jitter.
        comm, domains
            As for `TetMesh`: rank 0 makes the whole, and shares it out.

        Returns
        -------
        TetMesh

        Raises
        ------
        ValueError
            If a count is below 1, a length not positive, `jitter` outside its range, or `terrain` inverts an element.

        Examples
        --------
        >>> TetMesh.box((3, 2, 1), jitter=0.1, seed=7).n_elements
        36
        """
        if comm is not None:
            shared = cls.__new__(cls)
            shared.__dict__.update(point_data={}, cell_data={}, facet_data={})
            more = {"lengths": lengths, "jitter": jitter, "terrain": terrain, "seed": seed}
            shared._share(comm, domains, lambda: cls.box(cells, **more))  # type: ignore[arg-type]
            return shared
        counts = cell_counts(cells, "TetMesh.box")
        wanted = "TetMesh.box", "lengths", "be three numbers"
        _check.require(_check.array_of(lengths, *wanted).shape == (3,), *wanted, repr(lengths))
        sizes = [_check.positive(length, "TetMesh.box", "lengths") for length in lengths]
        jitter = _check.finite(jitter, "TetMesh.box", "jitter")
        _check.require(0.0 <= jitter <= 0.2, "TetMesh.box", "jitter", "lie from 0 to 0.2", jitter)
        axes = [np.linspace(0.0, size, n + 1) for size, n in zip(sizes, counts, strict=True)]
        z, y, x = np.meshgrid(*axes[::-1], indexing="ij")
        points = np.stack([x, y, z], axis=-1).reshape(-1, 3)
        if jitter:
            inner = np.all((points > 0.0) & (points < np.array(sizes)), axis=1)
            step = jitter * np.array(sizes) / np.array(counts)
            points[inner] += _check.random_generator(seed, "TetMesh.box").uniform(-step, step, (int(inner.sum()), 3))
        if terrain is not None:
            name = "TetMesh.box", "terrain", f"give one height or {len(points)}"
            height = _check.array_of(terrain(points[:, 0].copy(), points[:, 1].copy()), *name)
            real = height.dtype.kind in "biuf" and height.shape in ((), (len(points),))
            _check.require(real, *name, f"{height.dtype} of shape {height.shape}")
            points[:, 2] += height * (1.0 - points[:, 2] / sizes[2])
        number = np.arange(len(points), dtype=np.int32).reshape([n + 1 for n in counts[::-1]])
        nz, ny, nx = counts[::-1]
        corners = np.stack(
            [number[k : k + nz, j : j + ny, i : i + nx] for k in (0, 1) for j in (0, 1) for i in (0, 1)], axis=-1
        ).reshape(-1, 8)
        return cls(points, corners[:, KUHN].reshape(-1, 4))

    # --- what it is
    def __repr__(self) -> str:
        return f"TetMesh(n_nodes={self.n_nodes}, n_elements={self.n_elements})"

    @property
    def n_nodes(self) -> int:
        """The number of nodes."""
        return int(self.points.shape[0])

    @property
    def n_elements(self) -> int:
        """The number of elements."""
        return int(self.tets.shape[0])

    @cached_property
    def volumes(self) -> np.ndarray:
        """The volume of each element, shape (n_elements,), in m^3."""
        return tet_volumes(self.points, self.tets)

    @cached_property
    def edges(self) -> np.ndarray:
        """The nodes of each edge, the smaller first, shape (n_edges, 2), ascending."""
        return read_only(self._edges[0])

    @cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        """The edges, and those of each element in the order of `EDGES`, shape (n_elements, 6)."""
        pairs = np.sort(self.tets[:, EDGES].reshape(-1, 2), axis=1).astype(np.int64)
        keys, place = np.unique(pairs[:, 0] * self.n_nodes + pairs[:, 1], return_inverse=True)
        both = np.stack([keys // self.n_nodes, keys % self.n_nodes], axis=1).astype(np.int32)
        return both, place.reshape(-1, 6).astype(np.int32)

    @cached_property
    def boundary_facets(self) -> np.ndarray:
        """The nodes of each facet that belongs to one element, shape (n_facets, 3); normals point outwards."""
        return read_only(self.tets[:, FACETS].reshape(-1, 3)[self._alone])

    @property
    def boundary_elements(self) -> np.ndarray:
        """The element of each boundary facet, shape (n_facets,)."""
        return self._alone // 4

    @cached_property
    def _alone(self) -> np.ndarray:
        """Facet i of element e as ``4 e + i`` where it belongs to no other element, ascending."""
        if self.part is not None:  # facets at the end of the layer of elements are no boundary
            return self.part.alone  # type: ignore[no-any-return]
        ordered = np.sort(self.tets[:, FACETS].reshape(-1, 3), axis=1)
        order = np.lexsort(ordered.T[::-1])
        new = np.ones(len(order) + 1, dtype=bool)
        new[1:-1] = (ordered[order[1:]] != ordered[order[:-1]]).any(axis=1)
        return np.sort(order[new[1:] & new[:-1]])

    def facets_where(self, condition: Condition) -> np.ndarray:
        """The numbers of the boundary facets for whose centroids ``condition(x, y, z)`` holds, ascending.

        Examples
        --------
        >>> TetMesh.box(2).facets_where(lambda x, y, z: z == 0.0).size
        8
        """
        centroids = self.points[self.boundary_facets].mean(axis=1)
        return places_where(condition, centroids, "TetMesh.facets_where", "one per boundary facet")

    def boundary_nodes(self, selector: Condition | None = None) -> np.ndarray:
        """The nodes of the boundary, or of the boundary facets that `facets_where` selects; ascending.

        Over ranks among the local nodes: all that are the rank's own, and of the others those on facets of `tets`.

        Examples
        --------
        >>> mesh = TetMesh.box(2)
        >>> mesh.boundary_nodes().size, mesh.boundary_nodes(lambda x, y, z: z == 0.0).size
        (26, 9)
        """
        facets = self.boundary_facets
        return np.unique(facets if selector is None else facets[self.facets_where(selector)])

    def nodes_where(self, condition: Condition) -> np.ndarray:
        """The nodes for which ``condition(x, y, z)`` holds, ascending.

        Examples
        --------
        >>> TetMesh.box(1).nodes_where(lambda x, y, z: z == 0.0)
        array([0, 1, 2, 3])
        """
        return places_where(condition, self.points, "TetMesh.nodes_where", "one per node")

    # --- other meshes
    def renumbered(self, order: Any, *, seed: int | None = None) -> TetMesh:
        """The mesh with its nodes in another order, elements sorted by their first node; without data of a file.

        Parameters
        ----------
        order : "rcm", "shuffled" or array of int, shape (n_nodes,)
            Reverse Cuthill-McKee; random, elements too; or the old number of each new node.
        seed : int, optional
            Of "shuffled".
        """
        self.require_whole("TetMesh.renumbered")
        rng = _check.random_generator(seed, "TetMesh.renumbered")
        if isinstance(order, str):
            _check.one_of(order, ("rcm", "shuffled"), "TetMesh.renumbered", "order")
            old = rng.permutation(self.n_nodes) if order == "shuffled" else self._cuthill_mckee()
        else:
            name = "TetMesh.renumbered", "order", "name every node once"
            old = _check.array_of(order, *name)
            whole = old.dtype.kind in "iu" and np.array_equal(np.sort(old), np.arange(self.n_nodes))
            _check.require(whole, *name, f"{old.dtype} of shape {old.shape}")
        new = np.empty(self.n_nodes, dtype=np.int32)
        new[old] = np.arange(self.n_nodes, dtype=np.int32)
        tets = new[self.tets]
        shuffled = isinstance(order, str) and order == "shuffled"
        elements = rng.permutation(self.n_elements) if shuffled else np.argsort(tets.min(axis=1), kind="stable")
        return TetMesh(self.points[old], tets[elements])

    def require_whole(self, function: str) -> None:
        """Raise ValueError where this is the part of a mesh that one rank has."""
        wanted, advice = "be one of a single process", "Do it before the mesh is shared out."
        _check.require(self.part is None, function, "mesh", wanted, "one over ranks", advice)

    def _cuthill_mckee(self) -> np.ndarray:
        import scipy.sparse as sp
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        a, b = self.edges.T
        ones = np.ones(2 * len(a), dtype=np.int8)
        graph = sp.csr_array((ones, (np.r_[a, b], np.r_[b, a])), shape=(self.n_nodes, self.n_nodes))
        return np.asarray(reverse_cuthill_mckee(graph, symmetric_mode=True))

    def refined(self) -> TetMesh:
        """Each element divided into eight, new nodes at the middle of the edges; without data of a file.

        Four of them are at the corners; the octahedron between them is cut along the shortest of its three diagonals,
        the first among equals.
        """
        self.require_whole("TetMesh.refined")
        edges, of_element = self._edges
        middle = (self.points[edges[:, 0]] + self.points[edges[:, 1]]) * 0.5
        points = np.concatenate([self.points, middle])
        m = of_element + self.n_nodes
        v0, v1, v2, v3 = self.tets.T
        m01, m02, m03, m12, m13, m23 = m.T
        corners = [(v0, m01, m02, m03), (m01, v1, m12, m13), (m02, m12, v2, m23), (m03, m13, m23, v3)]
        # Opposite edges 0-5, 1-4 and 2-3 give the diagonals; around each, the other four middles in turn.
        rings = {(0, 5): (1, 3, 4, 2), (1, 4): (0, 2, 5, 3), (2, 3): (0, 4, 5, 1)}
        ends = np.array(list(rings))
        diagonals = points[m[:, ends[:, 1]]] - points[m[:, ends[:, 0]]]
        shortest = np.argmin((diagonals**2).sum(axis=2), axis=1)
        octahedron = np.empty((self.n_elements, 4, 4), dtype=np.int64)
        for choice, ((a, b), ring) in enumerate(rings.items()):
            here = shortest == choice
            for k in range(4):
                octahedron[here, k] = m[here][:, [a, b, ring[k], ring[(k + 1) % 4]]]
        tets = np.concatenate([np.moveaxis(np.array(corners), 2, 0), octahedron], axis=1).reshape(-1, 4)
        return TetMesh.oriented(points, tets)


for name in ("comm", "domains"):  # arguments alone: a mesh has `part`
    delattr(TetMesh, name)
