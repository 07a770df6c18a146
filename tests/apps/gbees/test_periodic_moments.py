"""Moments of periodic coordinates are those of the circle, whatever the seam of the grid."""

import math

import numpy as np
import pytest

from ensemble.apps.gbees import Gbees, GridWarning
from ensemble.apps.gbees.io.records import SavedRun
from ensemble.scalar import Ensemble

TURN = 2.0 * math.pi


def still(x, t, xp):
    return (0.0 * x[0] + 1.0, 0.0 * x[1])


def angle_run(start, **options):
    return Gbees(still, [start, 0.0], [0.04, 0.01], threshold=1e-9, factor=4.0, periods=[TURN, None], **options)


def on_circle(x):
    return (x + math.pi) % TURN - math.pi


@pytest.mark.parametrize("until", [0.0, 2.5, math.pi, 4.0, TURN, 9.0])
def test_the_mean_of_an_angle_follows_it_across_the_seam(until):
    run = angle_run(0.3, diffusion=[0.01, 0.0])
    run.advance(until)
    indices, p = run.cells()
    cells = run.cells()
    angle = cells.origin[0] + cells.widths[0] * indices[:, 0]
    resultant = np.sum(p * np.exp(1j * angle))
    mean, covariance = run.mean(), run.covariance()
    assert abs(on_circle(mean[0] - np.angle(resultant))) < 1e-12
    assert abs(on_circle(mean[0] - 0.3 - until)) < 0.02
    away = on_circle(angle - mean[0])
    np.testing.assert_allclose(covariance[0, 0], np.sum(p * away**2), rtol=1e-10)
    assert covariance[0, 0] < 0.5 and abs(covariance[0, 1]) < 1e-9


def test_a_mean_that_does_not_cross_is_the_plain_one():
    run = angle_run(0.3)
    indices, p = run.cells()
    plain = run.cells().origin[0] + run.cells().widths[0] * np.sum(p * indices[:, 0])
    np.testing.assert_allclose(run.mean()[0], plain, atol=1e-9)


def test_a_uniform_angle_has_no_mean():
    run = Gbees(still, [0.0, 0.0], [0.04, 0.01], threshold=1e-9, periods=[TURN, None], extent=[40.0, 3.0],
                start=lambda x, xp: xp.exp(-50.0 * x[1] ** 2) + 0.0 * x[0])  # fmt: skip
    assert np.isnan(run.mean()[0]) and abs(run.mean()[1]) < 1e-12


def test_a_sharp_measurement_at_the_seam_gives_the_mean_there():
    run = angle_run(math.pi - 0.3)
    run.advance(0.3)
    with pytest.warns(GridWarning, match="no wider than twice the posterior's deviation"):
        run.update(lambda x, xp: xp.sin(x[0]), y=0.0, R=1e-6, likelihood="cell")
    mean, covariance = run.mean(), run.covariance()
    assert abs(on_circle(mean[0] - math.pi)) < 0.01 and covariance[0, 0] < 1e-4


def test_samples_equal_their_own_runs_and_records_keep_periods(tmp_path):
    starts = np.array([0.3, 3.1, -3.0])
    run = Gbees(still, Ensemble(np.stack([starts, 0.0 * starts])), [0.04, 0.01], threshold=1e-9, factor=4.0,
                periods=[TURN, None])  # fmt: skip
    run.advance(0.5)
    for i, start in enumerate(starts):
        alone = angle_run(start)
        alone.advance(0.5)
        assert np.array_equal(run.mean().sample(i), alone.mean())
        assert np.array_equal(run.covariance().sample(i), alone.covariance())
    cells = run.cells()[1]
    kept = SavedRun()
    kept.keep(cells, 0)
    assert SavedRun.of(kept.arrays()).distributions[0].periods == cells.periods
