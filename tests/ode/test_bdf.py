"""Backward differentiation formulas: all samples iterate together, each with its own step, order and factors."""

import numpy as np
import pytest

from ensemble import Ensemble, gallery, ode
from ensemble._kernels.ode import differences
from ensemble.ode import OdeStatus, OdeWarning
from ensemble.ode.methods.bdf import ALPHA, GAMMA
from tests.ode.problems import brusselator, brusselator_start

M = 20
P = np.linspace(0.01, 0.05, 5)


def integrated(p=P, span=(0.0, 2.0), start=None, f=brusselator, **options):
    start = brusselator_start(M) if start is None else start
    options = {"rtol": 1e-6, "atol": 1e-8} | options
    return ode.solve(f, start, span, p=Ensemble(np.atleast_2d(p)), method="bdf", **options)


def test_a_sample_that_grows_without_bound_leaves_the_others_alone():
    def growth(t, y, p, xp):
        return [p[0] * y[0] * y[0], -100.0 * (y[1] - y[0])]

    p = np.array([0.1, 2.0, 0.5])
    with pytest.warns(OdeWarning, match="step too small: sample 1"):
        result = integrated(p, (0.0, 1.0), [1.0, 1.0], growth)
    assert result.status.tolist() == [1, OdeStatus.step_too_small, 1]
    assert abs(result.t_reached.samples[1] - 0.5) < 1e-4
    assert np.allclose(result.y.samples[0, [0, 2]], 1.0 / (1.0 - p[[0, 2]]), rtol=1e-4)
    alone = integrated(p[[0, 2]], (0.0, 1.0), [1.0, 1.0], growth)
    assert np.array_equal(alone.y.samples, result.y.samples[:, [0, 2]])


def test_a_singular_matrix_takes_another_step():
    # 1 / c - J is zero where h = 1 - KAPPA_1 of order 1
    result = integrated(np.ones(2), (0.0, 3.0), [1.0], lambda t, y, p, xp: [p[0] * y[0]], first_step=1.185, rtol=1e-8)
    assert np.allclose(result.y.samples, np.exp(3.0), rtol=1e-5)


@pytest.mark.parametrize("name", ["hires", "pharmacokinetics", "van_der_pol"])
def test_errors_follow_the_tolerance(name):
    problem, errors = getattr(gallery, name)(), []
    for rtol in (1e-4, 1e-6, 1e-8):
        result = ode.solve(problem.f, problem.y0, problem.t, p=problem.p, method="bdf", rtol=rtol, atol=1e-3 * rtol)
        errors.append(np.abs(result.y.samples[:, 0] - problem.y_end).max() / np.abs(problem.y_end).max())
    assert errors[0] < 3e-2 and errors[1] < 3e-4 and errors[2] < 3e-6
    assert errors[2] < 1e-2 * errors[0]


def test_steps_grow_with_the_order():
    problem = gallery.pharmacokinetics()
    few, many = (ode.solve(problem.f, problem.y0, problem.t, p=problem.p, method="bdf", rtol=rtol, atol=rtol)
                 for rtol in (1e-4, 1e-8))  # fmt: skip
    assert many.n_steps[0] < 10 * few.n_steps[0]  # a formula of order 2 would take 1e4**(1/3) = 21 times as many


def test_longest_and_first_step_are_kept():
    result = integrated(P[:2], (0.0, 0.5), max_step=0.01)
    assert (result.n_steps >= 50).all()
    assert integrated(P[:1], (0.0, 0.5), first_step=1e-4).status.tolist() == [1]


def test_events_stop_and_count_in_each_sample():
    def height(t, y, p, xp):
        return y[0] - 0.5

    def wave(t, y, p, xp):
        return xp.sin(20.0 * t)

    def decay(t, y, p, xp):
        return [-p[0] * y[0], -1000.0 * (y[1] - y[0])]

    height.terminal = True
    p = np.array([0.5, 1.0, 4.0])
    result = integrated(p, (0.0, 1.0), [1.0, 1.0], decay, events=[height, wave], rtol=1e-8, t_eval=[0.1, 0.5, 1.0])
    times = np.log(2.0) / p
    assert result.status.tolist() == [1, OdeStatus.event, OdeStatus.event]
    assert np.allclose(result.t_reached.samples, [1.0, *times[1:]], atol=1e-6)
    assert np.isnan(result.t_events[0].samples[0, 0])
    assert np.allclose(result.t_events[0].samples[0, 1:], times[1:], atol=1e-6)
    assert result.n_events[1].tolist() == [6, 4, 1]
    assert np.allclose(result.t_events[1].samples[:4, 1], np.pi / 20 * np.arange(1, 5), atol=1e-6)
    assert np.allclose(result.y_reached.samples[0, 1:], 0.5, atol=1e-6)
    assert np.isnan(result.y.samples[1:, :, 2]).all() and np.isfinite(result.y.samples[:2, :, 1]).all()
    alone = integrated(p[1:2], (0.0, 1.0), [1.0, 1.0], decay, events=[height, wave], rtol=1e-8)
    assert np.array_equal(alone.t_events[1].samples[:4, 0], result.t_events[1].samples[:4, 1])


def test_fixed_steps_are_refused():
    with pytest.raises(ValueError, match="step must be None for bdf"):
        integrated(step=0.1)


# --- the arithmetic of differences
def table_of(polynomial, t, h, q):
    """Backward differences of a polynomial at t, rows 0 to q, of 8."""
    values, rows = polynomial(t - h * np.arange(q + 1)), np.zeros(8)
    for j in range(q + 1):
        rows[j] = values[0]
        values = values[:-1] - values[1:]
    return rows


@pytest.mark.parametrize("q", [1, 2, 3, 4, 5])
def test_differences_follow_a_polynomial(q):
    polynomial, t, h = np.polynomial.Polynomial(np.random.default_rng(q).standard_normal(q + 1)), 0.7, 0.3
    table = np.zeros((8, 1, 2))
    table[:, 0, 1] = table_of(polynomial, t, h, q)
    columns, order = np.array([1]), np.array([q])
    y, psi, d = (np.full((1, 2), 7.0) for _ in range(3))
    differences.predict(table, order, np.array([0.4]), columns, GAMMA, ALPHA, y, psi, d)
    assert np.allclose(table[:, 0, 1], table_of(polynomial, t, 0.4 * h, q), atol=1e-12)
    assert np.allclose(y[0, 1], polynomial(t + 0.4 * h))
    assert d[0, 1] == 0.0
    assert y[0, 0] == psi[0, 0] == d[0, 0] == 7.0
    assert not table[:, 0, 0].any()
    # the formula without its correction differentiates the polynomial through the prediction
    assert np.allclose(ALPHA[q] / (0.4 * h) * psi[0, 1], polynomial.deriv()(t + 0.4 * h), atol=1e-9)
    differences.accept(table, d, order, columns)
    assert np.allclose(table[: q + 1, 0, 1], table_of(polynomial, t + 0.4 * h, 0.4 * h, q)[: q + 1], atol=1e-12)
    middle = differences.interpolate(table, order, columns, np.array([0.25]))
    assert np.allclose(middle, polynomial(t + 0.1 * h))


def test_norms_are_those_of_arrays():
    rng = np.random.default_rng(1)
    (dy, d, y, old), scale = rng.standard_normal((4, 7, 70)), rng.random(70)
    rtol, atol = rng.random(70), rng.random((7, 70))
    for bound in (atol, atol[:1]):
        weight = bound + rtol * np.maximum(np.abs(y), np.abs(old))
        step = dy.copy()
        one, both = differences.norms_of_correction(step, scale, d, y, old, rtol, bound)
        assert np.array_equal(step, dy * scale)
        assert np.allclose(one, ((step / weight) ** 2).mean(axis=0))
        assert np.allclose(both, (((d + step) / weight) ** 2).mean(axis=0))
    table, columns, order = rng.standard_normal((8, 7, 70)), np.array([3, 69]), np.array([1, 4])
    below, above = differences.norms_of_differences(table, order, columns, rtol, atol)
    for k, (s, q) in enumerate(zip(columns, order)):
        weight = atol[:, s] + rtol[s] * np.abs(table[0, :, s])
        assert np.isclose(below[k], ((table[q, :, s] / weight) ** 2).mean())
        assert np.isclose(above[k], ((table[q + 2, :, s] / weight) ** 2).mean())
