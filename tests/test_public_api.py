"""The public lists say what is public, and no more."""

import importlib
import inspect

import numpy as np
import pytest

import ensemble
from ensemble.apps.fem import RandomDiffusion

PACKAGES = [
    "ensemble",
    "ensemble.linalg",
    "ensemble.krylov",
    "ensemble.multigrid",
    "ensemble.scalar",
    "ensemble.apps.fem",
    "ensemble.apps.gbees",
    "ensemble.apps.gbees",
    "ensemble.apps.kalman",
]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_sorted_and_true(name):
    module = importlib.import_module(name)
    assert list(module.__all__) == sorted(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_object_has_a_docstring(name):
    module = importlib.import_module(name)
    for public in module.__all__:
        thing = getattr(module, public)
        if callable(thing):
            assert inspect.getdoc(thing), f"{name}.{public}"


def test_the_main_job_in_five_lines():
    y = ensemble.Ensemble(np.random.default_rng(40487).uniform(-1.0, 1.0, (5, 3)))
    result = RandomDiffusion(8).solve(y).raise_if_failed()
    assert result.u.shape == (729,) and result.response.shape == ()
    assert np.all(result.iterations <= 7)
    assert 2.40 < float(ensemble.sample_mean(result.response)) < 2.48
