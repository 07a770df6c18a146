"""Random points: one stream of NumPy's PCG64."""

import numpy as np

from ensemble import uq


def test_points_are_the_stream_of_numpy_row_by_row():
    expected = np.random.default_rng(71203).random((500, 3))
    assert np.array_equal(uq.MonteCarlo().points(np.arange(500), 3, seed=71203), expected)
    ids = [499, 3, 4, 3, 0, 250]
    assert np.array_equal(uq.MonteCarlo().points(ids, 3, seed=71203), expected[ids])


def test_no_columns_and_no_ids_give_empty_arrays():
    assert uq.MonteCarlo().points([0, 1], 0, seed=71204).shape == (2, 0)
    assert uq.MonteCarlo().points([], 2, seed=71204).shape == (0, 2)
