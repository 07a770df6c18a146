"""The Taylor method: order, step and error."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from ensemble import Ensemble, ode
from ensemble.ode.methods import METHODS, method_of
from tests.ode.problems import adaptive, dense_at, lorenz, pendulum, system_of, traced_step

P = [1.7]


@pytest.mark.parametrize(("rtol", "order"), [(1e-3, 5), (1e-9, 12), (1e-15, 19), (1e-50, 40), (0.5, 4)])
def test_the_order_follows_the_tolerance(rtol, order):
    assert method_of("taylor", rtol, 0.0).order == order


@pytest.mark.parametrize("rtol", [1e-6, 1e-9, 1e-13])
def test_the_error_is_of_the_size_of_the_tolerance(rtol):
    start = [1.0, 2.0, 3.0]
    y, n_steps = adaptive(method_of("taylor", rtol, 0.0), system_of(lorenz, 3), start, [28.0], 0.0, 1.0, rtol, 0.0)
    exact = solve_ivp(lambda t, y: lorenz(t, y, [28.0], np), (0, 1), start, "DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    assert np.abs(y - exact).max() < 100 * max(rtol, 3e-14) * np.abs(exact).max()
    assert 8 < n_steps < 60


def test_a_system_with_time_functions_and_backward_integration():
    method, system = method_of("taylor", 1e-12, 1e-12), system_of(pendulum, 2)
    y, _ = adaptive(method, system, [1.0, 0.5], P, 0.0, 3.0, 1e-12, 1e-12)
    t = np.float64(3.0)
    while t > 0.0:
        step = method.step(system, t, -t, y, [], P)
        assert step.h_used < 0.0
        t, y = t + step.h_used, step.y
    assert t == 0.0
    assert np.allclose(y, [1.0, 0.5], rtol=1e-10)


def test_the_step_is_the_given_one_where_that_is_shorter_and_the_polynomial_ends_at_the_new_point():
    method, system, y = METHODS["taylor"], system_of(pendulum, 2), [np.array([1.0, 2.0]), np.array([0.5, 0.0])]
    step = method.step(system, np.zeros(2), np.array([1e-3, 100.0]), y, [], P)
    assert step.h_used[0] == 1e-3 and 0.05 < step.h_used[1] < 2.0
    for end, new in zip(dense_at(step, y, 1.0), step.y):
        assert np.allclose(end, new, rtol=1e-15)


def test_the_defect_shows_an_error_that_two_coefficients_do_not():
    """``y' = t**20`` at t = 0: all coefficients up to the order vanish."""
    system = system_of(lambda t, y, p, xp: [t**20], 1)
    with np.errstate(divide="ignore"):
        step = METHODS["taylor"].step(system, np.float64(0.0), np.float64(1.0), [np.float64(0.0)], [], P)
    assert step.h_used == 1.0 and step.y == [0.0]
    assert abs(step.error[0]) > 0.05


def test_the_estimate_is_the_error_of_the_step():
    method, system, y = METHODS["taylor"], system_of(lorenz, 3), [np.float64(v) for v in (1.0, 2.0, 3.0)]
    step = method.step(system, np.float64(0.0), np.float64(9.0), y, [], [28.0])
    exact = solve_ivp(lambda t, y: lorenz(t, y, [28.0], np), (0, step.h_used), y, "DOP853", rtol=1e-13, atol=1e-14)
    error = np.abs(np.array(step.y) - exact.y[:, -1]).max()
    assert 0.2 * error < np.abs(step.error).max() < 5.0 * error


def test_a_system_whose_series_ends_takes_the_whole_step():
    system = system_of(lambda t, y, p, xp: [y[1], p[0] + 0.0 * t], 2)
    step = METHODS["taylor"].step(
        system, np.float64(0.0), np.float64(7.0), [np.float64(1.0)] * 2, [], [np.float64(2.0)]
    )
    assert step.h_used == 7.0
    assert step.y == [1.0 + 7.0 + 49.0, 15.0]


def test_a_value_that_is_not_finite_gives_a_step_that_is_not():
    system = system_of(lorenz, 3)
    y = [np.array([1.0, np.nan]), np.array([2.0, 2.0]), np.array([3.0, 3.0])]
    step = METHODS["taylor"].step(system, np.zeros(2), np.ones(2), y, [], [28.0])
    assert np.isfinite(step.h_used).tolist() == [True, False]


def test_the_step_in_a_trace_is_of_the_size_of_its_recurrences():
    graph = traced_step(method_of("taylor", 2e-9, 0.0), lorenz, 3, 1)
    assert len(graph.nodes) < 900
    # int32: the bit patterns from which the roots of the step start; bool: whether it is the longest one
    assert {node.dtype for node in traced_step("taylor", lorenz, 3, 1, "float32").nodes} == {"float32", "int32", "bool"}


def test_a_sample_that_starts_without_a_series_steps_away_from_there():
    """The root of zero has none: the derivatives that there are and short steps lead away."""
    start = Ensemble(np.array([0.0, 0.25]))
    result = ode.solve(lambda t, y, p, xp: [1.0 - xp.sqrt(y[0])], [start], (0.0, 1.0), method="taylor")
    assert (result.status == ode.OdeStatus.finished).all()
    x = np.sqrt(result.y.samples[0])  # y' = 1 - sqrt(y) in implicit form
    first = np.sqrt(start.samples)
    np.testing.assert_allclose(-2.0 * (x + np.log1p(-x)) + 2.0 * (first + np.log1p(-first)), 1.0, rtol=3e-6)


@pytest.mark.parametrize("exponent", [-40, 20, 60])
@pytest.mark.parametrize("rtol", [1e-12, 1e-6])
def test_steps_do_not_depend_on_the_unit_of_time(exponent, rtol):
    """As many steps, and the same values up to the tolerance."""

    def decaying(t, y, p, xp):
        return [p[0] * y[1], -p[0] * (y[0] + 0.1 * y[1])]

    unit = 2.0**exponent
    options = {"method": "taylor", "rtol": rtol, "atol": 1e-15}
    one = ode.solve(decaying, [1.0, 0.0], (0.0, 8.0), p=[1.0], **options)
    other = ode.solve(decaying, [1.0, 0.0], (0.0, 8.0 * unit), p=[1.0 / unit], **options)
    assert other.n_steps == one.n_steps
    np.testing.assert_allclose(other.y.samples, one.y.samples, rtol=10.0 * rtol)


def test_the_orbit_of_the_earth_in_metres_and_seconds():
    gravity, radius = 1.327e20, 1.496e11
    speed = np.sqrt(gravity / radius)

    def orbit(t, y, p, xp):
        cube = (y[0] * y[0] + y[1] * y[1]) ** 1.5
        return [y[2], y[3], -gravity * y[0] / cube, -gravity * y[1] / cube]

    year = 2.0 * np.pi * radius / speed
    found = ode.solve(orbit, [radius, 0.0, 0.0, speed], (0.0, year), method="taylor", rtol=1e-12, atol=1e-3)
    assert found.n_steps < 20
    np.testing.assert_allclose(found.y.samples[:2, 0] / radius, [1.0, 0.0], atol=1e-12)
