"""Streams of a device, copies from pinned memory, and runs of launches that are recorded once and replayed."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ensemble._compile.device import is_on_device, uses_of_launches
from ensemble._typing import Array

__all__ = [
    "CopyStream",
    "CudaGraph",
    "copy_between_devices",
    "on_device_of",
    "own_stream",
    "stream_number",
    "to_cuda_device",
    "to_device_of",
]


def stream_number(array: Array) -> int:
    """The identity of the current stream of the device of `array`; 0 off devices."""
    if not is_on_device(array):
        return 0
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)


@contextmanager
def on_device_of(array: Array) -> Iterator[None]:
    """Launches and allocations go to the device of `array`."""
    if not is_on_device(array):
        yield
        return
    with array.device:
        yield


def copy_between_devices(array: Array, out: Array) -> None:
    """Copy `array` into `out`, which may lie on another device, in order with the current streams of both.

    The stream of `array` waits for the copy, so that its memory may be reused.
    """
    if not is_on_device(array):
        out[...] = array
        return
    with array.device:
        import cupy

        ready = cupy.cuda.get_current_stream().record()
    with out.device:
        stream = cupy.cuda.get_current_stream()
        stream.wait_event(ready)
        out.data.copy_from_device_async(array.data, array.nbytes, stream)
        copied = stream.record()
    with array.device:
        cupy.cuda.get_current_stream().wait_event(copied)


def to_cuda_device(array: Array, device: int) -> Array:
    """`array`, of NumPy or CuPy, on the CUDA device of that number, in one piece; itself where it is so already."""
    import cupy

    with cupy.cuda.Device(device):
        if isinstance(array, np.ndarray):
            return cupy.asarray(array)
        if array.device.id == device:
            return cupy.ascontiguousarray(array)
        out = cupy.empty(array.shape, array.dtype)
        with array.device:
            array = cupy.ascontiguousarray(array)
        copy_between_devices(array, out)
        return out


def to_device_of(array: Array, like: Array) -> Array:
    """`array` on the device of `like`, where both are CuPy's; else itself."""
    return to_cuda_device(array, like.device.id) if is_on_device(array) else array


class CopyStream:
    """A stream of the current CUDA device for copies from the host, beside the stream of the kernels.

    Copies from pinned memory are queued, and `copy` returns at once; an event marks the end of each.
    """

    def __init__(self) -> None:
        import cupy

        self._device = cupy.cuda.Device()
        self._stream = cupy.cuda.Stream(non_blocking=True)

    def activate(self) -> None:
        """Let the calling thread use the device of the stream."""
        self._device.use()

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised array in pinned memory of the host."""
        import cupy

        dtype, count = np.dtype(dtype), math.prod(shape)
        memory = cupy.cuda.alloc_pinned_memory(max(1, count * dtype.itemsize))
        made: np.ndarray = np.frombuffer(memory, dtype, count).reshape(shape)
        return made

    def is_pinned(self, array: np.ndarray) -> bool:
        """Whether the contiguous `array` lies in pinned memory."""
        import cupy

        runtime, first = cupy.cuda.runtime, array.ctypes.data
        host = runtime.memoryTypeHost
        return all(runtime.pointerGetAttributes(at).type == host for at in (first, first + max(1, array.nbytes) - 1))

    def destination(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An uninitialised array on the device; copies queued from now on wait for the work queued before this call.

        The memory belongs to the current stream, whose queued kernels may still read what it held before.
        """
        import cupy

        with self._device:
            made = cupy.ndarray(shape, dtype)
            self._stream.wait_event(cupy.cuda.get_current_stream().record())
        return made

    def event(self) -> Any:
        """What `copy` marks the end of a copy with; `synchronize` waits for it."""
        import cupy

        return cupy.cuda.Event(disable_timing=True)

    def copy(self, pinned: np.ndarray, out: Array, start: int, event: Any) -> None:
        """Queue a copy of `pinned` to byte `start` of `out`, and `event` after it."""
        import cupy

        runtime, target = cupy.cuda.runtime, out.data.ptr + start
        runtime.memcpyAsync(target, pinned.ctypes.data, pinned.nbytes, runtime.memcpyHostToDevice, self._stream.ptr)
        event.record(self._stream)


class CudaGraph:
    """Launches: queued directly the first time, captured as a CUDA graph the second, replayed from then on.

    `launches` must queue kernels, on memory that stays where it is, and do nothing else. Queued or replayed, the same
    kernels run in the same order on the same memory, so the bits are the same. A graph keeps the arrays that its
    kernels were given.

    NCCL waits for the end of all graphs with messages of a communicator before it ends that: a communicator ends them.
    """

    def __init__(self, launches: Callable[[], None], record: bool = True) -> None:
        self._launches: Callable[[], None] | None = launches
        self._times, self._record = 0, record
        self._graph: list[Any] = []  # of one graph at most; communicators share the list
        self._pool: Any = None
        self._uses: list[Any] = []

    def release_launches(self) -> bool:
        """Whether there is a graph to replay; what it was recorded from is let go then."""
        if self._graph:
            self._launches = None
        return bool(self._graph)

    def __del__(self) -> None:
        self._graph.clear()

    def __call__(self) -> None:
        if self._graph:
            self._graph[0].launch()
            return
        assert self._launches is not None
        if not self._record:
            self._launches()
            return
        import cupy

        self._pool = self._pool or cupy.cuda.MemoryPool()
        # Allocations during the capture come from a private memory pool.
        with cupy.cuda.using_allocator(self._pool.malloc):
            self._times += 1
            if self._times == 1:
                self._launches()  # compiles and allocates what is not there yet
                return
            stream = cupy.cuda.get_current_stream()
            stream.begin_capture()
            try:
                with uses_of_launches() as self._uses:
                    self._launches()
            finally:
                graph = stream.end_capture()
            self._graph.append(graph)
            for used in self._uses:
                getattr(used, "share_graph", bool)(self._graph)
        self._graph[0].launch()


_streams = threading.local()


@contextmanager
def own_stream(array: Array) -> Iterator[bool]:
    """A stream on which launches can be recorded, in order with the caller's; returns whether there is one."""
    if not is_on_device(array):
        yield False
        return
    import cupy

    outer = cupy.cuda.get_current_stream()
    if outer.ptr not in (0, 1, 2):  # the caller's own stream is as good
        yield True
        return
    streams = _streams.__dict__.setdefault("by_device", {})
    stream = streams.setdefault(cupy.cuda.Device().id, None) or cupy.cuda.Stream(non_blocking=True)
    streams[cupy.cuda.Device().id] = stream
    stream.wait_event(outer.record())
    with stream:
        yield True
    outer.wait_event(stream.record())
