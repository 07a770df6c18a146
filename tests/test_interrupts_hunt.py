"""SIGINT at random moments of every long call, and at every line of calls that change what they belong to."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import ensemble as en
from ensemble import _backend
from ensemble._compile import numba as compile_numba
from ensemble._compile.numba import compiled_arrays
from ensemble.apps import kalman
from ensemble.gallery import poisson
from ensemble.krylov import WarmStart
from ensemble.linalg import CrsMatrix, Factorization
from ensemble.linalg.factorizations import triangular_factors
from tests.interrupt_cases import CASES, Job, begun, leaves, linear, quiet, same
from tests.interrupts_hunt import hunt, until_heard
from tests.uq.store.trees import tree

LIBRARY = str(Path(en.__file__).parent)

QUICK = (
    "OnlineFilter, one series", "direct", "ode.solve, rk4", "WarmStart", "Gbees", "propagate, resumed from its store",
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


def heard_after(call, delay):
    """Seconds until Ctrl-C, which comes after `delay`, ends a call; None where it has ended before."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return until_heard(Job(call, None, ()), delay)
    finally:
        signal.signal(signal.SIGINT, before)


def unplanned(A):
    """The matrix on a graph of which nothing is known yet."""
    return CrsMatrix(type(A.graph)(A.graph.indptr, A.graph.indices, A.shape), A.values)


def test_an_order_of_elimination_of_many_rows_hears_an_interrupt():
    A = poisson((330, 330))
    seconds = heard_after(lambda: Factorization(unplanned(A)), 0.15)
    assert seconds is not None and seconds < 0.3  # the order takes above a second


@pytest.mark.parametrize("kind", ["ldlt", "lu"])
@pytest.mark.parametrize("S", [1, 5])
def test_long_solutions_in_memory_of_the_caller_are_those_of_short_ones(kind, S, monkeypatch):
    A = poisson((15, 15))
    A = CrsMatrix(A.graph, A.values * np.linspace(1.0, 2.0, S))
    F, x = Factorization(A, kind=kind), np.random.default_rng(3).normal(size=(225, S))
    expected = F.apply(x)
    for module in (compile_numba, triangular_factors):
        monkeypatch.setattr(module, "LONG", 1)
    out = np.empty_like(x)
    assert np.shares_memory(F.apply(x, out=out), out)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(F.apply(x), expected)


@pytest.mark.parametrize("shape", [(7, 3, 5), (1, 40, 3), (64,), (2, 1, 1, 50), (0, 3)], ids=str)
def test_large_copies_go_piece_by_piece(shape, monkeypatch):
    monkeypatch.setattr(_backend, "PIECE", 100)
    a = np.random.default_rng(3).normal(size=shape)
    for given in (a, a.T, a[::-1], np.moveaxis(a, 0, -1)):
        for dtype in (None, np.float32):
            made = _backend.contiguous(given, dtype)
            assert made.flags.c_contiguous and (given.flags.c_contiguous and dtype is None) == (made is given)
            np.testing.assert_array_equal(made, given.astype(dtype or given.dtype))


GRID = """
drift = "model.py:lorenz"
mean = [-11.5, -10.0, 9.5]
covariance = [1.0, 1.0, 1.0]
span = 0.4
records = 3
threshold = 2e-6
[[measurements]]
coordinates = [2]
y = 20.0
R = 4.0
span = 0.1
"""

MODEL = """
import time

import numpy as np
import ensemble as en
from scipy import stats

inputs = en.Inputs(a=stats.norm(1.0, 0.2), s=stats.lognorm(0.1, scale=3.0))

def lorenz(x, t, xp):
    return 10.0 * (x[1] - x[0]), x[0] * (28.0 - x[2]) - x[1], x[0] * x[1] - 8.0 / 3.0 * x[2]

def line(x):
    time.sleep(0.05)
    total = x.a
    for _ in range(300):
        total = total * 0.999 + 0.001 * x.s
    return {"line": total * np.linspace(0.0, 1.0, 50), "sum": total}
"""

COMMANDS = {
    "gbees": (["gbees", "grid.toml", "--factor", "1.5", "--out", "out.npz"], ["--resume"], "out.npz"),
    "study": (["run", "model.py:line", "-n", "2048", "--ensemble-size", "32", "--store", "study"], None, "study"),
}


def files_of(path):
    """The bytes of a file, or of all files of a folder, but for the times of its runs and the name of its folder."""
    if path.is_file():
        with np.load(path) as found:
            return leaves({name: found[name] for name in found.files})
    return leaves([(name, found) for name, found in tree(path).items() if Path(name).name != "command.json"])


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_are_interrupted_ten_times_end_with_the_bits_of_undisturbed_ones(name, tmp_path):
    words, again, result = COMMANDS[name]
    environment = {**os.environ, "PYTHONPATH": str(Path(LIBRARY).parent)}
    rng = np.random.default_rng(5)

    def begin(folder, words):
        folder.mkdir(exist_ok=True)
        (folder / "grid.toml").write_text(GRID)
        (folder / "model.py").write_text(MODEL)
        command = [sys.executable, "-c", HEARD, *words, "--quiet"]
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)

    for _ in range(2):  # the second one has everything compiled
        started = time.perf_counter()
        assert begin(tmp_path / "whole", words).wait() == 0
        seconds = time.perf_counter() - started
        files = files_of(tmp_path / "whole" / result)
        if name == "study":
            (tmp_path / "whole").rename(tmp_path / f"whole{_}")
    heard = []
    while len(heard) < 10:
        folder, here = tmp_path / f"part{len(heard)}", words
        status = 130
        while status == 130:
            process = begin(folder, here)
            time.sleep(rng.uniform(0.5 * seconds, seconds))
            process.send_signal(signal.SIGINT)
            sent = time.perf_counter()
            status = process.wait()
            if status in (130, -signal.SIGINT):
                heard.append(time.perf_counter() - sent)
                status = 130
            kept = (folder / "grid.checkpoint.npz").exists() if again else (folder / "study").exists()
            here = words if not kept else [*words, *again] if again else ["resume", "study"]
        assert status == 0
        found = files_of(folder / result)
        assert len(found) == len(files) and same(found, files)
    assert max(heard) < 2.0  # with the end of the process


HEARD = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from ensemble.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@compiled_arrays
def halves(x):
    return x[: x.size // 2].copy(), x[x.size // 2 :].copy()


def test_compiled_functions_that_return_arrays_raise_what_the_handler_raised():
    inside = []

    def late(number, frame):
        if inside:
            inside.clear()
            raise TimeoutError

    x, stopped = np.arange(10.0), threading.Event()
    assert halves(x)[1].size == 5
    before = signal.signal(signal.SIGINT, late)
    heard = 0

    def ring():
        while not stopped.wait(0.0005):
            signal.raise_signal(signal.SIGINT)

    bell = threading.Thread(target=ring)
    try:
        bell.start()
        until = time.perf_counter() + 0.7
        while time.perf_counter() < until:
            try:
                inside.append(True)
                for _ in range(1000):
                    halves(x)
                inside.clear()
            except TimeoutError:
                heard += 1
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stopped.set()
        bell.join()
        signal.signal(signal.SIGINT, before)
    assert heard > 20
