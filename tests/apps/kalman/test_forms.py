"""Filter and smoother choose their form from one table, and the result says which one and which repair."""

import numpy as np
import pytest

from ensemble.apps.kalman import LinearGaussianModel, kalman_filter, rts_smoother
from ensemble.apps.kalman.filter_forms import FORMS
from ensemble.apps.kalman.filters import FILTERS
from ensemble.apps.kalman.smoothers import SMOOTHERS

F = np.eye(2) + 0.1 * np.random.default_rng(81204).normal(size=(2, 2))
Y = np.random.default_rng(81205).normal(size=(12, 1))


def model(**parts):
    given = {"F": F, "Q": 0.1 * np.eye(2), "H": [[1.0, 0.5]], "R": np.eye(1), "m0": np.zeros(2), "P0": np.eye(2)}
    return LinearGaussianModel(**(given | parts))


def test_filter_and_smoother_have_the_same_forms():
    assert set(FILTERS) == set(FORMS)
    assert set(SMOOTHERS) == set(FORMS) - {"diffuse"}  # its steps are smoothed from the form of the later ones


@pytest.mark.parametrize(
    "parts, options, told",
    [
        ({}, {}, "compiled recursion or scan (numba)"),
        ({}, {"form": "square_root"}, "compiled recursion on square roots (numba)"),
        ({}, {"method": "scan"}, "scan by array functions"),
        ({"diffuse": [True, False]}, {}, "steps of a diffuse prior, then compiled recursion or scan (numba)"),
    ],
)
def test_a_result_says_which_form_gave_its_numbers(parts, options, told):
    result = kalman_filter(model(**parts), Y, **options)
    assert result.form == told and rts_smoother(model(**parts), Y, **options).filtered.form == told
    assert result.by_roots is None and result.by_recursion is None


def test_a_result_says_which_series_of_a_scan_took_the_recursion():
    known = model(R=np.zeros((1, 1)), Q=np.zeros((2, 2)))
    result = kalman_filter(known, Y, method="scan")
    assert np.all(result.by_recursion)
    expected = kalman_filter(known, Y, method="sequential")
    np.testing.assert_array_equal(result.mean, expected.mean)
