"""A rank that fails ends all ranks with one message; kills and exceptions anywhere leave stores that go on."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

import ensemble as en
from ensemble.distributed import faults
from ensemble.distributed.groups import groups
from ensemble.distributed.serial import serial
from ensemble.uq.store.store import Store
from tests.distributed import group_studies as studies
from tests.distributed.runner import ENVIRONMENT, ROOT, launcher

pytestmark = pytest.mark.skipif(launcher() is None, reason="no mpiexec or no mpi4py: pip install '.[mpi]'")

SECONDS = 10.0
"""Time in which all ranks end after a fault."""


def started(ranks, *arguments, interpreter=()):
    """A program of `fault_programs` on several ranks, started by plain `python`."""
    command = [launcher(), "-n", str(ranks), sys.executable, *interpreter, "-m", "tests.distributed.fault_programs"]
    return subprocess.Popen(
        [*command, *arguments], cwd=ROOT, env={**os.environ, **ENVIRONMENT}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def ended(process, seconds):
    """The exit code and what was written; fails where the ranks are still there after some seconds."""
    try:
        written, _ = process.communicate(timeout=seconds)
        return process.returncode, written
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


STARTING = 30.0
"""Time that a busy machine may take to start the ranks."""


@pytest.mark.parametrize(
    "program, ranks, code, line, n_traces",
    [
        ("callback", 3, 1, "rank 1 of 3: ZeroDivisionError: integer division or modulo by zero\n", 1),
        ("all_alike", 3, 1, "rank 0 of 3: ValueError: on every rank\n", 1),
        ("thread", 3, 1, "rank 2 of 3: ZeroDivisionError: integer division or modulo by zero\n", 1),
        ("with_own_handler", 2, 1, "own handler: KeyError\nrank 1 of 2: KeyError: 'missing'\n", 0),
        ("interrupt", 3, 130, "rank 0 of 3: KeyboardInterrupt\n", 1),
    ],
)
def test_a_rank_that_fails_ends_all_with_one_message(program, ranks, code, line, n_traces):
    returned, written = ended(started(ranks, program), STARTING)
    assert returned == code
    assert written.count(line) == 1 and written.count("\nrank ") + written.startswith("rank ") == 1
    assert written.count("Traceback") == n_traces


@pytest.mark.slow
def test_a_rank_that_raises_before_a_communication_ends_the_study_and_keeps_the_store(tmp_path):
    code, written = ended(started(2, "study", str(tmp_path / "run")), STARTING)
    assert code == 1
    assert written.count("\nrank 1 of 2: ZeroDivisionError: before the communication\n") == 1
    assert "Rank 0 of its group of 2 did not leave the model within 1 s" in written
    assert en.uq.open_study(tmp_path / "run").n_done == 32


@pytest.mark.slow
def test_an_error_ends_a_study_while_another_group_computes():
    code, written = ended(started(2, "long_ensemble"), STARTING)
    assert code == 1
    assert written.count("rank 1 of 2: NameError: name 'undefined' is not defined\n") == 1
    assert "Ranks 0 were in a model 1 s after that" in written


class Two:
    """A communicator of two ranks, as far as `watch` asks."""

    def Get_size(self):
        return 2


def test_a_session_at_a_prompt_keeps_its_handlers(monkeypatch):
    monkeypatch.setattr(faults, "_PREVIOUS", {})
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    before = sys.excepthook, threading.excepthook
    faults.watch(Two())
    assert (sys.excepthook, threading.excepthook) == before


def test_handlers_of_pytest_are_left_in_force(monkeypatch):
    monkeypatch.setattr(faults, "_PREVIOUS", {})
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    before = threading.excepthook
    assert before is not threading.__excepthook__
    faults.watch(Two())
    assert threading.excepthook is before and sys.excepthook is not sys.__excepthook__


def test_one_rank_installs_nothing(monkeypatch):
    monkeypatch.setattr(faults, "_PREVIOUS", {})
    before = sys.excepthook, threading.excepthook
    faults.watch(serial())
    faults.agree(serial())
    assert (sys.excepthook, threading.excepthook) == before and not faults._PREVIOUS


def test_facts_name_what_decides_bits():
    assert {"ensemble", "NumPy", "SciPy", "Numba", "processor", "features", "sizes of types"} <= set(faults.facts())
    assert all(isinstance(value, str) and value for value in faults.facts().values())


def told_apart(comm, name, value):
    """What `agree` says where rank 1 has another fact, and where it is asked again."""
    comm = comm.Dup()  # it is asked once for each communicator
    found = faults.facts()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if comm.rank == 1:
            patch.setattr(faults, "facts", lambda: found | {name: value.format(found[name])})
        try:
            faults.agree(comm)
            faults.agree(comm)
        except RuntimeError as error:
            return str(error)
    return [str(one.message) for one in caught]


CASES = {"NumPy": "1.0", "features": "{},avx1024", "ensemble": "other", "sizes of types": "other", "Python": "{}"}


def all_told_apart(comm):
    return {name: told_apart(comm, name, value) for name, value in CASES.items()}


@pytest.fixture(scope="module")
def agreements(mpi):
    return mpi(all_told_apart, 4)


@pytest.mark.slow
def test_ranks_that_are_alike_are_not_mentioned(agreements):
    assert [one["Python"] for one in agreements] == [[], [], [], []]


@pytest.mark.slow
def test_other_versions_are_named_once(agreements):
    first, *others = (one["NumPy"] for one in agreements)
    assert len(first) == 1 and others == [[], [], []]
    assert "ranks differ in NumPy: " in first[0] and "on ranks 0, 2, 3 / 1.0 on rank 1" in first[0]


@pytest.mark.slow
def test_of_the_instructions_of_a_processor_those_that_differ_are_named(agreements):
    assert (
        "ranks differ in features: none of these on ranks 0, 2, 3 / avx1024 on rank 1" in agreements[0]["features"][0]
    )


@pytest.mark.parametrize("name", ["ensemble", "sizes of types"])
@pytest.mark.slow
def test_ranks_that_do_not_understand_each_other_are_refused(name, agreements):
    found = [one[name] for one in agreements]
    assert "other on rank 1" in found[0] and len(set(found)) == 1


# --- kills and exceptions at random places


def hit(process, folder, ranks, number, rng):
    """Send a signal to a random rank at a random time; how the ranks ended."""
    until = time.monotonic() + STARTING
    paths = [Path(folder, f"rank-{rank}") for rank in range(ranks)]
    while not all(path.exists() for path in paths):
        assert process.poll() is None and time.monotonic() < until, process.communicate()[0]
        time.sleep(0.01)
    time.sleep(rng.uniform(0.0, 0.5))
    pid = int(rng.choice(paths).read_text())
    for path in paths:
        path.unlink()
    os.kill(pid, number)
    return ended(process, SECONDS)


def one_message(code, written, number):
    """Check what ranks that were hit say; whether the hit ended them, and was not taken by a handler of the program.

    A program that is over has the handlers of signals of the system, which end it without a message. The launcher
    joins the bits of the codes of all ranks; where it has killed the others, code 13 comes out.
    """
    if number == signal.SIGUSR2 and code not in (0, signal.SIGUSR2, signal.SIGUSR2 | signal.SIGKILL):
        assert written.count("rank ") >= 1 and "ArithmeticError: at a random place" in written
        assert "All ranks are ended." in written
    return code != 0


def battery(tmp_path, n_hits, seed):
    """Hits of studies and of a loop, in turn by kills and by exceptions: how many ended their program, and the stores.

    A study goes on on another number of ranks after each hit, and another one begins when it is complete.
    """
    rng, n_ended = random.Random(seed), 0
    folder, stores = tmp_path / "ranks", [tmp_path / "run-0"]
    folder.mkdir()
    for turn in range(2 * n_hits):
        number = (signal.SIGKILL, signal.SIGUSR2)[turn % 2]
        ranks = rng.choice((2, 3, 4)) if n_hits > 3 else (2, 3)[turn // 2 % 2]
        if turn // 2 % 3 == 2:
            process = started(ranks, "loop", str(folder))
        else:
            per_group = rng.choice([k for k in (1, 2, 3) if ranks % k == 0])
            arguments = str(stores[-1]), str(per_group), str(Store.exists(stores[-1]))
            process = started(ranks, "long_study", str(folder), *arguments)
        n_ended += one_message(*hit(process, folder, ranks, number, rng), number)
        if Store.exists(stores[-1]) and en.uq.open_study(stores[-1]).n_done == studies.LONG_STUDY["n"]:
            stores.append(tmp_path / f"run-{len(stores)}")
    return n_ended, [store for store in stores if Store.exists(store)]


def resumed(stores):
    """The studies in stores, finished on one rank, and the same study from its beginning."""
    settings = studies.LONG_STUDY | {"executor": groups(serial(), 1), "on_failure": "raise"}
    arguments = studies.slow_model, studies.INPUTS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an incomplete last record
        found = [studies.summary(en.propagate(*arguments, store=store, resume=True, **settings)) for store in stores]
    return found, studies.summary(en.propagate(*arguments, **settings))


@pytest.mark.slow
def test_kills_and_exceptions_anywhere_hang_nothing_and_lose_no_bits(tmp_path):
    n_ended, stores = battery(tmp_path, 3, 52361)
    found, expected = resumed(stores)
    assert n_ended >= 4 and found == len(stores) * [expected]


@pytest.mark.slow
def test_sixty_kills_and_exceptions_anywhere_hang_nothing_and_lose_no_bits(tmp_path):
    """30 kills and 30 exceptions on 2, 3 and 4 ranks."""
    n_ended, stores = battery(tmp_path, 30, 71993)
    assert n_ended >= 45
    found, expected = resumed(stores)
    assert found == len(stores) * [expected]
