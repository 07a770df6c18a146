"""Files a command will write: complained about before the work, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from ensemble.scalar.files import write_whole

__all__ = ["require_writable", "write_whole"]


def require_writable(option: str, path: Path | None, suffixes: tuple[str, ...]) -> None:
    """Raise unless `path` can be written and ends in one of `suffixes`; leaves nothing behind."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} must end in one of {', '.join(suffixes)}; got {str(path)!r}.")
    existed = path.exists()
    try:
        with path.open("ab"):
            pass
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(13, os.strerror(13))
    except OSError as error:
        raise ValueError(
            f"{option} must name a file that can be written; got {str(path)!r} ({error.strerror})."
        ) from None
    finally:
        if not existed:
            path.unlink(missing_ok=True)
