"""Gradients by the chain rule backwards, beside differences and tangents."""

import math
import time

import numpy as np
import pytest

from ensemble import Ensemble, ode
from ensemble._compile.trace.cuda_source import OPTIONS
from ensemble._kernels.ode import backward_launch
from ensemble.ode import adjoint, adjoint_device, compiled, device, steps
from ensemble.ode.solve import run
from tests import cuda_on_cpu, nvrtc
from tests.ode.problems import brusselator, brusselator_start, lorenz

Y0 = np.array([[1.0, 0.9, -1.0], [0.5, 0.4, 0.2]])
P = np.array([[1.7, 1.0, 0.8], [0.3, 0.1, 0.0]])
W = [1.0, -2.0]


def forced(t, y, p, xp):
    return [y[1], -p[0] * xp.sin(y[0]) + p[1] * xp.cos(t)]


def volatility(t, y, p, xp):
    return [0.1 * y[0] * p[1], 0.2]


def options_of(method):
    return {"noise": volatility, "seed": 3} if method in ("milstein", "euler-maruyama") else {}


def end(y0, p, method, step):
    return ode.gradient(forced, Ensemble(y0), (0.0, 1.0), W, p=Ensemble(p), method=method, step=step,
                        **options_of(method)).y.samples  # fmt: skip


@pytest.mark.parametrize("method", ["euler", "rk4", "tsit5", "dop853", "leapfrog", "yoshida4", "rodas4", "milstein"])
def test_a_gradient_is_that_of_differences(method):
    step = 0.15  # does not divide the interval
    made = ode.gradient(forced, Ensemble(Y0), (0.0, 1.0), W, p=Ensemble(P), method=method, step=step,
                        **options_of(method))  # fmt: skip
    for which in (0, 1):
        for i in range(2):
            h = 1e-5 * np.eye(2)[i][:, None]
            shifted = [(Y0 + s * h, P) if which == 0 else (Y0, P + s * h) for s in (1, -1)]
            up, down = (end(*arrays, method, step) for arrays in shifted)
            difference = (np.array(W) @ (up - down)) / 2e-5
            found = (made.y0 if which == 0 else made.p).samples[i]
            assert np.allclose(found, difference, rtol=1e-7, atol=1e-9), (which, i)


@pytest.mark.parametrize("method", ["rk4", "tsit5", "rodas4", "milstein"])
def test_the_end_is_that_of_solve(method):
    made = ode.gradient(forced, Ensemble(Y0), (0.0, 1.0), W, p=Ensemble(P), method=method, step=0.15,
                        **options_of(method))  # fmt: skip
    other = ode.solve(forced, Ensemble(Y0), (0.0, 1.0), p=Ensemble(P), method=method, step=0.15, **options_of(method))
    assert np.allclose(made.y.samples, other.y.samples, rtol=1e-12)


TIMES = np.linspace(0.0, 1.0, 7)
CASES = {"rk4": {"step": 0.03}, "tsit5": {}, "dop853": {}, "taylor": {}, "rodas4": {}, "milstein": {"step": 0.03}}


def case(method, times):
    more = {} if times is None else {"t_eval": times}
    return {"method": method, "rtol": 1e-8, "atol": 1e-10, **CASES[method], **options_of(method), **more}


def weights_of(times):
    return np.random.default_rng(3).normal(size=(2,) if times is None else (times.size, 2))


@pytest.mark.parametrize("times", [None, TIMES], ids=["end", "times"])
@pytest.mark.parametrize("method", CASES)
def test_a_gradient_is_the_transpose_of_the_tangents(method, times):
    """Both hold the accepted steps fixed: they agree to rounding, not to a tolerance."""
    options, weights = case(method, times), weights_of(times)
    made = ode.gradient(forced, Ensemble(Y0), (0.0, 1.0), weights, p=Ensemble(P), **options)
    forward = ode.sensitivities(forced, Ensemble(Y0), (0.0, 1.0), p=Ensemble(P), **options)
    assert np.array_equal(made.y.samples, forward.y.samples)
    for name in ("y0", "p"):
        expected = np.tensordot(weights, getattr(forward, name).samples, axes=weights.ndim)
        assert np.allclose(getattr(made, name).samples, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("capacity", [16, 33])
@pytest.mark.parametrize("method", ["rk4", "tsit5"])
def test_checkpoints_change_nothing(method, capacity, monkeypatch):
    options = case(method, TIMES) | ({"step": 0.003} if method == "rk4" else {"rtol": 1e-13, "atol": 1e-14})
    arguments = forced, Ensemble(Y0), (0.0, 1.0), weights_of(TIMES)
    whole = ode.gradient(*arguments, p=Ensemble(P), **options)
    assert whole.result.n_steps.min() > 2 * capacity
    found = adjoint.steps_of(adjoint.problem_of(*arguments[:3], p=Ensemble(P), **options).problem)
    monkeypatch.setattr(adjoint, "RECORD", capacity * found.n_entry * 16)
    made = ode.gradient(*arguments, p=Ensemble(P), **options)
    for name in ("y", "y0", "p"):
        assert np.array_equal(getattr(made, name).samples, getattr(whole, name).samples)


@pytest.mark.parametrize("method", CASES)
def test_a_sample_has_the_gradient_of_its_own_run_and_a_nan_stays_in_it(method):
    y0, p = (np.repeat(each, 7, axis=1) + 0.01 * np.arange(21) for each in (Y0, P))
    if method == "milstein":
        options = [{"noise_samples": np.arange(21)}, {"noise_samples": np.array([9])}]
    else:
        options = [{}, {}]
    wrong = p.copy()
    wrong[0, 4] = np.nan
    whole = ode.gradient(forced, Ensemble(y0), (0.0, 1.0), W, p=Ensemble(p), **case(method, None), **options[0])
    with pytest.warns(ode.OdeWarning, match="sample 4"):
        made = ode.gradient(forced, Ensemble(y0), (0.0, 1.0), W, p=Ensemble(wrong), **case(method, None), **options[0])
    alone = ode.gradient(forced, y0[:, 9], (0.0, 1.0), W, p=p[:, 9], **case(method, None), **options[1])
    others = np.arange(21) != 4
    for name in ("y", "y0", "p"):
        mine, all_ = getattr(made, name).samples, getattr(whole, name).samples
        assert np.array_equal(mine[:, others], all_[:, others]) and np.isnan(mine[:, 4]).all()
        assert np.array_equal(getattr(alone, name).samples[:, 0], all_[:, 9])
    assert made.result.status[4] == ode.OdeStatus.non_finite and made.result.n_steps[4] == 0


def test_a_loss_of_all_times():
    data = np.cos(TIMES)[:, None]

    def residual(y):
        return Ensemble(2.0 * (y.samples - data[..., None]) * np.array([1.0, 0.0])[:, None])

    def loss(p):
        y = ode.solve(forced, Y0[:, 0], (0.0, 1.0), p=p, t_eval=TIMES, rtol=1e-10, atol=1e-12).y.samples[..., 0]
        return ((y[:, 0] - data[:, 0]) ** 2).sum()

    p = P[:, 0]
    made = ode.gradient(forced, Y0[:, 0], (0.0, 1.0), residual, p=p, t_eval=TIMES, rtol=1e-10, atol=1e-12)
    differences = [(loss(p + h) - loss(p - h)) / 2e-5 for h in 1e-5 * np.eye(2)]
    assert np.allclose(made.p.samples[:, 0], differences, rtol=1e-6)


def test_weights_may_differ_between_samples_where_the_rest_is_shared():
    weights = np.random.default_rng(2).normal(size=(2, 5))
    made = ode.gradient(forced, Y0[:, 0], (0.0, 1.0), Ensemble(weights), p=P[:, 0], rtol=1e-8)
    alone = ode.gradient(forced, Y0[:, 0], (0.0, 1.0), weights[:, 3], p=P[:, 0], rtol=1e-8)
    assert made.y0.shape == (2,) and made.y0.n_samples == 5
    assert np.array_equal(made.p.samples[:, 3], alone.p.samples[:, 0])


def test_a_system_of_many_unknowns():
    made = ode.gradient(brusselator, brusselator_start(4), (0.0, 0.1), np.ones(8), p=[0.02], method="rodas4")
    ends = [ode.solve(brusselator, brusselator_start(4), (0.0, 0.1), p=[0.02 + h], method="rodas4", rtol=1e-9,
                      atol=1e-12).y.samples.sum() for h in (1e-5, -1e-5)]  # fmt: skip
    assert made.p.samples[0, 0] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4)


@pytest.fixture
def emulated_gradient(emulated, monkeypatch):
    monkeypatch.setattr(
        backward_launch,
        "kernel",
        lambda text: cuda_on_cpu.Module(text, OPTIONS, ("gradient",)).get_function("gradient"),
    )
    monkeypatch.setattr(adjoint_device, "RECORD", 1)  # a few samples at a time


@pytest.mark.parametrize("times", [None, TIMES], ids=["end", "times"])
@pytest.mark.parametrize("method", ["rk4", "tsit5", "taylor"])
def test_the_kernel_gives_the_gradient_of_the_cpu(method, times, emulated_gradient, monkeypatch):
    y0, p = (np.repeat(each, 7, axis=1) + 0.01 * np.arange(21) for each in (Y0, P))
    arguments = forced, Ensemble(y0), (0.0, 1.0), weights_of(times)
    expected = ode.gradient(*arguments, p=Ensemble(p), **case(method, times))
    monkeypatch.setattr(compiled, "run", device.run)

    def backward(problem, found, weights, progress):
        solution = run(problem)
        return solution, *adjoint_device.backward(problem, found, weights, solution)

    monkeypatch.setattr(adjoint, "_backward", backward)
    made = ode.gradient(*arguments, p=Ensemble(p), **case(method, times))
    for name in ("y", "y0", "p"):
        assert np.allclose(getattr(made, name).samples, getattr(expected, name).samples, rtol=1e-12, atol=1e-14)


@pytest.mark.skipif(nvrtc.library() is None, reason="no NVRTC")
def test_the_kernel_compiles(emulated_gradient, monkeypatch):
    texts = []
    monkeypatch.setattr(backward_launch, "kernel", lambda text: texts.append(text) or (lambda *launched: None))
    problem = adjoint.problem_of(forced, Y0[:, 0], (0.0, 1.0), p=P[:, 0], t_eval=TIMES).problem
    adjoint_device.backward(problem, steps.steps_of(problem), np.ones((7, 2, 1)), run(problem))
    assert nvrtc.compiled(nvrtc.library(), texts[0], *OPTIONS)


@pytest.mark.cuda
@pytest.mark.parametrize("times", [None, TIMES], ids=["end", "times"])
@pytest.mark.parametrize("method", CASES)
def test_a_device_gives_the_gradient_of_the_cpu(method, times):
    cupy = pytest.importorskip("cupy")
    y0, p = (np.repeat(each, 100, axis=1) + 0.001 * np.arange(300) for each in (Y0, P))
    weights = weights_of(times)
    expected = ode.gradient(forced, Ensemble(y0), (0.0, 1.0), weights, p=Ensemble(p), **case(method, times))
    arrays = Ensemble(cupy.asarray(y0)), (0.0, 1.0), cupy.asarray(weights)
    made = ode.gradient(forced, *arrays, p=Ensemble(cupy.asarray(p)), **case(method, times))
    for name in ("y", "y0", "p"):
        assert np.allclose(getattr(made, name).samples.get(), getattr(expected, name).samples, rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_the_cost_is_that_of_a_few_solves():
    """3.4 and 2.0 processor times were measured; three times as much here, so that a busy machine does not decide."""
    for method, options, bound in (("rk4", {"step": 0.002}, 10.5), ("tsit5", {"rtol": 1e-8}, 7.5)):
        rho = [Ensemble(np.linspace(0.0, 21.0, 4096))]

        def clocked(function, *more, options={"p": rho, "method": method, **options}):  # noqa: B006
            start = time.process_time()
            function(lorenz, [1.0, 1.0, 1.0], (0.0, 4.0), *more, **options)
            return time.process_time() - start

        clocked(ode.solve), clocked(ode.gradient, [1.0, 1.0, 1.0])
        plain, made = zip(*[(clocked(ode.solve), clocked(ode.gradient, [1.0, 1.0, 1.0])) for _ in range(5)])
        assert np.median(made) < bound * np.median(plain)


def test_weights_may_follow_from_the_end():
    made = ode.gradient(lorenz, [1.0, 2.0, 3.0], (0.0, 0.3), lambda y: 2.0 * y, p=[28.0], method="rk4", step=0.01)
    solved = (
        ode.solve(lorenz, [1.0, 2.0, 3.0], (0.0, 0.3), p=[28.0 + s], method="rk4", step=0.01) for s in (1e-5, -1e-5)
    )
    ends = [each.y.samples for each in solved]
    difference = ((ends[0] ** 2).sum() - (ends[1] ** 2).sum()) / 2e-5
    assert made.p.samples[0, 0] == pytest.approx(difference, rel=1e-7)


def test_backwards_and_no_time_at_all():
    made = ode.gradient(lambda t, y, p, xp: [p[0] * y[0]], [2.0], (1.0, 0.0), [1.0], p=[0.5], step=0.05)
    assert made.y0.samples[0, 0] == pytest.approx(math.exp(-0.5), rel=1e-8)
    still = ode.gradient(lambda t, y, p, xp: [p[0] * y[0]], [2.0], (1.0, 1.0), [3.0], p=[0.5], step=0.05)
    assert [still.y.samples[0, 0], still.y0.samples[0, 0], still.p.samples[0, 0]] == [2.0, 3.0, 0.0]


def test_wrong_arguments_are_clear_errors():
    with pytest.raises(ValueError, match=r"ode\.gradient: events must be left out"):
        ode.gradient(forced, Y0[:, 0], (0.0, 1.0), W, p=P[:, 0], events=lambda t, y, p, xp: y[0])
    with pytest.raises(TypeError, match=r"ode\.gradient: f must be traceable"):
        ode.gradient(lambda t, y, p, xp: [1.0 if y[0] > 0 else 0.0], [1.0], (0.0, 1.0), [1.0])
    with pytest.raises(ValueError, match="cotangent must have 3 samples, or be shared"):
        ode.gradient(forced, Ensemble(Y0), (0.0, 1.0), Ensemble(np.ones((2, 5))), p=P[:, 0])
    with pytest.raises(ValueError, match=r"cotangent must have shape \(2,\)"):
        ode.gradient(forced, Y0[:, 0], (0.0, 1.0), [1.0], p=P[:, 0], step=0.1)
    with pytest.raises(ValueError, match="step must be above zero"):
        ode.gradient(forced, Y0[:, 0], (0.0, 1.0), W, p=P[:, 0], step=0.0)


def test_a_gradient_goes_through_tables():
    times, loads = [0.0, 0.3, 0.7, 1.0], [0.0, 2.0, -1.0, 0.5]
    f = lambda t, y, p, xp: [p[1] * xp.interp(p[0] * t, times, loads) - y[0]]
    values = np.array([[0.5, 0.9, 1.5], [1.0, 2.0, 1.5]])
    options = {"method": "dop853", "rtol": 1e-12, "atol": 1e-12}
    found = ode.gradient(f, [0.1], (0.0, 1.0), p=Ensemble(values), cotangent=[1.0], **options)
    for k, rtol in ((0, 5e-3), (1, 1e-5)):  # p[0] moves the points of the table within steps
        step = 1e-5 * np.eye(2)[k]
        ends = [ode.solve(f, [0.1], (0.0, 1.0), p=Ensemble(values + c * step[:, None]), **options).y for c in (1, -1)]
        np.testing.assert_allclose(found.p.samples[k], (ends[0] - ends[1]).samples[0] / 2e-5, rtol=rtol)
