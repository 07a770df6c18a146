"""How far a study is: samples, rate, time left, the interval so far, failures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ensemble._progress import SECONDS_BETWEEN_LINES, Display
from ensemble.uq.study.intervals import is_independent, values_interval
from ensemble.uq.study.table import interval_text

if TYPE_CHECKING:
    from ensemble.uq.study.plan import Plan

__all__ = ["StudyProgress"]

SECONDS_BETWEEN_INTERVALS = 1.0


class StudyProgress(Display):
    """Count finished samples of a plan.

    Parameters
    ----------
    plan : Plan
    quiet : bool
        Print nothing.
    """

    def __init__(self, plan: Plan, *, quiet: bool) -> None:
        self.plan = plan
        self.done = self.before = plan.n - plan.pending.size
        form = "{percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} [{rate_fmt}, {remaining} left{postfix}]"
        super().__init__(quiet=quiet, total=plan.n, initial=self.done, unit=" samples", bar_format=form)
        self.last_interval = self.started

    def extend(self) -> None:
        """The plan has more samples now."""
        if self.bar is not None:
            self.bar.total = self.plan.n
            self.bar.refresh()

    def advance(self, n_samples: int) -> None:
        """Count `n_samples` more."""
        self.done += n_samples
        if self.quiet:
            return
        now = time.perf_counter()
        if self.bar is not None:
            if now - self.last_interval >= SECONDS_BETWEEN_INTERVALS:
                self.last_interval = now
                self.bar.set_postfix_str(self._state(), refresh=False)
            self.bar.update(n_samples)
        elif now - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = now
            rate = (self.done - self.before) / max(now - self.started, 1e-9)
            left = (self.plan.n - self.done) / rate
            state = self._state()
            text = f"{self.done:,}/{self.plan.n:,} samples, {rate:.3g} a second, {left:.0f} s left"
            self.say(f"{text}, {state}" if state else text)

    def _state(self) -> str:
        """Write the interval of the first entry of the first output, and how many samples failed, as one line."""
        parts = []
        interval = self._interval()
        if interval:
            parts.append(f"{next(iter(self.plan.layout))} {interval}")
        n_failed = int(np.count_nonzero(self.plan.failed))
        if n_failed:
            parts.append(f"{n_failed:,} failed")
        return ", ".join(parts)

    def _interval(self) -> str:
        """By the rule of the result, from the samples so far."""
        values = self.plan.first_entries()
        ids = np.flatnonzero(np.isfinite(values))
        replicates = self.plan.sampler.n_replicates
        numbers = ids % replicates if replicates > 1 else None
        if numbers is None and not is_independent(self.plan.sampler):
            return ""
        if ids.size < 2 or (numbers is not None and np.unique(numbers).size < replicates):
            return ""
        low, high = values_interval(values[ids], numbers, 0.95)
        return interval_text(float(low), float(high))
