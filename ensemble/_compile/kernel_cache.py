"""Compiled kernels on disk, keyed by the sources that they are made of.

Numba keys a compiled function by the time stamp of its file. Kernels also contain code of other files: lanes, functions
spliced into them, the compiler's own options. Here a digest of these files is part of the key.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["cache_folder", "cached", "digest_of", "kept_file", "written"]

ROOT = Path(__file__).parents[1]

COMMON = ("_compile", "_kernels/sparse", "_kernels/krylov")
"""Folders whose functions kernels of every folder may contain."""


@functools.cache
def digest_of(folder: str) -> str:
    """Digest of the Python sources in `folder`."""
    files = sorted((ROOT / folder).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:32]


def folder_of(function: Callable[..., Any]) -> str:
    """The folder of kernels that holds `function`; all of them for code that is generated elsewhere."""
    with contextlib.suppress(ValueError):
        parts = Path(inspect.getfile(function)).relative_to(ROOT / "_kernels").parts
        return f"_kernels/{parts[0]}"
    return "_kernels"


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Run alone among the processes that write into `folder`."""
    if fcntl is None:
        yield
        return
    with open(Path(folder) / "ensemble.lock", "w") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class KernelCache(FunctionCache):
    """Numba's cache of a function, with the digest in its key and one writer at a time.

    Two processes that add kernels of one function at once could otherwise give one file name to both: the index of one
    would then lead to the code of the other.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._cache_file._source_stamp
        folders = (*COMMON, folder_of(function))
        self._cache_file._source_stamp = (stamp, *map(digest_of, folders))

    def _save_overload(self, signature: Any, data: Any) -> None:
        self._impl.locator.ensure_cache_path()
        with locked(self._cache_path):
            super()._save_overload(signature, data)


def cached(dispatcher: Any) -> Any:
    """`dispatcher`, its compiled code kept on disk."""
    dispatcher._cache = KernelCache(dispatcher.py_func)
    return dispatcher


# --- files of generated code
def cache_folder() -> Path:
    """Where generated modules and their machine code are kept: of the user, or ``NUMBA_CACHE_DIR``."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen) / "ensemble-fuse"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ensemble" / "fuse"


def written(path: Path, content: bytes) -> Path:
    """A file that every process writes alike; an existing one is never rewritten: Numba compares its time stamp."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, suffix=".draft")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        try:
            os.link(draft, path)  # fails where another process was faster: its file is kept
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            os.replace(draft, path)
        Path(draft).unlink(missing_ok=True)
    return path


def kept_file(name: str, make: Callable[[], bytes]) -> bytes:
    """What `make` returned once for this name; where nothing can be written, it is called in each process."""
    path = cache_folder() / name
    with contextlib.suppress(OSError):
        return path.read_bytes()
    content = make()
    with contextlib.suppress(OSError):
        written(path, content)
    return content
