"""Errors that all ranks raise alike: a rank that raised alone would leave the others waiting in a message."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ensemble._check import kind_of, message, require

__all__ = ["agreement", "require_communicator", "require_same"]


@contextmanager
def agreement(comm: Any) -> Iterator[None]:
    """Raise on every rank what the block raised on one of them, that of the lowest rank where several did.

    The block must exchange no messages. Its end is one message to all ranks.

    Raises
    ------
    Exception
        Of the type and the text that it had on the rank where it was raised, RuntimeError where that cannot be made
        from its arguments on another one; a note names the rank.
    """
    own: Exception | None = None
    try:
        yield
    except Exception as error:
        own = error
    raised = comm.allgather(None if own is None else _packed(own))
    rank = next((rank for rank, found in enumerate(raised) if found is not None), None)
    if rank is None:
        return
    shown = own if own is not None and rank == comm.rank else _unpacked(*raised[rank])
    if comm.size > 1:
        shown.add_note(f"Raised on rank {rank} of {comm.size}.")
    raise shown


def _packed(error: Exception) -> tuple[bytes, str, str]:
    """An exception as bytes, none where it cannot be pickled, with the name of its type and its text."""
    try:
        packed = pickle.dumps((type(error), error.args))
    except Exception:  # of a class that stands in a function, or with an argument that cannot be pickled
        packed = b""
    return packed, type(error).__name__, str(error)


def _unpacked(packed: bytes, name: str, text: str) -> Exception:
    """The exception again, or a RuntimeError with its name and text where it cannot be made from its arguments."""
    try:
        kind, arguments = pickle.loads(packed)
        error = kind(*arguments)
        if str(error) == text:
            return error  # type: ignore[no-any-return]
    except Exception:
        pass
    return RuntimeError(f"{name}: {text}")


def require_communicator(comm: Any, function: str) -> None:
    """Raise TypeError unless `comm` is a communicator of mpi4py or `serial()`."""
    if not all(hasattr(comm, name) for name in ("rank", "size", "allgather", "bcast", "Bcast")):
        requirement = "be a communicator of mpi4py or distributed.serial()"
        raise TypeError(message(function, "comm", requirement, kind_of(comm)))


def require_same(values: list[Any], function: str, argument: str) -> None:
    """Raise ValueError unless `values`, one of each rank and known to all, are equal."""
    other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
    if other is not None:
        seen = f"{values[0]} on rank 0, {values[other]} on rank {other}"
        require(False, function, argument, "be the same on every rank", seen)
