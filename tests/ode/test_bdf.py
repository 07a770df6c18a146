"""Backward differentiation formulas: all samples iterate together, each with its own step, order and factors."""

import numpy as np
import pytest

from ensemble import Ensemble, gallery, ode
from ensemble._kernels.ode import bdf_steps, differences
from ensemble.ode import OdeStatus, OdeWarning, bdf
from ensemble.ode.implicit import Active
from ensemble.ode.methods.bdf import ALPHA, ERROR, GAMMA
from ensemble.ode.methods.inverse_root import inverse_root
from tests.ode.problems import brusselator, brusselator_start

M = 20
P = np.linspace(0.01, 0.05, 5)


@pytest.fixture(autouse=True, params=[False, True], ids=["together", "one after the other"])
def _passes(request, monkeypatch):
    """Few samples take the second way of themselves; each law holds of both."""
    monkeypatch.setattr(bdf, "alone", lambda n, n_samples: request.param)


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
    at = columns_of(1, 2)
    at.table[:, 0, 1] = table_of(polynomial, t, h, q)
    at.order[1], at.factor[1], at.act[1] = q, 0.4, bdf_steps.BEGINS
    at.fixed.t[1], at.fixed.h[1] = t, h
    for vectors in (at.y, at.psi, at.d):
        vectors[...] = 7.0
    bdf_steps.begun(at, NUMBERS, GAMMA, ALPHA, ERROR)
    assert np.allclose(at.table[:, 0, 1], table_of(polynomial, t, 0.4 * h, q), atol=1e-12)
    assert np.allclose(at.y[0, 1], polynomial(t + 0.4 * h))
    assert at.d[0, 1] == 0.0
    assert at.y[0, 0] == at.psi[0, 0] == at.d[0, 0] == 7.0
    assert not at.table[:, 0, 0].any()
    # the formula without its correction differentiates the polynomial through the prediction
    assert np.allclose(ALPHA[q] / (0.4 * h) * at.psi[0, 1], polynomial.deriv()(t + 0.4 * h), atol=1e-9)
    at.outcome[1], at.square[1] = bdf_steps.CONVERGED, 0.5
    bdf_steps.finished(at, NUMBERS)
    assert at.act.tolist() == [0, bdf_steps.ACCEPTED]
    assert np.isclose(at.fixed.t[1], t + 0.4 * h)
    assert np.allclose(at.table[: q + 1, 0, 1], table_of(polynomial, t + 0.4 * h, 0.4 * h, q)[: q + 1], atol=1e-12)
    middle = differences.interpolate(at.table, at.order[1:], np.array([1]), np.array([0.25]))
    assert np.allclose(middle, polynomial(t + 0.1 * h))


NUMBERS = bdf_steps.bdf_numbers(np.float64, 7, 0.03, 1.2, 0.3, 1.01, 10.0)


def columns_of(n, count):
    """Columns of a run that has not begun; times end at 100."""
    row, vectors = np.zeros(0), np.zeros((n, 0))
    fields = dict.fromkeys(Active._fields, row) | dict.fromkeys(("y", "atol"), vectors)
    fields |= dict.fromkeys(("p", "t_eval", "events", "slope"), np.zeros((0, 0)))
    at = bdf.Columns(n, count, Active(**fields))
    at.fixed.ids[:], at.fixed.t1[:], at.fixed.direction[:] = np.arange(count), 100.0, 1.0
    at.fixed.longest[:], at.fixed.most[:] = np.inf, 1000.0
    return at


@pytest.mark.parametrize("shared", [False, True])
def test_norms_are_those_of_arrays(shared):
    rng, at = np.random.default_rng(1), columns_of(7, 70)
    dy, at.d[...], at.y[...], old = rng.standard_normal((4, 7, 70))
    at.c_factors[:], at.per_c[:] = rng.random((2, 70))
    at.table[0], at.fixed.rtol[:], at.fixed.atol[...] = old, rng.random(70), rng.random((7, 70))
    if shared:
        at.fixed = at.fixed._replace(atol=at.fixed.atol[:1].copy())
    at.order[:] = rng.integers(1, 6, 70)
    weight = at.fixed.atol + at.fixed.rtol * np.maximum(np.abs(at.y), np.abs(old))
    change, d, y = dy * (2.0 / (1.0 + at.c_factors * at.per_c)), at.d.copy(), at.y.copy()
    at.waiting[:] = waits = np.arange(70) % 5 == 0
    dy, at.iteration[:] = dy.copy(), 0
    bdf_steps.iterated(at, dy, NUMBERS, ERROR)
    assert np.array_equal(dy, change)
    assert np.allclose(at.norm[~waits] ** 2, ((change / weight) ** 2).mean(axis=0)[~waits])
    error = ERROR[at.order] ** 2 * (((d + change) / weight) ** 2).mean(axis=0)
    assert np.allclose(at.square[~waits], error[~waits])
    assert np.array_equal(at.y, np.where(waits, y, y + change))
    assert np.array_equal(at.d, np.where(waits, d, d + change))


def test_the_order_with_the_longest_step_is_taken():
    rng, at = np.random.default_rng(2), columns_of(7, 70)
    at.table[...] = rng.standard_normal((8, 7, 70)) * 10.0 ** rng.uniform(-4, -2, (8, 1, 70))
    at.fixed.rtol[:], at.fixed.atol[...] = 1e-3, 1e-3 * (1.0 + rng.random((7, 70)))
    at.order[:], at.square[:] = rng.integers(1, 6, 70), 10.0 ** rng.uniform(-2, 0, 70)
    at.n_equal[:], at.fixed.h[:], at.act[:], before = 9, 1e-3, bdf_steps.ACCEPTED, at.order.copy()
    at.iteration[:] = 2
    table, squares, s = at.table.copy(), at.square.copy(), np.arange(70)
    bdf_steps.begun(at, NUMBERS, GAMMA, ALPHA, ERROR)
    weight = at.fixed.atol + 1e-3 * np.abs(table[0])
    norms = [((table[before + k, :, s].T / weight) ** 2).mean(axis=0) for k in (0, 2)]
    below = np.where(before > 1, ERROR[before - 1] ** 2 * norms[0], np.inf)
    above = np.where(before < 5, ERROR[np.minimum(before + 1, 5)] ** 2 * norms[1], np.inf)
    roots = np.array([[inverse_root(np.clip(x[c : c + 1], 1e-30, 1e30), 2 * (before[c] + k), np)[0] for c in s]
                      for k, x in enumerate((below, squares, above))])  # fmt: skip
    factor = np.minimum(10.0, 0.9 * 9 / 10 * roots.max(axis=0))
    kept = (factor >= 1.0) & (factor < 1.2)
    assert kept.any() and len(set(roots.argmax(axis=0))) == 3
    assert np.array_equal(at.order, np.where(kept, before, before + roots.argmax(axis=0) - 1))
    assert np.allclose(at.fixed.h, 1e-3 * np.where(kept, 1.0, factor), rtol=1e-13)
    assert np.array_equal(at.n_equal == 0, ~kept | (at.fixed.h != 1e-3))
