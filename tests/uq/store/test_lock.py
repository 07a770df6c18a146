"""One process writes to a store at a time; a lock ends with its process."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from ensemble.uq.store import lock as lock_module
from ensemble.uq.store.lock import Lock

HOLD = """
import os, sys, time
from pathlib import Path
from ensemble.uq.store.lock import Lock
lock = Lock("f", Path(sys.argv[1]))
"""
WAIT = "print('held', flush=True); sys.stdin.read()"
FORK = """
if os.fork() == 0:
    print("held", flush=True)
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def holder(path, then):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD + then, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_lock_in_the_same_process_is_refused_and_says_what_to_do(tmp_path):
    first = Lock("f", tmp_path / "lock")
    with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()} on .*Close the other Store first"):
        Lock("f", tmp_path / "lock")
    first.release()
    Lock("f", tmp_path / "lock").release()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(lock_module, "TIMEOUT", 0.2)


def test_the_lock_of_another_process_names_it_and_ends_when_it_is_killed(tmp_path):
    process = holder(tmp_path / "lock", WAIT)
    with pytest.raises(BlockingIOError, match=f"in use by process {process.pid} on .*Wait until it ends"):
        Lock("f", tmp_path / "lock")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    Lock("f", tmp_path / "lock").release()


def test_a_process_that_is_about_to_end_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(lock_module, "TIMEOUT", 20.0)
    process = holder(tmp_path / "lock", "print('held', flush=True); time.sleep(0.3)")
    Lock("f", tmp_path / "lock").release()
    process.communicate()


def test_a_forked_child_that_outlives_its_parent_does_not_hold_the_lock(tmp_path):
    process = holder(tmp_path / "lock", FORK)
    child = int(process.stdout.readline())
    try:
        with pytest.raises(BlockingIOError):
            Lock("f", tmp_path / "lock")
        process.send_signal(signal.SIGKILL)
        process.wait()
        Lock("f", tmp_path / "lock").release()
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdin.close()
        process.stdout.close()


def test_a_file_system_without_locks_warns(tmp_path, monkeypatch):
    def refuse(descriptor, kind):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.warns(RuntimeWarning, match=r"has no locks \(Function not implemented\): see that one process .*lock"):
        Lock("f", tmp_path / "lock").release()


def test_a_released_lock_leaves_an_empty_file(tmp_path):
    lock = Lock("f", tmp_path / "lock")
    assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
    lock.release()
    lock.release()
    assert (tmp_path / "lock").read_bytes() == b""


class Msvcrt:
    """Windows' lock of one byte, by file, as `msvcrt.locking` has it: EACCES where another handle has the byte."""

    LK_NBLCK = 2

    def __init__(self):
        self.held = {}

    def locking(self, descriptor, mode, n_bytes):
        assert (mode, n_bytes) == (self.LK_NBLCK, 1)
        key = (os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR))
        holder = self.held.get(key)
        if holder is not None and os.path.exists(f"/proc/self/fd/{holder}") and holder != descriptor:
            raise PermissionError(errno.EACCES, "Permission denied")
        self.held[key] = descriptor


def test_windows_locks_a_byte_past_the_end_and_names_the_holder(tmp_path, monkeypatch):
    monkeypatch.setattr(lock_module, "fcntl", None)
    monkeypatch.setattr(lock_module, "msvcrt", Msvcrt())
    first = Lock("f", tmp_path / "lock")
    with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()} on .*Close the other Store first"):
        Lock("f", tmp_path / "lock")
    assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
    first.release()
    second = Lock("f", tmp_path / "lock")
    assert (tmp_path / "lock").stat().st_size < 100
    second.release()
