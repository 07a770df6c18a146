"""Processes that want the same compiled file at once: one makes it, and nobody hangs on it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import ensemble
from ensemble._compile import made_once
from ensemble._compile.cache_folder import cache_folder, kept_file

ROOT = Path(ensemble.__file__).parents[1]
posix = pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")

PROGRAM = """
import sys, time
from ensemble._compile.cache_folder import kept_file
def make():
    with open(sys.argv[1], "a") as made:
        made.write("made ")
    time.sleep(float(sys.argv[2]))
    return b"content"
print("ready", flush=True)
sys.stdin.readline()
assert kept_file("a.o", make) == b"content"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Give this test a folder of compiled code of its own."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ENSEMBLE_CACHE_MB", raising=False)
    return cache_folder()


def started(tmp_path, seconds):
    """Start a process that makes the file in `seconds` once `go` tells it to."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "made"), str(seconds)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


def go(process):
    process.stdin.write("go\n")
    process.stdin.flush()


def until(happened):
    end = time.monotonic() + 60.0
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.005)


def lefts(folder):
    return sorted(path.name for path in folder.iterdir())


@posix
def test_of_processes_that_start_together_one_makes_the_file(folder, tmp_path):
    processes = [started(tmp_path, 0.3) for _ in range(2)]
    for process in processes:
        go(process)
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0, 0]
    assert (tmp_path / "made").read_text() == "made "
    assert lefts(folder) == ["a.o"]


class RefusedError(Exception):
    """By a function that is asked for a file."""


def refusing():
    raise RefusedError


@posix
def test_nobody_waits_for_a_process_that_was_stopped_or_killed(folder, tmp_path, monkeypatch):
    process = started(tmp_path, 60.0)
    go(process)
    until((tmp_path / "made").exists)
    process.send_signal(signal.SIGSTOP)
    try:
        monkeypatch.setattr(made_once, "LONGEST_WAIT", 0.3)
        begin = time.monotonic()
        with pytest.raises(RefusedError):
            kept_file("a.o", refusing)
        assert time.monotonic() - begin >= 0.3
        monkeypatch.setattr(made_once, "LONGEST_WAIT", 600.0)
    finally:
        process.kill()
        process.communicate(timeout=60)
    assert kept_file("a.o", lambda: b"content") == b"content"
    assert lefts(folder) == ["a.o"]


def test_threads_of_a_process_do_not_wait_for_each_other(folder):
    """One of them may hold a lock of Numba that the other one needs."""
    inside, leave = threading.Event(), threading.Event()

    def slow():
        inside.set()
        assert leave.wait(30)
        return b"content"

    thread = threading.Thread(target=kept_file, args=("a.o", slow))
    thread.start()
    assert inside.wait(30)
    try:
        assert kept_file("a.o", lambda: b"content") == b"content"
    finally:
        leave.set()
        thread.join()
    assert lefts(folder) == ["a.o"]


def test_a_file_may_need_another_one_and_a_failure_leaves_no_lock(folder):
    assert kept_file("a.o", lambda: kept_file("b.o", lambda: b"inner") + b"outer") == b"innerouter"

    def failing():
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            kept_file("c.o", failing)
    assert lefts(folder) == ["a.o", "b.o"]
    assert kept_file("c.o", lambda: b"content") == b"content"


def test_a_system_or_a_disk_without_locks_makes_files_all_the_same(folder, monkeypatch):
    class NoLocks:
        LOCK_EX = LOCK_NB = LOCK_UN = 0

        @staticmethod
        def flock(handle, how):
            raise OSError("no locks")

    for k, module in enumerate((NoLocks, None)):
        monkeypatch.setattr(made_once, "fcntl", module)
        assert kept_file(f"{k}.o", lambda: b"content") == b"content"
