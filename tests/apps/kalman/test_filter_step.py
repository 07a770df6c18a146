"""One step at a time on arrays made once is the filter of the series, to the bit."""

import numpy as np
import pytest

from ensemble._kernels.kalman.recursions import FilterStep
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter
from tests.apps.kalman.models import random_parts, with_gaps


@pytest.mark.parametrize("size", [(1, 1), (4, 2), (12, 5)], ids=str)
@pytest.mark.parametrize("prior_at", ["before", "first_observation"])
def test_steps_are_the_filter_of_the_series(size, prior_at):
    parts, y = random_parts(30, *size, seed=27183)
    y = with_gaps(y)
    whole = kalman_filter(LinearGaussianModel(**parts, prior_at=prior_at), y)
    step = FilterStep(*size, "float64")
    for place, value in zip(step.states[0], (parts["m0"], parts["P0"]), strict=True):
        place[:] = value
    for k in range(30):
        for name in ("F", "Q", "H", "R", "u", "d"):
            getattr(step, name)[:] = parts[name][k]
        step.y[:] = y[k]
        before = [a.copy() for a in step.states[k % 2]]
        term = step(k % 2, k > 0 or prior_at == "before")
        mean, covariance = step.states[1 - k % 2]
        np.testing.assert_array_equal(mean, whole.mean[k])
        np.testing.assert_array_equal(covariance, whole.covariance[k])
        for a, same in zip(step.states[k % 2], before, strict=True):
            np.testing.assert_array_equal(a, same)
        assert term == whole.log_likelihoods[k]
