"""Progress over samples: a bar on a terminal, elsewhere a line at intervals."""

from __future__ import annotations

import time

import numpy as np

from ensemble._progress import SECONDS_BETWEEN_LINES, Display

__all__ = ["Progress"]


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
        """Start the clock: what was done before does not count for the rate."""
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
