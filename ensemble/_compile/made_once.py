"""Files that several processes want at the same time: one makes each, the others wait and read it.

The lock is the kernel's, on an empty file beside the one that is made: it ends with its process. Nothing hangs on it:
after `LONGEST_WAIT` seconds, or on a system or disk without such locks, a process makes the file itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ensemble._compile.sealed_files import DRAFT

__all__ = ["alone"]

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LONGEST_WAIT = 120.0
"""Seconds after which a process that has the lock counts as stopped."""

PAUSES = 0.002, 0.05
"""Seconds between two looks at the lock, the first and the longest."""

_held: set[Path] = set()
"""Files that threads of this process make. Another thread does not wait: it may hold what the first one needs."""

_guard = threading.Lock()


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """A block that makes the file `path`, for one process at a time."""
    with _guard:
        first = path not in _held
        _held.add(path)
    if not first:
        yield
        return
    handle = None
    try:
        handle = _locked(path)
        yield
    finally:
        with _guard:
            _held.discard(path)
        if handle is not None:
            _release(handle, path)


def _lock_of(path: Path) -> Path:
    """Its name ends as that of a draft: what a killed process leaves is removed with the drafts of others."""
    return path.with_name(f".{path.name}{DRAFT}")


def _locked(path: Path) -> int | None:
    """The descriptor of the lock of a file; None where there is none to be had."""
    if fcntl is None:
        return None
    try:
        handle = os.open(_lock_of(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    pause, longest = PAUSES
    end = time.monotonic() + LONGEST_WAIT
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            except BlockingIOError:
                if time.monotonic() > end:
                    break
            except OSError:  # a disk without locks
                break
            time.sleep(pause)
            pause = min(2.0 * pause, longest)
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _release(handle: int, path: Path) -> None:
    """Let the next process in: it looks first whether the file is there, so that the lock may be removed."""
    with contextlib.suppress(OSError):
        os.unlink(_lock_of(path))
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)  # also for copies in processes that were forked meanwhile
    os.close(handle)
