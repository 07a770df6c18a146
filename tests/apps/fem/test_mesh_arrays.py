"""Passes over the elements of a mesh against plain NumPy: doubles and orders in space."""

import numpy as np
import pytest

from ensemble._kernels.fem.mesh_arrays import CHUNK, has_doubles, order_of_keys, rows_in_order
from ensemble.apps import fem
from ensemble.apps.fem.spaces import spatial_order


@pytest.mark.parametrize("keys", ["spread", "equal"])
@pytest.mark.parametrize("double", [None, (0, 1), (17, 2999), (2998, 2999)])
def test_doubles_are_found_wherever_they_stand(keys, double, rng):
    digits = np.stack(np.unravel_index(rng.permutation(20**4)[:3000], (20,) * 4), axis=1)
    tets = (digits + np.array([0, 20, 40, 60])).astype(np.int32)  # four different nodes each
    if double is not None:
        tets[double[1]] = tets[double[0]][[2, 0, 3, 1]]
    chosen = np.zeros(3000, np.uint32)
    if keys == "spread":  # equal for equal nodes
        chosen[:] = np.sort(tets, axis=1) @ np.array([1, 20, 400, 8000]) * 2654435761 % 2**32
    assert has_doubles(tets.reshape(-1), chosen) == (double is not None)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_elements_have_no_doubles(n):
    tets = np.arange(4 * n, dtype=np.int32)
    assert not has_doubles(tets, np.arange(n, dtype=np.uint32))


def test_a_mesh_with_a_double_far_away_is_refused(rng):
    mesh = fem.TetMesh.box(9)
    tets = np.concatenate([mesh.tets, mesh.tets[[1234]][:, [1, 2, 0, 3]]])
    with pytest.raises(ValueError, match="the nodes of another"):
        fem.TetMesh(mesh.points, tets)
    assert fem.TetMesh(mesh.points, tets[:-1]).n_elements == mesh.n_elements


def z_order(points):
    """The same curve by NumPy: the bits of the cells along each axis, x in the lowest places."""
    low, high = points.min(axis=0), points.max(axis=0)
    scale = np.where(high > low, 31.999 / np.where(high > low, high - low, 1.0), 0.0)
    cells = ((points - low) * scale).astype(np.int64)
    dim = points.shape[1]
    keys = sum(((cells[:, d] >> bit & 1) << (dim * bit + d)) for d in range(dim) for bit in range(5))
    return np.argsort(keys, kind="stable")


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("n", [1, 5, CHUNK, 2 * CHUNK + 3])
def test_points_follow_a_z_curve(dim, n, rng):
    points = rng.normal(size=(n, dim))
    np.testing.assert_array_equal(spatial_order(points), z_order(points))
    rows = rng.integers(0, n, 2 * n).astype(np.int32)
    np.testing.assert_array_equal(spatial_order(points, rows), z_order(points[rows]))
    points[:, -1] = 3.0  # a flat mesh
    np.testing.assert_array_equal(spatial_order(points), z_order(points))


def test_points_that_are_no_numbers_have_a_place_in_the_order(rng):
    points = rng.normal(size=(50, 3))
    points[7, 1], points[9] = np.nan, np.inf
    np.testing.assert_array_equal(np.sort(spatial_order(points)), np.arange(50))
    assert spatial_order(np.empty((0, 3))).size == 0


def test_keys_are_sorted_stably_and_rows_are_taken(rng):
    keys, order = rng.integers(0, 1 << 15, 5000).astype(np.int16), np.empty(5000, np.int32)
    keys[:100] = (1 << 15) - 1
    order_of_keys(keys, order)
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))
    rows, out = rng.integers(0, 9, (5000, 3)).astype(np.int32), np.empty((5000, 3), np.int32)
    rows_in_order(rows.reshape(-1), order, (0,) * 3, out.reshape(-1))
    np.testing.assert_array_equal(out, rows[order])
