"""`SampleClock`: which sample of a group runs, since when, and for how long it may."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, MutableSequence
from contextvars import ContextVar

__all__ = ["UNKNOWN", "SampleClock", "late_text", "running_clock", "watched_by"]

UNKNOWN = -1
"""The place of a sample where several run at once."""

PLACE, STARTED, ALLOWED = range(3)


class SampleClock:
    """The time of one call of a model.

    A model that runs its samples in turn says when each begins: then the limit holds for each. A call of k samples at
    once has k times the limit.

    Parameters
    ----------
    seconds : float, s
        The time limit of a sample; infinite without one.
    state : three numbers, optional
        Place, start and time allowed, in memory that another process reads.
    """

    def __init__(self, seconds: float, state: MutableSequence[float] | None = None) -> None:
        self.seconds = seconds
        self._state: MutableSequence[float] = [0.0, 0.0, 0.0] if state is None else state
        self._fixed: int | None = None
        self.rest()

    def begin(self, place: int, n_samples: int = 1) -> None:
        """The sample at `place` begins, or `n_samples` at once."""
        state = self._state
        state[ALLOWED] = math.inf  # whoever reads in between finds no limit
        state[PLACE] = place if self._fixed is None else self._fixed
        state[STARTED] = time.monotonic()
        state[ALLOWED] = n_samples * self.seconds

    def rest(self) -> None:
        """No sample runs."""
        self._state[ALLOWED] = math.inf

    def extend(self, seconds: float) -> None:
        """Allow more time to a sample that ends its own program at the limit."""
        self._state[ALLOWED] += seconds

    @contextlib.contextmanager
    def at(self, place: int) -> Iterator[None]:
        """Samples that begin inside are the one at `place`, or one of which the place is unknown."""
        self._fixed = place
        try:
            yield
        finally:
            self._fixed = None

    def overdue(self) -> int | None:
        """The place of the sample that has had its time; None where none has."""
        place, started, allowed = self._state[PLACE], self._state[STARTED], self._state[ALLOWED]
        same = place == self._state[PLACE] and started == self._state[STARTED]
        return int(place) if same and time.monotonic() - started > allowed else None

    def left(self, most: float) -> float:
        """Seconds until the time of the present sample is up, at most `most`."""
        return min(most, max(0.0, self._state[STARTED] + self._state[ALLOWED] - time.monotonic()))


running_clock: ContextVar[SampleClock | None] = ContextVar("running_clock", default=None)
"""The clock of the call that is running; None where there is no time limit."""


@contextlib.contextmanager
def watched_by(clock: SampleClock) -> Iterator[None]:
    """The calls of models inside tell `clock` what they run."""
    token = running_clock.set(clock)
    try:
        yield
    finally:
        clock.rest()
        running_clock.reset(token)


def late_text(seconds: float, how: str = "") -> str:
    """The reason of a sample that took too long."""
    return f"TimeLimit: it ran longer than sample_seconds={seconds:g}{how}"
