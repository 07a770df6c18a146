"""Tables in drifts, bounds and measurements: the same on every backend, and in Monte Carlo."""

import array_api_strict
import numpy as np
import pytest

import ensemble as en
from ensemble.apps.gbees import Gbees, draw, propagate
from ensemble.apps.gbees.tables import WithTables

POINTS, VALUES = np.array([-1.0, -0.2, 0.1, 0.5, 2.0]), np.array([0.3, -0.4, 0.2, 0.9, -0.5])
PLACES = np.concatenate([np.linspace(-2.0, 3.0, 41), POINTS, [np.nan, np.inf, -np.inf]])


def drift(x, t, xp):
    return x[1], -xp.interp(x[0], POINTS, VALUES, left=1.0)


@pytest.mark.parametrize("ends", [{}, {"left": -9.0, "right": 7.0}])
@pytest.mark.parametrize("table", [(POINTS, VALUES), ([0.5], [2.0])], ids=["five", "one"])
def test_where_a_library_has_none_the_bits_are_numpys(table, ends):
    xp, expected = WithTables(array_api_strict), np.interp(PLACES, *table, **ends)
    expected[np.isnan(PLACES)] = np.nan  # NumPy's table of one point gives its value there
    got = xp.interp(array_api_strict.asarray(PLACES), *table, **ends)
    np.testing.assert_array_equal(np.asarray(got), expected)
    many = np.linspace(-1.0, 1.0, 7)
    of_samples = xp.interp(en.Ensemble(many), *table, **ends)
    np.testing.assert_array_equal(of_samples.samples, np.interp(many, *table, **ends))


def test_every_backend_carries_a_drift_with_a_table():
    runs = [
        Gbees(drift, [0.3, 0.1], [0.04, 0.04], threshold=1e-6, backend=backend, time_order=1)
        for backend in ("numpy", "array", array_api_strict)
    ]
    for run in runs:
        run.advance(0.4)
        run.update(lambda x, xp: xp.interp(x[0], POINTS, VALUES), 0.3, 0.05)
    compiled, array, strict = (np.asarray(run.cells().probabilities) for run in runs)
    np.testing.assert_array_equal(strict, array)
    np.testing.assert_allclose(compiled, array, rtol=1e-11, atol=1e-18)


def test_monte_carlo_takes_the_same_drift():
    samples = propagate(drift, draw([0.3, 0.1], 0.04 * np.eye(2), 4000, seed=51407), 1.0).samples
    run = Gbees(drift, [0.3, 0.1], [0.04, 0.04], threshold=1e-7, factor=2.0, extent=5.0, backend="array")
    run.advance(1.0)
    np.testing.assert_allclose(run.mean(), samples.mean(axis=1), atol=4.0 * samples.std(axis=1).max() / np.sqrt(4000))
