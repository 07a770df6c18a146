"""Ctrl-C during a long compiled run is heard within a second, and the next call has the bits of an undisturbed one."""

import signal
import threading
import time

import numpy as np
import pytest

from ensemble._interrupts import apart
from ensemble.ode import gradient, solve
from ensemble.scalar import Ensemble


def lorenz(t, y, p, xp):
    return 10.0 * (y[1] - y[0]), y[0] * (p[0] - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2]


def swing(t, y, p, xp):
    return y[1], -p[0] * y[0]


def seconds_until_heard(call, delay=0.3):
    """Call, with a SIGINT after `delay` seconds; how long after the signal the exception comes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    alarm = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    started = time.perf_counter()
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGINT, before)
    return time.perf_counter() - started - delay


@pytest.mark.parametrize("n_samples", [1, 5000])
def test_a_long_solve_is_interrupted_within_a_second(n_samples):
    p = Ensemble(np.linspace(20.0, 28.0, n_samples)[None, :])
    options = {"method": "rk4", "step": 1e-3}
    short = solve(lorenz, [1.0, 1.0, 1.0], (0.0, 0.1), p=p, **options).y.samples
    end = 3e4 if n_samples == 1 else 200.0
    assert seconds_until_heard(lambda: solve(lorenz, [1.0, 1.0, 1.0], (0.0, end), p=p, **options)) < 1.0
    np.testing.assert_array_equal(solve(lorenz, [1.0, 1.0, 1.0], (0.0, 0.1), p=p, **options).y.samples, short)


def test_a_long_gradient_is_interrupted_within_a_second():
    p = Ensemble(np.linspace(1.0, 2.0, 4000)[None, :])
    arguments = {"p": p, "method": "rk4", "cotangent": [1.0, 0.0]}
    short = gradient(swing, [1.0, 0.0], (0.0, 1.0), step=1e-2, **arguments).p.samples
    assert seconds_until_heard(lambda: gradient(swing, [1.0, 0.0], (0.0, 50.0), step=1e-4, **arguments)) < 1.0
    np.testing.assert_array_equal(gradient(swing, [1.0, 0.0], (0.0, 1.0), step=1e-2, **arguments).p.samples, short)


@pytest.fixture
def heard():
    """Give SIGINT the handler of Python: a shell starts background jobs with SIGINT ignored."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, old)


def test_what_is_run_apart_returns_raises_and_keeps_the_context(heard):
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        apart(lambda stopped: np.ones(1) / np.zeros(1))
    assert apart(lambda stopped: (stopped(), threading.current_thread() is threading.main_thread())) == (False, False)
    found = []
    thread = threading.Thread(target=lambda: found.append(apart(lambda stopped: threading.current_thread())))
    thread.start()
    thread.join()
    assert found == [thread]


def test_a_short_solve_needs_no_other_thread(monkeypatch):
    import ensemble.ode.compiled as module

    calls = []
    monkeypatch.setattr(module, "apart", lambda call: calls.append(call) or apart(call))
    p = Ensemble(np.linspace(20.0, 28.0, 8)[None, :])
    short = solve(lorenz, [1.0, 1.0, 1.0], (0.0, 1.0), p=p, max_steps=1000)
    assert not calls
    long = solve(lorenz, [1.0, 1.0, 1.0], (0.0, 1.0), p=p, max_steps=10_000_000)
    assert len(calls) == 1
    np.testing.assert_array_equal(short.y.samples, long.y.samples)
