"""Matrices and points in types that users have."""

import numpy as np
import scipy.sparse as sp

from ensemble.gallery import poisson
from ensemble.multigrid import rigid_body_modes


def test_unsigned_and_bool_matrices_are_subtracted_as_numbers():
    A = poisson((3,))
    for dtype in (np.uint8, bool):
        expected = A.to_scipy().toarray() - np.eye(3)
        np.testing.assert_array_equal((A - sp.eye_array(3, dtype=dtype)).to_scipy().toarray(), expected)


def test_rigid_body_modes_of_float32_points_are_computed_in_float64():
    points = (1000.0 + np.random.default_rng(3).uniform(size=(7, 3))).astype(np.float32)
    np.testing.assert_array_equal(rigid_body_modes(points), rigid_body_modes(points.astype(np.float64)))
    assert rigid_body_modes(np.zeros((0, 3))).shape == (0, 6)
