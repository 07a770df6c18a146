"""Meshes of tetrahedra: what they count, how they are refined, and what is refused."""

import copy
import pickle

import numpy as np
import pytest

from ensemble.apps import fem


@pytest.mark.parametrize("cells", [1, 2, (3, 1, 2)])
def test_a_box_is_filled_by_kuhn_tetrahedra(cells):
    mesh = fem.TetMesh.box(cells, lengths=(2.0, 0.5, 3.0))
    nx, ny, nz = (cells,) * 3 if isinstance(cells, int) else cells
    assert mesh.n_nodes == (nx + 1) * (ny + 1) * (nz + 1)
    assert mesh.n_elements == 6 * nx * ny * nz
    assert mesh.volumes.sum() == pytest.approx(3.0, rel=1e-14)
    np.testing.assert_allclose(mesh.volumes, 3.0 / mesh.n_elements, rtol=1e-13)
    assert len(mesh.boundary_facets) == 4 * (nx * ny + ny * nz + nz * nx)
    facets = (4 * mesh.n_elements + len(mesh.boundary_facets)) // 2
    assert mesh.n_nodes - len(mesh.edges) + facets - mesh.n_elements == 1  # Euler


def test_facets_of_the_boundary_point_outwards():
    mesh = fem.TetMesh.box(2, jitter=0.2, seed=4).renumbered("shuffled", seed=1)
    a, b, c = (mesh.points[mesh.boundary_facets[:, i]] for i in range(3))
    normal, centre = np.cross(b - a, c - a), (a + b + c) / 3
    assert ((normal * (centre - 0.5)).sum(axis=1) > 0).all()
    np.testing.assert_allclose(normal.sum(axis=0), 0.0, atol=1e-14)
    assert (centre * normal).sum() / 6 == pytest.approx(1.0, rel=1e-13)  # the divergence theorem
    on_box = ((mesh.points == 0) | (mesh.points == 1)).any(axis=1)
    np.testing.assert_array_equal(mesh.boundary_nodes(), np.flatnonzero(on_box))


@pytest.mark.parametrize("jitter", [0.0, 0.2])
def test_refinement_keeps_the_volume_and_divides_each_element_by_eight(jitter):
    mesh = fem.TetMesh.box((2, 3, 2), jitter=jitter, seed=77)
    fine = mesh.refined()
    assert fine.n_elements == 8 * mesh.n_elements
    assert fine.n_nodes == mesh.n_nodes + len(mesh.edges)
    np.testing.assert_array_equal(fine.points[: mesh.n_nodes], mesh.points)
    np.testing.assert_allclose(fine.volumes.reshape(-1, 8), mesh.volumes[:, None] / 8 * np.ones(8), rtol=1e-12)
    assert len(fine.boundary_facets) == 4 * len(mesh.boundary_facets)  # it conforms
    again = fine.refined()
    assert quality(again).min() >= 0.5 * quality(mesh).min()


def quality(mesh):
    edges = mesh.points[mesh.edges[:, 1]] - mesh.points[mesh.edges[:, 0]]
    length = (edges**2).sum(axis=1)
    keys = mesh.edges[:, 0] * np.int64(mesh.n_nodes) + mesh.edges[:, 1]
    pairs = np.sort(mesh.tets[:, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]], axis=2)
    of_element = length[np.searchsorted(keys, pairs[..., 0] * np.int64(mesh.n_nodes) + pairs[..., 1])]
    return 6 * np.sqrt(2) * mesh.volumes / of_element.mean(axis=1) ** 1.5


def test_terrain_lifts_the_ground_and_leaves_the_top():
    mesh = fem.TetMesh.box(4, lengths=(1.0, 1.0, 2.0), terrain=lambda x, y: 0.3 * np.sin(np.pi * x) * y)
    flat = fem.TetMesh.box(4, lengths=(1.0, 1.0, 2.0))
    ground, top = flat.points[:, 2] == 0, flat.points[:, 2] == 2
    x, y, z = mesh.points.T
    np.testing.assert_allclose(z[ground], (0.3 * np.sin(np.pi * x) * y)[ground], atol=1e-15)
    np.testing.assert_allclose(z[top], 2.0)
    assert mesh.volumes.sum() < 2.0


@pytest.mark.parametrize("order", ["rcm", "shuffled"])
def test_another_numbering_is_the_same_mesh(order):
    mesh = fem.TetMesh.box((4, 3, 5), jitter=0.1, seed=12)
    other = mesh.renumbered(order, seed=5)

    def corners(m):
        sets = np.sort(m.points[m.tets].view([("x", float), ("y", float), ("z", float)])[..., 0], axis=1)
        return sorted(map(tuple, sets.tolist()))

    assert corners(mesh) == corners(other)
    width = [np.abs(np.diff(m.edges, axis=1)).max() for m in (mesh, other)]
    assert width[1] <= width[0] if order == "rcm" else width[1] > width[0]
    np.testing.assert_array_equal(other.tets, mesh.renumbered(order, seed=5).tets)


POINTS = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])
TETS = np.array([[0, 1, 2, 3], [4, 3, 2, 1]])


@pytest.mark.parametrize(
    ("points", "tets", "error", "expected"),
    [
        (POINTS, [[0, 2, 1, 3], TETS[1]], ValueError, r"negative volume in 1 element \(0\).*TetMesh.oriented"),
        (POINTS, [TETS[0], [4, 3, 2, 7]], ValueError, r"tets must be nodes from 0 to 4; got others in 1 element \(1\)"),
        (POINTS, [TETS[0], [4, 3, 2, -1]], ValueError, r"nodes from 0 to 4; got others in 1 element \(1\)"),
        (POINTS, [TETS[0], [4, 3, 3, 1]], ValueError, r"name four nodes each; got a node twice in 1 element \(1\)"),
        (POINTS, [*TETS, [1, 2, 0, 3]], ValueError, r"stand once; got the nodes of another in 1 element \(2\)"),
        (POINTS, TETS[:1], ValueError, r"belong to an element each; got none for 1 node \(4\)"),
        (POINTS * [1, 1, 0], TETS, ValueError, r"have a volume; got none in 2 elements \(0, 1\)"),
        (np.where(POINTS == 1, np.nan, POINTS), TETS, ValueError, r"points must be finite; got 4 nodes \(1, 2, 3, 4\)"),
        (POINTS[:, :2], TETS, ValueError, r"points must have shape \(n, 3\), n > 0; got \(5, 2\)"),
        (POINTS, TETS[:, :3], ValueError, r"tets must have shape \(n, 4\), n > 0; got \(2, 3\)"),
        (POINTS, np.zeros((0, 4), int), ValueError, r"tets must have shape \(n, 4\), n > 0; got \(0, 4\)"),
        (POINTS, TETS * 1.0, TypeError, "tets must be integers; got dtype float64"),
        (POINTS.astype(str), TETS, TypeError, "points must be real numbers"),
    ],
)
def test_what_is_no_mesh_is_refused(points, tets, error, expected):
    with pytest.raises(error, match=expected):
        fem.TetMesh(points, tets)


def test_a_mesh_keeps_copies_and_oriented_mends_the_order():
    points, tets = POINTS.copy(), TETS[:, [0, 2, 1, 3]].copy()
    mesh = fem.TetMesh.oriented(points, tets)
    points[:] = 7.0
    tets[:] = 0
    np.testing.assert_array_equal(mesh.points, POINTS)
    assert mesh.volumes.sum() == pytest.approx(1 / 6 + 1 / 3)


@pytest.mark.parametrize("made", [lambda m: m, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("name", ["points", "tets", "volumes", "edges", "boundary_facets"])
def test_arrays_of_a_mesh_cannot_be_changed(made, name):
    """Tables made of them are kept: sizes of elements, normals, graphs."""
    mesh = made(fem.TetMesh.box(2))
    with pytest.raises(ValueError, match="read-only"):
        getattr(mesh, name)[0] = 1


def test_functions_of_coordinates_cannot_move_nodes():
    def in_place(x, y, z=0.0):
        x -= 0.5
        return x * x + y * y + z < 0.3

    mesh = fem.TetMesh.box(2)
    with pytest.raises(ValueError, match="read-only"):
        mesh.nodes_where(in_place)
    lifted = fem.TetMesh.box(2, terrain=lambda x, y: 0.1 * in_place(x, y))
    np.testing.assert_array_equal(lifted.points[:, :2], mesh.points[:, :2])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"cells": 0}, "TetMesh.box: cells must be an integer of at least 1; got 0"),
        ({"cells": (2, 2)}, "TetMesh.box: cells must be one count or three; got 2 counts"),
        ({"cells": 2, "jitter": 0.3}, "jitter must lie from 0 to 0.2; got 0.3"),
        ({"cells": 2, "lengths": (1.0, -1.0, 1.0)}, "lengths must be"),
        ({"cells": 2, "lengths": 2.0}, "lengths must be three numbers; got 2.0"),
        ({"cells": 2, "terrain": lambda x, y: x[:5]}, "terrain must give one height or 27; got float64 of shape"),
        ({"cells": 2, "terrain": lambda x, y: 1j * x}, "terrain must give one height or 27; got complex128"),
        ({"cells": 2, "terrain": lambda x, y: 3.0 + 0 * x}, "negative volume"),
    ],
)
def test_boxes_that_cannot_be_are_refused(options, expected):
    with pytest.raises(ValueError, match=expected):
        fem.TetMesh.box(**options)


@pytest.mark.parametrize("points, tets", [(POINTS, TETS * 1.0), (POINTS * 1j, TETS), (POINTS.astype(str), TETS)])
def test_other_numbers_are_refused_by_oriented(points, tets):
    with pytest.raises(TypeError, match=r"TetMesh: (points must be real numbers|tets must be integers); got"):
        fem.TetMesh.oriented(points, tets)


def test_nodes_are_chosen_by_coordinates():
    mesh = fem.TetMesh.box(3)
    assert mesh.nodes_where(lambda x, y, z: z == 0).size == 16
    with pytest.raises(ValueError, match="condition must give 64 bools, one per node; got float64"):
        mesh.nodes_where(lambda x, y, z: x)
    for order in (np.zeros(64, int), np.arange(64.0)):
        with pytest.raises(ValueError, match="order must name every node once"):
            mesh.renumbered(order)
