"""`Reaper`: a small process that ends programs whose driver or worker was killed.

A killed process cannot end what it has started. The process groups of the programs stand in a file without a name,
which the reaper shares. When its pipe is closed, which the system does for a killed process, it ends those groups. It
reads nothing before: a line in the pipe for each program woke it, which took 0.2 ms of the two processors.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import tempfile
import threading

__all__ = ["Reaper", "reaper"]

CODE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
while os.read(0, 1):
    pass
groups = memoryview(os.pread(int(sys.argv[1]), 2**26, 0)).cast("i")
for group in filter(None, groups):
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""

N_BYTES = 4
"""Length of the number of a process group in the file; 0 is a free place."""


class Reaper:
    """The reaper of this process; it is started with the first program. On systems without process groups, none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._table = -1
        self._free: list[int] = []
        self._places: dict[int, int] = {}

    def begin(self, group: int) -> None:
        """A process group has begun."""
        if os.name != "posix":
            return
        with self._lock:
            self._start()
            place = self._free.pop() if self._free else len(self._places)
            self._places[group] = place
            self._write(place, group)

    def end(self, group: int) -> None:
        """A process group has ended."""
        with self._lock:
            place = self._places.pop(group, None)
            if place is not None and self._owner == os.getpid():
                self._write(place, 0)
                self._free.append(place)

    def _write(self, place: int, group: int) -> None:
        os.pwrite(self._table, group.to_bytes(N_BYTES, sys.byteorder), place * N_BYTES)

    def _start(self) -> None:
        """Start the process unless it runs: after a fork a new one, and where it was killed another one."""
        if self._owner != os.getpid():
            self._table, self._free, self._places = file_without_name(), [], {}
        elif self._process is not None:
            if self._process.poll() is None:
                return
            assert self._process.stdin is not None
            self._process.stdin.close()
        command = [sys.executable, "-I", "-S", "-c", CODE, str(self._table)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, start_new_session=True, pass_fds=(self._table,)
        )
        if self._owner != os.getpid():
            self._owner = os.getpid()
            atexit.register(self.close)

    def close(self) -> None:
        """End the reaper, and programs that still run."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            assert process.stdin is not None
            process.stdin.close()
            process.wait(5.0)


def file_without_name() -> int:
    """The descriptor of a file that other processes reach by it alone: in memory, which no full disk refuses."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("process groups")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


reaper = Reaper()
