"""The transpose of a matrix over ranks, stored by rows."""

from __future__ import annotations

import numpy as np

from ensemble._kernels.sparse.product_graphs import by_rows, transpose_graph
from ensemble._typing import Array
from ensemble.distributed.entry_exchange import EntryExchange
from ensemble.distributed.layout import RowLayout
from ensemble.distributed.messages import exchanged
from ensemble.linalg.reordering import taken_rows

__all__ = ["TransposePlan"]


class TransposePlan:
    """The graph of the transpose of a distributed matrix, by rows, and where its values come from.

    Parameters
    ----------
    rows, columns : RowLayout
        Layouts of the matrix.
    indptr, numbers : arrays
        The graph of this rank's rows, with numbers of columns.

    Attributes
    ----------
    indptr, numbers : arrays
        The graph of this rank's rows of the transpose: columns ascend.
    whole : (indptr, indices, entries) or None
        On one rank the graph of the transpose, and the entry of the matrix that each of its entries is.
    """

    def __init__(self, rows: RowLayout, columns: RowLayout, indptr: np.ndarray, numbers: np.ndarray) -> None:
        comm = rows.comm
        self._entries: EntryExchange | None = None
        self.whole: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        if comm.size == 1:
            self.whole = transpose_graph(indptr, numbers.astype(np.int32), columns.n)
            self.indptr, new_columns, self._order = self.whole
            self.numbers = new_columns.astype(np.int64)
            return
        row_of_entry = np.repeat(rows.first + np.arange(rows.n_local), np.diff(indptr))
        owner = columns.owner_of(numbers)
        parts = [np.flatnonzero(owner == r) for r in range(comm.size)]
        new_rows = np.concatenate(exchanged(comm, [numbers[k] for k in parts])) - columns.first
        new_columns = np.concatenate(exchanged(comm, [row_of_entry[k] for k in parts]))
        self._entries = EntryExchange(comm, parts)
        self.indptr, self._order = by_rows(new_rows, columns.n_local)  # ranks come in order, and rows of each
        self.numbers = new_columns[self._order]

    def values(self, values: Array) -> Array:
        """The values of the transpose, in its order."""
        return taken_rows(values if self._entries is None else self._entries.values(values), self._order)
