"""Whose code a file has: the user's, or that of Python, an installed package or this library."""

from __future__ import annotations

import functools
import sysconfig
from pathlib import Path

__all__ = ["is_installed"]

INSTALLED = {"site-packages", "dist-packages"}
"""Names of folders that packages are installed in: of this environment, of the system, of the user."""


@functools.cache
def _folders() -> tuple[Path, ...]:
    """Folders of Python's modules and of this library."""
    return (*(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")), Path(__file__).parent)


@functools.lru_cache(maxsize=1024)
def is_installed(file: str) -> bool:
    """Tell whether a module's file belongs to Python, to an installed package or to this library."""
    path = Path(file).resolve()
    return not INSTALLED.isdisjoint(path.parts) or any(path.is_relative_to(folder) for folder in _folders())
