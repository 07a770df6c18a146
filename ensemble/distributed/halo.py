"""Rows of a vector that other ranks own: one message per neighbour and exchange, whatever the number of samples."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from ensemble._backend import asarray_like
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.sparse.packed_rows import pack, packed_rows
from ensemble._kernels.sparse.row_passes import Passes, Travelling
from ensemble._typing import Array
from ensemble.distributed.messages import device_messages_for, exchanged, finish
from ensemble.distributed.offsets import offsets_of

__all__ = ["Halo"]

TAG = 20731


class Halo:
    """Which rows of other ranks a rank reads, and which of its rows others read.

    Parameters
    ----------
    comm : communicator
    offsets : array of int64, shape (size + 1,)
        The first row of each rank.
    ghosts : array of int64, shape (n_ghosts,), ascending
        Numbers of the rows that this rank reads from others.

    Attributes
    ----------
    ghosts : array of int64
    n_local, n_ghosts : int
    receives : list of (rank, first, last)
        Rows ``first:last`` of the ghosts come from `rank`.
    sends : list of (rank, rows)
        Local rows that go to `rank`, int64.
    """

    def __init__(self, comm: Any, offsets: np.ndarray, ghosts: np.ndarray) -> None:
        self.comm, self.ghosts = comm, ghosts
        rank = comm.rank
        self.first = int(offsets[rank])
        self.n_local, self.n_ghosts = int(offsets[rank + 1] - offsets[rank]), ghosts.size
        cuts = np.searchsorted(ghosts, offsets)
        asked = [ghosts[cuts[r] : cuts[r + 1]] for r in range(comm.size)]
        self.receives = [(r, int(cuts[r]), int(cuts[r + 1])) for r in range(comm.size) if cuts[r + 1] > cuts[r]]
        wanted = exchanged(comm, asked)
        self.sends = [(r, rows - self.first) for r, rows in enumerate(wanted) if rows.size]
        self._buffers: dict[Any, Any] = {}
        self._packed: dict[Any, tuple[Array, Array]] = {}

    def numbers(self, columns: np.ndarray) -> np.ndarray:
        """Places of rows, by their numbers, among the rows of this rank and behind them its ghosts."""
        places = columns - self.first
        if self.n_ghosts:
            outside = (places < 0) | (places >= self.n_local)
            places[outside] = self.n_local + np.searchsorted(self.ghosts, columns[outside])
        return places

    def start(self, whole: Array) -> list[Any]:
        """Begin an exchange: `whole` has this rank's rows and, behind them, space for the ghosts; returns requests."""
        if not self.receives and not self.sends:
            return []
        tail = whole[self.n_local :]
        requests = [self.comm.Irecv(tail[a:b], source=r, tag=TAG) for r, a, b in self.receives]
        runs, rows, buffer, parts = self._sending(whole)
        requests += [self.comm.Isend(whole[a:b], dest=r, tag=TAG) for r, a, b in runs]
        if parts:
            pack(whole, rows, buffer)
            requests += [self.comm.Isend(part, dest=r, tag=TAG) for r, part in parts]
        return requests

    def arriving(self, whole: Array, passes: Passes | None) -> AbstractContextManager[Array]:
        """A context in which one kernel on the CPU reads `whole`: by `passes`, rows that need no ghost come first.

        Without `passes`, and on a device, the ghosts are there when it begins.
        """
        if passes is None or device_messages_for(self.comm, whole) is not None:
            return nullcontext(self.exchange(whole))
        requests = self.start(whole)
        return Travelling(whole, passes, partial(finish, *requests))

    def exchange(self, whole: Array) -> Array:
        """Fill the ghost rows of `whole` from their owners; returns `whole`.

        On a device it is queued on the current stream.
        """
        messages = device_messages_for(self.comm, whole)
        if messages is not None:
            self._between_devices(whole, messages)
            return whole
        requests = self.start(whole)
        if requests:
            finish(*requests)
        return whole

    def _sending(self, whole: Array) -> tuple[list[tuple[int, int, int]], np.ndarray, np.ndarray, list[Any]]:
        """Runs of rows that are sent where they lie, and rows that are packed first: all at once, then by neighbour.

        A vector does not change while its rows travel: kernels write others.
        """
        key = whole.shape[1:], whole.dtype
        if key not in self._buffers:
            runs = [(r, int(rows[0]), int(rows[-1]) + 1) for r, rows in self.sends if is_run(rows)]
            packed = [(r, rows) for r, rows in self.sends if not is_run(rows)]
            starts = offsets_of([rows.size for _, rows in packed])
            buffer = empty_like(whole, (int(starts[-1]), *whole.shape[1:]))
            parts = [(r, buffer[a:b]) for (r, _), a, b in zip(packed, starts[:-1], starts[1:], strict=True)]
            rows = np.concatenate([np.zeros(0, np.int64), *(rows for _, rows in packed)])
            self._buffers[key] = runs, rows, buffer, parts
        found: tuple[list[tuple[int, int, int]], np.ndarray, np.ndarray, list[Any]] = self._buffers[key]
        return found

    # --- on devices
    def _between_devices(self, whole: Array, messages: Any) -> None:
        """The same by one kernel that packs all rows that others read, and one message to and from each neighbour."""
        if not self.receives and not self.sends:
            return
        tail = whole[self.n_local :]
        rows, buffer = self._packing(whole)
        sends, first = [], 0
        if self.sends:
            packed_rows(whole, rows, buffer)
        for rank, each in self.sends:
            sends.append((rank, buffer[first : first + each.size]))
            first += each.size
        messages.exchange(sends, [(rank, tail[a:b]) for rank, a, b in self.receives])

    def _packing(self, whole: Array) -> tuple[Array, Array]:
        """The rows that others read, neighbour by neighbour, and memory for them, on the device of `whole`."""
        key = type(whole), whole.shape[1:], whole.dtype
        if key not in self._packed:
            rows = np.concatenate([np.zeros(0, np.int64), *(rows for _, rows in self.sends)])
            rows = rows.astype(np.int32 if self.n_local < 2**31 else np.int64)
            self._packed[key] = asarray_like(rows, whole), empty_like(whole, (rows.size, *whole.shape[1:]))
        return self._packed[key]


def is_run(rows: np.ndarray) -> bool:
    """Whether ascending rows are consecutive."""
    return int(rows[-1]) - int(rows[0]) + 1 == rows.size
