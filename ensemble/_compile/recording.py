"""Notes of calls of compiled loops, for programs that repeat them (`programs.py`)."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

__all__ = ["Recording", "aside", "assign", "note", "note_gap", "recording", "recordings"]


class Recording:
    """What a thread called: loops with their arguments, and steps of Python, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple[Any, ...]] | Callable[[], Any]] = []
        self.complete = True
        """Whether everything that compiled code did can be repeated."""


recordings: dict[int, Recording] = {}
"""By the number of the thread that records; loops look here after each call."""


@contextmanager
def recording() -> Iterator[Recording]:
    """Note what this thread calls until the block ends."""
    found = Recording()
    recordings[threading.get_ident()] = found
    try:
        yield found
    finally:
        recordings.pop(threading.get_ident(), None)


def note(function: Any, arguments: tuple[Any, ...]) -> None:
    """Note a call of what `native` made, if this thread records."""
    found = recordings.get(threading.get_ident())
    if found is not None:
        found.calls.append((function, arguments))


def note_gap() -> None:
    """Note that something was called which no program can repeat."""
    found = recordings.get(threading.get_ident())
    if found is not None:
        found.complete = False


def aside(step: Callable[[], Any]) -> None:
    """Take a step of Python, which a program repeats; `step` reads and writes arrays that stay where they are."""
    found = recordings.pop(threading.get_ident(), None) if recordings else None
    if found is None:
        step()
        return
    try:
        step()  # loops that it calls are part of it
    finally:
        recordings[threading.get_ident()] = found
    found.calls.append(step)


def assign(out: Any, values: Any) -> None:
    """Write `values` into the array `out`, as a step that a program repeats."""
    aside(partial(operator.setitem, out, ..., values))
