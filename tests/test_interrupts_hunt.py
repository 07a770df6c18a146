"""SIGINT at random moments of every long call, and at every line of calls that change what they belong to."""

import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ensemble as en
from ensemble.apps import kalman
from ensemble.krylov import WarmStart
from tests.interrupt_cases import CASES, begun, leaves, linear, quiet, same
from tests.interrupts_hunt import hunt

LIBRARY = str(Path(en.__file__).parent)

QUICK = (
    "kalman_filter, one series", "OnlineFilter, one series", "ode.solve, rk4", "ode.gradient", "direct",
    "Factorization, update and solve", "WarmStart", "Gbees", "RecordedRun, resumed", "mcmc",
    "propagate, resumed from its store",
)  # fmt: skip


def test_going_on_after_twelve_interrupts_gives_the_bits_of_undisturbed_calls():
    found = hunt(list(QUICK), 12, seed=20731, size=1)
    assert not found["wrong"]
    assert found["interrupts"] >= 12 and found["longest_seconds"] < 1.5


@pytest.mark.slow
def test_going_on_after_200_interrupts_gives_the_bits_of_undisturbed_calls():
    found = hunt(list(CASES), 200, seed=int(time.time()), size=1)
    assert not found["wrong"]
    assert found["interrupts"] >= 200 and found["longest_seconds"] < 1.5


class AtLine:
    """Sends SIGINT when the library is about to run its `number`-th line."""

    def __init__(self, number):
        self.left, self.sent = number, False

    def __enter__(self):
        sys.settrace(self.enter)

    def __exit__(self, *_):
        sys.settrace(None)

    def enter(self, frame, event, _):
        return self.at if frame.f_code.co_filename.startswith(LIBRARY) else None

    def at(self, frame, event, _):
        if event == "line":
            self.left -= 1
            if self.left == -1:
                self.sent = True
                signal.raise_signal(signal.SIGINT)
        return self.at


def at_every_line(make, change, bits, step=1):
    """Interrupt ``change(make())`` at each line, or every `step`-th, of a run each, and make it again; how often.

    The job must be as it was before, and at last what it is without an interrupt.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        job = make()
        untouched = leaves(bits(make()))
        change(job)
        expected, heard, number = leaves(bits(job)), 0, 0
        while True:
            job, at = make(), AtLine(number)
            try:
                with at:
                    change(job)
            except KeyboardInterrupt:
                heard += 1
                assert same(leaves(bits(job)), untouched), f"line {number} was left between two states"
                change(job)
            assert same(leaves(bits(job)), expected), f"line {number} was left between two states"
            if not at.sent:
                return heard
            number += step
    finally:
        signal.signal(signal.SIGINT, before)


def state_of(filtering):
    return filtering.k, filtering.mean, filtering.covariance, filtering.log_likelihood


FILTERS = {
    "one series": lambda: linear(),
    "12 states": lambda: linear(12),
    "ensemble": lambda: linear(S=4),
    "diffuse": lambda: linear(2, P0=np.zeros((2, 2)), diffuse=np.eye(2)),
    "digits lost": lambda: linear(2, P0=np.diag([1e30, 1e-10])),
}

STEPS = {
    "step": lambda filtering: filtering.step(np.array([1.3])),
    "update": lambda filtering: filtering.update(np.array([1.3])),
    "predict": lambda filtering: filtering.predict(3),
}


SLOW = pytest.mark.slow  # they run through many lines


@pytest.mark.parametrize(
    "model", [pytest.param(model, marks=() if model in ("one series", "12 states") else SLOW) for model in FILTERS]
)
@pytest.mark.parametrize("name", STEPS)
def test_a_filter_that_is_interrupted_at_any_line_is_as_it_was(model, name):
    given = FILTERS[model]()

    def make():
        filtering = kalman.OnlineFilter(given)
        filtering.step(np.array([0.7]))
        if model != "diffuse":
            filtering.step(np.array([-0.4]))
        return filtering

    assert at_every_line(make, STEPS[name], state_of) > 5


@pytest.mark.parametrize("stored", [0, 2, 5], ids=["empty", "half", "full"])
def test_a_store_of_solutions_that_is_interrupted_at_any_line_is_as_it_was(stored):
    rng = np.random.default_rng(5)
    points, x = rng.random((2, stored + 2)), rng.random((30, stored + 2))

    def make():
        start = WarmStart(capacity=5)
        if stored:
            start.add(en.Ensemble(points[:, :stored].copy()), en.Ensemble(x[:, :stored].copy()))
        return start

    def bits(start):
        guess = start.guess(en.Ensemble(points[:, :3].copy())) if len(start) else None
        return len(start), start.points, guess, start._added

    new = en.Ensemble(points[:, stored:].copy()), en.Ensemble(x[:, stored:].copy())
    assert at_every_line(make, lambda start: start.add(*new), bits) > 5


Y = {"one": 20.0, "samples": en.Ensemble(np.array([20.0, 19.0]))}


@pytest.mark.parametrize("backend", ["numpy", "array"])
@pytest.mark.parametrize(
    "samples, step", [("one", 67), pytest.param("one", 1, marks=SLOW), pytest.param("samples", 7, marks=SLOW)]
)
def test_a_grid_that_is_interrupted_at_any_line_of_an_update_is_as_it_was(backend, samples, step):
    run = begun(backend=backend)
    run.advance(0.02)
    state = run.state()

    def update(run):
        run.update(lambda x, xp: x[2], Y[samples], 4.0)

    def bits(run):
        return sorted(run.state().items())

    with quiet():
        assert at_every_line(lambda: begun(backend=backend).restore(state), update, bits, step) > 5


def test_a_grid_goes_on_after_an_update_that_was_taken_back():
    whole, run = begun(), begun()
    for each in (whole, run):
        each.advance(0.02)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        engine = run._runs.runs[0].engine
        reweight = engine.reweight

        def interrupted(weights):
            found = reweight(weights)
            signal.raise_signal(signal.SIGINT)
            return found

        engine.reweight = interrupted
        with pytest.raises(KeyboardInterrupt):
            run.update(lambda x, xp: x[2], 20.0, 4.0)
    finally:
        signal.signal(signal.SIGINT, before)
    for each in (whole, run):
        each.update(lambda x, xp: x[2], 20.0, 4.0)
        each.advance(0.025)
    assert same(sorted(run.state().items()), sorted(whole.state().items()))
