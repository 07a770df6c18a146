"""`run_program`: one program to its end or to the end of its time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ensemble.uq.runs.reaper import reaper

__all__ = ["LOGS", "last_lines", "run_program"]

LOGS = ("stderr.txt", "stdout.txt")
"""What a program prints, in its run folder."""

SECONDS_BETWEEN_LOOKS = 0.5
"""Longest time in which an exception that another thread raises is not heard."""

MOST_CHARACTERS = 2000


def run_program(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None, seconds: float
) -> int | None:
    """The exit code of a program that ran in `folder`; None where it was ended after some seconds.

    The program has a process group of its own, which ends with it, and with the process that started it.
    """
    start, flags = os.path.join(folder, ""), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
    out, err = os.open(start + LOGS[1], flags, 0o666), -1
    try:
        err = os.open(start + LOGS[0], flags, 0o666)
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(out)
        if err >= 0:
            os.close(err)
    try:
        reaper.begin(process.pid)
        if ends_in(process, seconds):
            return process.returncode
        return None
    finally:
        end_group(process)
        reaper.end(process.pid)


def ends_in(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process without a delay, as `Popen.wait` has with a time limit; whether it has ended in time."""
    until = time.monotonic() + seconds
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not on Linux
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(None if seconds == float("inf") else seconds)
        return process.poll() is not None
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while True:
            left = until - time.monotonic()
            if poller.poll(1000.0 * max(0.0, min(left, SECONDS_BETWEEN_LOOKS))):
                process.wait()
                return True
            if left <= 0.0:
                return False
    finally:
        os.close(descriptor)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a program: itself, and what it has started in its process group."""
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: not a POSIX system
        os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:
        process.kill()
    if process.returncode is None:
        process.wait()


def last_lines(folder: Path, n_lines: int) -> str:
    """The last lines of what a program printed, of its errors if there are some."""
    for name in LOGS:
        with contextlib.suppress(OSError):
            with open(folder / name, "rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - 4 * MOST_CHARACTERS))
                lines = stream.read().decode(errors="replace").rstrip().splitlines()[-n_lines:]
            if lines:
                text = "\n".join(f"  {line}" for line in lines)[-MOST_CHARACTERS:]
                return f"last lines of {name}:\n{text}"
    return "it printed nothing"
