"""How far a run is: a bar on a terminal, now and then a line elsewhere. Everything goes to stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

import numpy as np
from tqdm import tqdm

from ensemble._command.shared.output import say

__all__ = ["Display", "Progress"]

SECONDS_BETWEEN_LINES = 5.0


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
        on_terminal = sys.stderr is not None and sys.stderr.isatty() and not quiet
        self.bar = tqdm(file=sys.stderr, dynamic_ncols=True, **bar) if on_terminal else None

    def say(self, text: str) -> None:
        """Print one line beside the bar."""
        if self.quiet:
            return
        if self.bar is not None:
            self.bar.write(text, file=sys.stderr)
        else:
            say(text)

    def restart_clock(self) -> None:
        """What was done before is no guide to the rate."""
        self.started = self.last_line = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()


class Progress(Display):
    """Count finished samples.

    Parameters
    ----------
    n_samples : int
    quiet : bool
        Print nothing.
    """

    def __init__(self, n_samples: int, *, quiet: bool = False) -> None:
        self.n_samples = n_samples
        self.done = 0
        form = "{percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} [{rate_fmt}, {remaining} left{postfix}]"
        super().__init__(quiet=quiet, total=n_samples, unit=" samples", bar_format=form)

    def restart(self) -> None:
        """Start the clock: what was done before is no guide to the rate."""
        self.restart_clock()
        if self.bar is not None:
            self.bar.reset()

    def advance(self, n: int, iterations: np.ndarray) -> None:
        """Count `n` more samples; `iterations` are those of all samples so far."""
        self.done += n
        low, middle, high = iterations.min(), int(np.median(iterations)), iterations.max()
        spread = f"CG iterations {low}/{middle}/{high}"
        if self.bar is not None:
            self.bar.set_postfix_str(spread, refresh=False)
            self.bar.update(n)
            return
        now = time.perf_counter()
        if self.done == self.n_samples or now - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = now
            rate = self.done / (now - self.started)
            left = (self.n_samples - self.done) / rate
            self.say(f"{self.done}/{self.n_samples} samples, {rate:.1f} a second, {left:.0f} s left, {spread}")
