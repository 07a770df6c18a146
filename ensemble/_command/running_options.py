"""Options of how a study runs: reruns, time limits, programs, parts. Nothing is imported here that takes long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["add_failed"]


def add_failed(add: Callable[..., Any]) -> None:
    """The option that runs failed samples again."""
    add(
        "--failed", action="store_true", help="run the samples again that have failed; reasons of all attempts are kept"
    )
