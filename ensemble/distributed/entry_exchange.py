"""Values of matrix entries that go from rank to rank: the same entries at every set-up."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._compile.kept_memory import empty_like
from ensemble._typing import Array
from ensemble.distributed.messages import device_messages_for, exchanged, exchanged_arrays
from ensemble.distributed.offsets import offsets_of
from ensemble.linalg.reordering import taken_rows

__all__ = ["EntryExchange"]


class EntryExchange:
    """Which entries of this rank every rank gets, and how many it gets of each.

    Parameters
    ----------
    comm : communicator
    places : list of array of int64
        The entries that each rank gets, in their order.
    """

    def __init__(self, comm: Any, places: list[np.ndarray]) -> None:
        self.comm, self.places = comm, places
        sizes = [np.array([each.size], np.int64) for each in places]
        self.starts = offsets_of(np.concatenate(exchanged(comm, sizes)))

    def values(self, values: Array, entries: Any = None) -> Array:
        """The entries that this rank gets of `values`, shape (entries, n_samples), in the order of ranks.

        `entries`, where given, holds for each entry the place of its value; on the host alone.
        """
        comm = self.comm
        places = self.places if entries is None else [entries[each] for each in self.places]
        if comm.size == 1:
            return taken_rows(values, places[0])
        messages = device_messages_for(comm, values)
        if messages is None:
            return np.concatenate(exchanged_arrays(comm, [values[each] for each in places]))
        sent = [taken_rows(values, each) for each in places]
        got = empty_like(values, (int(self.starts[-1]), values.shape[1]))
        into = [got[a:b] for a, b in zip(self.starts[:-1], self.starts[1:], strict=True)]
        into[comm.rank][...] = sent[comm.rank]
        others = [r for r in range(comm.size) if r != comm.rank]
        messages.exchange(
            [(r, sent[r]) for r in others if sent[r].shape[0]], [(r, into[r]) for r in others if into[r].shape[0]]
        )
        return got


def joined(parts: list[Array]) -> Array:
    """Arrays one below the other; the one that has rows, where no other has."""
    filled = [part for part in parts if part.shape[0]]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]
    return array_namespace(filled[0]).concat(filled, axis=0)
