"""`end_with_parent`: workers end when the process that started them was killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["end_with_parent"]


def end_with_parent() -> None:
    """End this process as soon as the process that started it has ended, for whatever reason.

    Does nothing in a process that `multiprocessing` did not start. The parent holds one end of a pipe. When that end is
    closed, Linux sends a signal to this process. The signal needs neither a thread nor Python's lock, so a worker
    inside compiled code ends, too. `PR_SET_PDEATHSIG` is not used: it ends a worker with the thread that started it.
    """
    parent = multiprocessing.parent_process()
    if parent is None or parent.sentinel is None:
        return
    threading.Thread(target=end_after, args=(parent,), daemon=True, name="end_with_parent").start()
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: no such signal on this system
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)


def end_after(parent: multiprocessing.process.BaseProcess) -> None:
    """End this process after its parent, where there is no such signal or the parent ended before it was set."""
    parent.join()
    os._exit(1)
