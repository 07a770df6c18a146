"""Fixtures and Hypothesis settings that all tests share."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from ensemble._compile import numba

EVERY_WIDTH = numba.WIDTHS

if not os.environ.get("ENSEMBLE_TEST_EVERY_WIDTH"):
    # Each width of tiles compiles all kernels of a solver once more. The other widths have tests of their own in
    # tests/test_kernels.py: no bit depends on how the sample axis is cut.
    numba.WIDTHS = (32, 4, 1)

settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")


@pytest.fixture
def rng():
    return np.random.default_rng(31847)
