"""Exceptions that outlive the call that raised them.

A traceback refers to frames, a frame to its local variables and to the frames of its callers. An exception in a result
that one of those variables names would keep all of their arrays until the next collection of garbage.
"""

from __future__ import annotations

import copy
import os
import pickle
from typing import TypeVar

__all__ = ["ProgramError", "again", "kept", "picklable"]

E = TypeVar("E", bound=BaseException)


class ProgramError(ValueError):
    """An error of a program, which it would make with any samples."""


HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def kept(error: E) -> E:
    """`error` without tracebacks, its causes too; a note says where it was raised."""
    note = _place(error)
    if note and note not in getattr(error, "__notes__", ()):
        error.add_note(note)
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        pending += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            pending += each.exceptions
    return error


def again(error: E) -> E:
    """A copy of a kept exception that can be raised: raising puts a traceback into it. `error` where none can be made.

    The cause, the context and the notes are those of `error`.
    """
    try:
        other = copy.copy(error)
    except Exception:  # a constructor that takes other arguments
        return error
    if type(other) is not type(error) or other.args != error.args:
        return error
    other.__cause__, other.__context__ = error.__cause__, error.__context__
    other.__suppress_context__ = error.__suppress_context__
    return other


def picklable(error: E | None) -> E | None:
    """An exception if it can be sent to another process, else None."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever the reduction of a class of the user's raises
        return None
    return error


def _place(error: BaseException) -> str:
    """The last line outside this library that the traceback names; nothing where there is none."""
    place, entry = "", error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        if not code.co_filename.startswith(HERE):
            place = f"Raised at {code.co_filename}:{entry.tb_lineno} in {code.co_name}."
        entry = entry.tb_next
    return place
