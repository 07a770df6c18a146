"""Numbering, grading, and what row-by-row assembly is told about the mesh."""

import numpy as np
import pytest
import scipy.sparse

from ensemble.apps.fem import HexMesh

MESHES = [((1, 1, 1), 0.0), ((3, 4, 2), 1.0), ((5, 1, 2), -2.0)]


@pytest.fixture(params=MESHES, ids=str)
def mesh(request):
    cells, grading = request.param
    return HexMesh.box(cells, grading=grading)


def test_nodes_follow_the_grading_formula():
    x = HexMesh.box(4, grading=1.0).axes[0]
    g = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(x, g + g**2 * (1 - g) ** 2, rtol=1e-15)


def test_cells_fill_the_cube(mesh):
    assert np.prod(mesh.edges, axis=1).sum() == pytest.approx(1.0, rel=1e-14)


def test_corners_lie_where_their_bits_say(mesh):
    corners = mesh.points[mesh.connectivity]
    for b in range(8):
        far = np.array([b >> d & 1 for d in range(3)])
        np.testing.assert_allclose(corners[:, b] - corners[:, 0], far * mesh.edges, rtol=0, atol=1e-15)


def test_gauss_points_lie_inside_their_cells(mesh):
    for cell in range(mesh.n_cells):
        low, high = mesh.points[mesh.connectivity[cell, [0, 7]]]
        points = np.array([mesh.gauss_point(cell, q) for q in range(8)])
        assert np.all((low < points) & (points < high))
        np.testing.assert_allclose(points.mean(axis=0), (low + high) / 2, rtol=1e-14)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_faces_hold_the_nodes_of_one_coordinate(mesh, axis):
    for end, value in ((0, 0.0), (-1, 1.0)):
        np.testing.assert_array_equal(mesh.on_face(axis, end), mesh.points[:, axis] == value)


def test_graph_couples_nodes_that_share_a_cell(mesh):
    belongs = scipy.sparse.csr_array(
        (np.ones(8 * mesh.n_cells), mesh.connectivity.reshape(-1), np.arange(0, 8 * mesh.n_cells + 1, 8)),
        shape=(mesh.n_cells, mesh.n_nodes),
    )
    expected = (belongs.T @ belongs).tocsr()
    expected.sort_indices()
    indptr, indices = mesh.coupling_graph()
    np.testing.assert_array_equal(indptr, expected.indptr)
    np.testing.assert_array_equal(indices, expected.indices)
    assert indptr.dtype == indices.dtype == np.int32


def test_incidences_point_back_at_their_row(mesh):
    indptr, indices = mesh.coupling_graph()
    incidence = mesh.row_incidence()
    node = np.repeat(np.arange(mesh.n_nodes), np.diff(incidence.first))
    assert incidence.cells.size == 8 * mesh.n_cells
    np.testing.assert_array_equal(mesh.connectivity[incidence.cells, incidence.corners], node)
    columns = indices[indptr[node][:, None] + incidence.slots]
    np.testing.assert_array_equal(columns, mesh.connectivity[incidence.cells])


def test_the_published_mesh_has_the_published_size():
    mesh = HexMesh.box(64, grading=1.0)
    indptr, indices = mesh.coupling_graph()
    assert (mesh.n_nodes, indices.size, indptr[-1]) == (274_625, 7_189_057, 7_189_057)


@pytest.mark.parametrize(
    "cells, grading, error, text",
    [
        (0, 0.0, ValueError, "HexMesh.box: cells must be an integer of at least 1; got 0"),
        ((2, 2), 0.0, ValueError, "cells must be one count or three; got 2 counts"),
        (2.5, 0.0, TypeError, "cells must be an integer"),
        (2, 6.0, ValueError, r"grading must lie between -5.196 and 5.196 .*; got 6.0"),
        (2, np.nan, ValueError, "grading must be finite; got nan"),
        (2, "steep", TypeError, "grading must be a finite number; got 'steep'"),
    ],
)
def test_bad_arguments_are_named(cells, grading, error, text):
    with pytest.raises(error, match=text):
        HexMesh.box(cells, grading=grading)
