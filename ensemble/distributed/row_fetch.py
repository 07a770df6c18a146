"""Rows of a distributed matrix that another rank owns: their graph once, their values at every set-up."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ensemble._typing import Array
from ensemble.distributed.entry_exchange import EntryExchange
from ensemble.distributed.layout import RowLayout
from ensemble.distributed.messages import exchanged
from ensemble.distributed.offsets import offsets_of

__all__ = ["RowFetch"]


class RowFetch:
    """Copies of matrix rows, by their numbers, from the ranks that own them.

    Parameters
    ----------
    layout : RowLayout
        Layout of the rows of the matrix.
    indptr, numbers : arrays
        The graph of this rank's rows: each entry has the number of its column.
    wanted : array of int64, ascending
        Rows that this rank asks for.

    Attributes
    ----------
    indptr, numbers : arrays of int64
        The graph of the rows that were asked for, in their order.
    """

    def __init__(self, layout: RowLayout, indptr: np.ndarray, numbers: np.ndarray, wanted: np.ndarray) -> None:
        comm = layout.comm
        cuts = np.searchsorted(wanted, layout.offsets)
        asked = exchanged(comm, [wanted[a:b] for a, b in itertools.pairwise(cuts)])
        starts = indptr.astype(np.int64)
        places, lengths = [], []
        for rows in asked:
            rows = rows - layout.first
            length = starts[rows + 1] - starts[rows]
            ends = np.cumsum(length)
            within = np.arange(int(ends[-1]) if ends.size else 0) - np.repeat(ends - length, length)
            places.append(np.repeat(starts[rows], length) + within)
            lengths.append(length)
        got = np.concatenate(exchanged(comm, lengths))
        self.indptr = offsets_of(got)
        self.numbers = np.concatenate(exchanged(comm, [numbers[entries] for entries in places]))
        self._entries = EntryExchange(comm, places)

    def values(self, values: Array, entries: Any = None) -> Array:
        """The values of those rows, shape (entries, n_samples), of the matrix whose own rows have `values`.

        `entries`, where given, holds for each entry of those rows the place of its value.
        """
        return self._entries.values(values, entries)
