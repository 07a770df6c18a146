"""One model called on all ranks of a group, which agree on what failed after each call."""

from __future__ import annotations

import hashlib
import pickle
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ensemble._backend import is_array, to_numpy
from ensemble._check import message
from ensemble._errors import ProgramError, kept
from ensemble._sample_numbers import numbered_samples
from ensemble.distributed.faults import end_all
from ensemble.distributed.mail import Ended, Mail, pickled
from ensemble.scalar import Ensemble, RunResult
from ensemble.scalar.divergence.swallowed import watched

__all__ = ["Group", "ModelOfGroup"]

CALL, VERDICT, SETTLED, END = "call", "verdict", "settled", "end"
"""Kinds of messages: the root has its members call the model; what came of it; that is known; no more calls."""


@dataclass
class Verdict:
    """What came of the model on one rank.

    Attributes
    ----------
    ended : Ended or None
        What it raised.
    failures : dict of int to str
        Samples that failed, by their place in the ensemble, and why.
    digests : dict of str to list of bytes
        For each output that the rank has, the digest of each sample.
    """

    ended: Ended | None = None
    failures: dict[int, str] = field(default_factory=dict)
    digests: dict[str, list[bytes]] = field(default_factory=dict)


class Group:
    """This rank's part of a group: on rank 0 of the group `call`, on the others `serve`.

    Parameters
    ----------
    comm : communicator
        That of the group, for the model.
    mail : Mail
        Messages of a copy of it.
    seconds : float
        Time in which the other ranks leave the model after one has raised in it.
    """

    def __init__(self, comm: Any, mail: Mail, seconds: float) -> None:
        self.comm, self.mail, self.seconds = comm, mail, seconds
        self.members = range(1, comm.Get_size())
        self.model: Callable[..., Any] | None = None
        self._number = 0

    # --- on rank 0 of the group
    def call(self, x: Any) -> Any:
        """What the model returns on this rank; raises what it raised on any."""
        self._number += 1
        content = pickled(x) if self.members else b""
        for rank in self.members:
            self.mail.send(rank, CALL, (self._number, content))
        returned, error, verdict = self._called(x, [])
        verdicts = self._verdicts(verdict)
        for rank in self.members:
            if verdicts[rank].ended is not None:
                self.mail.send(rank, SETTLED, self._number)
        ended = {rank: one.ended for rank, one in sorted(verdicts.items()) if one.ended is not None}
        if ended:
            first = min(ended, key=lambda rank: (not ended[rank].is_fatal, rank))  # an interrupt is no failure
            raise error if first == 0 and error is not None else ended[first].from_another_rank()
        for rank in self.members:
            for place, reason in verdicts[rank].failures.items():
                if place not in verdict.failures:
                    x.failures.setdefault(place, reason)
        failed = {place for one in verdicts.values() for place in one.failures}
        for rank in self.members:
            require_equal(verdicts[0].digests, verdicts[rank].digests, failed, rank, x.ids)
        return returned

    def _verdicts(self, own: Verdict) -> dict[int, Verdict]:
        """The verdicts of all ranks; ends the job where ranks do not leave a model that others have left."""
        found = {0: own}
        until = np.inf if own.ended is None else time.monotonic() + self.seconds
        while len(found) <= len(self.members):
            came = self.mail.wait(until - time.monotonic())
            if came is None:
                missing = sorted(set(self.members) - set(found))
                self._give_up(next(one.ended for one in found.values() if one.ended is not None), missing)
            elif came.kind == VERDICT and came.content[0] == self._number:  # no late one of an interrupted call
                found[came.source] = came.content[1]
                if found[came.source].ended is not None:
                    until = min(until, time.monotonic() + self.seconds)
        return found

    def end(self, content: Any) -> None:
        """Let the members go."""
        for rank in self.members:
            self.mail.send(rank, END, content)

    # --- on the other ranks
    def serve(self) -> Any:
        """Call the model whenever rank 0 of the group does, until it sends an end: its content."""
        while True:
            came = self.mail.wait()
            assert came is not None
            if came.kind == END:
                return came.content
            if came.kind != CALL:
                continue
            number, content = came.content
            self._number = number
            _, _, verdict = self._called(None, [content])
            self.mail.send(0, VERDICT, (number, verdict))
            if verdict.ended is not None:
                ending = self._settled(verdict.ended)
                if ending is not None:
                    return ending.content

    def _settled(self, ended: Ended) -> Any:
        """Wait until all ranks of the group have left the model; the message if it is the end."""
        until = time.monotonic() + self.seconds
        while True:
            came = self.mail.wait(until - time.monotonic())
            if came is None:
                self._give_up(ended, [rank for rank in (0, *self.members) if rank != self.comm.Get_rank()])
            elif came.kind == END:
                return came
            elif came.kind == SETTLED and came.content == self._number:
                return None

    # --- on all
    def _called(self, x: Any, sent: list[bytes]) -> tuple[Any, BaseException | None, Verdict]:
        """What the model returned, or its exception, and the verdict; the argument may have been sent."""
        assert self.model is not None
        try:
            if sent:
                x = pickle.loads(sent[0])
                x.failures.clear()
            with numbered_samples(x.ids), watched(sys._getframe()) as watch:
                returned = self.model(x, self.comm)
            watch.raise_first()
            if not self.members:
                return returned, None, Verdict()
            return returned, None, verdict_of(returned, x)
        except BaseException as error:
            ended = Ended.of(error)
            return None, kept(error) if sent else error, Verdict(ended)

    def _give_up(self, ended: Ended, missing: list[int]) -> None:
        """End the job: ranks that wait inside of a communication cannot be reached."""
        which = ", ".join(map(str, missing))
        why = (
            f"Rank{'s' if len(missing) > 1 else ''} {which} of its group of {len(self.members) + 1} did not leave the "
            f"model within {self.seconds:g} s: where they wait in a communication nothing reaches them. All ranks are "
            "ended. What a store has is kept: resume=True goes on."
        )
        end_all(ended.raised(), ended.trace, why, ended.rank)


def verdict_of(returned: Any, x: Any) -> Verdict:
    """The verdict on what the model returned: samples that it marked, that raised in `run`, that are not finite."""
    failures = {int(place): str(reason) for place, reason in x.failures.items()}
    if isinstance(returned, RunResult):
        for place, error in returned.errors.items():
            failures.setdefault(int(place), f"{type(error).__name__}: {error}".strip(": "))
        returned = returned.value
    if returned is None:
        return Verdict(None, failures)
    named = returned if isinstance(returned, Mapping) else {"y": returned}
    digests: dict[str, list[bytes]] = {}
    for name, value in named.items():
        array = array_of_samples(value, x.n_samples)
        if array is None:
            continue
        if array.dtype.kind in "fc":
            for sample in np.flatnonzero(~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))):
                failures.setdefault(int(sample), f"output {name!r} is not finite")
        kind = f"{array.dtype.str} {array.shape[1:]}".encode()
        digests[str(name)] = [hashlib.blake2b(kind + row.tobytes(), digest_size=16).digest() for row in array]
    return Verdict(None, failures, digests)


def array_of_samples(value: Any, n_samples: int) -> np.ndarray | None:
    """An output as an array, samples first; None of what is no number, which the study refuses."""
    if value is None:
        return None
    if isinstance(value, Ensemble):
        array = np.asarray(to_numpy(value.samples))
        shared = array.shape[-1] == 1
        return np.moveaxis(np.broadcast_to(array, (*array.shape[:-1], n_samples)) if shared else array, -1, 0)
    try:
        array = to_numpy(value) if is_array(value) else np.asarray(value)
    except Exception:
        return None
    if array.dtype.kind not in "biufc":
        return None
    return np.broadcast_to(array, (n_samples,)) if array.ndim == 0 else array[None]


def require_equal(
    own: dict[str, list[bytes]], other: dict[str, list[bytes]], failed: set[int], rank: int, ids: Any
) -> None:
    """Raise ProgramError where another rank returned other outputs; it may return none."""
    for name, digests in other.items():
        advice = "Gather or reduce it to rank 0 of the communicator, and return None on the other ranks."
        wanted = "be the same on every rank of a group"
        if name not in own:
            seen = f"one on rank {rank} of a group and none on rank 0"
            raise ProgramError(message("propagate", f"output {name!r}", wanted, seen, advice))
        pairs = list(zip(own[name], digests, strict=False))
        different = [place for place, (a, b) in enumerate(pairs) if a != b and place not in failed]
        if different or len(own[name]) != len(digests):
            which = f"sample {ids[different[0]]}" if different else "their number of samples"
            seen = f"others on ranks 0 and {rank}, first in {which}"
            raise ProgramError(message("propagate", f"output {name!r}", wanted, seen, advice))


_SERVING: list[Group] = []
"""The groups whose root this process is, the present one last."""


class ModelOfGroup:
    """The model in a task: calls that of the rank, and of all ranks of its group, in their memory."""

    def __call__(self, x: Any) -> Any:
        return _SERVING[-1].call(x)


def begin(group: Group) -> None:
    """Let `ModelOfGroup` call in `group` from now on."""
    _SERVING.append(group)


def finish(group: Group) -> None:
    """The opposite of `begin`."""
    _SERVING.remove(group)
