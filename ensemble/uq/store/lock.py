"""One writer per store: a file lock that ends with its process."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import weakref
from pathlib import Path

from ensemble._check import message

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Lock"]

HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """An exclusive lock on the file `path`, held from construction to `release`.

    The kernel releases it when the process ends, however it ends. A forked child does not inherit it, so that workers
    that outlive a killed parent do not keep the store locked. The file names the process that holds it.
    """

    def __init__(self, function: str, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        self.owner = os.getpid()
        try:
            if fcntl is not None:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 200).decode(errors="replace").strip() or "unknown process"
            os.close(self._descriptor)
            same = holder.startswith(f"process {os.getpid()} on {socket.gethostname()}")
            advice = "Close the other Store first." if same else "Wait until it ends, or end it."
            text = message(function, "path", "be a store that nobody else writes to", f"one in use by {holder}", advice)
            raise BlockingIOError(errno.EWOULDBLOCK, text) from None
        except BaseException:
            os.close(self._descriptor)
            raise
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        self._close = weakref.finalize(self, os.close, self._descriptor)
        HELD.add(self)

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
