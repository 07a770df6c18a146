"""How far a run is: a bar on a terminal, now and then a line elsewhere. Everything goes to stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from types import TracebackType
from typing import Any, Self

__all__ = ["SECONDS_BETWEEN_LINES", "Display", "say"]

SECONDS_BETWEEN_LINES = 5.0


def say(text: str) -> None:
    """Print one line on stderr; a closed stderr does not end the run."""
    if sys.stderr is not None:
        with contextlib.suppress(BrokenPipeError):
            print(text, file=sys.stderr, flush=True)


class Display:
    """A bar where stderr is a terminal, else lines now and then; a context manager.

    Parameters
    ----------
    quiet : bool
        Print nothing.
    **bar
        Arguments of tqdm besides its stream.
    """

    def __init__(self, *, quiet: bool, **bar: Any) -> None:
        self.quiet = quiet
        self.started = self.last_line = time.perf_counter()
        self.bar: Any = None
        if sys.stderr is not None and sys.stderr.isatty() and not quiet:
            from tqdm import tqdm

            self.bar = tqdm(file=sys.stderr, dynamic_ncols=True, **bar)

    def say(self, text: str) -> None:
        """Print one line beside the bar."""
        if self.quiet:
            return
        if self.bar is not None:
            self.bar.write(text, file=sys.stderr)
        else:
            say(text)

    def restart_clock(self) -> None:
        """Measure the rate from now on: what was done before is no guide to it."""
        self.started = self.last_line = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()
