"""A run that was pickled or copied goes on as the run itself does; its cells are a pair."""

import copy
import pickle

import numpy as np
import pytest

from ensemble.apps.gbees import Gbees, lorenz63
from ensemble.scalar import Ensemble


def short_run(mean):
    run = Gbees(lorenz63, mean, np.eye(3), threshold=1e-3, factor=0.5)
    run.advance(0.02)
    return run


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))])
def test_a_copy_goes_on_by_itself_with_the_same_bits(duplicate):
    run = short_run(Ensemble(np.array([[-11.5, -11.0], [-10.0, -10.0], [9.5, 9.0]])))
    other = duplicate(run)
    before = run.mean().samples.copy()
    other.advance(0.05)
    assert np.array_equal(run.mean().samples, before)
    run.advance(0.05)
    assert np.array_equal(other.mean().samples, run.mean().samples)
    assert np.array_equal(other.covariance().samples, run.covariance().samples)


def test_cells_are_a_pair():
    cells = short_run([-11.5, -10.0, 9.5]).cells()
    indices, probabilities = cells
    assert cells[0] is indices and cells[1] is probabilities and cells[-1] is probabilities
    with pytest.raises(IndexError):
        cells[2]
