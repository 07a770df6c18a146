"""Where compiled code is kept on disk, and digests of what it is made of; Numba is not imported here."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["ROOT", "cache_folder", "digest_of", "is_marked", "kept_file", "mark", "written"]

ROOT = Path(__file__).parents[1]


@functools.cache
def digest_of(folder: str) -> str:
    """Digest of the Python sources in `folder`."""
    files = sorted((ROOT / folder).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:32]


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


def is_marked(job: str) -> bool:
    """Whether `mark` was called for this job with these sources: its kernels are on disk, as far as is known."""
    return _marker(job).exists()


def mark(job: str) -> None:
    """Note on disk that the kernels of a job were compiled; where nothing can be written, nothing is noted."""
    with contextlib.suppress(OSError):
        _marker(job).parent.mkdir(parents=True, exist_ok=True)
        _marker(job).touch()


def _marker(job: str) -> Path:
    digests = "".join(digest_of(folder) for folder in ("_compile", "_kernels"))
    return cache_folder() / f"{job}-{hashlib.blake2b(digests.encode(), digest_size=16).hexdigest()}.compiled"


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
