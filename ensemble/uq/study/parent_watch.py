"""`end_with_parent`: workers end where the process that started them was killed and could not end them."""

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
    """Let this process end, by a signal and at once, when the process that started it has ended in whatever way.

    Does nothing in a process that `multiprocessing` did not start. The kernel tells by the end of a pipe of which the
    parent holds the other end, on Linux by a signal, which needs neither a thread nor Python's lock: a worker inside
    compiled code ends, too. `PR_SET_PDEATHSIG` would end it with the thread that started it.
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
    """End this process after its parent: where there is no such signal, or the parent ended before it was asked for."""
    parent.join()
    os._exit(1)
