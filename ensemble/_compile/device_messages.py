"""Messages between CUDA devices of several processes: NCCL, or pinned memory of the host for MPI to send.

Everything is queued on CuPy's current stream; what reads memory of the host waits for it.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble._compile.device import is_on_device, note_uses
from ensemble._typing import Array

__all__ = ["Nccl", "PinnedCopies", "bind_device", "device_identity", "n_devices", "nccl_version"]

Message = tuple[int, Array]
"""A process and the array that goes to it, or comes from it."""


def n_devices() -> int:
    """How many CUDA devices this process sees; RuntimeError where CuPy is not installed or finds none."""
    from ensemble._backend import prototype

    prototype("cupy")
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


def bind_device(number: int) -> None:
    """Let the calling thread use the device of that number."""
    import cupy

    cupy.cuda.Device(number).use()


def device_identity(number: int) -> str:
    """A text that names the device among all of this machine, whatever its number is in this process."""
    import cupy

    return str(cupy.cuda.runtime.deviceGetPCIBusId(number))


def nccl_version() -> int:
    """The version of NCCL as a number, 22803 for 2.28.3; 0 where CuPy has none."""
    try:
        from cupy.cuda import nccl

        return int(nccl.get_version()) if nccl.available else 0
    except Exception:  # the library may be absent, or not fit the driver
        return 0


class Nccl:
    """Reductions and exchanges by NCCL, for one device of each process.

    NVLink multicast is switched off, unless NCCL_NVLS_ENABLE says otherwise: a process that ends within it can leave
    the devices of a machine unusable, and messages of this library are too short to gain from it.

    Parameters
    ----------
    size, rank : int
        How many processes there are, and the number of this one.
    identity : bytes, or a tuple in older releases of CuPy
        What `Nccl.identity` has returned on process 0.
    """

    kind = "nccl"
    can_be_recorded = True

    def __init__(self, size: int, rank: int, identity: Any) -> None:
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        import cupy
        from cupy.cuda import nccl

        self.rank = rank
        self._nccl, self._stream = nccl, cupy.cuda.get_current_stream
        self._comm = nccl.NcclCommunicator(size, identity, rank)
        names = {"f8": "FLOAT64", "f4": "FLOAT32", "i8": "INT64", "i4": "INT32", "u1": "UINT8"}
        self._types = {np.dtype(code): getattr(nccl, f"NCCL_{name}") for code, name in names.items()}
        self._graphs: list[list[Any]] = []

    def share_graph(self, graph: list[Any]) -> None:
        """Take note of a recorded graph with messages: a list that is empty once the graph has ended."""
        self._graphs = [each for each in self._graphs if each and each is not graph]
        self._graphs.append(graph)

    def __del__(self) -> None:
        for graph in getattr(self, "_graphs", ()):
            graph.clear()  # NCCL waits for their end when the communicator ends

    @staticmethod
    def identity() -> Any:
        """What all processes of a new group must have; made by one of them."""
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        from cupy.cuda import nccl

        return nccl.get_unique_id()

    def has(self, array: Array) -> bool:
        """Whether `array` is in the memory of a device."""
        return is_on_device(array)

    def all_reduce(self, array: Array, largest: bool = False) -> Array:
        """Replace each entry by the sum, or the largest, of all processes; returns `array`."""
        operation = self._nccl.NCCL_MAX if largest else self._nccl.NCCL_SUM
        place = array.data.ptr
        note_uses(self, array)
        self._comm.allReduce(place, place, array.size, self._types[array.dtype], operation, self._stream().ptr)
        return array

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Send and receive contiguous arrays, all at once."""
        stream = self._stream().ptr
        note_uses(self, *(array for _, array in (*sends, *receives)))
        self._nccl.groupStart()
        try:
            for process, array in receives:
                self._comm.recv(array.data.ptr, array.size, self._types[array.dtype], process, stream)
            for process, array in sends:
                self._comm.send(array.data.ptr, array.size, self._types[array.dtype], process, stream)
        finally:
            self._nccl.groupEnd()

    def all_gather(self, whole: Array, offsets: np.ndarray) -> Array:
        """Fill `whole`, of which process r has written rows ``offsets[r]`` to ``offsets[r + 1]``, in all processes."""
        width, stream = math.prod(whole.shape[1:]), self._stream().ptr
        note_uses(self, whole)
        self._nccl.groupStart()
        try:
            for process, (first, last) in enumerate(itertools.pairwise(offsets)):
                if last > first:
                    place = whole.data.ptr + int(first) * width * whole.dtype.itemsize
                    count = int(last - first) * width
                    self._comm.broadcast(place, place, count, self._types[whole.dtype], process, stream)
        finally:
            self._nccl.groupEnd()
        return whole


class PinnedCopies:
    """Arrays of a device in pinned memory of the host, and back: buffers are kept, one of each name and size."""

    def __init__(self) -> None:
        self._buffers: dict[Any, np.ndarray] = {}

    def has(self, array: Array) -> bool:
        """Whether `array` is in the memory of a device."""
        return is_on_device(array)

    def buffer(self, name: Any, like: Array) -> np.ndarray:
        """Pinned memory for an array of the shape and type of `like`."""
        import cupy

        key = name, like.shape, like.dtype
        if key not in self._buffers:
            memory = cupy.cuda.alloc_pinned_memory(max(1, like.nbytes))
            self._buffers[key] = np.frombuffer(memory, like.dtype, like.size).reshape(like.shape)
        return self._buffers[key]

    def fetch(self, array: Array, buffer: np.ndarray) -> None:
        """Queue a copy of the contiguous `array` into a buffer; it is there after `wait`."""
        import cupy

        runtime, stream = cupy.cuda.runtime, cupy.cuda.get_current_stream()
        if array.size:
            runtime.memcpyAsync(
                buffer.ctypes.data, array.data.ptr, array.nbytes, runtime.memcpyDeviceToHost, stream.ptr
            )

    def put(self, buffer: np.ndarray, array: Array) -> None:
        """Queue a copy of a buffer into the contiguous `array`; the buffer may be changed after `wait`."""
        import cupy

        runtime, stream = cupy.cuda.runtime, cupy.cuda.get_current_stream()
        if array.size:
            runtime.memcpyAsync(
                array.data.ptr, buffer.ctypes.data, array.nbytes, runtime.memcpyHostToDevice, stream.ptr
            )

    def wait(self) -> None:
        """Wait for the current stream."""
        import cupy

        cupy.cuda.get_current_stream().synchronize()
