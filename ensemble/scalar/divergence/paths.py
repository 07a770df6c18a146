"""Paths: the groups of samples that take the same branches through unchanged code.

A run computes the samples of one task. Where they differ it continues with the largest group, the *followed* samples,
and defers the others as new tasks; what the deferred samples compute in this run is ignored. Where the followed samples
are less than half of those computed, or only one, the run stops and they become a task of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble.scalar.divergence.policy import DECIDERS, Decider, caller, place_of, policy_in_force, records_in_force
from ensemble.scalar.interop.sample_attributes import know_libraries

__all__ = ["Decision", "Follower", "Stop", "Task", "following"]


@dataclass(frozen=True)
class Decision:
    """One expression in which samples differed, and the value of those of the group.

    Attributes
    ----------
    expression : str
        The source text of the expression; empty where the source is not available.
    filename, lineno : str, int
        Its place.
    answer : bool, int, float or complex
        The truth value, or the number.
    """

    expression: str
    filename: str
    lineno: int
    answer: Any

    def __str__(self) -> str:
        place = f"{os.path.basename(self.filename)}:{self.lineno}"
        return f"{self.expression or '?'} -> {self.answer} ({place})"


@dataclass(frozen=True)
class Task:
    """Samples `ids` that have to run, the decisions of their path, and why one runs alone."""

    ids: np.ndarray
    decisions: tuple[Decision, ...] = ()
    reason: str = ""


class Stop(BaseException):
    """Ends a run whose samples must be regrouped; ``except Exception`` in the user's code does not catch it."""


class Follower(Decider):
    """Decides for the followed samples of one run, and keeps the tasks that it defers.

    The run stops where `least` samples or fewer are followed. `package` is that of the function that runs, `known` are
    exceptions that every sample raises, `heard` is one that another thread has for values of as many samples.
    """

    def __init__(self, task: Task, least: int = 1, package: str = "") -> None:
        self.ids = task.ids
        self.least = least
        self.package = package
        self.known: list[Exception] = []
        self.heard: Exception | None = None
        self.decisions = task.decisions
        self.followed = np.arange(task.ids.size)
        self.deferred: list[Task] = []
        self.stopped = False

    def truth(self, values: np.ndarray) -> bool:
        if values.size != self.ids.size:
            raise self.refused(_other_samples(values.size, self.ids.size))
        followed = values[self.followed]
        yes = int(np.count_nonzero(followed))
        if self.stopped or yes in (0, followed.size):
            return bool(followed[0])
        return bool(self._partition([self.followed[followed], self.followed[~followed]], [True, False]))

    def number(self, values: np.ndarray, kind: str) -> int:
        if values.size != self.ids.size:
            raise self.refused(_other_samples(values.size, self.ids.size))
        followed = values[self.followed]
        if kind == "Python int" and values.dtype.kind == "f":
            followed = np.trunc(followed) + 0.0  # all that ``int(x)`` shows; NaN and the infinities stay what they are
        groups: dict[bytes, list[int]] = {}
        for position, value in zip(self.followed.tolist(), followed, strict=True):
            groups.setdefault(_bits(value), []).append(position)
        if not self.stopped and len(groups) > 1:
            parts = [np.array(group) for group in groups.values()]
            self._partition(parts, [_shown(values[part[0]].item(), kind) for part in parts])
        return int(self.followed[0])

    def refused(self, error: Exception) -> BaseException:
        self.refuse(error)
        return Stop()

    def of_sample(self, operation: Callable[[Any], Any], x: Any, error: Exception) -> BaseException:
        try:
            operation(self.one_of(x))
        except Exception as own:
            self.known.append(own)
            return own.with_traceback(None)
        return self.refused(error)

    def one_of(self, x: Any) -> Any:
        """The plain value of one followed sample of `x`."""
        value = x.sample(0 if x.is_shared else int(self.followed[0]))
        value = value[()] if isinstance(value, np.ndarray) else value
        return value.item() if x._is_weak else value

    def hear(self, error: BaseException, n_samples: int) -> None:
        if n_samples in (1, self.ids.size):
            self.heard = error if isinstance(error, Exception) else RuntimeError(str(error))

    def forget(self) -> None:
        """Drop the exceptions of a run that has ended: their tracebacks refer to the frame that holds this."""
        self.known.clear()
        self.heard = None

    def refuse(self, error: Exception) -> None:
        """Stop because of `error`; samples are run each alone unless other samples of the call may have caused it."""
        if not self.stopped:
            alone = self.followed.size == self.ids.size
            self.defer(f"{type(error).__name__}: {error}" if alone else "")

    def defer(self, reason: str = "") -> None:
        """Stop; the followed samples run again, each alone where there is a reason."""
        self.stopped = True
        ids = self.ids[self.followed]
        parts = [ids[k : k + 1] for k in range(ids.size)] if reason else [ids]
        self.deferred.extend(Task(part, self.decisions, reason) for part in parts)

    def _partition(self, parts: list[np.ndarray], answers: list[Any]) -> Any:
        """Follow the largest of `parts` and defer the others: so every sample starts at most ``log2(n) + 1`` times."""
        place = place_of(caller())
        best = max(range(len(parts)), key=lambda k: parts[k].size)
        before = self.decisions
        for k, part in enumerate(parts):
            if k != best:
                self.deferred.append(Task(self.ids[part], (*before, Decision(*place, answers[k]))))
        self.decisions = (*before, Decision(*place, answers[best]))
        self.followed = parts[best]
        # Deferred samples may produce any number: they are dropped where floating-point errors are exceptions.
        raises_on_floating_point_error = "raise" in np.geterr().values()
        if self.followed.size <= self.least or 2 * self.followed.size < self.ids.size or raises_on_floating_point_error:
            self.defer()
            raise Stop
        np.seterr(all="ignore")
        return answers[best]


def _bits(value: Any) -> bytes:
    """The bytes of a number; every NaN is one, in the parts of a complex number too."""
    if value == value:
        result: bytes = value.tobytes()
        return result
    if value.dtype.kind == "c":
        return b"".join(_bits(part) for part in (value.real, value.imag))
    return b"nan"


def _shown(value: Any, kind: str) -> Any:
    return int(value) if kind == "Python int" and np.isfinite(value) else value


def _other_samples(seen: int, carried: int) -> ValueError:
    return ValueError(f"an ensemble of {seen} samples among {carried}")


@contextmanager
def following(follower: Follower) -> Iterator[None]:
    """Put `follower` in force inside the ``with`` block."""
    know_libraries()
    policy, records = policy_in_force.set(follower), records_in_force.set(())
    DECIDERS.append(follower)
    try:
        with np.errstate():  # `_partition` may change it
            yield
    finally:
        DECIDERS.remove(follower)
        records_in_force.reset(records)
        policy_in_force.reset(policy)
