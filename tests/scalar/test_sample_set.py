"""Sample sets: frozen, compared by what they hold."""

import pickle

import numpy as np
import pytest

from ensemble.scalar import SampleSet


def test_equal_sets_are_equal_wherever_they_come_from():
    a = SampleSet(points=np.eye(3), weights=[1, 2, 3], method="sobol", seed=3)
    b = pickle.loads(pickle.dumps(a))
    assert a == b
    assert hash(a) == hash(b)
    assert a != SampleSet(points=np.eye(3), weights=[1, 2, 4], method="sobol", seed=3)
    assert a != SampleSet(points=np.eye(3), weights=[1, 2, 3], method="sobol", seed=4)
    assert len(a) == 3


def test_a_set_is_frozen():
    weights = np.array([1.0, 2.0])
    a = SampleSet(weights=weights)
    weights[0] = 5.0
    assert a.weights[0] == 1.0
    with pytest.raises(AttributeError, match="SampleSet: weights must stay as it is"):
        a.weights = weights
    with pytest.raises(ValueError, match="read-only"):
        a.weights[0] = 5.0


def test_a_part_keeps_ids_points_and_weights():
    part = SampleSet(points=np.arange(8.0).reshape(2, 4), weights=[1, 2, 3, 0], ids=[7, 8, 9, 10]).take([2, 0])
    np.testing.assert_array_equal(part.ids, [9, 7])
    np.testing.assert_array_equal(part.weights, [3.0, 1.0])
    np.testing.assert_array_equal(part.points, [[2.0, 0.0], [6.0, 4.0]])


def test_a_part_of_padding_alone_can_still_be_averaged():
    np.testing.assert_array_equal(SampleSet(weights=[1, 0, 0]).take([1, 2]).weights, [1.0, 1.0])


@pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0], [1.0, np.nan], [np.inf, 1.0]])
def test_weights_must_be_weights(weights):
    with pytest.raises(ValueError, match="SampleSet: weights must be finite, zero or above, and not all zero"):
        SampleSet(weights=weights)


@pytest.mark.parametrize("options", [{}, {"weights": [1, 2], "ids": [1, 2, 3]}, {"ids": [1], "n_samples": 2}])
def test_lengths_must_agree(options):
    with pytest.raises(ValueError, match="SampleSet: points, weights, ids must have one length"):
        SampleSet(**options)


def test_repr_is_short():
    assert repr(SampleSet(n_samples=4, method="sobol", seed=7)) == "SampleSet(n_samples=4, method='sobol', seed=7)"
