"""Calls of a model that end in time: in a thread of their own, which is given up where it does not end."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import math
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ensemble.uq.study.outputs import Outcome
from ensemble.uq.study.sample_clock import UNKNOWN, SampleClock, late_text, watched_by

__all__ = ["InTurn", "Limits", "TimeUp", "end_children", "evaluated_in_time", "late_outcome", "time_to_finish"]

SECONDS_TO_FINISH, SHARE_TO_FINISH = 1.0, 0.1
"""What calls that run at the end of `max_seconds` have for it: seconds, or a share of that time."""

SECONDS_BETWEEN_LOOKS = 0.05
"""Time between two looks at whether the study has been ended."""

SECONDS_TO_END = 1.0
"""Time that a thread has to end once it was told to."""


def time_to_finish(seconds: float) -> float:
    """What calls that run after `max_seconds`, `seconds`, have to end."""
    return max(SECONDS_TO_FINISH, SHARE_TO_FINISH * seconds)


class TimeUp(BaseException):
    """Raised in a thread whose time is up; no `except Exception` of a model catches it."""


@dataclass
class Limits:
    """When a call has to end.

    Attributes
    ----------
    seconds : float, s
        The time limit of a sample.
    ended : threading.Event or None
        Set when the study has been ended, where the call runs in its process.
    most : float, s
        Time after which the study has been ended in any case.
    """

    seconds: float = math.inf
    ended: threading.Event | None = field(default=None)
    most: float = math.inf

    def __getstate__(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "ended": None, "most": self.most}


class InTurn(ThreadPoolExecutor):
    """One call after the other, in a thread with the context of the caller, as its policy of divergence."""

    def __init__(self) -> None:
        super().__init__(1)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A future of the call."""
        return super().submit(contextvars.copy_context().run, fn, *args, **kwargs)


def evaluated_in_time(
    evaluate: Callable[..., Outcome], limits: Limits, model: Any, samples: Any, *rest: Any
) -> Outcome:
    """What ``evaluate(model, samples, *rest)`` gives, or an outcome that is `late`, by the place of the sample.

    The call runs in a thread. At the limit the processes that it started are killed and `TimeUp` is raised in it, which
    ends code of Python at its next line. Compiled code and a sleep go on until they return; nothing waits for them.
    """
    clock = SampleClock(limits.seconds)
    finished: queue.SimpleQueue[tuple[Outcome | None, BaseException | None]] = queue.SimpleQueue()
    error: BaseException | None = None
    context = contextvars.copy_context()

    def call() -> None:
        try:
            with watched_by(clock):
                outcome = evaluate(model, samples, *rest)
            finished.put((outcome, None))
        except BaseException as error:
            finished.put((None, error))

    thread = threading.Thread(target=context.run, args=(call,), daemon=True, name="model")
    began = time.monotonic()
    thread.start()
    held = time.monotonic() - began  # the call may take Python's lock before this thread gets it back
    until = began + limits.most
    try:
        while True:
            wait, asked = clock.left(SECONDS_BETWEEN_LOOKS), time.monotonic()
            try:
                found, error = finished.get(timeout=wait)
            except queue.Empty:
                found = None
            held = max(held, time.monotonic() - asked - wait)
            if found is not None or error is not None:
                if error is not None:
                    raise error
                assert found is not None
                return replace(found, held=held) if held > max(limits.seconds, SECONDS_TO_END) else found
            place = clock.overdue()
            if limits.ended is not None and limits.ended.is_set():
                raise TimeUp
            if time.monotonic() > until:  # the study is over, and nobody reads this
                ended(thread)
                return late_outcome(samples.n_samples, UNKNOWN, "the time of the study was up")
            if place is not None:
                how = "" if ended(thread) else "; its thread cannot be ended by Python and goes on"
                late = late_outcome(samples.n_samples, place, late_text(limits.seconds, how))
                return replace(late, held=held) if held > max(limits.seconds, SECONDS_TO_END) else late
    except BaseException:
        ended(thread, 0.0)
        raise


def late_outcome(n_samples: int, place: int, reason: str) -> Outcome:
    """The outcome of a call that was ended while the sample at `place` ran."""
    failed = np.ones(n_samples, bool)
    return Outcome({}, failed, dict.fromkeys(range(n_samples), reason), late=place)


def ended(thread: threading.Thread, seconds: float = SECONDS_TO_END) -> bool:
    """Tell a thread to end, and whether it has after some seconds."""
    if not thread.is_alive():
        return True
    end_children(os.getpid(), thread.native_id)
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(TimeUp))
    until = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < until:
        thread.join(0.01)
        end_children(os.getpid(), thread.native_id)  # it may have started another one meanwhile
    return not thread.is_alive()


def end_children(process: int, thread: int | None) -> None:
    """Kill the processes that a thread has started, and those that they have; Linux alone lists them."""
    for child in children_of(process, thread):
        end_children(child, None)
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)


def children_of(process: int, thread: int | None) -> list[int]:
    """The processes that a thread of a process has started, or all of its threads."""
    tasks = Path(f"/proc/{process}/task")
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in tasks.iterdir() if thread is None else [tasks / str(thread)]:
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found
