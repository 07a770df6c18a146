"""Time limits: a sample that hangs is ended and marked, wherever it runs; others have the bits of a calm study."""

import ctypes
import os
import subprocess
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from tests.uq.study.models import NAP, napping, same_bits

INPUTS = en.Inputs(b=stats.uniform(0.0, 1.0))
HANGS = "ENSEMBLE_TEST_HANGS"
ABOVE = 0.97
"""A sample hangs where its input is above."""


def slow(value):
    """A parameter of the slow tests."""
    return pytest.param(value, marks=pytest.mark.slow)


def hang(how):
    """Take a minute, in a way that is ended, or that cannot be."""
    if how == "sleep":
        time.sleep(60.0)
    elif how == "program":
        subprocess.run(["sleep", NAP], check=True)
    elif how == "shell":
        subprocess.run(f"sleep {NAP}; echo", shell=True, check=True)
    elif how == "loop":
        until = time.monotonic() + 60.0
        while time.monotonic() < until:
            pass


@en.vectorize
def plain(s):
    if s.b > ABOVE:
        hang(os.environ.get(HANGS))
    return 2.0 * s.b


def together(x):
    if x.b.samples.max() > ABOVE:
        hang(os.environ.get(HANGS))
    return {"y": 2.0 * x.b}


def run(model=plain, n=64, **options):
    return en.propagate(model, INPUTS, n, **{"seed": 1, "progress": False, "ensemble_size": 16} | options)


EXPECTED = np.flatnonzero(INPUTS.samples(64, seed=1).b.samples > ABOVE)


def check(result, calm):
    assert np.flatnonzero(result.failed).tolist() == EXPECTED.tolist() and 0 < EXPECTED.size < 5
    assert {text[:46] for text in result.reasons.values()} == {"TimeLimit: it ran longer than sample_seconds=0"}
    good = ~result.failed
    assert np.array_equal(result.values("y")[good], calm.values("y")[good])


CASES = [
    pytest.param(model, how, marks=() if (model, how) in ((plain, "loop"), (together, "program")) else pytest.mark.slow)
    for model in (plain, together)
    for how in ("sleep", "program", "shell", "loop")
]


@pytest.mark.parametrize("model, how", CASES)
def test_a_sample_that_hangs_in_this_process_is_marked_and_the_others_are_done(model, how, monkeypatch):
    calm = run(model)
    monkeypatch.setenv(HANGS, how)
    start = time.monotonic()
    result = run(model, sample_seconds=0.05)
    assert time.monotonic() - start < 15.0
    check(result, calm)
    assert all(("goes on" in text) == (how == "sleep") for text in result.reasons.values())
    assert napping() == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["sleep", "shell"])
def test_a_sample_that_hangs_in_a_worker_process_is_killed_with_what_it_started(how, monkeypatch):
    calm = run()
    monkeypatch.setenv(HANGS, how)
    result = run(executor=2, sample_seconds=0.4)
    check(result, calm)
    assert all("its process was ended" in text for text in result.reasons.values()) and napping() == []


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(3), slow("dask")], ids=["threads", "dask"])
def test_workers_of_the_user_give_up_a_sample_that_hangs(make, monkeypatch):
    calm = run()
    monkeypatch.setenv(HANGS, "program")
    if make == "dask":
        distributed = pytest.importorskip("distributed")
        with distributed.Client(n_workers=0, processes=False, dashboard_address=None) as client:
            client.cluster.scale(1)
            check(run(executor=client, sample_seconds=0.2), calm)
    else:
        with make() as pool:
            check(run(executor=pool, sample_seconds=0.2), calm)
    assert napping() == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["sleep", "program", "loop"])
def test_a_pool_of_processes_of_the_user_gives_up_a_sample_that_hangs(how, monkeypatch):
    calm = run()
    monkeypatch.setenv(HANGS, how)
    pool = ProcessPoolExecutor(2)
    check(run(executor=pool, sample_seconds=0.3), calm)
    for process in pool._processes.values():
        process.kill()


@pytest.mark.parametrize("executor", [None, slow(2)])
@pytest.mark.parametrize("limit", [{}, slow({"sample_seconds": 30.0})], ids=["alone", "with the limit of a sample"])
def test_the_time_of_a_study_holds_although_a_sample_hangs(executor, limit, monkeypatch):
    monkeypatch.setenv(HANGS, "sleep")
    start = time.monotonic()
    result = run(executor=executor, max_seconds=2.0, ensemble_size=8, **limit)
    assert time.monotonic() - start < 8.0
    assert result.n_failed == 0 and 0 < result.n_done < 64 and not result.done[EXPECTED].any()


def test_a_study_that_was_ended_goes_on_with_the_same_bits(tmp_path, monkeypatch):
    calm = run(store=tmp_path / "calm.zarr")
    monkeypatch.setenv(HANGS, "program")
    run(store=tmp_path / "run.zarr", max_seconds=0.5, ensemble_size=8)
    late = run(store=tmp_path / "run.zarr", resume=True, sample_seconds=0.1)
    assert late.n_failed == EXPECTED.size
    monkeypatch.setenv(HANGS, "")
    found = run(store=tmp_path / "run.zarr", resume=True, retry_failed=True, sample_seconds=5.0)
    assert same_bits(found, calm) and found.n_failed == 0
    assert next(iter(found.failures.values())).recovered == EXPECTED.size


def test_a_sample_that_hangs_once_succeeds_when_it_runs_again():
    first = threading.Event()

    @en.vectorize
    def once(s):
        if s.b > ABOVE and not first.is_set():
            first.set()
            hang("loop")
        return 2.0 * s.b

    result = run(once, sample_seconds=0.2, on_failure="retry")
    assert result.n_failed == 0 and [counts.recovered for counts in result.failures.values()] == [1]
    first.clear()
    with pytest.raises(en.uq.SampleError, match=r"propagate: sample \d+ failed \(TimeLimit: it ran longer"):
        run(once, sample_seconds=0.2, on_failure="raise")


def test_a_retried_sample_of_a_group_is_the_one_that_is_marked():
    """Samples that fail run again in the same call: one that hangs then is found by its own place."""

    def failing(x):
        if len(x) == 1 and x.b.samples[0] > ABOVE:
            hang("loop")
        x.fail(x.b > 0.9, "too large")
        return {"y": x.b}

    result = run(failing, sample_seconds=0.1, on_failure="retry")
    late = [i for i, text in result.reasons.items() if "TimeLimit" in text]
    assert late == EXPECTED.tolist() and result.n_failed > len(late)


def test_the_policy_of_the_caller_holds_in_the_thread_of_a_limited_call():
    def branching(x):
        return 2.0 * x.b if x.b > 0.5 else x.b

    with en.divergence("first"):
        expected = run(branching)
        assert same_bits(run(branching, sample_seconds=20.0), expected)
    with pytest.raises(en.DivergenceError):
        run(branching, sample_seconds=20.0)


def test_sizes_are_chosen_although_a_sample_of_the_first_groups_hangs(monkeypatch):
    monkeypatch.setenv(HANGS, "loop")
    check(run(sample_seconds=0.1, ensemble_size="auto"), run(monkeypatch.setenv(HANGS, "") or plain))


def test_an_interrupt_ends_the_call_that_runs():
    ended = threading.Event()

    def interrupted(x):
        threading.Timer(0.2, lambda: __import__("_thread").interrupt_main()).start()
        try:
            hang("loop")
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        run(interrupted, sample_seconds=50.0)
    assert ended.wait(5.0)


@pytest.mark.parametrize(
    "value, error",
    [
        (0.0, ValueError),
        (-1, ValueError),
        ("a", (TypeError, ValueError)),
        (float("nan"), ValueError),
        (True, TypeError),
    ],
)
def test_a_limit_is_a_time(value, error):
    with pytest.raises(error, match="propagate: sample_seconds must be"):
        run(sample_seconds=value)


def test_groups_of_ranks_have_no_limit_of_a_sample():
    from ensemble import distributed

    with pytest.raises(ValueError, match=r"propagate: sample_seconds must be None with distributed.groups; got 1.0"):
        run(lambda x, comm: x.b, sample_seconds=1.0, executor=distributed.groups(distributed.serial(), 1))


@pytest.mark.slow
def test_a_pool_of_the_user_can_be_closed_after_a_study_that_was_given_up(monkeypatch):
    monkeypatch.setenv(HANGS, "shell")
    start = time.monotonic()
    with ProcessPoolExecutor(2) as pool:
        assert run(executor=pool, max_seconds=3.0, ensemble_size=8).n_failed == 0
    assert time.monotonic() - start < 25.0 and napping() == []


def held(x):
    """Hold Python's lock for 1.2 s in the first of eight samples, as compiled code may."""
    if x.ids[0] == 0:
        ctypes.PyDLL(None).usleep(1_200_000)
    return {"y": x.b}


@pytest.mark.skipif(os.name != "posix", reason="the C library has no usleep")
@pytest.mark.parametrize("executor", [None, lambda: ThreadPoolExecutor(2)])
def test_code_that_holds_the_lock_beyond_a_limit_is_warned_of(executor):
    with pytest.warns(RuntimeWarning, match=r"holds Python's lock; .* for 1\.\d+ s\. executor=8 runs") as told:
        en.propagate(held, INPUTS, 16, seed=3, ensemble_size=8, sample_seconds=0.1, executor=executor, progress=False)
    assert len(told) == 1
