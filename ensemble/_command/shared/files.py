"""Output files of commands: checked before the work, and replaced only when they are complete."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from ensemble._files import write_whole
from ensemble._optional import optional

__all__ = [
    "PLOT_SUFFIXES",
    "require_different",
    "require_folder",
    "require_plot",
    "require_writable",
    "save_figure",
    "write_whole",
]

PLOT_SUFFIXES = (".png", ".pdf", ".svg")


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


def require_plot(option: str, path: Path | None) -> None:
    """Raise unless a picture can be drawn into `path`; before the work, which takes longer."""
    require_writable(option, path, PLOT_SUFFIXES)
    if path is not None and importlib.util.find_spec("matplotlib") is None:
        optional("matplotlib", option)  # raises


def require_different(**paths: Path | None) -> None:
    """Raise if two options name one file: the later one would overwrite the earlier one."""
    seen: dict[Path, str] = {}
    for option, path in paths.items():
        if path is not None:
            earlier = seen.setdefault(path.resolve(), option)
            if earlier != option:
                raise ValueError(f"--{option} must name another file than --{earlier}; got {str(path)!r} for both.")


def require_folder(option: str, path: Path | None) -> None:
    """Raise unless files can be written into the folder `path`, which may yet have to be made."""
    if path is None:
        return
    nearest = next((parent for parent in (path, *path.parents) if parent.exists()), Path("."))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        seen = f"{str(nearest)!r}, which is {'not writable' if nearest.is_dir() else 'no folder'}"
        raise ValueError(f"{option} must name a folder that can be written to; got {str(path)!r} in {seen}.")


def save_figure(drawing: Any, path: Path) -> None:
    """Write a figure of Matplotlib in the form that the file's name ends in."""
    write_whole(path, lambda file: drawing.savefig(file, format=path.suffix.lower()[1:], dpi=160))
