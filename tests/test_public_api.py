"""The public lists say what is public, and no more."""

import importlib
import inspect

import numpy as np
import pytest

import ensemble
from ensemble.apps.fem import RandomDiffusion
from tests.public_api import TABLE, lines, packages

PACKAGES = packages()


def test_the_public_names_and_signatures_are_those_of_the_table():
    """What is added, removed or changed must be so in the table, too: ``python -m tests.public_api`` writes it."""
    found, expected = list(lines()), TABLE.read_text().splitlines()
    assert [f"+ {x}" for x in found if x not in expected] + [f"- {x}" for x in expected if x not in found] == []
    assert found == expected


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
