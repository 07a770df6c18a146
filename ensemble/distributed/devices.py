"""Ranks on GPUs: which device a rank has, and how arrays in the memory of devices are reduced and exchanged."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble._compile import device_messages
from ensemble._typing import Array
from ensemble.distributed.agreement import agreement, require_communicator
from ensemble.distributed.messages import all_largest, all_sum, finish, gathered

__all__ = ["DeviceCommunicator", "HostMessages", "devices"]

TAG = 20732


def devices(comm: Any) -> DeviceCommunicator:
    """Return a communicator for arrays in the memory of GPUs, and bind each rank to a GPU of its host.

    A rank gets the GPU whose number is that of the rank on its host, modulo the GPUs that it sees; where a launcher
    shows each rank one GPU (CUDA_VISIBLE_DEVICES), that one. It is the current device of the calling thread from then
    on: make arrays after this call.

    Arrays of CuPy are reduced and exchanged by NCCL on the current stream, without a copy on the host. Where a rank has
    no NCCL, or two ranks share a GPU, all ranks use MPI through pinned memory of the host instead. Which of the two is
    decided once, the same on all ranks: `messages`. Results have the same bits.

    Parameters
    ----------
    comm : communicator of mpi4py, or `serial()`
        All its ranks call this together.

    Returns
    -------
    DeviceCommunicator
        It has the methods and attributes of `comm`, too, and takes its place: ``Partition(n, devices(comm))``.

    Raises
    ------
    RuntimeError
        On every rank, where a rank has no CuPy or no GPU.

    Examples
    --------
    >>> from mpi4py import MPI  # doctest: +SKIP
    >>> comm = devices(MPI.COMM_WORLD)  # doctest: +SKIP
    >>> comm  # doctest: +SKIP
    DeviceCommunicator(rank 0 of 2, device 0 of node17, messages by nccl)
    """
    require_communicator(comm, "devices")
    with agreement(comm):
        count = device_messages.n_devices()
    host = socket.gethostname()
    hosts = comm.allgather(host)
    number = hosts[: comm.rank].count(host) % count
    with agreement(comm):
        device_messages.bind_device(number)
        own = host, device_messages.device_identity(number), device_messages.nccl_version()
    told = comm.allgather(own)
    shared = len({place[:2] for place in told}) < len(told)
    identity = None
    if not shared and all(version for *_, version in told):
        with agreement(comm):
            identity = device_messages.Nccl.identity() if comm.rank == 0 else ()
        identity = comm.bcast(identity)
    messages: Any
    if identity is None:
        messages = HostMessages(comm.Dup(), device_messages.PinnedCopies())
    else:
        with agreement(comm):
            messages = device_messages.Nccl(comm.size, comm.rank, identity)
    return DeviceCommunicator(comm, messages, f"device {number} of {host}")


class DeviceCommunicator:
    """A communicator of MPI that also reduces and exchanges arrays in the memory of devices; made by `devices`.

    Attributes
    ----------
    comm : communicator
        That of MPI, whose methods this one has.
    device_messages : Nccl or HostMessages
        What device arrays go by.
    messages : {"nccl", "host"}
        Its name.
    rank, size : int
    """

    def __init__(self, comm: Any, device_messages: Any, place: str) -> None:
        self.comm, self.device_messages, self.place = comm, device_messages, place
        self.rank, self.size = comm.rank, comm.size

    @property
    def messages(self) -> str:
        """ "nccl", or "host" for MPI through memory of the host."""
        return str(self.device_messages.kind)

    def __repr__(self) -> str:
        return f"DeviceCommunicator(rank {self.rank} of {self.size}, {self.place}, messages by {self.messages})"

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "comm"), name)

    def Dup(self, info: Any = None) -> DeviceCommunicator:
        """Another communicator of the same ranks; device arrays go the same way."""
        return DeviceCommunicator(self.comm.Dup(), self.device_messages, self.place)


class HostMessages:
    """Device arrays by MPI, through pinned memory of the host.

    Parameters
    ----------
    comm : communicator
        Used for these messages alone.
    copies : PinnedCopies
    """

    kind = "host"
    can_be_recorded = False

    def __init__(self, comm: Any, copies: Any) -> None:
        self.comm, self.copies = comm, copies

    def has(self, array: Array) -> bool:
        """Whether `array` goes by these messages."""
        return bool(self.copies.has(array))

    def all_reduce(self, array: Array, largest: bool = False) -> Array:
        """Replace each entry by the sum, or the largest, of all ranks; returns `array`."""
        buffer = self.copies.buffer("reduced", array)
        self.copies.fetch(array, buffer)
        self.copies.wait()
        (all_largest if largest else all_sum)(self.comm, buffer)
        self.copies.put(buffer, array)
        return array

    def exchange(self, sends: Sequence[tuple[int, Array]], receives: Sequence[tuple[int, Array]]) -> None:
        """Send and receive contiguous arrays, all at once."""
        sent = [(rank, self.copies.buffer(("sent", rank), array), array) for rank, array in sends]
        received = [(rank, self.copies.buffer(("received", rank), array), array) for rank, array in receives]
        for _, buffer, array in sent:
            self.copies.fetch(array, buffer)
        self.copies.wait()  # also for what the buffers of the last exchange still have to put
        requests = [self.comm.Irecv(buffer, source=rank, tag=TAG) for rank, buffer, _ in received]
        requests += [self.comm.Isend(buffer, dest=rank, tag=TAG) for rank, buffer, _ in sent]
        if requests:
            finish(*requests)
        for _, buffer, array in received:
            self.copies.put(buffer, array)

    def all_gather(self, whole: Array, offsets: np.ndarray) -> Array:
        """Fill `whole`, of which rank r has written rows ``offsets[r]`` to ``offsets[r + 1]``, on all ranks."""
        first, last = (int(row) for row in offsets[self.comm.rank : self.comm.rank + 2])
        part = self.copies.buffer("part", whole[first:last])
        self.copies.fetch(whole[first:last], part)
        self.copies.wait()
        self.copies.put(gathered(self.comm, part, offsets), whole)
        self.copies.wait()  # the memory that was gathered is not kept
        return whole
