"""Stops: times at which every method ends a step exactly and starts anew, given or found in the trace of f."""

import numpy as np
import pytest

from ensemble import Ensemble, ode
from ensemble.ode import compiled, device
from ensemble.ode.ode_result import OdeStatus
from tests.ode.forcing import FORCES, TABLE, exact

K = np.array([0.3, 1.0, 2.0])

ADAPTIVE = ["tsit5", "dop853", "taylor", "rodas4", "bdf"]


def decay(t, y, p, xp):
    return [-p[0] * y[0]]


def infused(t, y, p, xp):
    return [xp.where(t % 12.0 < 0.5, 10.0, 0.0) - p[0] * y[0]]


def untraced(function):
    """The same function, which needs a Python number of each sample."""

    def f(t, y, p, xp):
        float(t)
        return function(float(t), [float(v) for v in y], [float(v) for v in p], np)

    return f


# --- found in the trace
@pytest.mark.parametrize("method", ADAPTIVE)
def test_masks_may_be_multiplied_and_added_as_in_numpy(method):
    """Pulses of 2 and 3 ms in ten seconds, that an untraced function would lose."""

    def f(t, y, p, xp):
        return [((t > p[0]) * (t < p[0] + 0.002) + (t >= 8.0) * (t < 8.003)) * 1.0]

    made = ode.solve(f, [0.0], (0.0, 10.0), p=[Ensemble(np.array([1.1, 5.0]))], method=method)
    np.testing.assert_allclose(made.y.samples[0], 0.005, rtol=1e-6)


@pytest.mark.parametrize("method", ADAPTIVE)
def test_short_infusions_are_not_lost(method):
    k = np.array([0.1, 0.2, 0.4])
    made = ode.solve(infused, [0.0], (0.0, 48.0), p=[Ensemble(k)], method=method, rtol=1e-8, atol=1e-10)
    true = sum(10.0 / k * (np.exp(-k * (47.5 - 12.0 * i)) - np.exp(-k * (48.0 - 12.0 * i))) for i in range(4))
    np.testing.assert_allclose(made.y.samples[0], true, rtol=1e-5 if method == "bdf" else 1e-6)


@pytest.mark.parametrize("method", ["rk4", "leapfrog", "euler-maruyama"])
def test_fixed_steps_end_where_the_force_jumps(method):
    """With steps that do not divide the times of the jumps, a constant force is exact."""
    wave = FORCES["square wave"].u

    def f(t, y, p, xp):
        return [wave(t, p, xp)] if method != "leapfrog" else [1.0, wave(t, p, xp)]

    options = {"noise": lambda t, y, p, xp: [0.0]} if method == "euler-maruyama" else {}
    y0 = [0.0] if method != "leapfrog" else [0.0, 0.0]
    periods = Ensemble(np.array([0.3, 0.5, 2.0]))
    made = ode.solve(f, y0, (0.25, 1.25), p=[periods], method=method, step=0.07, **options)
    p = periods.samples[:, None]
    true = [exact(FORCES["square wave"], 0.0, row, 0.0, 0.25, 1.25) for row in p]
    np.testing.assert_allclose(made.y.samples[-1], true, atol=1e-14)


@pytest.mark.parametrize("method", ["tsit5", "taylor", "rk4"])
def test_found_stops_are_those_of_each_sample_to_the_bit(method):
    p = np.array([[0.7, 1.1, 3.0], [0.05, 0.2, 0.01], [2.0, 1.0, 4.0]])
    options = {"step": 0.03} if method == "rk4" else {"rtol": 1e-8}
    options |= {"method": method, "t_eval": np.linspace(0.2, 3.0, 7)}
    force = FORCES["infusion"].u

    def f(t, y, p, xp):
        return [force(t, p, xp) - 0.5 * y[0]]

    made = ode.solve(f, [1.0], (0.2, 3.0), p=Ensemble(p), **options)
    for s in range(3):
        alone = ode.solve(f, [1.0], (0.2, 3.0), p=p[:, s], **options)
        np.testing.assert_array_equal(alone.y.samples[..., 0], made.y.samples[..., s])
        assert alone.n_steps[0] == made.n_steps[s]
        assert alone.y.samples[-1, 0, 0] == pytest.approx(
            exact(FORCES["infusion"], 0.5, p[:, s], 1.0, 0.2, 3.0), rel=1e-6
        )


@pytest.mark.parametrize("method", [*ADAPTIVE, "rk4"])
@pytest.mark.parametrize("t", [(0.0, 8.0), (8.0, 0.0)])
def test_knots_of_a_table_are_stops(method, t):
    def f(t, y, p, xp):
        return [xp.interp(t, *TABLE)]

    options = {"step": 0.11} if method == "rk4" else {}
    made = ode.solve(f, [0.0], t, method=method, **options)
    true = exact(FORCES["table"], 0.0, [0.0, 0.0, 1.0], 0.0, *t)
    assert made.y.samples[0, 0] == pytest.approx(true, rel=2e-6 if method == "bdf" else 1e-11)


def test_points_of_a_straight_table_are_no_stops():
    times = np.linspace(0.0, 10.0, 1001)

    def f(t, y, p, xp):
        return [xp.interp(t, times, 2.0 * times)]

    made = ode.solve(f, [0.0], (0.0, 10.0), method="taylor")
    assert made.n_steps[0] == 1
    assert made.y.samples[0, 0] == pytest.approx(100.0)


def test_a_jump_that_a_step_of_taylor_does_not_show_at_its_ends_is_seen_inside():
    def f(t, y, p, xp):
        return [1.0 + 0.0 * y[0], xp.where((y[0] > 0.3) & (y[0] < 0.5), 1.0, 0.0)]

    made = ode.solve(f, [0.0, 0.0], (0.0, 1.0), method="taylor")
    assert made.y.samples[1, 0] == pytest.approx(0.2, abs=1e-4)


def test_without_stops_a_pulse_is_lost_and_that_is_said_to_be_wanted():
    made = ode.solve(infused, [0.0], (1.0, 48.0), p=[0.1], stops=False)
    assert abs(made.y.samples[0, 0]) < 1e-6


def test_too_many_switches_are_said():
    def f(t, y, p, xp):
        return [xp.where(t % 1e-5 < 5e-6, 1.0, 0.0)]

    with pytest.warns(
        ode.OdeWarning, match=r"f must switch at most 10000 times in a run to stop at each; got more. Bound"
    ):
        ode.solve(f, [0.0], (0.0, 1.0), rtol=1e-2)


@pytest.mark.parametrize("method", ["taylor", "rk4"])
def test_one_pulse_written_in_many_ways_is_one_pulse(method):
    """In one system: each unknown has the same pulse of half an hour every twelve hours."""

    def f(t, y, p, xp):
        level = np.cos(np.pi * 0.5 / 12.0)
        pulses = [
            xp.where(t - 12.0 * xp.floor(t / 12.0) < 0.5, 10.0, 0.0),
            10.0 * ((t % 24.0) % 12.0 < 0.5),
            5.0 * (1.0 + xp.sign(0.5 - t % 12.0)),
            xp.where(t - 12.0 * (t // 12.0) < 0.5, 10.0, 0.0),
            xp.where(~(t % 12.0 >= 0.5), 10.0, 0.0),
            xp.where(xp.sin(np.pi * (t - 0.25) / 6.0 + 0.5 * np.pi) > level, 10.0, 0.0),
            xp.where(xp.exp(-(t % 12.0)) > np.exp(-0.5), 10.0, 0.0),
            sum(xp.where((t >= 12.0 * k) & (t < 12.0 * k + 0.5), 10.0, 0.0) for k in range(4)),
        ]
        return [pulse - 0.1 * v for pulse, v in zip(pulses, y, strict=True)]

    options = {"step": 0.1} if method == "rk4" else {"rtol": 1e-9, "atol": 1e-12}
    made = ode.solve(f, np.zeros(8), (0.0, 48.0), method=method, **options)
    true = sum(100.0 * (np.exp(-0.1 * (47.5 - 12.0 * i)) - np.exp(-0.1 * (48.0 - 12.0 * i))) for i in range(4))
    np.testing.assert_allclose(made.y.samples[:, 0], true, rtol=1e-8)


# --- given
@pytest.mark.parametrize("method", [*ADAPTIVE, "rk4"])
def test_doses_are_added_at_stops_of_each_sample(method):
    stops = np.array([[0.5, 2.0, 1.0], [1.25, 0.0, np.inf]])
    amounts = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    options = {"step": 0.03} if method == "rk4" else {"rtol": 1e-9, "atol": 1e-12}
    made = ode.solve(decay, [1.0], (0.0, 3.0), p=[Ensemble(K)], method=method, stops=Ensemble(stops),
                     at_stops=Ensemble(amounts[:, None]), **options)  # fmt: skip
    true = np.exp(-3.0 * K) + (amounts * np.exp(-K * (3.0 - np.where(stops < 3.0, stops, -np.inf)))).sum(axis=0)
    np.testing.assert_allclose(made.y.samples[0], true, rtol=1e-4 if method == "bdf" else 1e-6)


def test_values_at_a_stop_are_those_before_and_a_stop_at_the_end_does_nothing():
    still = lambda t, y, p, xp: [0.0 * y[0]]
    times = [0.0, 1.0, 1.5, 2.0]
    made = ode.solve(still, [1.0], (0.0, 2.0), stops=[0.0, 1.0, 1.0, 2.0, 7.0, -1.0], t_eval=times,
                     at_stops=[[10.0], [100.0], [200.0], [1e6], [1e6], [1e6]])  # fmt: skip
    assert made.y.samples[:, 0, 0].tolist() == [1.0, 11.0, 311.0, 311.0]
    back = ode.solve(still, [1.0], (2.0, 0.0), stops=[0.0, 1.0, 2.0], at_stops=[[10.0], [100.0], [1000.0]])
    assert back.y.samples[0, 0] == 1101.0
    none = ode.solve(still, [1.0], (1.0, 1.0), stops=[1.0], at_stops=[[10.0]])
    assert none.y.samples[0, 0] == 1.0


@pytest.mark.parametrize("k", [3, 6, 7, 9])
def test_a_dose_at_a_switch_of_f_is_at_the_given_time(k):
    """0.1 k and the switch of ``t % 0.1`` differ by rounding: the output at 0.1 k is the one before the dose."""

    def f(t, y, p, xp):
        return [xp.where(t % 0.1 < 0.05, 1.0, 1.0) + 0.0 * y[0]]

    for at in (0.1 * k, k / 10.0, np.nextafter(0.1 * k, 1.0)):
        made = ode.solve(f, [0.0], (0.0, 1.0), stops=[at], at_stops=[[100.0]], t_eval=[at, 1.0])
        np.testing.assert_allclose(made.y.samples[:, 0, 0], [at, 101.0], rtol=1e-9)


def test_runs_from_stop_to_stop_are_one_run():
    options = {"p": [0.5], "stops": [0.0, 1.0, 2.0], "at_stops": [[1.0], [2.0], [3.0]]}
    whole = ode.solve(decay, [1.0], (0.0, 3.0), **options)
    y = [1.0]
    for t in ((0.0, 1.0), (1.0, 2.0), (2.0, 3.0)):
        y = ode.solve(decay, y, t, **options).y.samples[:, 0]
    np.testing.assert_array_equal(whole.y.samples[:, 0], y)


@pytest.mark.parametrize("wrap", [lambda f: f, untraced], ids=["traced", "untraced"])
def test_a_function_changes_the_state_at_stops(wrap):
    change = lambda t, y, p, xp: [2.0 * y[0] + p[0] * t]
    made = ode.solve(wrap(decay), [1.0], (0.0, 2.0), p=[Ensemble(K)], stops=[1.0], at_stops=wrap(change), rtol=1e-9)
    np.testing.assert_allclose(made.y.samples[0], (2.0 * np.exp(-K) + K) * np.exp(-K), rtol=1e-7)


def test_a_function_that_cannot_be_traced_steps_from_stop_to_stop():
    rate = untraced(lambda t, y, p, xp: [1.0 if 0.5 <= t < 0.75 else 0.0])
    for options in ({}, {"method": "dop853"}, {"method": "rk4", "step": 0.1}):
        made = ode.solve(rate, [Ensemble(np.array([0.0, 1.0]))], (0.1, 2.0), stops=[0.5, 0.75], **options)
        np.testing.assert_allclose(made.y.samples[0], [0.25, 1.25], rtol=1e-12)


@pytest.mark.parametrize("method", ["rodas4", "bdf"])
def test_many_unknowns_step_from_stop_to_stop(method):
    n = 31

    def f(t, y, p, xp):
        return [xp.where((t > p[0]) & (t < p[0] + 0.01), 100.0, 0.0) - v for v in y]

    made = ode.solve(f, np.zeros(n), (0.0, 2.0), p=[Ensemble(np.array([0.5, 1.3]))], method=method, rtol=1e-7,
                     stops=[1.9], at_stops=np.full((1, n), 2.0))  # fmt: skip
    true = 100.0 * (np.exp(0.01) - 1.0) * np.exp(-2.0 + np.array([0.5, 1.3])) + 2.0 * np.exp(-0.1)
    np.testing.assert_allclose(made.y.samples, np.broadcast_to(true, (n, 2)), rtol=1e-4)


def test_noise_goes_on_over_stops():
    options = {"method": "euler-maruyama", "step": 0.125, "noise": lambda t, y, p, xp: [1.0], "seed": 4}
    plain, stopped = (
        ode.solve(lambda t, y, p, xp: [0.0], [Ensemble(np.zeros(3))], (0.0, 2.0), stops=stops, **options)
        for stops in (None, [0.5, 1.25])
    )
    np.testing.assert_array_equal(plain.y.samples, stopped.y.samples)
    np.testing.assert_array_equal(plain.n_steps, stopped.n_steps)


# --- events, counts and failures
@pytest.mark.parametrize("method", ["tsit5", "taylor", "rodas4"])
def test_roots_are_counted_over_stops(method):
    def height(t, y, p, xp):
        return y[0]

    height.terminal = 3
    w = Ensemble(np.array([1.0, 2.0, 0.1]))
    made = ode.solve(lambda t, y, p, xp: [y[1], -p[0] ** 2 * y[0]], [1.0, 0.0], (0.0, 9.0), p=[w], method=method,
                     stops=[1.0, 3.0, 6.0], events=height, rtol=1e-9, t_eval=[1.0, 5.0, 9.0])  # fmt: skip
    np.testing.assert_allclose(made.t_events[0].samples[:3, 0], np.pi * np.array([0.5, 1.5, 2.5]), rtol=1e-6)
    np.testing.assert_allclose(made.t_reached.samples, [2.5 * np.pi, 1.25 * np.pi, 9.0], rtol=1e-6)
    assert made.status.tolist() == [OdeStatus.event, OdeStatus.event, OdeStatus.finished]
    np.testing.assert_allclose(made.y.samples[0, 0], np.cos(w.samples), rtol=1e-6)
    assert np.isnan(made.y.samples[2, 0, :2]).all()


def test_the_most_steps_are_those_of_the_whole_run():
    with pytest.warns(ode.OdeWarning, match="too many steps"):
        made = ode.solve(
            decay, [1.0], (0.0, 30.0), p=[Ensemble(np.array([0.01, 5.0]))], stops=[10.0, 20.0], max_steps=25
        )
    assert made.status.tolist() == [OdeStatus.finished, OdeStatus.too_many_steps]
    assert made.n_steps[1] == 25


def test_a_sample_that_fails_leaves_the_others():
    def f(t, y, p, xp):
        return [p[0] * y[0] * y[0] - y[0]]

    rates = np.array([0.0, 3.0, 0.5])
    options = {"stops": [0.2, 0.9], "at_stops": [[0.1], [0.1]], "t_eval": [0.1, 0.5, 1.0]}
    with pytest.warns(ode.OdeWarning, match="sample 1"):
        made = ode.solve(f, [1.0], (0.0, 1.0), p=[Ensemble(rates)], **options)
    for s in (0, 2):
        alone = ode.solve(f, [1.0], (0.0, 1.0), p=[rates[s]], **options)
        np.testing.assert_array_equal(alone.y.samples[..., 0], made.y.samples[..., s])
    assert np.isfinite(made.y.samples[0, 0, 1]) and np.isnan(made.y.samples[1:, 0, 1]).all()


# --- derivatives
@pytest.mark.parametrize("method", ["tsit5", "rodas4", "rk4"])
@pytest.mark.parametrize("times", [None, [0.0, 0.5, 1.7, 3.0]])
@pytest.mark.parametrize("kind", ["none", "array", "function"])
def test_derivatives_go_through_stops(method, times, kind):
    at_stops = {"none": None, "array": [[1.0], [0.5]], "function": lambda t, y, p, xp: [1.5 * y[0] * p[0] + p[1]]}[kind]

    def f(t, y, p, xp):
        return [-p[0] * y[0] + p[1] * xp.where(t % 1.0 < 0.3, 1.0, 0.0)]

    options = {"method": method, "stops": Ensemble(np.array([[0.5, 0.6], [1.7, 2.2]])), "at_stops": at_stops,
               "t_eval": times}  # fmt: skip
    options |= {"step": 0.01} if method == "rk4" else {"rtol": 1e-10, "atol": 1e-12}
    rates = Ensemble(np.array([1.0, 2.0]))

    def solved(shift):
        return ode.solve(f, [1.2 + shift[2]], (0.0, 3.0), p=[rates + shift[0], 0.7 + shift[1]], **options).y.samples

    h = 1e-5 * np.eye(3)
    slopes = np.stack([(solved(row) - solved(-row)) / 2e-5 for row in h])
    made = ode.sensitivities(f, [1.2], (0.0, 3.0), p=[rates, 0.7], **options)
    found = np.stack([made.p.samples[..., 0, :], made.p.samples[..., 1, :], made.y0.samples[..., 0, :]])
    np.testing.assert_allclose(found, slopes, atol=2e-8)
    np.testing.assert_array_equal(made.y.samples, solved(np.zeros(3)))
    weights = np.ones(1 if times is None else (4, 1))
    back = ode.gradient(f, [1.2], (0.0, 3.0), weights, p=[rates, 0.7], **options)
    total = slopes.reshape(3, -1, 2).sum(axis=1)
    np.testing.assert_allclose(np.concatenate([back.p.samples, back.y0.samples]), total, atol=5e-8)


# --- large times
@pytest.mark.parametrize("method", ["rk4", "tsit5", "leapfrog", "euler-maruyama"])
@pytest.mark.parametrize(
    ("dtype", "t0", "h"), [("float32", 1e6, 0.01), ("float64", 1.7e9, 1e-3), ("float64", 1e16, 0.5)]
)
def test_no_step_is_lost_at_large_times(method, dtype, t0, h):
    options = {"noise": lambda t, y, p, xp: [0.0, 0.0]} if method in ("euler-maruyama", "milstein") else {}
    start = np.zeros(2, dtype)

    def solved(first):
        return ode.solve(lambda t, y, p, xp: [1.0, 1.0], start, (first, first + 4.0), method=method, step=h, **options)

    there, here = solved(t0), solved(0.0)
    np.testing.assert_array_equal(there.y.samples, here.y.samples)
    np.testing.assert_array_equal(there.n_steps, here.n_steps)
    assert there.t_reached.samples[0] == np.dtype(dtype).type(t0 + 4.0)


def test_output_times_and_roots_of_fixed_steps_keep_their_places_at_large_times():
    t0 = 1e6
    root = lambda t, y, p, xp: y[0] - 0.5
    made = ode.solve(lambda t, y, p, xp: [1.0], np.zeros(1, np.float32), (t0, t0 + 1.0), method="rk4", step=0.01,
                     t_eval=t0 + np.array([0.0, 0.25, 1.0]), events=root)  # fmt: skip
    np.testing.assert_allclose(made.y.samples[:, 0, 0], [0.0, 0.25, 1.0], atol=1e-6)
    assert made.t_events[0].samples[0, 0] == t0 + 0.5


# --- the interval
@pytest.mark.parametrize("method", ["tsit5", "dop853", "rk4", "leapfrog", "euler-maruyama"])
@pytest.mark.parametrize("t", [(0.0, 1e-4), (0.0, -1.0), (0.1, 0.7), (1.7e9, 1.7e9 + 0.3)])
@pytest.mark.parametrize("stopped", [False, True])
def test_f_is_not_called_outside_of_the_interval(method, t, stopped):
    low, high = min(t), max(t)

    def f(t, y, p, xp):
        if not low <= float(t) <= high:
            raise ValueError(f"outside at {float(t)!r}")
        return [float(y[1]), -float(y[0])]

    options = {} if method in ("tsit5", "dop853") else {"step": (high - low) / 7.3}
    options |= {"noise": lambda t, y, p, xp: [0.0, 0.0]} if method == "euler-maruyama" else {}
    stops = [low + 0.3 * (high - low)] if stopped else None
    assert ode.solve(f, [1.0, 0.0], t, method=method, stops=stops, **options).all_succeeded


# --- arguments
@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"stops": [1.0, np.nan]}, ValueError, "stops must be numbers; got NaN. Pad with np.inf."),
        ({"stops": 1.0}, ValueError, "stops must have one axis"),
        ({"stops": [[1.0]]}, ValueError, "stops must have one axis"),
        ({"stops": ["a"]}, TypeError, "stops must be real numbers"),
        ({"at_stops": [[1.0]]}, ValueError, "at_stops must be None without stops; got list"),
        ({"stops": [1.0], "at_stops": [1.0]}, ValueError, r"at_stops must have shape \(1, 1\); got \(1,\)"),
        ({"stops": [1.0], "at_stops": [[np.nan]]}, ValueError, "at_stops must be finite"),
        ({"stops": [1.0], "at_stops": "none"}, TypeError, "at_stops must be a function or an array"),
        ({"stops": [1.0], "at_stops": lambda t, y: y}, TypeError, "at_stops must"),
        ({"stops": [1.0], "at_stops": lambda t, y, p, xp: [y[0], 1.0]}, ValueError, "at_stops.* return 1 values"),
    ],
)  # fmt: skip
def test_wrong_stops_are_refused(options, error, text):
    with pytest.raises(error, match=f"ode.solve: {text}"):
        ode.solve(decay, [1.0], (0.0, 2.0), p=[1.0], **options)


def test_infinite_stops_pad():
    made = ode.solve(decay, [1.0], (0.0, 2.0), p=[1.0], stops=[np.inf, -np.inf])
    plain = ode.solve(decay, [1.0], (0.0, 2.0), p=[1.0])
    np.testing.assert_array_equal(made.y.samples, plain.y.samples)


# --- on a device
def crossing(t, y, p, xp):
    return y[0] - 1.5


crossing.terminal = 2

KERNELS = {
    "tsit5": {"method": "tsit5"},
    "taylor": {"method": "taylor", "t_eval": [0.5, 1.0, 2.5, 3.0]},
    "rodas4, events": {"method": "rodas4", "events": crossing, "t_eval": [0.5, 1.0, 2.5, 3.0]},
    "rk4": {"method": "rk4", "step": 0.03},
    "rk4, events": {"method": "rk4", "step": 0.03, "events": crossing},
    "noise": {"method": "euler-maruyama", "step": 0.05, "noise": lambda t, y, p, xp: [0.1]},
}


def stopped(rates, case):
    def f(t, y, p, xp):
        return [xp.where(t % 1.0 < 0.25, 8.0, 0.0) - p[0] * y[0]]

    stops = Ensemble(np.linspace(0.1, 2.9, 2 * 37).reshape(2, 37))
    return ode.solve(f, [0.3], (0.0, 3.0), p=[rates], stops=stops, at_stops=[[0.5], [1.0]], **KERNELS[case])


def everything(made):
    arrays = [made.y.samples, made.status, made.n_steps, made.n_rejected, made.n_events, made.y_reached.samples,
              made.t_reached.samples, *(roots.samples for roots in made.t_events)]  # fmt: skip
    return [array.get() if hasattr(array, "get") else array for array in arrays]


@pytest.mark.parametrize("case", KERNELS)
def test_the_kernel_gives_the_bits_of_the_cpu_over_stops(case, emulated, monkeypatch):
    rates = Ensemble(np.linspace(0.5, 2.0, 37))
    expected = stopped(rates, case)
    monkeypatch.setattr(compiled, "run", device.run)
    for a, b in zip(everything(stopped(rates, case)), everything(expected), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.cuda
@pytest.mark.parametrize("case", KERNELS)
def test_a_device_steps_from_stop_to_stop(case):
    cupy = pytest.importorskip("cupy")
    rates = np.linspace(0.5, 2.0, 37)
    expected, made = (everything(stopped(Ensemble(values), case)) for values in (rates, cupy.asarray(rates)))
    for a, b in zip(made, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
