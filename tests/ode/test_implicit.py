"""Rodas4 for many unknowns: all samples in lock step, with one sparse factorisation."""

import numpy as np
from scipy.integrate import solve_ivp

from ensemble import Ensemble, ode
from ensemble._kernels.ode import lock_step
from ensemble.ode import OdeStatus, implicit
from tests.ode.problems import brusselator, brusselator_arrays, brusselator_sparsity, brusselator_start, robertson

M = 20
P = np.linspace(0.01, 0.05, 5)
SPAN = (0.0, 2.0)


def integrated(p=P, span=SPAN, start=None, f=brusselator, **options):
    start = brusselator_start(M) if start is None else start
    options = {"rtol": 1e-6, "atol": 1e-8} | options
    return ode.solve(f, start, span, p=None if p is None else Ensemble(p[None]), method="rodas4", **options)


def reference(a, times):
    return solve_ivp(brusselator_arrays, (times[0], times[-1]), brusselator_start(M), "Radau", rtol=1e-11, atol=1e-12,
                     args=(a,), t_eval=times, jac_sparsity=brusselator_sparsity(M)).y.T  # fmt: skip


def test_fixed_steps_converge_and_end_at_the_end():
    exact = reference(P[0], [0.0, 2.0])[-1]
    errors = [np.abs(integrated(P[:1], step=h).y.samples[:, 0] - exact).max() for h in (0.071, 0.0355)]
    assert errors[1] < errors[0] / 9.0
    result = integrated(P[:1], step=0.3)
    assert result.n_steps.tolist() == [7]
    assert result.t_reached.samples.tolist() == [2.0]


def test_it_takes_the_steps_of_the_straight_line_form(monkeypatch):
    forms = []
    for first in (4, 1):
        monkeypatch.setattr(implicit, "FROM", first)
        forms.append(integrated(np.array([0.04]), (0.0, 50.0), [1.0, 0.0, 0.0], robertson))
    assert forms[0].n_steps.tolist() == forms[1].n_steps.tolist()
    assert np.allclose(forms[0].y.samples, forms[1].y.samples, rtol=1e-9, atol=1e-13)


def test_events_are_those_of_the_straight_line_form(monkeypatch):
    def first(t, y, p, xp):
        return y[0] - 0.9

    def second(t, y, p, xp):
        return xp.sin(0.7 * t)

    first.terminal = True
    results = []
    for least in (4, 1):
        monkeypatch.setattr(implicit, "FROM", least)
        rates = np.array([0.02, 0.04, 1e-4])
        results.append(integrated(rates, (0.0, 20.0), [1.0, 0.0, 0.0], robertson, events=[first, second],
                                  t_eval=[1.0, 4.0, 20.0], rtol=1e-8, atol=1e-12))  # fmt: skip
    one, two = results
    assert one.status.tolist() == two.status.tolist() == [OdeStatus.event, OdeStatus.event, OdeStatus.finished]
    assert one.n_events.tolist() == two.n_events.tolist() == [[1, 1, 0], [2, 0, 4]]
    assert np.allclose(one.t_reached.samples, two.t_reached.samples, rtol=1e-9)
    assert np.allclose(one.y.samples, two.y.samples, rtol=1e-7, atol=1e-12, equal_nan=True)
    for a, b in zip(one.t_events, two.t_events, strict=True):
        assert np.allclose(a.samples, b.samples, rtol=1e-9, equal_nan=True)


def test_sums_of_stages_and_errors_are_those_of_arrays():
    rng = np.random.default_rng(3)
    base, stages, weights = rng.random((7, 70)), rng.random((4, 7, 70)), rng.random(3)
    total = stages[0] * weights[0] + stages[1] * weights[1] + stages[2] * weights[2]
    scale = rng.random(70)
    assert np.array_equal(lock_step.stage_sum(base, stages, weights, scale), base + scale * total)
    assert np.array_equal(lock_step.stage_sum(base, stages, weights, np.ones(1)), base + total)
    after, rtol, atol = rng.standard_normal((7, 70)), rng.random(70), rng.random((7, 70))
    for bound in (atol, atol[:1]):
        quotient = stages[0] / (bound + rtol * np.maximum(np.abs(base), np.abs(after)))
        error = lock_step.mean_square(stages[0], base, after, rtol, bound)
        assert np.allclose(error, (quotient**2).mean(axis=0), rtol=1e-14)
