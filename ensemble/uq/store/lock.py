"""One writer per store: a file lock that ends with its process."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
import weakref
from pathlib import Path

from ensemble._check import message, warn_caller

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:  # on other systems than Windows
    msvcrt = None  # type: ignore[assignment]

__all__ = ["Lock"]

TIMEOUT = 1.0
"""Seconds to wait for the lock: a killed process closes its files some time after the signal."""

FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""Those of the system: Windows has the latter alone."""

LOCKED_BYTE = 2**30
"""The byte that is locked on Windows, past the end of the file: the name of its holder stays readable there."""

HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """An exclusive lock on the file `path`, held from construction to `release`.

    The kernel releases it when the process ends, however it ends. A forked child does not inherit it, so that workers
    that outlive a killed parent do not keep the store locked. The file names the process that holds it. POSIX systems
    lock the file by ``flock``, Windows one byte of it by ``msvcrt.locking``.
    """

    def __init__(self, function: str, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | FLAGS, 0o666)
        self.path, self.owner = path, os.getpid()
        try:
            self._acquire(function)
        except BaseException:
            os.close(self._descriptor)
            raise
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.write(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        self._close = weakref.finalize(self, os.close, self._descriptor)
        HELD.add(self)

    def _acquire(self, function: str) -> None:
        """Take the lock; another process may take `TIMEOUT` to give it up."""
        own = f"process {os.getpid()} on {socket.gethostname()}"
        until = time.monotonic() + TIMEOUT
        while not self._taken():
            os.lseek(self._descriptor, 0, os.SEEK_SET)  # Windows has no os.pread
            holder = os.read(self._descriptor, 200).decode(errors="replace").strip() or "an unknown process"
            if holder == own or time.monotonic() > until:
                advice = "Close the other Store first." if holder == own else "Wait until it ends, or end it."
                requirement = "be a store that nobody else writes to"
                text = message(function, "path", requirement, f"one in use by {holder}", advice)
                raise BlockingIOError(errno.EWOULDBLOCK, text)
            time.sleep(0.02)

    def _taken(self) -> bool:
        """Whether the lock could be taken at once."""
        try:
            if fcntl is not None:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            elif msvcrt is not None:
                os.lseek(self._descriptor, LOCKED_BYTE, os.SEEK_SET)
                msvcrt.locking(self._descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if isinstance(error, BlockingIOError) or (fcntl is None and error.errno in (errno.EACCES, errno.EDEADLK)):
                return False  # Windows says EACCES where another has the byte
            advice = f"see that one process at a time writes to {self.path}."
            warn_caller(f"The file system has no locks ({error.strerror}): {advice}", RuntimeWarning)
        return True

    def release(self) -> None:
        """Give the lock up; the file stays, empty."""
        if self._close.alive:
            with contextlib.suppress(OSError):  # a full disk, or a file system that went away
                os.ftruncate(self._descriptor, 0)
            self._close()
        HELD.discard(self)

    def forget(self) -> None:
        """Close the file in a forked child; the parent's lock stays."""
        self._close()


def forget_all() -> None:
    """Close the locks that a fork has copied."""
    for lock in list(HELD):
        lock.forget()
        HELD.discard(lock)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_all)
