"""Sequential algorithms as studies: executors, stores, kills, times; each with the bits of an undisturbed run."""

import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import numpy as np
import pytest

import ensemble as en
from ensemble.scalar import Ensemble
from ensemble.uq import AlgorithmError, kalman_inversion, mcmc, multilevel, subset_simulation
from tests.uq.store.trees import tree


def fragile(function):
    """A model that fails for a few samples."""

    def model(z):
        y = function(z)
        samples = np.where(z.samples[0] > 1.9, np.nan, np.asarray(y.samples))
        return Ensemble(samples)

    return model


def log_density(z):
    return -0.5 * (z[0] - 1.0) ** 2 - 0.5 * z[1] ** 2


def forward(z):
    return z[0] + 0.1 * z[1] ** 3


def total(z):
    return z[0] + z[1]


def level(k):
    return lambda z: Ensemble(np.exp(z.samples[0]) + 2.0**-k * np.sin(z.samples[1]))


LIKELIHOOD, FORWARD, TOTAL = (fragile(f) for f in (log_density, forward, total))
LEVELS = [level(k) for k in range(6)]

RUNS = {
    "mcmc": lambda **options: mcmc(
        LIKELIHOOD, 2, **{"n_steps": 12, "n_chains": 8, "seed": 20731, "ensemble_size": 3} | options
    ),
    "kalman_inversion": lambda **options: kalman_inversion(
        FORWARD, **{"y": [3.0], "noise_covariance": 0.05, "inputs": 2, "n_samples": 24, "seed": 20731,
                    "ensemble_size": 10} | options
    ),
    "subset_simulation": lambda **options: subset_simulation(
        TOTAL, 2, 4.0, **{"event": "above", "n_per_level": 60, "rtol": 0.4, "max_runs": 3, "seed": 20731,
                          "ensemble_size": 25} | options
    ),
    "multilevel": lambda **options: multilevel(
        [fragile(m) for m in LEVELS], 2, **{"atol": 0.15, "costs": [4.0**k for k in range(6)], "seed": 20731,
                                            "ensemble_size": 16} | options
    ),
}  # fmt: skip

each = pytest.mark.parametrize("name", RUNS)


def bits(result):
    """Every number of a result."""
    found = {}
    for one in fields(result):
        if not one.name.startswith("_"):
            value = getattr(result, one.name)
            value = getattr(value, "samples", value)
            found[one.name] = np.asarray(value).tobytes() if not isinstance(value, str) else value
    return found


@pytest.fixture
def calls(monkeypatch):
    """Samples in each call of a model in this thread."""
    from ensemble.uq.algorithms import model_runs

    found, original = [], model_runs.evaluate

    def evaluate(model, samples, on_failure):
        found.append(samples.n_samples)
        return original(model, samples, on_failure)

    monkeypatch.setattr(model_runs, "evaluate", evaluate)
    return found


class Killed(BaseException):
    """The end of a process, as far as a store can tell."""


def dies_after(monkeypatch, n_groups):
    """Let the model runs of an algorithm end with the group number `n_groups`, before it is stored."""
    from ensemble.uq.algorithms import model_runs

    left = [n_groups]
    original = model_runs.evaluate

    def evaluate(*arguments):
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return original(*arguments)

    monkeypatch.setattr(model_runs, "evaluate", evaluate)


@each
@pytest.mark.parametrize("n_groups", [1, 4, 9])
def test_a_run_that_was_killed_ends_with_the_same_bits(tmp_path, monkeypatch, calls, name, n_groups):
    whole = RUNS[name]()
    with monkeypatch.context() as patched:
        dies_after(patched, n_groups)
        with pytest.raises(Killed) as caught:
            RUNS[name](store=tmp_path / "run")
    assert "resume=True goes on" in caught.value.__notes__[0]
    calls.clear()
    resumed = RUNS[name](store=tmp_path / "run", resume=True)
    assert bits(resumed) == bits(whole)
    assert 0 < sum(calls) < whole.n_evaluations + whole.n_evaluations // 4  # failed calls run each sample alone
    calls.clear()
    again = RUNS[name](store=tmp_path / "run", resume=True)
    assert bits(again) == bits(whole) and not calls


@each
def test_bits_depend_on_no_executor_and_no_group_size(name, tmp_path, calls):
    whole = RUNS[name]()
    with ThreadPoolExecutor(3) as pool:
        assert bits(RUNS[name](executor=pool)) == bits(whole)
        options = {"executor": pool, "store": tmp_path / "run", "ensemble_size": None}
        assert bits(RUNS[name](**options)) == bits(whole)
    calls.clear()
    assert bits(RUNS[name](store=tmp_path / "run", resume=True, ensemble_size=7)) == bits(whole) and not calls


@each
def test_a_seed_that_was_drawn_is_that_of_the_store(name, tmp_path, calls):
    first = RUNS[name](store=tmp_path / "run", seed=None)
    calls.clear()
    assert bits(RUNS[name](store=tmp_path / "run", seed=None, resume=True)) == bits(first) and not calls


@each
@pytest.mark.parametrize("what", ["seed", "new", "source"])
def test_a_store_of_another_run_is_refused_and_stays(name, what, tmp_path, monkeypatch):
    RUNS[name](store=tmp_path / "run")
    before = tree(tmp_path / "run")
    options = {"store": tmp_path / "run", "resume": what != "new"}
    message = {"seed": "seed: stored 20731, given 5", "new": "path must be a new one", "source": "source has changed"}
    if what == "source":
        monkeypatch.setattr("ensemble.uq.algorithms.kept.source_digest", lambda model: "another")
    with pytest.raises(ValueError, match=message[what]):
        RUNS[name](**options, **({"seed": 5} if what == "seed" else {}))
    if what == "source":
        RUNS[name](**{**options, "resume": "force"})
    else:
        assert tree(tmp_path / "run") == before


def test_other_settings_are_named(tmp_path):
    RUNS["mcmc"](store=tmp_path / "run")
    with pytest.raises(ValueError, match=r"settings\.stretch: stored 2\.0, given 2\.5"):
        RUNS["mcmc"](store=tmp_path / "run", resume=True, stretch=2.5)
    with pytest.raises(ValueError, match=r"algorithm: stored \"mcmc\", given \"subset_simulation\""):
        RUNS["subset_simulation"](store=tmp_path / "run", resume=True)
    RUNS["kalman_inversion"](store=tmp_path / "k")
    with pytest.raises(ValueError, match=r"settings\.y: stored .*, given"):
        RUNS["kalman_inversion"](y=[3.5], store=tmp_path / "k", resume=True)


def test_other_points_than_those_of_the_store_are_refused(tmp_path):
    """`fraction` is checked by the manifest; other levels of an early end lead to other points of the next run."""
    options = {"event": "above", "n_per_level": 60, "seed": 20731, "store": tmp_path / "run", "rtol": 1e-3}
    subset_simulation(TOTAL, 2, 4.0, max_levels=1, max_runs=2, **options)
    with pytest.raises(ValueError, match="subset_simulation: store must have the points of this run; got others for"):
        subset_simulation(TOTAL, 2, 4.0, max_runs=2, resume=True, **options)


def test_more_steps_follow_those_of_the_store(tmp_path):
    RUNS["mcmc"](n_steps=5, store=tmp_path / "run")
    longer = RUNS["mcmc"](store=tmp_path / "run", resume=True)
    assert bits(longer) == bits(RUNS["mcmc"]())


def test_a_smaller_tolerance_runs_further_samples_alone(tmp_path, calls):
    first = RUNS["multilevel"](store=tmp_path / "run")
    calls.clear()
    finer = RUNS["multilevel"](store=tmp_path / "run", resume=True, atol=0.08)
    assert sum(calls) < finer.n_evaluations - first.n_evaluations // 2
    assert bits(finer) == bits(RUNS["multilevel"](atol=0.08))
    assert finer.n_evaluations > first.n_evaluations


def test_measured_costs_are_those_of_the_store(tmp_path, calls):
    """Without costs the numbers of samples follow the seconds: a resumed run has those that were measured."""
    first = RUNS["multilevel"](store=tmp_path / "run", costs=None)
    calls.clear()
    assert bits(RUNS["multilevel"](store=tmp_path / "run", costs=None, resume=True)) == bits(first) and not calls


# --- time
def slow(model):
    def waits(z):
        time.sleep(0.01)
        return model(z)

    return waits


def test_chains_end_with_the_last_whole_step_in_time():
    whole = RUNS["mcmc"](ensemble_size=None)
    part = mcmc(slow(LIKELIHOOD), 2, 12, n_chains=8, seed=20731, max_seconds=0.12)
    assert 0 < part.n_steps < 12
    assert np.array_equal(part.chain.samples, whole.chain.samples[: part.n_steps])
    assert np.array_equal(part.log_density.samples, whole.log_density.samples[: part.n_steps])
    further = mcmc(LIKELIHOOD, 2, 12 - part.n_steps, start=part)
    assert np.array_equal(further.chain.samples, whole.chain.samples)
    assert np.array_equal(further.acceptance, whole.acceptance)


def test_tempering_ends_in_time():
    part = kalman_inversion(slow(FORWARD), [3.0], 1e-4, 2, n_samples=24, seed=20731, max_seconds=0.035)
    assert part.status == "max_seconds" and not part.converged and part.temperature < 1.0
    none = kalman_inversion(slow(FORWARD), [3.0], 1e-4, 2, n_samples=24, seed=20731, max_seconds=1e-9)
    assert none.n_iterations == 0 and none.temperature == 0.0 and none.n_samples == 24


def test_runs_and_levels_end_in_time():
    options = {"event": "above", "n_per_level": 60, "rtol": 1e-9, "max_runs": 1000, "seed": 20731, "max_seconds": 0.3}
    part = subset_simulation(slow(TOTAL), 2, 1.0, **options)
    assert part.status == "max_seconds" and 0 < len(part.probabilities) < 1000
    part = multilevel([slow(m) for m in LEVELS], 2, atol=0.02, costs=[1.0] * 6, seed=1, max_seconds=0.3)
    assert part.status == "max_seconds" and part.n_samples.min() > 0 and np.isfinite(part.mean)


@pytest.mark.parametrize("name", ["mcmc", "subset_simulation", "multilevel"])
def test_no_time_for_a_first_step_is_an_error_that_says_what_to_do(name, tmp_path):
    with pytest.raises(AlgorithmError, match=rf"{name}: no \w+ was finished within max_seconds. Give max_seconds more"):
        RUNS[name](max_seconds=1e-9)
    with pytest.raises(AlgorithmError, match="resume=True goes on with what is in the store"):
        RUNS[name](max_seconds=1e-9, store=tmp_path / "run")
    assert bits(RUNS[name](store=tmp_path / "run", resume=True)) == bits(RUNS[name]())


# --- what is told
def test_progress_tells_the_step_and_the_evaluations(monkeypatch, capsys):
    monkeypatch.setattr("ensemble.uq.algorithms.model_runs.SECONDS_BETWEEN_LINES", 0.0)
    RUNS["mcmc"](progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("mcmc: step 12 of 12, ") and "evaluations, " in lines[-1]
    RUNS["mcmc"]()
    assert capsys.readouterr().err == ""


@each
@pytest.mark.parametrize(
    "options, message",
    [
        ({"resume": True}, "resume must go with a store"),
        ({"max_seconds": -1.0}, "max_seconds must be"),
        ({"executor": "four"}, "executor must have a method submit"),
        ({"executor": 0}, "executor must be an integer of at least 1"),
    ],
)
def test_wrong_arguments_are_refused(name, options, message):
    with pytest.raises((ValueError, TypeError), match=rf"{name}: {message}"):
        RUNS[name](**options)


def test_a_store_of_an_algorithm_is_no_study_of_samples(tmp_path):
    RUNS["mcmc"](store=tmp_path / "run")
    with pytest.raises(ValueError, match=r"open_study: store must be one of propagate; got one of mcmc"):
        en.uq.open_study(tmp_path / "run")


PROGRAM = """
import os, sys
import numpy as np
from tests.uq.algorithms.test_model_runs import RUNS, bits
from ensemble.uq.algorithms import model_runs

original, left = model_runs.evaluate, [int(sys.argv[3])]

def evaluate(*arguments):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), 9)
    return original(*arguments)

model_runs.evaluate = evaluate
RUNS[sys.argv[1]](store=sys.argv[2], resume=os.path.exists(sys.argv[2]))
"""


@pytest.mark.slow
@each
def test_a_process_killed_every_third_group_ends_with_the_same_bits(name, tmp_path):
    """Up to 40 kills of a process by signal 9, for each of the four algorithms."""
    for _ in range(40):
        command = [sys.executable, "-c", textwrap.dedent(PROGRAM), name, str(tmp_path / "run"), "12"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -9), done.stderr
        if done.returncode == 0:
            break
    assert bits(RUNS[name](store=tmp_path / "run", resume=True)) == bits(RUNS[name]())


@pytest.mark.slow
def test_processes_give_the_bits_of_one(tmp_path):
    whole = mcmc(log_density, 2, 6, n_chains=8, seed=20731)
    shared = mcmc(log_density, 2, 6, n_chains=8, seed=20731, executor=2, store=tmp_path / "run")
    assert bits(shared) == bits(whole)
