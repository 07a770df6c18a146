"""`Reaper`: a small process that ends programs whose driver or worker was killed.

A killed process cannot end what it has started. The reaper reads the process groups of the programs from a pipe; when
the pipe is closed, which the system does for a killed process, it ends those that are left.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading

__all__ = ["Reaper", "reaper"]

CODE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""


class Reaper:
    """The reaper of this process; it is started with the first program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def note(self, sign: str, group: int) -> None:
        """A process group has begun, "+", or has ended, "-"."""
        with self._lock:
            if self._process is None or self._owner != os.getpid():
                command = [sys.executable, "-I", "-S", "-c", CODE]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, start_new_session=True, text=True, bufsize=1
                )
                self._owner = os.getpid()
                atexit.register(self.close)
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(f"{sign}{group}\n")
            except OSError:  # it was killed: the next program has another one
                self._process = None

    def close(self) -> None:
        """End the reaper, and programs that still run."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            assert process.stdin is not None
            process.stdin.close()
            process.wait(5.0)


reaper = Reaper()
