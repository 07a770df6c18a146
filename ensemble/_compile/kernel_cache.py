"""Compiled kernels on disk, keyed by the sources that they are made of.

Numba keys a compiled function by the time stamp of its file. Kernels also contain code of other files: lanes, functions
spliced into them, the compiler's own options. Here a digest of these files is part of the key.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache

from ensemble._compile.cache_folder import ROOT, digest_of

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["cached"]

COMMON = ("_compile", "_kernels/sparse", "_kernels/krylov")
"""Folders whose functions kernels of every folder may contain."""


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
