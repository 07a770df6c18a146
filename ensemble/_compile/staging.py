"""Copies of host arrays to a device beside its kernels: threads fill pinned buffers, a stream empties them.

Memory that a device can read by itself has to be pinned. An array in pageable memory is divided into pieces. Each
thread has two pinned buffers in turn: while the device reads one, the thread copies the next piece into the other.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from ensemble._typing import Array

__all__ = ["HostStream", "StagedCopies", "StagedCopy"]

LARGEST_PIECE, SMALLEST_PIECE = 4 << 20, 1 << 20
"""Bytes of a piece: the copies of one must take longer than starting them (`benchmarks transfers-device`)."""

THREAD_BYTES = 4 << 20
"""Bytes for which a further thread is worth its start and the waiting for Python's lock.

Measured again by `benchmarks transfers-device`.
"""


class HostStream:
    """What `CopyStream` does for a device, where the destination is memory of the host."""

    def activate(self) -> None:
        """There is nothing to select."""

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised array."""
        return np.empty(shape, dtype)

    def is_pinned(self, array: np.ndarray) -> bool:
        """Every array can be read without a buffer."""
        return True

    def destination(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised array."""
        return np.empty(shape, dtype)

    def event(self) -> Any:
        """The end of copies that are made at once."""
        return _Done()

    def copy(self, pinned: np.ndarray, out: np.ndarray, start: int, event: Any) -> None:
        """Copy at once."""
        out.reshape(-1).view(np.uint8)[start : start + pinned.nbytes] = pinned.reshape(-1).view(np.uint8)


class _Done:
    """The event of a copy that was made at once."""

    def synchronize(self) -> None:
        """It is done."""


class StagedCopy:
    """A copy on its way: `wait` ends when all of it is there."""

    def __init__(self, out: Array, parts: list[Future[None]]) -> None:
        self._out, self._parts = out, parts

    def done(self) -> bool:
        """Tell whether the copy has ended, so that `wait` would return at once."""
        return all(part.done() for part in self._parts)

    def wait(self) -> Array:
        """The array on the device, once its values are there; from then on the source may be changed."""
        wait(self._parts)
        for part in self._parts:
            part.result()
        return self._out


class StagedCopies:
    """Threads that copy arrays through pinned buffers of their own, in the order in which `start` was called.

    Parameters
    ----------
    stream : CopyStream or HostStream
    threads : int
    """

    def __init__(self, stream: Any, threads: int) -> None:
        self.stream, self.threads = stream, threads
        self._local = threading.local()
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0

    def start(self, source: np.ndarray) -> StagedCopy:
        """Begin to copy the contiguous `source`, which must not be changed before the copy's `wait` returns."""
        out = self.stream.destination(source.shape, source.dtype)
        submit, octets = self._executor().submit, source.reshape(-1).view(np.uint8)
        if self.stream.is_pinned(source):
            return StagedCopy(out, [submit(self._direct, octets, out)])
        threads, size = _division(octets.size, self.threads)
        starts = range(0, octets.size, size)
        parts = [submit(self._staged, octets, out, starts[t::threads], size) for t in range(threads)]
        return StagedCopy(out, parts)

    def _executor(self) -> ThreadPoolExecutor:
        """The threads; a forked process, which has none of them, makes its own."""
        if self._pool is None or self._process != os.getpid():
            self._local, self._process = threading.local(), os.getpid()
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="ensemble-copies")
        return self._pool

    def _direct(self, octets: np.ndarray, out: Array) -> None:
        self.stream.activate()
        event = self.stream.event()
        self.stream.copy(octets, out, 0, event)
        event.synchronize()

    def _staged(self, octets: np.ndarray, out: Array, starts: range, size: int) -> None:
        """Copy the pieces that begin at `starts`."""
        self.stream.activate()
        local = self._local.__dict__
        if "buffers" not in local:
            local["buffers"] = [(self.stream.pinned((LARGEST_PIECE,), np.uint8), self.stream.event()) for _ in range(2)]
        try:
            for n, start in enumerate(starts):
                (buffer, event), piece = local["buffers"][n % 2], octets[start : start + size]
                event.synchronize()  # the device has read what the buffer held
                np.copyto(buffer[: piece.size], piece)
                self.stream.copy(buffer[: piece.size], out, start, event)
        finally:
            for _, event in local["buffers"]:
                event.synchronize()


def _division(n_bytes: int, threads: int) -> tuple[int, int]:
    """Threads that copy `n_bytes`, and the bytes of a piece: some for each thread, whole pages."""
    used = max(1, min(threads, n_bytes // THREAD_BYTES))
    pages = -(-n_bytes // (4 * used * 4096))
    return used, min(LARGEST_PIECE, max(SMALLEST_PIECE, 4096 * pages))
