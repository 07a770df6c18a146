"""Rows and columns of a matrix: which entries stay is worked out once per graph, their values move together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._check import array_of, message, places_of
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.linear_operator import inherited
from ensemble.scalar import Ensemble

__all__ = ["Selectable", "Selection", "moved_values"]


class Selection(NamedTuple):
    """The graph of chosen rows and columns, and for each of its entries the one that it is of the whole graph."""

    graph: CrsGraph
    entries: np.ndarray


class Selectable:
    """``A[rows]``, ``A[:, columns]`` and `submatrix` for a class with `_stored` or `to_crs`.

    Rows and columns are slices, vectors of integers or of bools. They may repeat and come in any order.
    """

    to_crs: Any

    def _stored(self) -> Any:
        """This matrix as a `CrsMatrix`."""
        return self.to_crs()

    def __getitem__(self, which: Any) -> Any:
        name = f"{type(self).__name__}[...]"
        rows, columns = which if isinstance(which, tuple) and len(which) == 2 else (which, slice(None))
        if isinstance(rows, slice) or isinstance(columns, slice):
            return self.submatrix(rows, columns)
        wanted = "be a slice and a vector, or np.ix_ of two"
        rows, columns = (array_of(places, name, "rows and columns", wanted) for places in (rows, columns))
        if rows.ndim != 2 or columns.ndim != 2 or rows.shape[1] != 1 or columns.shape[0] != 1:
            advice = "A.submatrix(rows, columns) has every pair of them, as A[np.ix_(rows, columns)] has."
            seen = f"shapes {rows.shape} and {columns.shape}"
            raise TypeError(message(name, "rows and columns", wanted, seen, advice))
        return self.submatrix(rows[:, 0], columns[0, :])

    def submatrix(self, rows: Any = None, columns: Any = None) -> Any:
        """The matrix of the rows and columns named, in that order, for every sample.

        What depends on the graph is kept there: the same selection from other values moves values and nothing else.

        Parameters
        ----------
        rows, columns : slice, array of int, or array of bool, optional
            All by default. Integers count from the end where they are negative, and may repeat.

        Returns
        -------
        CrsMatrix, shape (number of rows named, number of columns named)

        Raises
        ------
        IndexError
            If a row or column is out of range, or a vector of bools has another length.
        TypeError
            If `rows` or `columns` is neither a slice nor a vector of integers or bools.

        Examples
        --------
        >>> from ensemble.gallery import poisson
        >>> A = poisson((6,), n_samples=3)
        >>> B = A.submatrix([0, 3], [3, 0, 1])
        >>> B
        CrsMatrix(shape=(2, 3), nnz=3, n_samples=3, float64)
        >>> (B.to_scipy(0).toarray() != 0.0).tolist()
        [[False, True, True], [True, False, False]]
        """
        A, name = self._stored(), f"{type(self).__name__}.submatrix"
        graph: CrsGraph = A.graph
        n_rows, n_columns = graph.shape
        rows, columns = _places(rows, n_rows, name, "rows"), _places(columns, n_columns, name, "columns")
        if rows is None and columns is None:
            return A
        key = ("selection", *(None if places is None else places.tobytes() for places in (rows, columns)))
        chosen: Selection = graph.kept(key, lambda: _selection(graph, rows, columns))
        return inherited(type(A)(chosen.graph, Ensemble(moved_values(A.values, chosen.entries), A.sample_set)), A)


def moved_values(values: Any, entries: np.ndarray) -> Any:
    """The rows of `values` at `entries`."""
    return array_namespace(values).take(values, asarray_like(entries, values), axis=0)


def _places(which: Any, n: int, name: str, argument: str) -> np.ndarray | None:
    """The places from 0 to n - 1 that `which` names; None for all of them in their order."""
    if which is None or (isinstance(which, slice) and which.indices(n) == (0, n, 1)):
        return None
    if isinstance(which, slice):
        return np.arange(n)[which]
    if isinstance(which, Ensemble):
        raise TypeError(message(name, argument, "be the same for all samples", "an Ensemble"))
    places = array_of(which, name, argument, "be a slice or a vector")
    if places.ndim != 1:
        advice = "A[[i]] is the matrix of row i, A[:, [j]] that of column j; A @ x takes vectors." * (not places.ndim)
        raise TypeError(message(name, argument, "be a slice or a vector", f"shape {places.shape}", advice))
    return places_of(places, n, name, argument, bools=True)


def _selection(graph: CrsGraph, rows: np.ndarray | None, columns: np.ndarray | None) -> Selection:
    import scipy.sparse as sp

    numbers = np.arange(graph.nnz, dtype=np.int64)
    entries = sp.csr_array((numbers, graph.indices, graph.indptr), shape=graph.shape)
    entries = entries if rows is None else entries[rows]
    entries = sp.csr_array(entries if columns is None else entries[:, columns])
    entries.sort_indices()
    shape = (int(entries.shape[0]), int(entries.shape[1]))
    indptr = entries.indptr.astype(np.int32 if entries.nnz < 2**31 else np.int64)
    indices = entries.indices.astype(np.int32 if shape[1] <= 2**31 else np.int64)
    return Selection(CrsGraph.unchecked(indptr, indices, shape), entries.data)
