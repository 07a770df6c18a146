"""`ode.solve`: against closed forms, SciPy and runs of single samples."""

import importlib
import math
import re
import warnings

import numpy as np
import pytest
import scipy.integrate

from ensemble import Ensemble, gallery, ode
from ensemble._compile.lanes.graph_loop import graph_loop
from ensemble._compile.lanes.library import assembly_of
from ensemble._compile.machine_code import assembled, processor_text
from ensemble.ode import compiled
from ensemble.ode.ode_result import OdeStatus
from tests.ode.problems import RHO, SOLVERS, TIMES, lorenz, passage


def oscillator(t, y, p, xp):
    return [y[1], -p[0] * y[0]]


def lorenz_of(rho, method="tsit5", **options):
    options = {"rtol": 1e-8, "atol": 1e-10, **SOLVERS[method], **options}
    return ode.solve(lorenz, [1.0, 1.0, 1.0], (0.0, 1.0), p=[Ensemble(rho)], method=method, **options)


@pytest.mark.parametrize("method", SOLVERS)
def test_lorenz_agrees_with_scipy(method):
    result = lorenz_of(RHO, method)
    for s in (0, 17, 36):
        expected = scipy.integrate.solve_ivp(
            lambda t, y, s=s: lorenz(t, y, (RHO[s],), np),
            (0.0, 1.0), [1.0, 1.0, 1.0], method="DOP853", rtol=1e-12, atol=1e-12,
        )  # fmt: skip
        np.testing.assert_allclose(result.y.samples[:, s], expected.y[:, -1], rtol=0, atol=3e-7)
    assert result.succeeded.all()


@pytest.mark.parametrize("method", SOLVERS)
def test_a_sample_has_the_bits_of_its_own_run(method):
    whole = lorenz_of(RHO, method, t_eval=TIMES)
    for samples in ([0], [3, 17, 36], list(range(33))):
        part = lorenz_of(RHO[samples], method, t_eval=TIMES)
        np.testing.assert_array_equal(part.y.samples, whole.y.samples[..., samples])
        np.testing.assert_array_equal(part.n_steps, whole.n_steps[samples])


@pytest.mark.parametrize("method", SOLVERS)
def test_nan_and_divergence_stay_in_their_samples(method):
    rho = RHO.copy()
    rho[5] = np.nan
    with pytest.warns(ode.OdeWarning, match="non finite: sample 5"):
        result = lorenz_of(rho, method)
    others = np.arange(RHO.size) != 5
    np.testing.assert_array_equal(result.y.samples[:, others], lorenz_of(RHO, method).y.samples[:, others])
    assert np.isnan(result.y.samples[:, 5]).all() and result.status[5] == OdeStatus.non_finite


def test_a_solution_that_ends_early_says_where():
    """``1 / (1 / y0 - t)`` has no value from t = 1 / y0 on."""
    with pytest.warns(ode.OdeWarning, match=r"step too small: sample 1 \(sample 1 at t = 1\)"):
        result = ode.solve(lambda t, y, p, xp: [y[0] * y[0]], [Ensemble(np.array([0.25, 1.0]))], (0.0, 2.0), rtol=1e-9)
    np.testing.assert_allclose(result.y.samples[0, 0], 0.5, rtol=1e-7)
    assert np.isnan(result.y.samples[0, 1]) and result.y_reached.samples[0, 1] > 1e6
    with pytest.raises(ode.OdeError, match="1 of 2"):
        result.raise_if_failed()


@pytest.mark.parametrize("k", [5, 20, 40])
def test_a_taylor_step_whose_coefficients_vanish_is_not_accepted(k):
    """The derivatives of ``t**k`` at zero vanish up to the order of the method; the step would be infinite."""
    result = ode.solve(lambda t, y, p, xp: [(k + 1) * t**k], [0.0], (0.0, 1.0), method="taylor", rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(result.y.samples, 1.0, rtol=1e-7)
    assert (result.n_rejected > 0).all() == (k > 5)


def test_taylor_bounds_the_error_of_each_unknown():
    """A slow unknown of size 1e6 beside a fast one of size 1e-3."""

    def f(t, y, p, xp):
        return [y[1], -0.01 * y[0], y[3], -100.0 * y[2]]

    result = ode.solve(f, [1e6, 0.0, 1e-3, 0.0], (0.0, 10.0), method="taylor", rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(result.y.samples[2, 0], 1e-3 * np.cos(100.0), rtol=1e-5)


@pytest.mark.parametrize("method", ["tsit5", "dop853", "taylor", "rodas4", "bdf"])
def test_time_may_be_large_beside_the_steps(method):
    """Seconds since 1970: the spacing of numbers is 2e-7 there, a hundredth to a thousandth of a step."""
    t0, options = 1.7e9, {"p": [1e6], "method": method, "rtol": 1e-7, "atol": [1e-9, 1e-6]}
    result = ode.solve(oscillator, [1.0, 0.0], (t0, t0 + 0.0625), **options)
    early = ode.solve(oscillator, [1.0, 0.0], (0.0, 0.0625), **options)
    np.testing.assert_allclose(result.y.samples[0], early.y.samples[0], rtol=0, atol=3e-6)


def test_taylor_finds_roots_of_which_a_step_has_two():
    """A throw is a polynomial of degree 2: one step would go to the end, far below the ground."""

    def ground(t, y, p, xp):
        return y[0]

    def halfway(t, y, p, xp):
        return y[0] - 50.0

    ground.terminal, ground.direction = True, -1
    speed = Ensemble(np.array([10.0, 20.0]))
    thrown = ode.solve(lambda t, y, p, xp: [y[1], -0.5], [0.0, speed], (0.0, 100.0), method="taylor",
                       events=(ground, halfway))  # fmt: skip
    np.testing.assert_allclose(thrown.t_events[0].samples[0], [40.0, 80.0], rtol=1e-12)
    np.testing.assert_allclose(thrown.t_events[1].samples[:2, 0], 20.0 + np.array([-1, 1]) * np.sqrt(200.0), rtol=1e-12)


def test_too_many_steps_are_an_outcome():
    with pytest.warns(ode.OdeWarning, match=r"too many steps: samples 0, 1.*stiff, use method='rodas4' or 'bdf'"):
        result = ode.solve(oscillator, [1.0, 0.0], (0.0, 9.0), p=[Ensemble(np.array([1.0, 4.0]))], max_steps=5)
    assert (result.n_steps == 5).all() and (result.t_reached.samples < 9.0).all()


@pytest.mark.parametrize("method", SOLVERS)
def test_output_times_do_not_change_the_steps(method):
    result, alone = lorenz_of(RHO, method, t_eval=TIMES), lorenz_of(RHO, method)
    np.testing.assert_array_equal(result.y.samples[-1], alone.y.samples)
    np.testing.assert_array_equal(result.n_steps, alone.n_steps)
    np.testing.assert_array_equal(result.y.samples[0], 1.0)
    fine = lorenz_of(RHO, "dop853", t_eval=TIMES, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(result.y.samples, fine.y.samples, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["rk4", "tsit5", "leapfrog"])
def test_the_end_is_hit_where_steps_do_not_divide_it(method):
    k = np.array([1.0, 2.0, 4.0])
    result = ode.solve(oscillator, [1.0, 0.0], (0.0, 1.0), p=[Ensemble(k)], method=method, step=0.3)
    assert (result.t_reached.samples == 1.0).all() and (result.n_steps == 4).all()
    other = ode.solve(oscillator, [1.0, 0.0], (0.0, Ensemble(np.array([1.0, 0.9, 0.2]))), p=[Ensemble(k)],
                      method=method, step=0.3)  # fmt: skip
    np.testing.assert_array_equal(other.n_steps, [4, 3, 1])
    np.testing.assert_array_equal(other.y.samples[:, 0], result.y.samples[:, 0])
    np.testing.assert_array_equal(other.t_reached.samples, [1.0, 0.9, 0.2])


@pytest.mark.parametrize("method", ["tsit5", "dop853", "taylor", "rodas4"])
def test_errors_follow_the_tolerance(method):
    k = np.linspace(1.0, 9.0, 5)
    errors = []
    for tol in (1e-5, 1e-8):
        result = ode.solve(oscillator, [1.0, 0.0], (5.0, -1.0), p=[Ensemble(k)], method=method, rtol=tol, atol=tol)
        errors.append(np.abs(result.y.samples[0] - np.cos(6.0 * np.sqrt(k))).max())
    assert errors[0] < 3e-3 and errors[1] < 3e-6 and errors[1] < errors[0] / 50


def test_samples_have_tolerances_and_intervals_of_their_own():
    tol, end = np.array([1e-4, 1e-10]), np.array([3.0, 7.0])
    result = ode.solve(oscillator, [1.0, 0.0], (0.0, Ensemble(end)), p=[1.0], rtol=Ensemble(tol), atol=1e-12)
    for s in range(2):
        alone = ode.solve(oscillator, [1.0, 0.0], (0.0, end[s]), p=[1.0], rtol=tol[s], atol=1e-12)
        np.testing.assert_array_equal(alone.y.samples[:, 0], result.y.samples[:, s])
    assert result.n_steps[1] > 3 * result.n_steps[0]


def turn(t, y, p, xp):
    return y[1]


turn.terminal, turn.direction = 2, 1


@pytest.mark.parametrize("method", ["tsit5", "dop853", "rk4"])
def test_events_of_an_oscillator(method):
    """Passages at (2 k + 1) pi / (2 w); the second turn upwards, at 3 pi / w, ends the run."""
    w = np.linspace(1.0, 2.0, 21)
    options = {"step": 0.002} if method == "rk4" else {"rtol": 1e-11, "atol": 1e-12}
    result = ode.solve(oscillator, [1.0, 0.0], (0.0, 20.0), p=[Ensemble(w * w)], method=method,
                       events=(passage, turn), t_eval=[1.0, 9.3], **options)  # fmt: skip
    expected = (np.arange(4)[:, None] + 0.5) * np.pi / w
    np.testing.assert_allclose(result.t_events[0].samples[:3], expected[:3], rtol=1e-8)
    assert (result.status == OdeStatus.event).all() and (result.n_events[1] == 2).all()
    np.testing.assert_allclose(result.t_reached.samples, 3.0 * np.pi / w, rtol=1e-8)
    np.testing.assert_allclose(result.y_reached.samples[0], -1.0, rtol=1e-6)
    after = 3.0 * np.pi / w < 9.3
    np.testing.assert_array_equal(np.isnan(result.y.samples[1, 0]), after)


@pytest.mark.parametrize("method", SOLVERS)
def test_an_untraced_function_gives_the_same_answers(method):
    def opaque(t, y, p, xp):
        if not hasattr(y[0], "n_samples"):
            raise TypeError("not traceable")
        return lorenz(t, y, p, xp)

    if method in ("taylor", "rodas4"):
        with pytest.raises(TypeError, match="traceable for the method"):
            ode.solve(opaque, [1.0, 1.0, 1.0], (0.0, 1.0), p=[28.0], method=method)
        return
    options = {"rtol": 1e-8, "atol": 1e-10, **SOLVERS[method]}
    result = ode.solve(opaque, [1.0, 1.0, 1.0], (0.0, 1.0), p=[Ensemble(RHO)], method=method,
                       t_eval=TIMES, events=(passage, turn), **options)  # fmt: skip
    expected = lorenz_of(RHO, method, t_eval=TIMES, events=(passage, turn))
    np.testing.assert_allclose(result.y.samples, expected.y.samples, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(result.n_events, expected.n_events)
    np.testing.assert_allclose(result.t_events[1].samples, expected.t_events[1].samples, rtol=1e-9)


ANGLES = Ensemble(np.array([0.3, -0.2, 1.0, -1.5]))


def filled(t, y, p, xp):
    rates = np.zeros(1)
    rates[0] = -y[0]
    return rates


@pytest.mark.parametrize(
    "f",
    [
        lambda t, y, p, xp: [-y[0] if y[0] > 0.0 else 2.0 * y[0]],
        lambda t, y, p, xp: [math.sin(3.0 * y[0]) + math.exp(-t)],
        lambda t, y, p, xp: np.array([[-1.0]]) @ np.array(y),
        lambda t, y, p, xp: [float(np.interp(t, [0.0, 1.0], [0.0, 1.0])) - y[0]],
        lambda t, y, p, xp: [max(y[0], 0.5)],
        filled,
    ],
    ids=["branch", "math", "matrix", "table", "max", "filled"],
)
def test_a_function_of_one_sample_has_the_bits_of_its_own_runs_where_samples_part(f):
    whole = ode.solve(f, [ANGLES], (0.0, 0.5), rtol=1e-3)
    for s in range(4):
        alone = ode.solve(f, [ANGLES.samples[s]], (0.0, 0.5), rtol=1e-3)
        assert np.array_equal(alone.y.samples[:, 0], whole.y.samples[:, s]) and alone.n_steps[0] == whole.n_steps[s]


def test_an_event_of_one_sample_parts_samples_too():
    def branching(t, y, p, xp):
        return y[0] - 0.5 if y[0] > 0.0 else 0.5 + y[0]

    made = ode.solve(lambda t, y, p, xp: [1.0], [ANGLES], (0.0, 4.0), events=branching, rtol=1e-3, max_step=0.01)
    roots = made.t_events[0].samples[:2]
    np.testing.assert_allclose(roots, [[0.2, 0.2, np.nan, 1.0], [np.nan, 0.7, np.nan, 1.5]], atol=1e-9)


def test_stiff_systems_reach_their_published_ends():
    for problem in (gallery.hires(), gallery.robertson()):
        result = ode.solve(problem.f, problem.y0, problem.t, p=problem.p, method="rodas4", rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(result.y.samples[:, 0], problem.y_end, rtol=2e-5)


def test_float32_is_integrated_in_float32():
    result = ode.solve(oscillator, np.array([1.0, 0.0], np.float32), (0.0, 3.0), p=[Ensemble(np.array([1.0, 4.0]))])
    assert result.y.dtype == np.float32
    np.testing.assert_allclose(result.y.samples[0], np.cos([3.0, 6.0]), atol=2e-5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "rk5"}, "method must be one of"),
        ({"method": "rk4"}, "step must be given for the fixed steps of rk4"),
        ({"method": "taylor", "step": 0.1}, "step must be None for taylor"),
        ({"rtol": 0.0}, "rtol must be above zero; got 0.0"),
        ({"atol": [1.0, 1.0, 1.0]}, r"atol must be a number or have shape \(2,\)"),
        ({"t": (0.0, np.inf)}, r"t\[1\] must be finite; got inf"),
        ({"t": 1.0}, "t must be a pair"),
        ({"t_eval": [0.5, 0.2]}, "t_eval must be ordered from t0 to t1"),
        ({"t_eval": [0.5, 1.2]}, "t_eval must lie between t0 and t1"),
        ({"y0": [[1.0, 0.0]]}, "y0 must have one axis"),
        ({"y0": np.array([1j, 0.0])}, "y0 must be real numbers"),
        ({"y0": [1.0, 0.0, 2.0]}, r"return 3 values"),
        ({"p": [Ensemble(np.ones(3))], "rtol": Ensemble(np.ones(4))}, "must have one number of samples"),
        ({"step": 1e-18}, "step must need at most"),
        ({"max_steps": 0}, "max_steps must be an integer of at least 1"),
        ({"events": 3}, "events"),
    ],
)
def test_bad_arguments_are_named(options, text):
    given = {"y0": [1.0, 0.0], "t": (0.0, 1.0), "p": [1.0], **options}
    with pytest.raises((ValueError, TypeError), match=text):
        ode.solve(oscillator, given.pop("y0"), given.pop("t"), **given)


@pytest.mark.parametrize(
    ("method", "text"),
    [("rodas4", "at most 64 entries for rodas4 on a device; got 80"), ("bdf", "backend must be NumPy's for bdf")],
)
def test_a_large_stiff_system_on_a_device_is_refused(method, text, monkeypatch):
    monkeypatch.setattr(importlib.import_module("ensemble.ode.solve"), "backend_of", lambda x: "cuda")
    problem = gallery.brusselator(40)
    with pytest.raises(ValueError, match=text):
        ode.solve(problem.f, problem.y0, problem.t, p=problem.p, method=method)


def test_no_time_no_step():
    result = ode.solve(oscillator, [1.0, 0.0], (2.0, 2.0), p=[Ensemble(np.ones(3))], t_eval=[2.0])
    np.testing.assert_array_equal(result.y.samples, np.broadcast_to([[[1.0], [0.0]]], (1, 2, 3)))
    assert (result.n_steps == 0).all() and result.succeeded.all()


def test_an_interrupt_ends_the_run(monkeypatch):
    def stop(done):
        raise KeyboardInterrupt

    problem = []
    monkeypatch.setattr(compiled, "run", lambda given, callback: problem.append(given) or _RUN(given, stop))
    with pytest.raises(KeyboardInterrupt):
        ode.solve(oscillator, [1.0, 0.0], (0.0, 1.0), p=[Ensemble(np.linspace(1.0, 2.0, 5000))])
    assert len(problem) == 1


_RUN = compiled.run


def test_a_change_of_a_captured_number_is_seen():
    rate = 1.0

    def decay(t, y, p, xp):
        return [-rate * y[0]]

    first = ode.solve(decay, [1.0], (0.0, 1.0), rtol=1e-9)
    rate = 2.0
    second = ode.solve(decay, [1.0], (0.0, 1.0), rtol=1e-9)
    np.testing.assert_allclose([first.y.samples[0, 0], second.y.samples[0, 0]], np.exp([-1.0, -2.0]), rtol=1e-7)


def test_a_change_of_the_sign_of_a_captured_zero_is_seen():
    def angle(t, y, p, xp):
        return [xp.arctan2(zero * y[1], y[0] - 2.0), 0.0]

    def end():
        return ode.solve(angle, [1.0, 1.0], (0.0, 0.125), method="euler", step=0.125).y.samples[0, 0]

    zero = 0.0
    ends = [end()]
    zero = -0.0
    ends.append(end())
    np.testing.assert_allclose(ends, [1.0 + np.pi / 8.0, 1.0 - np.pi / 8.0], rtol=1e-15)


def test_a_change_of_a_number_that_an_event_captures_is_seen():
    level = 0.5

    def below(t, y, p, xp):
        return y[0] - level

    def root():
        result = ode.solve(lambda t, y, p, xp: [-y[0]], [1.0], (0.0, 3.0), rtol=1e-10, events=below)
        return result.t_events[0].samples[0, 0]

    first = root()
    level = 0.25
    np.testing.assert_allclose([first, root()], np.log([2.0, 4.0]), rtol=1e-8)


def test_the_loop_is_made_of_packed_instructions(monkeypatch):
    """No product or sum of the steps is computed lane by lane."""
    seen = []
    monkeypatch.setattr(compiled, "addresses", lambda *given: seen.append(given) or _ADDRESSES(*given))
    lorenz_of(RHO, "tsit5", rtol=1.25e-8)
    _, loop, _, n_carried, dtype, *_ = seen[0]
    text = processor_text(assembled([graph_loop(loop, "steps", n_carried, 16, dtype)]), assembly_of)
    packed, single = (len(re.findall(rf"v?f?n?m?(?:add|sub|mul|div)\d*{kind}\b", text)) for kind in ("pd", "sd"))
    assert packed > 100 and single <= packed / 50


_ADDRESSES = compiled.addresses


def test_results_become_datasets_and_pictures():
    pytest.importorskip("xarray")
    result = lorenz_of(RHO, t_eval=TIMES)
    data = result.to_xarray()
    assert data["y"].dims == ("time", "component", "sample") and data["y"].shape == (7, 3, 37)
    assert result.plot(1).get_ylabel() == "y[1]"
    assert len(result.plot_phase(0, 2, n_samples=5).lines) == 5
    with pytest.raises(ValueError, match=r"OdeResult.plot: component must be below 3; got 3"):
        result.plot(3)
    with pytest.raises(ValueError, match="have a time axis"):
        lorenz_of(RHO).plot()


def test_a_dataset_has_the_output_times_of_each_sample():
    pytest.importorskip("xarray")
    times = np.array([[0.0, 0.0], [1.0, 2.0]])
    result = ode.solve(oscillator, [1.0, 0.0], (0.0, Ensemble(times[1])), p=[1.0], t_eval=Ensemble(times))
    data = result.to_xarray()
    assert data["t"].dims == ("time", "sample") and np.array_equal(data["t"], times)


def test_no_warning_where_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lorenz_of(RHO).all_succeeded


@pytest.mark.parametrize("method", SOLVERS)
def test_an_event_that_cannot_be_traced_runs_over_arrays(method):
    def branching(t, y, p, xp):
        return y[0] - 1.5 if bool(xp.all(y[0] > -1e9)) else y[0]

    options = {"p": [Ensemble(RHO)], "method": method, **SOLVERS[method]}
    made = ode.solve(lorenz, np.ones(3), (0.0, 1.0), events=branching, **options)
    expected = ode.solve(lorenz, np.ones(3), (0.0, 1.0), events=lambda t, y, p, xp: y[0] - 1.5, **options)
    assert np.array_equal(made.n_events, expected.n_events)
    assert np.allclose(made.t_events[0].samples, expected.t_events[0].samples, rtol=1e-11, equal_nan=True)
    assert np.allclose(made.y.samples, expected.y.samples, rtol=1e-11)
