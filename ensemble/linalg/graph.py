"""The graph of a sparse matrix: one per problem, shared by all samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import asarray_like, library_and_device
from ensemble._check import array_of, integer, message, require
from ensemble._kernels.sparse.graph_rows import diagonal_entries
from ensemble._kernels.sparse.product_graphs import product_graph, transpose_graph

RESULTS = 4
"""Keys of one kind whose results `CrsGraph.kept` keeps."""


class CrsGraph:
    """Where a sparse matrix has entries, in compressed row storage (CRS).

    What the graph alone decides (the positions of the diagonal, the transpose) is computed once, at its first use, and
    serves every matrix and every sample on it.

    Parameters
    ----------
    indptr : array of int, shape (n_rows + 1,)
        Row i owns the entries ``indptr[i]:indptr[i + 1]``.
    indices : array of int, shape (nnz,)
        The column of each entry, ascending within a row.
    shape : (int, int)
        Rows and columns.

    Raises
    ------
    ValueError
        If the arrays do not describe a graph of that shape, or a row's columns do not ascend.

    Examples
    --------
    >>> graph = CrsGraph([0, 1, 3], [0, 0, 1], (2, 2))
    >>> graph.nnz
    3
    """

    def __init__(self, indptr: Any, indices: Any, shape: tuple[int, int]) -> None:
        if not isinstance(shape, list | tuple) or len(shape) != 2:
            raise TypeError(message("CrsGraph", "shape", "be (rows, columns)", repr(shape)))
        n_rows, n_columns = (integer(n, "CrsGraph", "shape", minimum=0) for n in shape)
        places = f"{n_rows} x {n_columns}"
        require(n_rows * n_columns < 2**63, "CrsGraph", "shape", "have fewer than 2**63 places", places)
        given = {"indptr": indptr, "indices": indices}
        indptr, indices = (array_of(a, "CrsGraph", name, "be a vector of integers") for name, a in given.items())
        for name, array in (("indptr", indptr), ("indices", indices)):
            if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
                raise TypeError(message("CrsGraph", name, "be a vector of integers", f"{array.dtype} {array.shape}"))
        indptr, indices = (a.astype(np.int64) if a.dtype.kind == "u" else a for a in (indptr, indices))
        require(
            indptr.size == n_rows + 1, "CrsGraph", "indptr",
            f"have one entry more than there are rows (n_rows = {n_rows})", f"{indptr.size} entries",
        )  # fmt: skip
        ascending = indptr.size and indptr[0] == 0 and indptr[-1] == indices.size and np.all(np.diff(indptr) >= 0)
        require(bool(ascending), "CrsGraph", "indptr", f"ascend from 0 to nnz = {indices.size}", _ends(indptr))
        inside = not indices.size or (indices.min() >= 0 and indices.max() < n_columns)
        if not inside:
            require(False, "CrsGraph", "indices", f"lie between 0 and {n_columns - 1}", _ends(np.sort(indices)))
        steps = np.diff(indices) > 0
        starts = indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < indices.size)]
        steps[starts - 1] = True
        require(
            bool(np.all(steps)), "CrsGraph", "indices", "ascend within each row", "a row out of order or with doubles",
            "Use CrsMatrix.from_scipy, which sorts and sums doubles.",
        )  # fmt: skip
        self.shape = (n_rows, n_columns)
        # Copies: what is worked out from them is kept, so a caller who writes into his arrays must not reach these.
        self.indptr = np.array(indptr, np.int32 if indices.size < 2**31 else np.int64, order="C")
        self.indices = np.array(indices, np.int32 if n_columns <= 2**31 else np.int64, order="C")
        self._copies: dict[Any, tuple[Any, ...]] = {}
        self._orders: dict[int, Reordering] = {}
        self._expansions: dict[tuple[int, int], tuple[CrsGraph, np.ndarray]] = {}
        self._results: dict[Any, dict[Any, Any]] = {}

    @classmethod
    def unchecked(cls, indptr: np.ndarray, indices: np.ndarray, shape: tuple[int, int]) -> CrsGraph:
        """A graph from arrays that are known to be correct: nothing is checked."""
        graph = object.__new__(cls)
        graph.shape, graph.indptr, graph.indices = shape, indptr, indices
        graph._copies, graph._orders, graph._expansions, graph._results = {}, {}, {}, {}
        return graph

    def __repr__(self) -> str:
        return f"CrsGraph(shape={self.shape}, nnz={self.nnz})"

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.indices.size

    @cached_property
    def diagonal_entries(self) -> np.ndarray:
        """For each row, the position of its diagonal entry, or -1 where none is stored; shape (n_rows,)."""
        return diagonal_entries(self.indptr, self.indices)

    def same_as(self, other: CrsGraph) -> bool:
        """Whether `other` has this shape and these entries."""
        return self is other or (
            self.shape == other.shape
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.indices, other.indices)
        )

    # --- index arrays in the library and on the device of the values: copied once
    def _copies_on(self, values: Any, what: str, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        if isinstance(values, np.ndarray):
            return arrays
        key = (what, *library_and_device(values))
        if key not in self._copies:
            self._copies[key] = tuple(asarray_like(array, values) for array in arrays)
        return self._copies[key]

    def arrays_on(self, values: Any) -> tuple[Any, Any]:
        """(indptr, indices) in the library and on the device of `values`."""
        if type(values) is np.ndarray:
            return self.indptr, self.indices
        return self._copies_on(values, "graph", (self.indptr, self.indices))

    def transposed_arrays_on(self, values: Any) -> tuple[Any, Any, Any]:
        """`transposed` in the library and on the device of `values`."""
        return self._copies_on(values, "transposed", self.transposed)

    def diagonal_on(self, values: Any) -> Any:
        """`diagonal_entries` in the library and on the device of `values`."""
        return self._copies_on(values, "diagonal", (self.diagonal_entries,))[0]

    def array_on(self, values: Any, what: str, array: np.ndarray) -> Any:
        """`array`, which depends on the graph alone, in the library and on the device of `values`, cached as `what`."""
        return self._copies_on(values, what, (array,))[0]

    def kept(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` works out from this graph and `key`; the last `RESULTS` keys of a kind, ``key[0]``, are kept."""
        results = self._results.setdefault(key[0], {})
        result = results.pop(key) if key in results else make()
        while len(results) >= RESULTS:
            results.pop(next(iter(results)))
        results[key] = result
        return result

    def met(self, key: tuple[object, ...]) -> object:
        """What `kept` keeps for `key`; None where it is not there."""
        results = self._results.get(key[0])
        return None if results is None else results.get(key)

    def coordinates_on(self, values: Any) -> tuple[Any, Any]:
        """(row, column) of each entry, in the library and on the device of `values`."""
        if isinstance(values, np.ndarray):
            return self.row_of_entry, self.indices
        return self.array_on(values, "rows", self.row_of_entry), self.arrays_on(values)[1]

    @property
    def row_of_entry(self) -> np.ndarray:
        """The row of each entry, shape (nnz,); computed at each call."""
        return np.repeat(np.arange(self.shape[0], dtype=self.indices.dtype), np.diff(self.indptr))

    @property
    def keys(self) -> np.ndarray:
        """``row * n_columns + column`` of each entry, int64, ascending; computed at each call."""
        return self.row_of_entry * np.int64(self.shape[1]) + self.indices.astype(np.int64)

    def subgraph(self, kept: np.ndarray) -> CrsGraph:
        """The graph of the entries for which `kept` is True."""
        before = np.zeros(self.nnz + 1, self.indptr.dtype)
        np.cumsum(kept, out=before[1:])
        return CrsGraph.unchecked(before[self.indptr], self.indices[kept], self.shape)

    def expanded(self, rows: int, columns: int) -> tuple[CrsGraph, np.ndarray]:
        """The graph of the scalar entries where each entry of this one is a block; made once per block shape.

        Parameters
        ----------
        rows, columns : int
            Shape of a block.

        Returns
        -------
        graph : CrsGraph, shape (n_rows * rows, n_columns * columns)
        places : array of int, shape (nnz * rows * columns,)
            Entry m of `graph` is entry ``places[m]`` of block values of shape (nnz, rows, columns), flattened.

        Examples
        --------
        >>> graph, places = CrsGraph([0, 2], [0, 1], (1, 2)).expanded(2, 1)
        >>> graph.indices, places
        (array([0, 1, 0, 1], dtype=int32), array([0, 2, 1, 3]))
        """
        if (rows, columns) not in self._expansions:
            indptr, (n_rows, n_columns) = self.indptr.astype(np.int64), self.shape
            lengths = np.repeat(np.diff(indptr) * columns, rows)
            starts = np.concatenate([[0], np.cumsum(lengths)])
            block, column = np.divmod(np.arange(starts[-1]) - np.repeat(starts[:-1], lengths), columns)
            block += np.repeat(np.repeat(indptr[:-1], rows), lengths)
            component = np.repeat(np.tile(np.arange(rows), n_rows), lengths)
            width = n_columns * columns
            indices = self.indices[block].astype(np.int32 if width <= 2**31 else np.int64) * columns + column
            graph = CrsGraph.unchecked(
                starts.astype(np.int32 if starts[-1] < 2**31 else np.int64),
                indices.astype(np.int32 if width <= 2**31 else np.int64), (n_rows * rows, width),
            )  # fmt: skip
            self._expansions[rows, columns] = graph, (block * rows + component) * columns + column
        return self._expansions[rows, columns]

    def product(self, other: CrsGraph) -> CrsGraph:
        """The graph of A B, A on this graph and B on `other`."""
        indptr, indices = product_graph(self.indptr, self.indices, other.indptr, other.indices, other.shape[1])
        return CrsGraph.unchecked(indptr, indices, (self.shape[0], other.shape[1]))

    @cached_property
    def transposed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(indptr, indices, entries) of the transpose: its entry k is entry ``entries[k]`` of this graph."""
        indptr, indices, entries = transpose_graph(self.indptr, self.indices, self.shape[1])
        return indptr, indices, entries

    def reordered(self, block_size: int = 1) -> Reordering:
        """The graph in reverse Cuthill-McKee order, in which neighbours have numbers close to each other [1]_.

        A product reads the rows of `x` in the order of the columns: where those lie anywhere and the vectors outgrow
        the cache, it waits for memory.

        Parameters
        ----------
        block_size : int
            Consecutive rows that stay adjacent, in their order: the unknowns of a node.

        Returns
        -------
        Reordering
            ``CrsMatrix(r.graph, A.values[r.entries])`` is the matrix ``A[rows][:, rows]``, ``b[r.rows]`` a right-hand
            side; of its solution y, ``y[r.places]`` is the one of A.

        Raises
        ------
        ValueError
            If the graph is not square, or `block_size` does not divide its rows.

        References
        ----------
        .. [1] Cuthill, McKee (1969), Proc. 24th Nat. Conf. ACM, 157-172; made by ``scipy.sparse.csgraph``.

        Examples
        --------
        >>> graph = CrsGraph([0, 2, 5, 7], [0, 1, 0, 1, 2, 1, 2], (3, 3))
        >>> graph.reordered().rows
        array([2, 1, 0], dtype=int32)
        """
        n = self.shape[0]
        require(n == self.shape[1], "CrsGraph.reordered", "the graph", "be square", f"shape {self.shape}")
        integer(block_size, "CrsGraph.reordered", "block_size", minimum=1)
        require(n % block_size == 0, "CrsGraph.reordered", "block_size", f"divide the {n} rows", block_size)
        if block_size not in self._orders:
            self._orders[block_size] = self._reordered(block_size)
        return self._orders[block_size]

    def _reordered(self, block_size: int) -> Reordering:
        import scipy.sparse as sp
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        n = self.shape[0]
        entries = sp.csr_array((np.arange(self.nnz), self.indices, self.indptr), shape=self.shape)
        pattern = sp.csr_array((np.ones(self.nnz, np.int8), self.indices, self.indptr), shape=self.shape)
        if block_size > 1:
            ones, starts = np.ones(n, np.int32), np.arange(0, n + 1, block_size)
            nodes = sp.csr_array((ones, np.arange(n), starts), shape=(n // block_size, n))
            pattern = sp.csr_array(nodes @ pattern @ nodes.T)
        rows = reverse_cuthill_mckee(pattern) if n else np.zeros(0, np.int32)
        if block_size > 1:
            rows = (rows[:, None] * block_size + np.arange(block_size, dtype=rows.dtype)).reshape(-1)
        moved_entries = sp.csr_array(entries[rows][:, rows])
        moved_entries.sort_indices()
        indptr = moved_entries.indptr.astype(self.indptr.dtype)
        graph = CrsGraph.unchecked(indptr, moved_entries.indices.astype(self.indices.dtype), self.shape)
        places = np.empty_like(rows)
        places[rows] = np.arange(n, dtype=rows.dtype)
        return Reordering(graph, rows, moved_entries.data, places)

    @cached_property
    def upper(self) -> UpperTriangle:
        """What a symmetric matrix on this graph stores: the diagonal, and what lies above it."""
        indptr, indices, entries = self.transposed
        symmetric = np.array_equal(indptr, self.indptr) and np.array_equal(indices, self.indices)
        require(
            symmetric and bool(np.all(self.diagonal_entries >= 0)), "CrsGraph.upper", "the graph",
            "be symmetric, with a diagonal entry in every row", repr(self), "Use a CrsMatrix.",
        )  # fmt: skip
        above = self.indices - self.row_of_entry
        number = np.zeros(self.nnz + 1, self.indptr.dtype)  # entries of the triangle before each entry
        np.cumsum(above >= 0, out=number[1:])
        place = np.where(above >= 0, number[:-1], number[entries])
        return UpperTriangle(number[self.indptr], place, int(above.max(initial=0)))


class Reordering(NamedTuple):
    """Rows and columns of a square graph in another order: row i of `graph` is row ``rows[i]`` of the old one.

    `rows` has shape (n,); `entries`, shape (nnz,), holds the place in the old graph of each entry of `graph`; `places`,
    shape (n,), the row of `graph` that each old row has become.
    """

    graph: CrsGraph
    rows: np.ndarray
    entries: np.ndarray
    places: np.ndarray

    def of_blocks(self, size: int) -> Reordering:
        """The same order where a row of the graph stands for `size` scalar rows: `rows` and `places` count those."""
        rows, places = (
            (a[:, None] * size + np.arange(size, dtype=a.dtype)).reshape(-1) for a in (self.rows, self.places)
        )
        return Reordering(self.graph, rows, self.entries, places)


class WithValues:
    """Attributes of a matrix that follow from its values, samples in their second axis."""

    values: Any

    @property
    def n_samples(self) -> int:
        """Samples held; 1 means shared by all."""
        return int(self.values.shape[1])

    @property
    def dtype(self) -> Any:
        """Type of the values."""
        return self.values.dtype

    @property
    def reference_array(self) -> Any:
        """An array in the library and on the device of this matrix."""
        return self.values


class OnGraph(WithValues):
    """Attributes of a matrix whose values belong to the entries of a `CrsGraph`."""

    graph: CrsGraph

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.graph.shape

    @property
    def nnz(self) -> int:
        """Entries of one sample."""
        return self.graph.nnz

    def with_values(self, values: Any) -> Any:
        """A matrix with other values on the same graph."""
        return type(self)(self.graph, values)  # type: ignore[call-arg]


class UpperTriangle(NamedTuple):
    """Where a symmetric matrix keeps its values: the entries on and above the diagonal, row by row.

    `starts`, shape (n_rows + 1,), holds the place of each row's first value; `entries`, shape (nnz,), the place of
    the value of each entry of the full graph; `reach` is the largest column - row.
    """

    starts: np.ndarray
    entries: np.ndarray
    reach: int


def _ends(array: np.ndarray) -> str:
    return f"{array[0]} ... {array[-1]}" if array.size else "nothing"
