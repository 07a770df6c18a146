"""Messages between ranks that block nobody, and exceptions that go with them."""

from __future__ import annotations

import pickle
import time
import traceback
from dataclasses import dataclass
from typing import Any, NamedTuple

from ensemble._errors import picklable
from ensemble.distributed.faults import rank_text

__all__ = ["Ended", "Mail", "Message", "pickled"]

LONGEST_PAUSE = 1e-3
"""Longest time between two looks for a message, in seconds: what waits takes no core from those that compute."""


class Message(NamedTuple):
    """What a rank has sent."""

    source: int
    kind: str
    content: Any


class Mail:
    """Messages of one communicator, which nothing else uses; one thread of a rank sends and receives at a time.

    Waiting is looking again and again, with pauses: a blocking call of MPI would hear no interrupt and use a core.
    """

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.rank: int = comm.Get_rank()
        self._requests: list[Any] = []

    def send(self, rank: int, kind: str, content: Any = None) -> None:
        """Send a message; it is on its way when this returns."""
        self._requests = [request for request in self._requests if not request.Test()]
        self._requests.append(self.comm.isend((self.rank, kind, content), rank))

    def look(self) -> Message | None:
        """The next message, None where there is none."""
        found = self.comm.improbe()
        return None if found is None else Message(*found.recv())

    def wait(self, seconds: float = float("inf")) -> Message | None:
        """The next message; None where none comes in that time."""
        until, pause = time.monotonic() + seconds, 0.0
        while (found := self.look()) is None:
            if time.monotonic() >= until:
                return None
            time.sleep(pause)
            pause = min(1.5 * pause + 2e-6, LONGEST_PAUSE)
        return found

    def flush(self) -> None:
        """Wait until all messages are out of this process."""
        while self._requests:
            self._requests = [request for request in self._requests if not request.Test()]
            time.sleep(0.0 if not self._requests else LONGEST_PAUSE)


@dataclass
class Ended:
    """An exception on its way to other ranks.

    Attributes
    ----------
    error : exception or None
        None where it cannot be pickled.
    name, text : str
        Its type and what it says.
    trace : str
        Its traceback.
    rank : str
        Where it was raised, as "rank 2 of 4".
    is_fatal : bool
        Whether it ends a program, as an interrupt does, and is no failure.
    """

    error: BaseException | None
    name: str
    text: str
    trace: str
    rank: str
    is_fatal: bool

    @classmethod
    def of(cls, error: BaseException) -> Ended:
        """The exception of this rank."""
        trace = "".join(traceback.format_exception(error))
        name, text = type(error).__name__, str(error)
        return cls(picklable(error), name, text, trace, rank_text(), not isinstance(error, Exception))

    def raised(self) -> BaseException:
        """The exception, or a RuntimeError of the same name that says the same."""
        return self.error if self.error is not None else type(self.name, (RuntimeError,), {})(self.text)

    def from_another_rank(self) -> BaseException:
        """`raised` with a note on where it was raised and how, and an attribute `raised_on`."""
        error = self.raised()
        if not hasattr(error, "raised_on"):
            error.add_note(f"Raised on {self.rank}:\n{self.trace.rstrip()}")
            error.raised_on = self.rank  # type: ignore[attr-defined]
        return error


def pickled(value: Any) -> bytes:
    """A value as bytes; by cloudpickle where pickle refuses it and cloudpickle is installed."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):  # others are the value's own, or of a signal's handler
        try:
            import cloudpickle
        except ImportError:
            cloudpickle = None
        if cloudpickle is None:
            raise
        found: bytes = cloudpickle.dumps(value)
        return found
