"""`ElementAssembly`: sums of element matrices and vectors, for all samples at once."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, backend_of, contiguous, has_compiled_numbers
from ensemble._check import array_of, integer, message, require
from ensemble._kernels.sparse.compact_order import compact_order, graph_points
from ensemble._kernels.sparse.element_map import element_map
from ensemble._kernels.sparse.gather_sums import element_sums, gather_sums
from ensemble._kernels.sparse.product_graphs import transpose_graph
from ensemble._kernels.sparse.staged_sums import StagedTables, matrix_tables, staged_sums, vector_tables
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.operators import as_real, numbers_of, shape_text, with_sample_axis
from ensemble.scalar import Ensemble

__all__ = ["ElementAssembly", "add_elements", "assembly_of", "element_samples", "summed_coordinates", "two_sizes"]


RUN = 16
"""Rows that stand together in the order of a device's blocks."""


class ElementAssembly:
    """Where element matrices and vectors go: worked out once, for any number of assemblies.

    ``CrsMatrix.from_elements(assembly, matrices)`` and ``BcrsMatrix.from_elements(assembly, matrices)`` add up element
    matrices, `vector` element vectors. Each sum takes its elements in ascending order: the same bits for every number
    of threads and samples.

    Parameters
    ----------
    dofs : array of int, shape (n_elements, k)
        The unknowns of each element (of a block matrix: its nodes).
    n_unknowns : int

    Attributes
    ----------
    graph : CrsGraph, shape (n_unknowns, n_unknowns)
        An entry for each pair of unknowns that share an element.

    Raises
    ------
    ValueError
        If an unknown is out of range; the message names its element.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.linalg import CrsMatrix
    >>> assembly = ElementAssembly([[0, 1], [1, 2]], 3)
    >>> A = CrsMatrix.from_elements(assembly, np.array([[[1.0, -1.0], [-1.0, 1.0]]] * 2))
    >>> A.to_scipy().toarray()
    array([[ 1., -1.,  0.],
           [-1.,  2., -1.],
           [ 0., -1.,  1.]])
    >>> assembly.vector(np.array([[0.5, 0.5], [0.5, 0.5]]))
    array([0.5, 1. , 0.5])
    """

    def __init__(self, dofs: Any, n_unknowns: int) -> None:
        self.n_unknowns = integer(n_unknowns, "ElementAssembly", "n_unknowns", minimum=0)
        self.dofs = _checked_dofs(dofs, self.n_unknowns)
        self.map = element_map(self.dofs, self.n_unknowns)
        self.graph = CrsGraph.unchecked(self.map.indptr, self.map.indices, (self.n_unknowns, self.n_unknowns))

    def __repr__(self) -> str:
        n_elements, k = self.dofs.shape
        return f"ElementAssembly({n_elements} elements of {k} unknowns, graph={self.graph})"

    def matrix_values(self, matrices: Any) -> Any:
        """The values of the sum of element matrices.

        Parameters
        ----------
        matrices : array, shape (n_elements, k, k, ...)

        Returns
        -------
        array, shape (graph.nnz, ...)
        """
        n_elements, k = self.dofs.shape
        require(
            tuple(matrices.shape[:3]) == (n_elements, k, k), "from_elements", "matrices",
            f"have shape ({n_elements}, {k}, {k}, ...), a matrix per element of dofs", f"shape {tuple(matrices.shape)}",
        )  # fmt: skip
        inner = tuple(matrices.shape[3:])
        values = _rows(matrices, n_elements * k * k, inner)
        on_host = backend_of(values) != "cuda" and has_compiled_numbers(values)
        sums = element_sums(self.map, values) if on_host else self._staged("matrix", values)
        if sums is None:
            sums = gather_sums(*self._arrays_on(values, "matrix", self._matrix_sources), values, None)
        return array_namespace(sums).reshape(sums, (self.graph.nnz, *inner))

    def vector(self, vectors: Any) -> Any:
        """The sum of element vectors.

        Parameters
        ----------
        vectors : array or Ensemble, shape (n_elements, k, ...)

        Returns
        -------
        array or Ensemble, shape (n_unknowns, ...)
        """
        samples = as_real(numbers_of(vectors, "ElementAssembly.vector", "vectors"))
        n_elements, k = self.dofs.shape
        require(
            tuple(samples.shape[:2]) == (n_elements, k), "ElementAssembly.vector", "vectors",
            f"have shape ({n_elements}, {k}, ...), a vector per element of dofs", shape_text(vectors),
        )  # fmt: skip
        inner = tuple(samples.shape[2:])
        values = _rows(samples, n_elements * k, inner)
        sums = self._staged("vector", values)
        if sums is None:
            sums = gather_sums(*self._arrays_on(values, "vector", (self.map.first, self._incidences)), values, None)
        sums = array_namespace(sums).reshape(sums, (self.n_unknowns, *inner))
        return Ensemble(sums, vectors.sample_set) if isinstance(vectors, Ensemble) else sums

    # --- places, where the values live
    def _arrays_on(self, values: Any, what: str, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self.graph.array_on(values, f"{what} {i}", array) for i, array in enumerate(arrays))

    @functools.cached_property
    def _incidences(self) -> np.ndarray:
        return _narrow(self.map.incidences)

    @functools.cached_property
    def _matrix_sources(self) -> tuple[np.ndarray, np.ndarray]:
        """For each entry of the graph, the entries of element matrices that are added to it, elements ascending."""
        entries = self.map.indptr[:-1][self.dofs][:, :, None] + self.map.slots
        return _transposed(entries.reshape(-1), self.graph.nnz)

    def _staged(self, what: str, values: Any) -> Any:
        """The sums of a "matrix" or "vector" by `staged_sums` on a device; None where it does not suit."""
        if backend_of(values) != "cuda":
            return None
        tables = self._staged_tables(what, values)
        if tables is None:
            return None
        arrays = self._arrays_on(values, f"staged {what} of {values.shape[1]} {values.dtype}", tables[:5])
        return staged_sums(arrays, self.graph.nnz if what == "matrix" else self.n_unknowns, tables, values, None)

    def _staged_tables(self, what: str, values: Any) -> StagedTables | None:
        """The tables of `staged_sums` for values of this width."""
        make = matrix_tables if what == "matrix" else vector_tables
        key = (f"staged {what}", values.shape[1], values.dtype.itemsize)
        found: StagedTables | None = self.graph.kept(key, lambda: make(self.map, self._near_rows, *key[1:]))
        return found

    @functools.cached_property
    def _near_rows(self) -> np.ndarray:
        """Rows in an order in which neighbours follow each other."""
        return compact_order(graph_points(self.graph.indptr, self.graph.indices), RUN)


def add_elements(dofs: Any, vectors: Any, n_unknowns: int) -> Any:
    """Return the sum of element vectors: a right-hand side.

    Parameters
    ----------
    dofs : array of int, shape (n_elements, k)
    vectors : array or Ensemble, shape (n_elements, k, ...)
    n_unknowns : int

    Returns
    -------
    array or Ensemble, shape (n_unknowns, ...)

    Raises
    ------
    ValueError
        If an unknown is out of range, or the shapes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> add_elements([[0, 1], [1, 2]], np.array([[1.0, 2.0], [3.0, 4.0]]), 4)
    array([1., 5., 4., 0.])
    """
    return ElementAssembly(dofs, n_unknowns).vector(vectors)


def element_samples(matrices: Any, n_axes: int, function: str) -> Any:
    """The bare array of `matrices`, `n_axes` axes and that of samples; a plain one may lack the last."""
    wanted = "(n_elements, k, k[, n_samples])" if n_axes == 3 else "(n_elements, k, k, r, c[, n_samples])"
    return with_sample_axis(matrices, n_axes, function, "matrices", f"have shape {wanted}")


def assembly_of(dofs: Any, shape: Any, function: str) -> ElementAssembly:
    """`dofs` itself where it is an assembly, else a new one for a matrix of `shape`."""
    if isinstance(dofs, ElementAssembly):
        fits = shape is None or tuple(shape) == dofs.graph.shape
        require(fits, function, "shape", f"be {dofs.graph.shape}, that of the ElementAssembly", shape)
        return dofs
    if not isinstance(shape, list | tuple) or len(shape) != 2:
        raise TypeError(message(function, "shape", "be (n, n) unless dofs is an ElementAssembly", repr(shape)))
    require(shape[0] == shape[1], function, "shape", "be square: dofs are rows and columns", tuple(shape))
    return ElementAssembly(dofs, shape[0])


def two_sizes(shape: Any, function: str) -> tuple[int, int]:
    """`shape` as two integers."""
    if not isinstance(shape, list | tuple) or len(shape) != 2:
        raise TypeError(message(function, "shape", "be (rows, columns)", repr(shape)))
    n, m = (integer(size, function, "shape", minimum=0) for size in shape)
    require(n * m < 2**63, function, "shape", "have fewer than 2**63 places", f"{n} x {m}")
    return n, m


def summed_coordinates(rows: Any, cols: Any, values: Any, shape: Any, function: str) -> tuple[CrsGraph, Any]:
    """The graph of the entries (rows[t], cols[t]) and their values, doubles added in input order."""
    n, m = two_sizes(shape, function)
    given = []
    for name, index, size in (("rows", rows, n), ("cols", cols, m)):
        index = array_of(index, function, name, "be a vector of integers")
        if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
            raise TypeError(message(function, name, "be a vector of integers", f"{index.dtype} {index.shape}"))
        outside = np.flatnonzero((index < 0) | (index >= size))
        seen = f"{index[outside[0]]} at place {outside[0]}" if outside.size else ""
        require(not outside.size, function, name, f"lie between 0 and {size - 1}", seen)
        given.append(index.astype(np.int64))
    row, column = given
    wanted = "have shape (n_entries,) or (n_entries, n_samples)"
    samples = with_sample_axis(values, 1, function, "values", wanted, "An Ensemble has shape (n_entries,).")
    fits = row.size == column.size and samples.shape[0] == row.size
    seen = f"{row.size} rows, {column.size} cols and values of {shape_text(values)}"
    require(fits, function, "rows, cols and values", "have one entry each per coordinate", seen)
    keys = row * max(m, 1) + column
    order = np.argsort(keys, kind="stable")
    ascending = keys[order]
    first = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]) if row.size else np.zeros(0, bool))
    unique, starts = ascending[first], np.append(first, row.size)
    graph = CrsGraph(np.searchsorted(unique, np.arange(n + 1) * max(m, 1)), unique % max(m, 1), (n, m))
    flat = _rows(samples, row.size, (samples.shape[1],))
    places = (asarray_like(_narrow(index), flat) for index in (starts, order))
    return graph, gather_sums(*places, flat, None)


def _rows(values: Any, n_rows: int, inner: tuple[int, ...]) -> Any:
    """`values` as rows that are contiguous."""
    return contiguous(array_namespace(values).reshape(values, (n_rows, math.prod(inner))))


def _narrow(index: np.ndarray) -> np.ndarray:
    """The index in 32 bits where it fits."""
    return index.astype(np.int32) if index.max(initial=0) < 2**31 else index.astype(np.int64)


def _transposed(targets: np.ndarray, n_targets: int) -> tuple[np.ndarray, np.ndarray]:
    """(starts, sources): the places at which each target stands, ascending."""
    whole = np.arange(targets.size + 1, dtype=np.int32 if targets.size < 2**31 else np.int64)
    starts, _, sources = transpose_graph(whole, targets, n_targets)
    return starts, sources


def _checked_dofs(dofs: Any, n_unknowns: int) -> np.ndarray:
    name = "ElementAssembly"
    dofs = array_of(dofs, name, "dofs", "be integers of shape (n_elements, k)")
    if dofs.ndim != 2 or (dofs.size and dofs.dtype.kind not in "iu"):
        seen = f"{dofs.dtype} of shape {dofs.shape}"
        raise TypeError(message(name, "dofs", "be integers of shape (n_elements, k)", seen))
    outside = np.flatnonzero(((dofs < 0) | (dofs >= n_unknowns)).any(axis=1))
    if outside.size:
        e = int(outside[0])
        bad = next(int(i) for i in dofs[e] if i < 0 or i >= n_unknowns)
        seen = f"{bad} in element {e}" + (f" ({outside.size} such elements)" if outside.size > 1 else "")
        raise ValueError(message(name, "dofs", f"lie between 0 and {n_unknowns - 1}", seen))
    return np.array(dofs, dtype=np.int32, order="C")
