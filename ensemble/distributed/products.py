"""Products of matrices over ranks, and matrices that move to other ranks: graphs once, values at every set-up."""

from __future__ import annotations

import numpy as np

from ensemble._kernels.multigrid.galerkin import product_values
from ensemble._kernels.sparse.product_graphs import product_graph
from ensemble._typing import Array
from ensemble.distributed.layout import RowLayout
from ensemble.distributed.offsets import places_in
from ensemble.distributed.rank_matrix import RankMatrix
from ensemble.distributed.row_fetch import RowFetch

__all__ = ["RankProduct", "Resettlement"]


class RankProduct:
    """The product of two matrices over ranks: each row is summed over ascending columns of the first.

    Parameters
    ----------
    X : RankMatrix
        Its halo names the rows of `Y` that this rank gets from others.
    Y : RankMatrix
        On the rows that are columns of `X`.
    pattern : RankMatrix, optional
        Has the places of `Y` and more, by which the graph of the product is made.

    Attributes
    ----------
    indptr, numbers : arrays
        The graph of the product: each entry has the number of its column.
    """

    def __init__(self, X: RankMatrix, Y: RankMatrix, pattern: RankMatrix | None = None) -> None:
        self._graph_x, self._ghosts = (X.indptr, X.indices), X.halo.ghosts
        self._fetch, indptr, numbers = self._rows(Y)
        _, wide, places = (None, indptr, numbers) if pattern is None else self._rows(pattern)
        columns = np.unique(places)
        self._graph_y = indptr, places_in(columns, numbers)
        pattern_y = wide, places_in(columns, places)
        self._graph = product_graph(*self._graph_x, *pattern_y, columns.size)
        self.indptr, self.numbers = self._graph[0], columns[self._graph[1]]

    def _rows(self, Y: RankMatrix) -> tuple[RowFetch, np.ndarray, np.ndarray]:
        """The graph of the rows of `Y` that are columns of the first matrix: those of this rank, then the ghosts."""
        fetch = RowFetch(Y.rows, Y.indptr, Y.numbers, self._ghosts)
        indptr = np.concatenate([Y.indptr, Y.indptr[-1] + fetch.indptr[1:]]).astype(Y.indptr.dtype)
        return fetch, indptr, np.concatenate([Y.numbers, fetch.numbers])

    def values(self, x: Array, y: Array) -> Array:
        """The values of the product of the matrices with the values `x` and `y`, shape (entries, n_samples)."""
        y = np.concatenate([y, self._fetch.values(y)])
        return product_values(self._graph_x, x, self._graph_y, y, self._graph, None)


class Resettlement:
    """The rows of a matrix at the ranks that own them in another layout of the same rows.

    Parameters
    ----------
    old, new : RowLayout
    columns : RowLayout
    indptr, numbers : arrays
        The graph of this rank's rows by `old`.
    """

    def __init__(
        self, old: RowLayout, new: RowLayout, columns: RowLayout, indptr: np.ndarray, numbers: np.ndarray
    ) -> None:
        self._fetch = None
        if not np.array_equal(old.offsets, new.offsets):
            wanted = np.arange(new.first, new.first + new.n_local)
            self._fetch = RowFetch(old, indptr, numbers, wanted)
            indptr, numbers = self._fetch.indptr.astype(indptr.dtype), self._fetch.numbers
        self._new, self._columns, self._indptr, self._numbers = new, columns, indptr, numbers
        self._made: RankMatrix | None = None

    def matrix(self, values: Array) -> RankMatrix:
        """The matrix of the `values` of this rank's old rows."""
        if self._fetch is not None:
            values = self._fetch.values(values)
        if self._made is None:
            self._made = RankMatrix(self._new, self._columns, self._indptr, self._numbers, values)
            return self._made
        made: RankMatrix = self._made.with_values(values)
        return made
