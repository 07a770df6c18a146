"""Files of compiled code that are read back only as they were written: sealed, whole, of a trusted owner.

A file begins with a mark, the length of its content, and a digest of its name and content. A file that is cut, emptied
or changed in any byte, or that has the name of another one, counts as absent. So does a file that others may write.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

__all__ = ["DRAFT", "may_be_trusted", "read_sealed", "user_number", "write_sealed"]

MARK = b"ensemble-code-1\n"

HEADER = len(MARK) + 8 + 32
"""Bytes in front of the content."""

DRAFT = ".draft"
"""How the name of a file ends while it is written."""


def user_number() -> int | None:
    """The number of the user whose rights this process has; None on systems without such numbers."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def may_be_trusted(about: os.stat_result) -> bool:
    """Whether nobody but this user and the administrator can have written what `about` describes."""
    user = user_number()
    return user is None or (about.st_uid in (user, 0) and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _header(name: str, content: bytes) -> bytes:
    digest = hashlib.blake2b(name.encode() + b"\0" + content, digest_size=32).digest()
    return MARK + len(content).to_bytes(8, "little") + digest


def read_sealed(path: Path) -> bytes | None:
    """The content of a file that `write_sealed` wrote under this name; None where there is none that can be trusted.

    The time of the file becomes now: files that were used last stay longest.
    """
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or not may_be_trusted(about):
                return None
            data = file.read()
    except OSError:
        return None
    content = data[HEADER:]
    if data[:HEADER] != _header(path.name, content):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return content


def write_sealed(path: Path, content: bytes) -> None:
    """Write a file that `read_sealed` reads: beside its place first, and renamed once it is on the disk.

    Raises
    ------
    OSError
        If it cannot be written; nothing is left of it then.
    """
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=DRAFT)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_header(path.name, content))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
