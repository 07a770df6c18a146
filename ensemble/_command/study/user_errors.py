"""Errors of the user's model, told by commands in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ensemble._command.shared.sources import raised_in
from ensemble.uq import SampleError

__all__ = ["told_in_one_line"]


@contextlib.contextmanager
def told_in_one_line(source: str) -> Iterator[None]:
    """Raise errors of the user's file, or of a program on all samples, again as one line that names it."""
    try:
        yield
    except Exception as error:
        raised = error.__cause__ if isinstance(error, SampleError) else error
        told = raised_in(source, raised) if isinstance(raised, Exception) else None
        if told is None and not isinstance(error, SampleError):
            raise
        notes = [f"({note})" for note in getattr(error, "__notes__", [])]
        raise ValueError(" ".join([told or str(error), *notes])) from error
