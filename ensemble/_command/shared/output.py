"""Output of a command: text on stdout, and files; a closed pipe is no error."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["Output", "flush_stdout"]


def flush_stdout() -> None:
    """Flush stdout; where its reader is gone, as after ``| head``, drop what is left instead of raising."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at its end: what the buffer still holds must have a place to go to.
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())


class Output:
    """The results of one run: which of them are written, and which are still to be written."""

    def __init__(self) -> None:
        self.printed = False
        self.written: list[Path] = []
        self.due: list[Path] = []

    def expect(self, *paths: Path | None) -> None:
        """Announce the files that the run will write, None for a file that it does not write."""
        self.due = [path for path in paths if path is not None]

    def print(self, text: str) -> None:
        """Print the results; a closed pipe is no error."""
        with contextlib.suppress(BrokenPipeError):
            print(text)
        flush_stdout()
        self.printed = True

    def write(self, path: Path, write: Callable[[], object]) -> None:
        """Write one of the files by calling `write`."""
        write()
        self.written.append(path)
        self.due.remove(path)

    def interrupted(self) -> str:
        """The message for an interruption now."""
        if not self.printed and not self.written:
            return "interrupted before any result"
        parts = ["the results were printed"] if self.printed else []
        parts += [f"{path} was written" for path in self.written] + [f"{path} was not written" for path in self.due]
        return f"interrupted after results: {', '.join(parts)}"
