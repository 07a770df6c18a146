"""Laws of both methods that carry all samples together: rodas4 above 30 unknowns, and bdf."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from ensemble import Ensemble, ode
from ensemble.ode import OdeStatus, OdeWarning, bdf, evaluation
from tests.ode.problems import brusselator, brusselator_arrays, brusselator_sparsity, brusselator_start

M = 20
P = np.linspace(0.01, 0.05, 5)
TIMES = [0.0, 0.5, 1.1, 2.0]

BOUNDS = {
    "rodas4": {"output": 3e-5, "end": 2e-6, "short": 2e-6, "back": 1e-5, "driven": 1e-6, "single": 3e-3},
    "bdf": {"output": 1e-4, "end": 1e-4, "short": 2e-5, "back": 1e-4, "driven": 2e-5, "single": 1e-2},
}
"""Largest errors at a tolerance of 1e-6."""


@pytest.fixture(scope="module", params=BOUNDS)
def method(request):
    return request.param


def integrated(method, p=P, span=(0.0, 2.0), start=None, f=brusselator, **options):
    start = brusselator_start(M) if start is None else start
    options = {"rtol": 1e-6, "atol": 1e-8} | options
    return ode.solve(f, start, span, p=Ensemble(p[None]), method=method, **options)


@pytest.fixture(scope="module")
def whole(method):
    return integrated(method, t_eval=TIMES)


def reference(a, times):
    return solve_ivp(brusselator_arrays, (times[0], times[-1]), brusselator_start(M), "Radau", rtol=1e-11, atol=1e-12,
                     args=(a,), t_eval=times, jac_sparsity=brusselator_sparsity(M)).y.T  # fmt: skip


def test_end_and_output_times_agree_with_radau(method, whole):
    for k in (0, 4):
        exact = reference(P[k], TIMES)
        assert np.abs(whole.y.samples[..., k] - exact).max() < BOUNDS[method]["output"]
        assert np.abs(whole.y.samples[-1, :, k] - exact[-1]).max() < BOUNDS[method]["end"]
    assert np.array_equal(whole.y.samples[0, :, 2], brusselator_start(M))
    assert np.array_equal(whole.y.samples[-1], whole.y_reached.samples)


@pytest.mark.parametrize("k", [0, 3])
def test_a_sample_is_its_own_run_to_the_bit(method, whole, k):
    alone = integrated(method, P[k : k + 1], t_eval=TIMES)
    assert np.array_equal(alone.y.samples[..., 0], whole.y.samples[..., k])
    assert alone.n_steps[0] == whole.n_steps[k] and alone.n_rejected[0] == whole.n_rejected[k]


def test_samples_that_take_the_place_of_others_are_the_same(method, whole, monkeypatch):
    monkeypatch.setattr(evaluation, "FACTORS", 1)  # 8 samples at a time
    monkeypatch.setattr(bdf, "TOGETHER", 1)
    order = np.random.default_rng(0).permutation(45)
    many = integrated(method, np.tile(P, 9)[order], t_eval=TIMES)
    assert np.array_equal(many.y.samples, np.tile(whole.y.samples, 9)[..., order])
    assert np.array_equal(many.n_steps, np.tile(whole.n_steps, 9)[order])


def test_events_leave_the_steps_and_the_other_samples_alone(method, whole):
    def low(t, y, p, xp):
        return xp.where(p[0] < 0.025, y[0] - 1.2, 1.0)

    low.terminal = True
    other = integrated(method, events=low, t_eval=TIMES)
    stopped = other.status == OdeStatus.event
    assert stopped.tolist() == (P < 0.025).tolist()
    assert np.array_equal(other.y.samples[..., ~stopped], whole.y.samples[..., ~stopped])
    assert np.abs(other.y_reached.samples[0, stopped] - 1.2).max() < BOUNDS[method]["output"]


def test_a_sample_that_is_not_finite_leaves_the_others_alone(method, whole):
    p = P.copy()
    p[1] = np.nan
    with pytest.warns(OdeWarning, match="4 of 5 samples finished"):
        other = integrated(method, p, t_eval=TIMES)
    assert other.status.tolist() == [1, OdeStatus.non_finite, 1, 1, 1]
    keep = [0, 2, 3, 4]
    assert np.array_equal(other.y.samples[..., keep], whole.y.samples[..., keep])
    assert np.isnan(other.y.samples[1:, :, 1]).all()


def test_a_sample_that_needs_too_many_steps_has_a_status(method):
    with pytest.warns(OdeWarning):
        result = integrated(method, max_steps=20)
    assert set(result.status.tolist()) == {OdeStatus.too_many_steps}
    assert result.n_steps.tolist() == [20] * 5
    assert np.isnan(result.y.samples).all()


def test_times_may_differ_between_samples_and_run_backwards(method):
    result = integrated(method, P[:3], (0.0, Ensemble(np.array([0.3, 0.0, -0.02]))))
    assert result.status.tolist() == [1, 1, 1]
    assert result.t_reached.samples.tolist() == [0.3, 0.0, -0.02]
    assert np.array_equal(result.y.samples[:, 1], brusselator_start(M)) and result.n_steps[1] == 0
    assert np.abs(result.y.samples[:, 0] - reference(P[0], [0.0, 0.3])[-1]).max() < BOUNDS[method]["short"]
    back = solve_ivp(brusselator_arrays, (0.0, -0.02), brusselator_start(M), "Radau", rtol=1e-11, atol=1e-12,
                     args=(P[2],)).y[:, -1]  # fmt: skip
    assert np.abs(result.y.samples[:, 2] - back).max() < BOUNDS[method]["back"]


def test_a_right_hand_side_that_depends_on_the_time(method):
    def driven(t, y, p, xp):
        return [-p[0] * (y[0] - xp.cos(t)), *(50.0 * (y[i - 1] - y[i]) for i in range(1, len(y)))]

    expected = solve_ivp(lambda t, y: driven(t, y, [100.0], np), (0.0, 1.0), np.zeros(40), "Radau", rtol=1e-10,
                         atol=1e-12).y[:, -1]  # fmt: skip
    result = integrated(method, np.array([100.0]), (0.0, 1.0), np.zeros(40), driven)
    assert np.abs(result.y.samples[:, 0] - expected).max() < BOUNDS[method]["driven"]


@pytest.mark.slow  # kernels of another precision
def test_single_precision(method, whole):
    result = integrated(method, start=brusselator_start(M).astype(np.float32), rtol=1e-4, atol=1e-5)
    assert result.y.samples.dtype == np.float32
    assert np.abs(result.y.samples - whole.y.samples[-1]).max() < BOUNDS[method]["single"]
