"""SIGINT at random moments of a run of GBEES; going on gives the bits of a run without interrupts."""

import signal
import threading
import time

import numpy as np
import pytest

from ensemble._interrupts import held, take
from ensemble.apps.gbees import Gbees


def lorenz(x, t, xp):
    return 10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]


def begin(backend):
    return Gbees(lorenz, [-11.5, -10, 9.5], [1.0, 1, 1], threshold=1e-5, factor=1.5, backend=backend)


def interrupted(run, until, delays):
    """Advance `run`, with a SIGINT after each of `delays`; the number of interrupts."""
    heard, before = 0, signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for delay in delays:
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                run.advance(until)
            except KeyboardInterrupt:
                heard += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGINT, before)
    run.advance(until)
    return heard


def compare(backend, n, until):
    started = time.perf_counter()
    whole = begin(backend)
    whole.advance(until)
    wall = time.perf_counter() - started
    previous = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        heard, rng = 0, np.random.default_rng(1)
        for _ in range(n):
            run = begin(backend)
            heard += interrupted(run, until, rng.uniform(0.001, 0.4 * wall, 2))
            for name, value in whole.state().items():
                assert np.array_equal(run.state()[name], value), name
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert heard > 0


@pytest.mark.parametrize("backend", ["numpy", "array"])
def test_going_on_after_an_interrupt_gives_the_bits_of_an_undisturbed_run(backend):
    begin(backend).advance(0.01)
    compare(backend, 4, 0.1)


@pytest.mark.slow
def test_going_on_after_200_interrupts_gives_the_bits_of_an_undisturbed_run():
    begin("numpy").advance(0.01)
    compare("numpy", 100, 0.3)


def test_a_held_interrupt_is_raised_at_the_end_and_by_take():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    done = []
    try:
        with pytest.raises(KeyboardInterrupt), held():
            with held():
                signal.raise_signal(signal.SIGINT)
            done.append("end")
        with pytest.raises(KeyboardInterrupt), held():
            signal.raise_signal(signal.SIGINT)
            take()
            done.append("not reached")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["end"]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_handlers_that_are_not_of_python_are_left(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        with held():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_hold_nothing():
    seen = []

    def work():
        with held():
            seen.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
