"""The published problems: their laws of conservation, their numbers, and that they run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble.apps.gbees import (
    Gbees,
    RecordedRun,
    aizawa,
    configuration,
    cr3bp,
    draw,
    duffing,
    jacobi_constant,
    pcr3bp,
    propagate,
    range_angle_rate,
    two_body,
)
from ensemble.apps.gbees.run.measurement import noise_of
from ensemble.apps.gbees.run.sharpness import sharpness
from ensemble.apps.gbees.systems.configurations import CONFIGURATIONS

STATES = {
    "pcr3bp": (pcr3bp, (0.7, 0.3, -0.1, 0.2)),
    "cr3bp": (cr3bp, (0.7, 0.3, -0.2, -0.1, 0.2, 0.05)),
}


@pytest.mark.parametrize("make, mean", STATES.values(), ids=STATES)
@pytest.mark.parametrize("mu", [1.9e-7, 0.0121, 0.3])
def test_the_three_body_problem_keeps_jacobis_constant(make, mean, mu):
    x = draw(mean, 1e-3 * np.eye(len(mean)), 20, seed=60101)
    later = propagate(make(mu), x, 2.0, rtol=1e-12, atol=1e-13)
    J = jacobi_constant(mu)
    before, after = (J(tuple(y.samples), np) for y in (x, later))
    assert np.max(np.abs(later.samples - x.samples)) > 0.5
    np.testing.assert_allclose(after, before, atol=1e-9)


@given(st.floats(0.0, 0.5), st.lists(st.floats(0.01, 2.0), min_size=4, max_size=4))
def test_three_bodies_in_a_plane_are_three_bodies(mu, x):
    x, y, u, v = x
    flat = pcr3bp(mu)((x, y, u, v), 0.0, np)
    space = cr3bp(mu)((x, y, 0.0, u, v, 0.0), 0.0, np)
    np.testing.assert_array_equal(np.array(flat), np.array(space)[[0, 1, 3, 4]])
    assert space[2] == space[5] == 0.0


@pytest.mark.parametrize("mu", [0.0121, 0.3])
def test_the_acceleration_is_the_slope_of_jacobis_constant(mu):
    x, h = np.array([0.4, -0.6, 0.3, 0.0, 0.0, 0.0]), 1e-6
    J = jacobi_constant(mu)
    slopes = [(J(tuple(x + h * e), np) - J(tuple(x - h * e), np)) / (2.0 * h) for e in np.eye(6)[:3]]
    # At rest in the turning frame the acceleration is half the gradient.
    np.testing.assert_allclose(cr3bp(mu)(tuple(x), 0.0, np)[3:], np.array(slopes) / 2.0, rtol=1e-8)


def test_two_bodies_take_twenty_turns_in_the_published_span():
    problem = configuration("two-body")
    x = draw(problem.mean, 1e-20 * np.eye(2), 1, seed=1)
    L, anomaly = propagate(two_body(), x, problem.span).samples[:, 0]
    np.testing.assert_allclose([L, anomaly], [4.6679, 20 * 2.0 * np.pi], rtol=1e-4)


def test_duffings_and_aizawas_systems_by_hand():
    np.testing.assert_allclose(duffing((0.5, -2.0), 0.3, np), (-2.0, 0.5 - 0.125 + 0.7 + 0.3 * np.cos(0.3)), rtol=1e-15)
    x, y, z = 0.5, -1.0, 2.0
    expected = (1.3 * x + 3.5, 3.5 * x - 1.3, 0.6 + 1.9 - 8.0 / 3.0 - 0.25 + 0.1 * 2.0 * 0.125)
    np.testing.assert_allclose(aizawa((x, y, z), 0.0, np), expected, rtol=1e-14)


@given(st.floats(-3.1, 3.1), st.floats(-3.1, 3.1), st.floats(0.1, 2.0))
def test_range_and_angle_are_polar_coordinates_about_the_smaller_body(angle, branch, distance):
    mu = 0.1
    x = (1.0 - mu + distance * np.cos(angle), distance * np.sin(angle), 0.3, -0.4)
    r, theta, rate = range_angle_rate(mu, branch)(x, np)
    np.testing.assert_allclose([r, rate], [distance, 0.3 * np.cos(angle) - 0.4 * np.sin(angle)], atol=1e-12)
    assert abs(theta - branch) <= np.pi + 1e-12
    np.testing.assert_allclose(np.exp(1j * theta), np.exp(1j * angle), atol=1e-12)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_configuration_is_whole(name):
    problem = configuration(name)
    n = len(problem.mean)
    assert problem.name == name and len(problem.axes) == n and problem.covariance.shape == (n, n)
    assert np.all(np.linalg.eigvalsh(problem.covariance) > 0.0)
    assert 0.0 < problem.options["threshold"] < 1e-4 and problem.records >= 2 and min(problem.spans) > 0.0
    f = problem.drift(tuple(problem.mean), 0.0, np)
    assert len(f) == n and np.all(np.isfinite(f))
    for seen in problem.measurements:
        assert len(seen.h(tuple(problem.mean), np)) == len(seen.y) == len(seen.R)


@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if name != "lorenz96"])
def test_every_configuration_runs(name):
    problem = configuration(name)
    threshold = 1e-4 if len(problem.mean) > 3 else 1e-5
    factor = 0.5 if len(problem.mean) > 2 else 1.0
    options = {**problem.options, "threshold": threshold, "factor": factor, "backend": "array"}
    run = Gbees(problem.drift, problem.mean, problem.covariance, **options)
    until = {"two-body": 0.002, "cr3bp": 0.01}.get(name, 0.05) * problem.span
    run.advance(until)
    x = propagate(problem.drift, draw(problem.mean, problem.covariance, 4000, seed=5), until).samples
    # Cells of a standard deviation and a high threshold: right to a fraction of the spread and of the way gone.
    allowed = 0.25 * x.std(axis=1) + 0.03 * np.abs(x.mean(axis=1) - problem.mean)
    assert np.all(np.abs(run.mean() - x.mean(axis=1)) < allowed)


def test_a_measured_angle_near_half_a_turn_does_not_split_the_distribution():
    problem = configuration("pcr3bp")
    angle = problem.measurements[1].y[1]
    seen = problem.measurements[1].h((1.0 - 1.901109735892602e-07 - 0.0015, -1e-5, 0.0, 0.0), np)[1]
    assert angle < np.pi < seen < angle + 0.1


def test_measurements_of_the_published_problems_are_taken_at_centres():
    # as the programs do: by the rule that is asked for, or as the noise is wide for the cells
    for name in CONFIGURATIONS:
        problem = configuration(name)
        for seen in problem.measurements:
            run = Gbees(problem.drift, problem.mean, problem.covariance, **{**problem.options, "backend": "array"})
            cells = run.cells()
            found = sharpness(
                run.problems[0], cells.indices, cells.probabilities, seen.h, np.array(seen.y),
                noise_of(seen.R, len(seen.y), "test"),
            )  # fmt: skip
            assert seen.likelihood == "point" or not found.is_sharp


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(ValueError, match=r"name must be one of 'lorenz63', 'lorenz96', .*; got 'lorenz'"):
        configuration("lorenz")


@pytest.mark.slow
def test_duffings_distribution_at_the_end_is_monte_carlos():
    problem = configuration("duffing")
    cells = RecordedRun(problem, times=[5.0]).run().distributions[-1]
    x = propagate(problem.drift, draw(problem.mean, problem.covariance, 20_000, seed=3), 5.0).samples
    from ensemble.apps.gbees import bhattacharyya, binned

    assert bhattacharyya(cells, binned(x, cells, widths=0.1), widths=0.1) > 0.97
