"""Matrices made of matrices: Kronecker products, and matrices of blocks."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._check import integer, kind_of, message, require
from ensemble._keywords import explains_calls
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.linear_operator import inherited
from ensemble.linalg.operators import set_of
from ensemble.linalg.selection import Selection, moved_values
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set

__all__ = ["block", "kron"]


@explains_calls("kron")
def kron(A: Any, B: Any) -> CrsMatrix:
    """Return the Kronecker product of two matrices; an integer n stands for the identity of order n.

    ``kron(A, n)`` has n unknowns for each unknown of A, side by side, as a vector-valued field that is stored node by
    node; ``kron(n, A)`` is block diagonal, with n times A. The graph is made once.

    Parameters
    ----------
    A, B : sparse matrix, array of shape (rows, columns), or int
        Not both integers.

    Returns
    -------
    CrsMatrix, shape (rows of A * rows of B, columns of A * columns of B)

    Raises
    ------
    TypeError
        If neither is a matrix, or one is neither a matrix nor an integer.
    ValueError
        If an integer is not positive, or the numbers of samples do not fit.

    Examples
    --------
    >>> from ensemble.linalg import CrsGraph
    >>> A = CrsMatrix(CrsGraph([0, 1, 3], [1, 0, 1], (2, 2)), [1.0, 2.0, 3.0])
    >>> kron(A, 2).to_scipy().toarray()
    array([[0., 0., 1., 0.],
           [0., 0., 0., 1.],
           [2., 0., 3., 0.],
           [0., 2., 0., 3.]])
    >>> kron(2, A).to_scipy().toarray()
    array([[0., 1., 0., 0.],
           [2., 3., 0., 0.],
           [0., 0., 0., 1.],
           [0., 0., 2., 3.]])
    """
    first, second = _factor(A), _factor(B)
    if isinstance(first, int) and isinstance(second, int):
        raise TypeError(message("kron", "A or B", "be a matrix", f"{first} and {second}"))
    if isinstance(first, int) or isinstance(second, int):
        inner = isinstance(second, int)
        matrix, n = (first, second) if inner else (second, first)
        identity = CrsGraph(np.arange(n + 1), np.arange(n), (n, n))
        graphs = (matrix.graph, identity) if inner else (identity, matrix.graph)
        whole, *entries = matrix.graph.kept(("kron", inner, n), lambda: _kron_graph(*graphs))
        values = moved_values(matrix.values, entries[not inner])
        return inherited(CrsMatrix(whole, Ensemble(values, matrix.sample_set)), matrix)
    counts = {first.n_samples, second.n_samples} - {1}
    require(len(counts) < 2, "kron", "A and B", "have the same n_samples, or 1", sorted(counts))
    key = ("kron", weakref.ref(second.graph))
    whole, left, right = first.graph.kept(key, lambda: _kron_graph(first.graph, second.graph))
    others = asarray_like(second.values, first.values)
    values = moved_values(first.values, left) * moved_values(others, right)
    return inherited(CrsMatrix(whole, Ensemble(values, common_set(first.sample_set, second.sample_set))), first, second)


def _factor(given: Any) -> Any:
    """An operand of `kron`: a `CrsMatrix`, or the order of an identity."""
    matrix = CrsMatrix.from_scipy(given) if isinstance(given, np.ndarray) and given.ndim == 2 else as_crs(given)
    if matrix is not NotImplemented:
        return matrix
    try:
        return integer(given, "kron", "the order of the identity", minimum=1)
    except TypeError:
        wanted = "be sparse matrices, or one of them an integer"
        raise TypeError(message("kron", "A and B", wanted, kind_of(given))) from None


def _kron_graph(a: CrsGraph, b: CrsGraph) -> tuple[CrsGraph, np.ndarray, np.ndarray]:
    """The graph of a Kronecker product, and for each of its entries those of `a` and of `b`."""
    starts_a, starts_b, rows_a, rows_b = a.indptr.astype(np.int64), b.indptr.astype(np.int64), a.shape[0], b.shape[0]
    per_row = np.tile(np.diff(starts_b), rows_a)
    lengths = np.repeat(np.diff(starts_a), rows_b) * per_row
    starts: np.ndarray = np.concatenate([[0], np.cumsum(lengths)])
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    width = np.repeat(per_row, lengths)
    left = within // width + np.repeat(np.repeat(starts_a[:-1], rows_b), lengths)
    right = within % width + np.repeat(np.tile(starts_b[:-1], rows_a), lengths)
    shape = rows_a * rows_b, a.shape[1] * b.shape[1]
    indices = a.indices[left].astype(np.int64) * b.shape[1] + b.indices[right]
    indptr = starts.astype(np.int32 if indices.size < 2**31 else np.int64)
    indices = indices.astype(np.int32 if shape[1] <= 2**31 else np.int64)
    return CrsGraph.unchecked(indptr, indices, shape), left, right


@explains_calls("block")
def block(blocks: Any) -> CrsMatrix:
    """Return the matrix of blocks, row by row; None stands for a block of zeros.

    Graph work is done once for the same graphs in the same places. Shared blocks and blocks with one matrix per sample
    go together; where all are shared, the result is.

    Parameters
    ----------
    blocks : list of lists of sparse matrices or None
        Each row and each column has a matrix, which gives its size.

    Returns
    -------
    CrsMatrix

    Raises
    ------
    ValueError
        If rows differ in length, blocks do not fit, or the size of a row or column is not known.
    TypeError
        If an entry is neither a sparse matrix nor None.

    Examples
    --------
    >>> from ensemble.gallery import poisson
    >>> A, B = poisson((6,), n_samples=2), CrsMatrix.from_coo([0], [1], [5.0], (1, 6))
    >>> K = block([[A, B.T], [B, None]])
    >>> K
    CrsMatrix(shape=(7, 7), nnz=18, n_samples=2, float64)
    >>> K.to_scipy(1).toarray()[6]
    array([0., 5., 0., 0., 0., 0., 0.])
    """
    placed, heights, widths = _checked_blocks(blocks)
    matrices = [matrix for _, _, matrix in placed]
    counts = {matrix.n_samples for matrix in matrices} - {1}
    require(len(counts) < 2, "block", "blocks", "have the same n_samples, or 1", sorted(counts))
    like = matrices[0].values
    graphs = [matrix.graph for matrix in matrices]
    key = ("block", *((i, j, weakref.ref(graph)) for (i, j, _), graph in zip(placed, graphs, strict=True)))
    whole, entries = graphs[0].kept(key, lambda: _block_graph([(i, j, m.graph) for i, j, m in placed], heights, widths))
    xp = array_namespace(like)
    parts = [asarray_like(matrix.values, like) for matrix in matrices]
    dtype = functools.reduce(xp.result_type, (part.dtype for part in parts))
    n_samples = max(counts, default=1)
    wide = [xp.broadcast_to(xp.astype(part, dtype, copy=False), (part.shape[0], n_samples)) for part in parts]
    values = moved_values(xp.concat(wide, axis=0), entries)
    sets: list[SampleSet | None] = [set_of(matrix) for matrix in matrices if matrix.n_samples == n_samples]
    return inherited(CrsMatrix(whole, Ensemble(values, functools.reduce(common_set, sets, None))), *matrices)


def _checked_blocks(blocks: Any) -> tuple[list[tuple[int, int, CrsMatrix]], list[int], list[int]]:
    """The matrices with their places, and the sizes of rows and columns of blocks."""
    if not isinstance(blocks, list | tuple) or not all(isinstance(row, list | tuple) for row in blocks):
        raise TypeError(message("block", "blocks", "be a list of lists", kind_of(blocks)))
    lengths = [len(row) for row in blocks]
    alike = bool(lengths) and min(lengths) == max(lengths) > 0
    require(alike, "block", "blocks", "have rows of one length, one or more", lengths)
    placed: list[tuple[int, int, CrsMatrix]] = []
    sizes: tuple[dict[int, int], dict[int, int]] = {}, {}
    for i, row in enumerate(blocks):
        for j, given in enumerate(row):
            if given is None:
                continue
            matrix = as_crs(given)
            if matrix is NotImplemented:
                seen = kind_of(given)
                raise TypeError(message("block", f"blocks[{i}][{j}]", "be a sparse matrix or None", seen))
            for known, place, size, what in zip(sizes, (i, j), matrix.shape, ("rows", "columns"), strict=True):
                expected = known.setdefault(place, size)
                require(expected == size, "block", f"blocks[{i}][{j}]", f"have {expected} {what}", f"{size}")
            placed.append((i, j, matrix))
    advice = "CrsMatrix.from_coo([], [], [], shape) is a matrix of zeros."
    for known, count, what in zip(sizes, (len(blocks), lengths[0]), ("row", "column"), strict=True):
        missing = [k for k in range(count) if k not in known]
        seen = f"none in {what} {missing[0]}" if missing else ""
        require(not missing, "block", "blocks", f"have a matrix in each {what}", seen, advice)
    return placed, [sizes[0][i] for i in range(len(blocks))], [sizes[1][j] for j in range(lengths[0])]


def _block_graph(placed: Any, heights: list[int], widths: list[int]) -> Selection:
    """The graph, and for each of its entries the place among the entries of all blocks, one after the other."""
    above, left = (np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]) for sizes in (heights, widths))
    shape = int(above[-1]), int(left[-1])
    keys = [(graph.row_of_entry + above[i]) * np.int64(shape[1]) + graph.indices + left[j] for i, j, graph in placed]
    together = np.concatenate(keys)
    entries = np.argsort(together, kind="stable")
    ordered = together[entries]
    starts = np.searchsorted(ordered, np.arange(shape[0] + 1, dtype=np.int64) * shape[1])
    indptr = starts.astype(np.int32 if ordered.size < 2**31 else np.int64)
    indices = (ordered % max(shape[1], 1)).astype(np.int32 if shape[1] <= 2**31 else np.int64)
    return Selection(CrsGraph.unchecked(indptr, indices, shape), entries)
