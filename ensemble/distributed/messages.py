"""The calls of MPI that this package makes: reductions, exchanges between all ranks, and non-blocking messages.

`comm` is an mpi4py communicator, `serial()`, or what `devices` makes of one: that reduces and exchanges arrays in the
memory of devices, too. mpi4py is imported where a communicator of several ranks is used, never before.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

import numpy as np

from ensemble._compile.kept_memory import empty_like
from ensemble._typing import Array
from ensemble.distributed.offsets import offsets_of

__all__ = [
    "all_largest", "all_sum", "device_messages_for", "exchanged", "exchanged_arrays", "finish", "from_first",
    "gathered", "meet", "world",
]  # fmt: skip


YIELD = getattr(os, "sched_yield", lambda: time.sleep(0.0))
"""Offers the processor to others; not all systems have the call."""

SPINS = 64
"""Tests of a message before the processor is offered to others: about the time of a short message."""


def finish(*requests: Any) -> None:
    """Wait until all messages have arrived and left, so that Ctrl-C is heard and waiting ranks leave their processor.

    A blocking wait of MPI does neither: where more ranks run than there are processors, ranks that wait would hold up
    those that they wait for.
    """
    test = requests[0].Test if len(requests) == 1 else partial(type(requests[0]).Testall, list(requests))
    for _ in range(SPINS):
        if test():
            return
    while not test():
        YIELD()


def meet(comm: Any) -> None:
    """Wait as `finish` does until all ranks are here: a call of MPI that blocks is short then."""
    if comm.size > 1:
        finish(comm.Ibarrier())


def device_messages_for(comm: Any, array: Array) -> Any:
    """What `array` is reduced and exchanged by if its memory is that of a device; None for memory of the host."""
    messages = getattr(comm, "device_messages", None)
    return messages if messages is not None and messages.has(array) else None


def all_sum(comm: Any, array: Any) -> Any:
    """Add the arrays of all ranks, entry by entry, in place; returns `array`. Of integers the order does not matter."""
    if comm.size > 1:
        messages = device_messages_for(comm, array)
        if messages is not None:
            return messages.all_reduce(array)
        from mpi4py import MPI

        finish(comm.Iallreduce(MPI.IN_PLACE, array, MPI.SUM))
    return array


def all_largest(comm: Any, array: Any) -> Any:
    """Replace each entry by the largest of all ranks, in place; returns `array`."""
    if comm.size > 1:
        messages = device_messages_for(comm, array)
        if messages is not None:
            return messages.all_reduce(array, largest=True)
        from mpi4py import MPI

        finish(comm.Iallreduce(MPI.IN_PLACE, array, MPI.MAX))
    return array


def from_first(comm: Any, value: Any) -> Any:
    """The object that rank 0 has, on every rank."""
    meet(comm)
    return value if comm.size == 1 else comm.bcast(value)


def exchanged(comm: Any, parts: list[np.ndarray]) -> list[np.ndarray]:
    """What every rank has for this one: ``parts[r]`` goes to rank r. Arrays of one type, each of one axis."""
    if comm.size == 1:
        return [parts[0].copy()]
    counts = np.array([part.size for part in parts], np.int64)
    theirs = np.empty_like(counts)
    finish(comm.Ialltoall(counts, theirs))
    flat = np.concatenate(parts) if parts else np.zeros(0)
    received = np.empty(int(theirs.sum()), flat.dtype)
    dtype = _mpi_type(flat.dtype)
    sent, got = [flat, (counts, _starts(counts)), dtype], [received, (theirs, _starts(theirs)), dtype]
    finish(comm.Ialltoallv(sent, got))
    return np.split(received, np.cumsum(theirs)[:-1])


def exchanged_arrays(comm: Any, parts: list[np.ndarray]) -> list[np.ndarray]:
    """As `exchanged`, for arrays of shape (n, n_columns), n_columns the same everywhere."""
    width = parts[0].shape[1]
    return [part.reshape(-1, width) for part in exchanged(comm, [np.ascontiguousarray(p).reshape(-1) for p in parts])]


def gathered(comm: Any, part: Any, offsets: np.ndarray | None = None) -> Any:
    """The rows of all ranks, in the order of ranks, on every rank; `offsets`: the first row of each rank, if known.

    For arrays in the memory of devices they must be given.
    """
    if comm.size == 1:
        return part
    messages = device_messages_for(comm, part)
    if messages is not None:
        assert offsets is not None
        whole = empty_like(part, (int(offsets[-1]), *part.shape[1:]))
        whole[int(offsets[comm.rank]) : int(offsets[comm.rank + 1])] = part
        return messages.all_gather(whole, offsets)
    part = np.ascontiguousarray(part)
    if offsets is None:
        meet(comm)
        offsets = offsets_of(comm.allgather(part.shape[0]))
    whole = np.empty((int(offsets[-1]), *part.shape[1:]), part.dtype)
    counts = np.diff(offsets) * int(np.prod(part.shape[1:]))
    dtype = _mpi_type(part.dtype)
    finish(comm.Iallgatherv([part, part.size, dtype], [whole, (counts, _starts(counts)), dtype]))
    return whole


def _starts(counts: np.ndarray) -> np.ndarray:
    return offsets_of(counts)[:-1]


def _mpi_type(dtype: np.dtype) -> Any:
    from mpi4py.util.dtlib import from_numpy_dtype

    return from_numpy_dtype(dtype)


def world() -> tuple[Any, str]:
    """The communicator of all ranks that a launcher started, and the name of the MPI that mpi4py uses."""
    from mpi4py import MPI

    return MPI.COMM_WORLD, MPI.Get_library_version().split(",")[0]
