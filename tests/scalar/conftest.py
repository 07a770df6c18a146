"""Base libraries and ensembles of truly different samples."""

import numpy as np
import pytest

from ensemble.scalar import Ensemble
from tests.scalar.libraries import BASES, double_precision


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.cuda] * (name == "cupy")) for name in BASES])
def base(request):
    """A base library."""
    with double_precision(request.param) as library:
        yield library


@pytest.fixture
def x(base):
    """Shape (3,), 5 samples, all values different."""
    values = np.random.default_rng(40127).normal(size=(3, 5))
    return Ensemble(base.asarray(values))


@pytest.fixture
def matrix(base):
    """Shape (3, 4), 5 samples, all values different."""
    values = np.random.default_rng(81733).normal(size=(3, 4, 5))
    return Ensemble(base.asarray(values))
