"""Periodic conditions: which nodes become one, and what Laplace's operator is then."""

import numpy as np
import pytest

from ensemble._kernels.fem import form_cuda
from ensemble._kernels.fem import forms as form_kernels
from ensemble.apps import fem
from ensemble.scalar import Ensemble
from tests import cuda_on_cpu
from tests.apps.fem.form_problems import diffusion, emulated, laplace, mass, values_of


def space_of(mesh, axes=(0, 1, 2)):
    return fem.LinearSpace(mesh, fem.periodic(mesh, axes))


# --- Laplace's operator
def test_the_spectrum_on_a_torus_is_that_of_the_seven_point_stencil():
    """Linear functions on Kuhn's cells of side h give h times the stencil: eigenvalues 2 h sum (1 - cos(2 pi k/n))."""
    counts = (4, 3, 5)
    mesh = fem.TetMesh.box(counts, lengths=tuple(0.5 * n for n in counts))
    K = laplace.assemble(space_of(mesh)).to_scipy().toarray()
    waves = [1.0 - np.cos(2.0 * np.pi * np.arange(n) / n) for n in counts]
    expected = 2.0 * 0.5 * (waves[0][:, None, None] + waves[1][:, None] + waves[2]).reshape(-1)
    np.testing.assert_allclose(np.linalg.eigvalsh(K), np.sort(expected), rtol=0, atol=1e-13)


def test_constants_alone_have_no_gradient():
    mesh = fem.TetMesh.box(3, jitter=0.2, seed=5).renumbered("shuffled", seed=2)
    K = laplace.assemble(space_of(mesh)).to_scipy().toarray()
    values, vectors = np.linalg.eigh(K)
    assert abs(values[0]) < 1e-14 < 1e-3 < values[1]
    np.testing.assert_allclose(np.abs(vectors[:, 0]), 27**-0.5, rtol=1e-12)


def test_a_shift_by_a_cell_changes_no_entry():
    mesh = fem.TetMesh.box((4, 3, 3))
    numbers = fem.periodic(mesh, (0, 1, 2))
    A = (laplace.assemble(fem.LinearSpace(mesh, numbers)) + mass.assemble(fem.LinearSpace(mesh, numbers))).to_scipy()
    grid = numbers.reshape(4, 4, 5)[:-1, :-1, :-1]  # z, y, x
    for axis in range(3):
        moved = np.empty(A.shape[0], dtype=int)
        moved[grid.reshape(-1)] = np.roll(grid, 1, axis=axis).reshape(-1)
        assert abs(A[moved][:, moved] - A).max() <= 1e-15


def test_a_mesh_of_one_cell_becomes_one_unknown():
    space = space_of(fem.TetMesh.box(1))
    assert space.n_unknowns == 1
    np.testing.assert_allclose(laplace.assemble(space).values, 0.0, atol=1e-15)
    np.testing.assert_allclose(mass.assemble(space).values, 1.0, rtol=1e-15)


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")
def test_device_code_adds_functions_of_one_element_that_share_an_unknown(rng, monkeypatch):
    mesh = fem.TetMesh.box((1, 3, 1))
    space, kappa = space_of(mesh), Ensemble(rng.uniform(0.5, 2.0, (mesh.n_nodes, 5)))
    expected = values_of(diffusion.assemble(space, kappa=kappa))
    monkeypatch.setattr(form_kernels, "backend_of", lambda *arrays: "cuda")
    monkeypatch.setattr(form_cuda, "_kernel", emulated)
    got = values_of(diffusion.assemble(space, kappa=kappa))
    np.testing.assert_allclose(got, expected, rtol=0, atol=4e-15 * abs(expected).max())


# --- which nodes become one
def test_corners_and_edges_of_a_box_become_one():
    mesh = fem.TetMesh.box((2, 3, 4)).renumbered("shuffled", seed=9)
    numbers = fem.periodic(mesh, (0, 1, 2))
    assert numbers.max() + 1 == 2 * 3 * 4
    np.testing.assert_array_equal(np.sort(np.unique(numbers, return_counts=True)[1])[-2:], [4, 8])
    corners = mesh.nodes_where(lambda x, y, z: ((x == 0) | (x == 1)) & ((y == 0) | (y == 1)) & ((z == 0) | (z == 1)))
    assert corners.size == 8
    assert np.unique(numbers[corners]).size == 1
    wrapped = mesh.points % 1.0
    for i in range(numbers.max() + 1):
        np.testing.assert_array_equal(np.ptp(wrapped[numbers == i], axis=0), 0.0)


@pytest.mark.parametrize(("axes", "unknowns"), [(0, 2 * 4 * 5), ((0,), 2 * 4 * 5), ((2, 1), 3 * 3 * 4)])
def test_axes_that_are_left_out_keep_their_ends(axes, unknowns):
    numbers = fem.periodic(fem.TetMesh.box((2, 3, 4)), axes)
    assert np.unique(numbers).size == numbers.max() + 1 == unknowns
    first = np.unique(numbers, return_index=True)[1]
    assert (np.diff(first) > 0).all()


def test_pairs_that_share_a_node_are_one_group():
    mesh = fem.TetMesh.box(1)
    np.testing.assert_array_equal(fem.merge_nodes(mesh, [(5, 2), (2, 7), (4, 3)]), [0, 1, 2, 3, 3, 2, 4, 2])
    np.testing.assert_array_equal(fem.merge_nodes(mesh, []), np.arange(8))


def test_ends_that_differ_by_rounding_are_matched():
    mesh = fem.TetMesh.box(3)
    points = mesh.points + 1e-10 * np.random.default_rng(3).uniform(-1, 1, mesh.points.shape)
    assert fem.periodic(fem.TetMesh(points, mesh.tets), (0, 1, 2)).max() == 26
    with pytest.raises(ValueError, match="without a partner"):
        fem.periodic(fem.TetMesh(points, mesh.tets), 0, tolerance=1e-11)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int16])
def test_numbers_are_integers_of_any_type_and_copied(dtype):
    mesh = fem.TetMesh.box(2)
    numbers = fem.periodic(mesh, 0)
    given = numbers.astype(dtype)
    space = fem.LinearSpace(mesh, given)
    given[:] = 0
    np.testing.assert_array_equal(space.numbers, numbers)
    np.testing.assert_array_equal(space.unknowns, numbers[mesh.tets])
    with pytest.raises(ValueError, match="numbers must name every unknown from 0 on"):
        fem.LinearSpace(mesh, np.where(numbers == 3, np.int64(10**12), numbers))


# --- what is refused
def test_nodes_without_a_partner_are_counted_and_placed():
    mesh = fem.TetMesh.box(2)
    points = mesh.points.copy()
    points[14] += [0.0, 0.1, 0.0]  # the middle of the side x = 1
    wanted = r"the same nodes at both ends of axis 0; got 1 of 9 nodes at the high end and 1 of 9 at the low end"
    with pytest.raises(ValueError, match=wanted + r" without a partner, the first at \(1, 0.6, 0.5\)\. Pass a greater"):
        fem.periodic(fem.TetMesh(points, mesh.tets), (1, 0))
    points[14] += [-0.1, 0.0, 0.0]
    with pytest.raises(ValueError, match="got 0 of 8 nodes at the high end and 1 of 9 at the low end"):
        fem.periodic(fem.TetMesh(points, mesh.tets), 0)


def test_ends_divided_into_other_facets_are_refused():
    """A cube of five tetrahedra has crossed diagonals on opposite sides."""
    corners = np.array([[b & 1, b >> 1 & 1, b >> 2] for b in range(8)], dtype=float)
    mesh = fem.TetMesh.oriented(corners, [[0, 3, 5, 6], [1, 0, 3, 5], [2, 0, 3, 6], [4, 0, 5, 6], [7, 3, 5, 6]])
    with pytest.raises(
        ValueError, match=r"the same facets at both ends of axis 1; got 4 without .*, the first over \("
    ):
        fem.periodic(mesh, 1)


@pytest.mark.parametrize("axes", [2, (0, 1)])
def test_ends_without_a_plane_side_are_refused(axes):
    """The poles of an octahedron are not its sides, and they alone are at its ends."""
    corners = np.concatenate([np.eye(3), -np.eye(3), np.zeros((1, 3))])
    tets = [[i, j, k, 6] for i in (0, 3) for j in (1, 4) for k in (2, 5)]
    wanted = r"periodic: mesh must have plane sides at both ends of axis \d; got no facet in them"
    with pytest.raises(ValueError, match=wanted):
        fem.periodic(fem.TetMesh.oriented(corners, tets), axes)


MASKED = np.ma.masked_array([0, 1], [False, True])


@pytest.mark.parametrize(
    ("call", "error", "expected"),
    [
        (lambda m: fem.periodic(m, 3), ValueError, "periodic: axes must be from 0 to 2; got 3"),
        (lambda m: fem.periodic(m, ()), ValueError, r"axes must be from 0 to 2; got \(\)"),
        (lambda m: fem.periodic(m, "x"), TypeError, "axes must be an integer of at least 0; got 'x'"),
        (lambda m: fem.periodic(m, 0, tolerance=0.0), ValueError, "tolerance must be a finite number above zero"),
        (lambda m: fem.periodic(m, 0, tolerance=0.6), ValueError, "tolerance must tell the nodes of an end apart"),
        (lambda m: fem.merge_nodes(m, [(0, 27)]), ValueError, r"nodes from 0 to 26; got others in 1 of 1 .* \[0, 27\]"),
        (lambda m: fem.merge_nodes(m, [(0, 1, 2)]), ValueError, r"merge_nodes: pairs must have shape \(n, 2\)"),
        (lambda m: fem.merge_nodes(m, [(0.0, 1.0)]), TypeError, "pairs must be integers; got dtype float64"),
        (lambda m: fem.merge_nodes(m, MASKED[None]), ValueError, "pairs must have no masked entries; got 1 of 2"),
        (lambda m: fem.LinearSpace(m, np.ma.resize(MASKED, 27)), ValueError, "numbers must have no masked entries"),
        (lambda m: fem.BoundarySpace(m, MASKED), ValueError, "facets must have no masked entries; got 1 of 2"),
        (
            lambda m: fem.merge_nodes(m.points, [(0, 1)]),
            TypeError,
            "merge_nodes: mesh must be a TetMesh; got an ndarray",
        ),
        (lambda m: fem.periodic(m.points, 0), TypeError, "periodic: mesh must be a TetMesh; got an ndarray"),
    ],
)
def test_axes_and_pairs_that_are_none_are_refused(call, error, expected):
    with pytest.raises(error, match=expected):
        call(fem.TetMesh.box(2))
