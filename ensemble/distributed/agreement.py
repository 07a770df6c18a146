"""Errors that all ranks raise alike: a rank that raised alone would leave the others waiting in a message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ensemble._check import kind_of, message, require
from ensemble.distributed.messages import meet

__all__ = ["agreement", "require_communicator", "require_same"]


@contextmanager
def agreement(comm: Any) -> Iterator[None]:
    """Raise on every rank what the block raised on one of them, that of the lowest rank where several did.

    The block must exchange no messages. Its end is one message to all ranks.

    Raises
    ------
    Exception
        Of the type and the text that it had on the rank where it was raised; a note names that rank.
    """
    own: Exception | None = None
    try:
        yield
    except Exception as error:
        own = error
    meet(comm)
    raised = comm.allgather(None if own is None else (type(own), str(own)))
    rank = next((rank for rank, found in enumerate(raised) if found is not None), None)
    if rank is None:
        return
    kind, text = raised[rank]
    error = own if own is not None and rank == comm.rank else _made(kind, text)
    if comm.size > 1:
        error.add_note(f"Raised on rank {rank} of {comm.size}.")
    raise error


def _made(kind: type[Exception], text: str) -> Exception:
    """An exception of that type and text; RuntimeError where the type takes other arguments."""
    try:
        error = kind(text)
    except Exception:
        error = None  # type: ignore[assignment]
    return error if error is not None and str(error) == text else RuntimeError(f"{kind.__name__}: {text}")


def require_communicator(comm: Any, function: str) -> None:
    """Raise TypeError unless `comm` is a communicator of mpi4py or `serial()`."""
    if not all(hasattr(comm, name) for name in ("rank", "size", "allgather", "bcast", "Bcast")):
        requirement = "be a communicator of mpi4py or distributed.serial()"
        raise TypeError(message(function, "comm", requirement, kind_of(comm)))


def require_same(values: list[Any], function: str, argument: str) -> None:
    """Raise ValueError unless `values`, one of each rank and known to all, are equal."""
    other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
    if other is not None:
        seen = f"{values[0]!r} on rank 0, {values[other]!r} on rank {other}"
        require(False, function, argument, "be the same on every rank", seen)
