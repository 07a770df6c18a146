"""Where compiled code is kept on disk, and digests of what it is made of; Numba is not imported here.

The folder is that of the user, or lies in ``NUMBA_CACHE_DIR``. Machine code is read only from folders and files that
nobody but the user and the administrator can write. Where no such folder can be written, code is compiled for the
process alone, which is said once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from ensemble._compile.made_once import alone
from ensemble._compile.sealed_files import DRAFT, may_be_trusted, read_sealed, user_number, write_sealed

__all__ = ["LIMIT_VARIABLE", "ROOT", "cache_folder", "digest_of", "is_marked", "keep_file", "kept_file",
           "mark", "pruned", "stored_file"]  # fmt: skip

ROOT = Path(__file__).parents[1]

LIMIT_VARIABLE = "ENSEMBLE_CACHE_MB"
"""The environment variable with the megabytes that the folder may hold; with 0, nothing is kept on disk."""

LIMIT = 1024
"""Megabytes where it is not set."""

SHARE = 0.8
"""The share of its limit that a folder is cut down to."""

BETWEEN = 64
"""Files that a process writes between two looks at the size of the folder."""

LONG_AGO = 3600.0
"""Seconds after which a draft belongs to no process that still writes it."""


@functools.cache
def digest_of(folder: str) -> str:
    """Digest of the Python sources in `folder`."""
    files = sorted((ROOT / folder).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:32]


# --- the folder
def _candidates() -> Iterator[tuple[Path, bool]]:
    """Folders in the order in which they are tried, and whether another user may have come first.

    In a folder that users share, the first one's is ``ensemble``, that of each other one has the number of the user.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen) / "ensemble", True
        yield Path(chosen) / f"ensemble-{user_number()}", False
    if sys.platform == "win32":
        base: str | None = os.environ.get("LOCALAPPDATA")
        rest = ("AppData", "Local")
    elif sys.platform == "darwin":
        base, rest = None, ("Library", "Caches")
    else:
        base, rest = os.environ.get("XDG_CACHE_HOME"), (".cache",)
    with contextlib.suppress(RuntimeError):  # a user without a home
        yield (Path(base) if base else Path.home().joinpath(*rest)) / "ensemble" / "code", False


def _judged(folder: Path, shared: bool) -> str:
    """How a folder may be used: "write", "read", "no"; a folder that others can write is refused with a warning."""
    try:
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.stat()
    except OSError:
        return "no"
    if may_be_trusted(about):
        return "write" if os.access(folder, os.W_OK | os.X_OK) else "read"
    if not (shared and about.st_uid not in (user_number(), 0)):
        owner = f"owner {about.st_uid}, mode {about.st_mode & 0o7777:o}"
        _warn(
            f"The folder of compiled code {folder} is not used: it must belong to this user (number {user_number()}) "
            f"and no other user may write to it; got {owner}. Another folder takes its place. "
            f"Run `chmod go-w` on it, remove it, or set NUMBA_CACHE_DIR."
        )
    return "no"


@functools.cache
def _folders(candidates: tuple[tuple[Path, bool], ...]) -> tuple[Path | None, tuple[Path, ...]]:
    """The folder that is written, and all that are read."""
    read = []
    for folder, shared in candidates:
        judged = _judged(folder, shared)
        if judged != "no":
            read.append(folder)
        if judged == "write":
            return folder, tuple(read)
    return None, tuple(read)


def _limit() -> float:
    """The bytes that the folder may hold."""
    given = os.environ.get(LIMIT_VARIABLE) or LIMIT
    try:
        limit = float(given)
    except ValueError:
        limit = -1.0
    if not limit >= 0.0:
        raise ValueError(f"{LIMIT_VARIABLE} must be a number of megabytes, 0 or more; got {given!r}.")
    return limit * 2**20


def cache_folder() -> Path | None:
    """The folder that compiled code is written to; None where nothing is kept on disk."""
    return _folders(tuple(_candidates()))[0] if _limit() else None


# --- warnings
_said: set[str] = set()


def _warn(text: str) -> None:
    """Warn once in this process, of the line outside of this package that led here."""
    if text not in _said:
        _said.add(text)
        level, frame = 2, sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(str(ROOT)):
            level, frame = level + 1, frame.f_back
        warnings.warn(text, RuntimeWarning, stacklevel=level)


def _say_not_kept(why: str) -> None:
    """Say once that code which was compiled is lost at the end of the process."""
    if "not kept" not in _said:
        _said.add("not kept")
        _warn(
            f"Compiled code is not kept on disk: {why}. Each process compiles anew. Set NUMBA_CACHE_DIR to a folder "
            f"that this user can write, or {LIMIT_VARIABLE}=0 to go without."
        )


# --- files
def stored_file(name: str) -> bytes | None:
    """What `keep_file` wrote under this name; None where it is not there as it was written."""
    for folder in _folders(tuple(_candidates()))[1] if _limit() else ():
        content = read_sealed(folder / name)
        if content is not None:
            return content
    return None


def keep_file(name: str, content: bytes) -> None:
    """Keep compiled code under a name; where that cannot be, it is said once."""
    if not _limit():
        return
    folder = cache_folder()
    if folder is None:
        _say_not_kept("there is no folder that can be written")
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been removed since
        write_sealed(folder / name, content)
        _prune_at_times(folder)
    except OSError as error:
        _say_not_kept(f"{folder} cannot be written ({error.strerror})")


def kept_file(name: str, make: Callable[[], bytes]) -> bytes:
    """What `make` returned once for this name; where nothing can be written, it is called in each process.

    Of processes that ask at the same time one calls it, the others wait.
    """
    content = stored_file(name)
    folder = cache_folder() if content is None else None
    with alone(folder / name) if folder is not None else contextlib.nullcontext():
        if folder is not None:
            content = stored_file(name)  # of another process that was first
        if content is None:
            content = make()
            keep_file(name, content)
    return content


_written = 0


def _prune_at_times(folder: Path) -> None:
    global _written
    if _written % BETWEEN == 0:
        pruned(folder, _limit())
    _written += 1


def pruned(folder: Path, limit: float) -> int:
    """Remove files from a folder that holds more than `limit` bytes, those first that were used longest ago.

    Any process may do so at any time: what another one misses, it compiles again. Drafts that were left behind go, too.

    Returns
    -------
    int
        The number of files that were removed.
    """
    found = []
    removed, now = 0, time.time()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                if entry.name.endswith(DRAFT):
                    if now - about.st_mtime > LONG_AGO:
                        os.unlink(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    found.append((about.st_mtime_ns, about.st_size, entry.path))
    size = sum(each for _, each, _ in found)
    if size > limit:
        for _, each, path in sorted(found):
            with contextlib.suppress(OSError):  # another process was faster
                os.unlink(path)
                removed += 1
            size -= each
            if size <= SHARE * limit:
                break
    return removed


# --- jobs
def is_marked(job: str) -> bool:
    """Whether `mark` was called for this job with these sources: its kernels are on disk, as far as is known."""
    marker = _marker(job)
    return marker is not None and marker.exists()


def mark(job: str) -> None:
    """Note on disk that the kernels of a job were compiled; where nothing can be written, nothing is noted."""
    marker = _marker(job)
    if marker is not None:
        with contextlib.suppress(OSError):
            marker.touch(mode=0o600)


def _marker(job: str) -> Path | None:
    folder, digests = cache_folder(), "".join(digest_of(folder) for folder in ("_compile", "_kernels"))
    name = f"{job}-{hashlib.blake2b(digests.encode(), digest_size=16).hexdigest()}.compiled"
    return None if folder is None else folder / name
