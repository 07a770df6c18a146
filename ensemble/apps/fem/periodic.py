"""Nodes that share an unknown: periodic conditions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble import _check
from ensemble.apps.fem.tet_mesh import TetMesh

__all__ = ["merge_nodes", "periodic"]


def merge_nodes(mesh: TetMesh, pairs: Any) -> np.ndarray:
    """Number the unknowns of a mesh on which nodes of pairs share one.

    Pairs that have a node in common are one group: if a is merged with b and b with c, the three share an unknown.

    Parameters
    ----------
    mesh : TetMesh
    pairs : array of int, shape (n_pairs, 2)

    Returns
    -------
    array of int32, shape (n_nodes,)
        The unknown of each node, in the order of the first node of each group: `numbers` of `LinearSpace` and
        `BoundarySpace`. A function on the nodes is ``u[numbers]``.

    Raises
    ------
    TypeError
        If `mesh` is no TetMesh or `pairs` are not integers.
    ValueError
        If `pairs` has another shape or names a node that does not exist.

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> fem.merge_nodes(fem.TetMesh.box(1), [(0, 7), (7, 3)])
    array([0, 1, 2, 0, 3, 4, 5, 0], dtype=int32)
    """
    import scipy.sparse as sp
    from scipy.sparse.csgraph import connected_components

    _check.require_type(mesh, TetMesh, "merge_nodes", "mesh", "be a TetMesh")
    mesh.require_whole("merge_nodes")
    _check.require_unmasked(pairs, "merge_nodes", "pairs")
    pairs = _check.array_of(pairs, "merge_nodes", "pairs", "have shape (n, 2)")
    pairs = pairs.astype(np.int64) if pairs.size == 0 else pairs
    if pairs.dtype.kind not in "iu":
        raise TypeError(_check.message("merge_nodes", "pairs", "be integers", f"dtype {pairs.dtype}"))
    pairs = pairs.reshape(0, 2) if pairs.size == 0 else pairs
    shaped = pairs.ndim == 2 and pairs.shape[1] == 2
    _check.require(shaped, "merge_nodes", "pairs", "have shape (n, 2)", pairs.shape)
    n = mesh.n_nodes
    bad = np.flatnonzero(((pairs < 0) | (pairs >= n)).any(axis=1))
    seen = f"others in {len(bad)} of {len(pairs)} pairs, the first {pairs[bad[0]].tolist()}" if bad.size else ""
    _check.require(not bad.size, "merge_nodes", "pairs", f"be nodes from 0 to {n - 1}", seen)
    graph = sp.coo_array((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    _, group = connected_components(graph, directed=False)
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int32)
    rank[np.argsort(first)] = np.arange(first.size, dtype=np.int32)
    numbers: np.ndarray = rank[inverse]
    return numbers


def periodic(mesh: TetMesh, axes: int | tuple[int, ...], *, tolerance: float = 1e-8) -> np.ndarray:
    """Number the unknowns of a mesh whose two ends along each of `axes` are one.

    The ends along an axis are the nodes of the least and of the greatest coordinate: plane sides of a box. A node of
    one is merged with the node of the other whose further coordinates are equal. On three axes the eight corners of a
    box share one unknown.

    Parameters
    ----------
    mesh : TetMesh
    axes : int or tuple of int, from 0 to 2
    tolerance : float, dimensionless
        Coordinates are equal if they differ by no more than this times the longest side of the mesh.

    Returns
    -------
    array of int32, shape (n_nodes,)
        The unknown of each node: `numbers` of `LinearSpace` and `BoundarySpace`.

    Raises
    ------
    TypeError
        If `mesh` is no TetMesh or an axis no integer.
    ValueError
        If `axes` are not from 0 to 2, an end has no facet, or nodes or facets of one end have no partner at the other.
        The message says how many, and where the first is.

    Examples
    --------
    >>> from ensemble.apps import fem
    >>> mesh = fem.TetMesh.box(4)
    >>> space = fem.LinearSpace(mesh, fem.periodic(mesh, (0, 1, 2)))
    >>> space.n_unknowns
    64
    """
    _check.require_type(mesh, TetMesh, "periodic", "mesh", "be a TetMesh")
    mesh.require_whole("periodic")
    chosen = axes if isinstance(axes, tuple | list) else (axes,)
    numbers = [_check.integer(axis, "periodic", "axes", minimum=0) for axis in chosen]
    _check.require(max(numbers, default=3) <= 2, "periodic", "axes", "be from 0 to 2", repr(axes))
    tolerance = _check.positive(tolerance, "periodic", "tolerance")
    near = tolerance * float(np.ptp(mesh.points, axis=0).max())
    return merge_nodes(mesh, np.concatenate([_partners(mesh, axis, near) for axis in numbers]))


def _partners(mesh: TetMesh, axis: int, near: float) -> np.ndarray:
    """The pairs (node at the low end, node at the high end) along an axis, shape (n, 2)."""
    from scipy.spatial import cKDTree

    along, across = mesh.points[:, axis], np.delete(mesh.points, axis, axis=1)
    low, high = np.flatnonzero(along <= along.min() + near), np.flatnonzero(along >= along.max() - near)
    distance, place = cKDTree(across[low]).query(across[high], distance_upper_bound=near * (1.0 + 1e-12))
    matched = np.isfinite(distance)
    partner = low[place[matched]]
    once = np.unique(partner).size == partner.size
    _check.require(once, "periodic", "tolerance", "tell the nodes of an end apart", f"{near:.3g} m", "Pass less.")
    single = np.setdiff1d(low, partner)
    alone = np.concatenate([high[~matched], single])
    if alone.size:
        x, y, z = mesh.points[alone[0]]
        seen = (
            f"{np.sum(~matched)} of {high.size} nodes at the high end and {single.size} of {low.size} at the low end "
            f"without a partner, the first at ({x:.6g}, {y:.6g}, {z:.6g})"
        )
        wanted = f"have the same nodes at both ends of axis {axis}"
        advice = "Pass a greater tolerance=, or pairs of nodes to merge_nodes."
        raise ValueError(_check.message("periodic", "mesh", wanted, seen, advice))
    pairs = np.stack([partner, high[matched]], axis=1)
    _check_facets(mesh, axis, pairs)
    return pairs


def _check_facets(mesh: TetMesh, axis: int, pairs: np.ndarray) -> None:
    """Refuse ends that are divided into different facets: functions would not be continuous across them."""
    ends = []
    for own in pairs.T:
        new = np.full(mesh.n_nodes, -1)
        new[own] = np.arange(len(own))
        facets = new[mesh.boundary_facets]
        kept = (facets >= 0).all(axis=1)
        ends.append({tuple(facet) for facet in np.sort(facets[kept], axis=1).tolist()})
    _check.require(
        bool(ends[0] | ends[1]), "periodic", "mesh", f"have plane sides at both ends of axis {axis}",
        "no facet in them", "Pass pairs of nodes to merge_nodes.",
    )  # fmt: skip
    alone = ends[0] ^ ends[1]
    if alone:
        x, y, z = mesh.points[pairs[list(min(alone)), 0]].mean(axis=0)
        seen = f"{len(alone)} without an equal one, the first over ({x:.6g}, {y:.6g}, {z:.6g})"
        wanted = f"have the same facets at both ends of axis {axis}"
        raise ValueError(_check.message("periodic", "mesh", wanted, seen))
