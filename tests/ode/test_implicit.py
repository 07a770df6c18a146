"""Rodas4 for many unknowns: all samples in lock step, with one sparse factorisation."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from ensemble import Ensemble, ode
from ensemble._kernels.ode import lock_step
from ensemble.ode import OdeStatus, OdeWarning, evaluation, implicit
from tests.ode.problems import brusselator, brusselator_arrays, brusselator_sparsity, brusselator_start, robertson

M = 20
P = np.linspace(0.01, 0.05, 5)
SPAN = (0.0, 2.0)


def integrated(p=P, span=SPAN, start=None, f=brusselator, **options):
    start = brusselator_start(M) if start is None else start
    options = {"rtol": 1e-6, "atol": 1e-8} | options
    return ode.solve(f, start, span, p=None if p is None else Ensemble(p[None]), method="rodas4", **options)


@pytest.fixture(scope="module")
def whole():
    return integrated(t_eval=[0.0, 0.5, 1.1, 2.0])


def reference(a, times):
    return solve_ivp(brusselator_arrays, (times[0], times[-1]), brusselator_start(M), "Radau", rtol=1e-11, atol=1e-12,
                     args=(a,), t_eval=times, jac_sparsity=brusselator_sparsity(M)).y.T  # fmt: skip


def test_end_and_output_times_agree_with_radau(whole):
    for k in (0, 4):
        exact = reference(P[k], [0.0, 0.5, 1.1, 2.0])
        assert np.abs(whole.y.samples[..., k] - exact).max() < 3e-5
        assert np.abs(whole.y.samples[-1, :, k] - exact[-1]).max() < 2e-6
    assert np.array_equal(whole.y.samples[0, :, 2], brusselator_start(M))
    assert np.array_equal(whole.y.samples[-1], whole.y_reached.samples)


@pytest.mark.parametrize("k", [0, 3])
def test_a_sample_is_its_own_run_to_the_bit(whole, k):
    alone = integrated(P[k : k + 1], t_eval=[0.0, 0.5, 1.1, 2.0])
    assert np.array_equal(alone.y.samples[..., 0], whole.y.samples[..., k])
    assert alone.n_steps[0] == whole.n_steps[k] and alone.n_rejected[0] == whole.n_rejected[k]


def test_samples_that_take_the_place_of_others_are_the_same(whole, monkeypatch):
    monkeypatch.setattr(evaluation, "FACTORS", 1)  # 8 samples at a time
    many = integrated(np.tile(P, 14), t_eval=[0.0, 0.5, 1.1, 2.0])
    assert np.array_equal(many.y.samples, np.tile(whole.y.samples, 14))
    assert np.array_equal(many.n_steps, np.tile(whole.n_steps, 14))


def test_a_sample_that_is_not_finite_leaves_the_others_alone(whole):
    p = P.copy()
    p[1] = np.nan
    with pytest.warns(OdeWarning, match="4 of 5 samples finished"):
        other = integrated(p, t_eval=[0.0, 0.5, 1.1, 2.0])
    assert other.status.tolist() == [1, OdeStatus.non_finite, 1, 1, 1]
    keep = [0, 2, 3, 4]
    assert np.array_equal(other.y.samples[..., keep], whole.y.samples[..., keep])
    assert np.isnan(other.y.samples[1:, :, 1]).all()


def test_a_sample_that_needs_too_many_steps_has_a_status():
    with pytest.warns(OdeWarning):
        result = integrated(max_steps=20)
    assert set(result.status.tolist()) == {OdeStatus.too_many_steps}
    assert result.n_steps.tolist() == [20] * 5
    assert np.isnan(result.y.samples).all()


def test_times_may_differ_between_samples_and_run_backwards():
    ends = Ensemble(np.array([0.3, 0.0, -0.02]))
    result = integrated(P[:3], (0.0, ends))
    assert result.status.tolist() == [1, 1, 1]
    assert np.array_equal(result.y.samples[:, 1], brusselator_start(M))
    assert result.n_steps[1] == 0
    assert np.abs(result.y.samples[:, 0] - reference(P[0], [0.0, 0.3])[-1]).max() < 2e-6
    back = solve_ivp(brusselator_arrays, (0.0, -0.02), brusselator_start(M), "Radau", rtol=1e-11, atol=1e-12,
                     args=(P[2],)).y[:, -1]  # fmt: skip
    assert np.abs(result.y.samples[:, 2] - back).max() < 1e-5


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


def test_events_leave_the_steps_and_the_other_samples_alone(whole):
    def low(t, y, p, xp):
        return xp.where(p[0] < 0.025, y[0] - 1.2, 1.0)

    low.terminal = True
    other = integrated(events=low, t_eval=[0.0, 0.5, 1.1, 2.0])
    stopped = other.status == OdeStatus.event
    assert stopped.tolist() == (P < 0.025).tolist()
    assert np.array_equal(other.y.samples[..., ~stopped], whole.y.samples[..., ~stopped])
    assert np.abs(other.y_reached.samples[0, stopped] - 1.2).max() < 1e-5


def test_a_right_hand_side_that_depends_on_the_time():
    def driven(t, y, p, xp):
        return [-p[0] * (y[0] - xp.cos(t)), *(50.0 * (y[i - 1] - y[i]) for i in range(1, len(y)))]

    def exact(t, y):
        return driven(t, y, [100.0], np)

    expected = solve_ivp(exact, (0.0, 1.0), np.zeros(40), "Radau", rtol=1e-10, atol=1e-12).y[:, -1]
    result = integrated(np.array([100.0]), (0.0, 1.0), np.zeros(40), driven)
    assert np.abs(result.y.samples[:, 0] - expected).max() < 1e-6


@pytest.mark.slow  # kernels of another precision
def test_single_precision(whole):
    result = integrated(start=brusselator_start(M).astype(np.float32), rtol=1e-4, atol=1e-5)
    assert result.y.samples.dtype == np.float32
    assert np.abs(result.y.samples - whole.y.samples[-1]).max() < 3e-3


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
