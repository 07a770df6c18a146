"""What SciPy's sparse arrays do with the entries of a matrix: parts, sums, products entry by entry, a new diagonal."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, is_array
from ensemble._check import message, require
from ensemble._kernels.krylov import vectors
from ensemble._kernels.sparse.complex_numbers import is_complex, times
from ensemble.linalg.arithmetic import computed, nonzero_rows, per_sample, placed, united
from ensemble.linalg.graph import CrsGraph
from ensemble.scalar import Ensemble
from ensemble.scalar.protocol_table import PROTOCOLS
from ensemble.scalar.sample_set import SampleSet, common_set

__all__ = ["Entries", "TransposedEntries"]


OF_SCIPY = {
    "data": "A.values, shape (nnz, n_samples)",
    "indptr": "A.graph.indptr",
    "indices": "A.graph.indices",
    "coords": "A.graph.row_of_entry and A.graph.indices",
    "copy": "CrsMatrix(A.graph, A.values.copy())",
    "dot": "A @ x",
    "matmul": "A @ x",
    "todense": "A.toarray()",
    "transpose": "A.T",
    "power": "CrsMatrix(A.graph, A.values ** n)",
    "sqrt": "CrsMatrix(A.graph, np.sqrt(A.values))",
    "mean": "A.sum() / (A.shape[0] * A.shape[1])",
    "trace": "A.diagonal().sum()",
    "getrow": "A[[i]]",
    "getcol": "A[:, [j]]",
    "getnnz": "A.nnz",
    "sum_duplicates": "A itself: its entries are summed and sorted",
    "sort_indices": "A itself: its entries are summed and sorted",
    **dict.fromkeys(("tocsr", "tocsc", "tocoo", "tobsr", "todia", "tolil"), "A.to_scipy(i), sample i for SciPy"),
}
"""What serves in place of an attribute that SciPy's sparse arrays have."""


class Entries:
    """Base of `CrsMatrix`: methods that read or write single entries."""

    graph: CrsGraph
    values: Any
    sample_set: SampleSet | None
    shape: Any

    def _like(self, graph: CrsGraph, values: Any, sample_set: SampleSet | None) -> Any:
        return type(self)(graph, Ensemble(values, sample_set))  # type: ignore[call-arg]

    def _entrywise(self, function: Any) -> Any:
        return self._like(self.graph, function(self.values), self.sample_set)

    def _is_complex(self) -> bool:
        return bool(array_namespace(self.values).isdtype(self.values.dtype, "complex floating"))

    @property
    def real(self) -> Any:
        """The matrix of the real parts; itself where values are real."""
        return self._entrywise(array_namespace(self.values).real) if self._is_complex() else self

    @property
    def imag(self) -> Any:
        """The matrix of the imaginary parts, on the same graph; stored zeros where values are real."""
        xp = array_namespace(self.values)
        return self._entrywise(xp.imag if self._is_complex() else xp.zeros_like)

    def __abs__(self) -> Any:
        """The matrix of the absolute values, on the same graph."""
        return self._entrywise(array_namespace(self.values).abs)

    def __getattr__(self, name: str) -> Any:
        """Raise, with what to use in place of an attribute of SciPy's sparse arrays."""
        if name not in OF_SCIPY:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        requirement, seen = "be one of a matrix with samples", "one of SciPy's sparse arrays"
        text = message("CrsMatrix", f"the attribute {name}", requirement, seen, f"Use {OF_SCIPY[name]}.")
        raise AttributeError(text, name=name, obj=self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if PROTOCOLS.is_asked_by_scipy():
            return np.array(None, dtype=object)  # its sign for what is no array: the product is left to `__rmatmul__`
        call = PROTOCOLS.what_to_call()
        seen, advice = ("np.asarray(A)", "") if call is None else call
        advice = f"A.toarray() has the zeros, A.to_scipy(i) is sample i for SciPy. {advice}".rstrip()
        raise TypeError(message("CrsMatrix", "a conversion to a plain array", "name its samples", seen, advice))

    def toarray(self) -> Ensemble:
        """The matrix with its zeros, an Ensemble of shape (n_rows, n_columns); for small ones."""
        n_rows, n_columns = self.shape
        positions = np.full(n_rows * n_columns, -1, np.int64)
        positions[self.graph.keys] = np.arange(self.graph.nnz)
        dense = placed(self.values, positions)
        return Ensemble(array_namespace(dense).reshape(dense, (n_rows, n_columns, -1)), self.sample_set)

    def sum(self, axis: int | None = None) -> Ensemble:
        """The sum of all entries, of each column (``axis=0``) or of each row (``axis=1``).

        Parameters
        ----------
        axis : {None, 0, 1, -2, -1}

        Returns
        -------
        Ensemble, shape (), (n_columns,) or (n_rows,)
            The entries of a row or column are added in ascending order; the sums of rows in blocks, as inner products.

        Raises
        ------
        ValueError
            If `axis` is no axis of a matrix.

        Examples
        --------
        >>> from ensemble.gallery import poisson
        >>> poisson((3,)).sum(axis=0).samples[:, 0]
        array([1., 0., 1.])
        """
        require(axis in (None, 0, 1, -1, -2), "CrsMatrix.sum", "axis", "be None, 0, 1, -1 or -2", repr(axis))
        xp, along_columns = array_namespace(self.values), axis in (0, -2)
        length = self.shape[0 if along_columns else 1]
        one = xp.ones((length, self.values.shape[1]), dtype=self.values.dtype)
        one = asarray_like(one, self.values)
        if along_columns:
            return Ensemble(self.apply_transpose(one), self.sample_set)
        rows = self.apply(one)
        if axis is not None:
            return Ensemble(rows, self.sample_set)
        return Ensemble(vectors.dot(xp.ones_like(rows), rows, None), self.sample_set)

    def multiply(self, other: Any) -> Any:
        """The product entry by entry.

        Parameters
        ----------
        other : number, array, Ensemble or sparse matrix
            A number or an Ensemble of shape (): a multiple. A dense operand of shape (n_columns,), (1, n_columns),
            (n_rows, 1) or (n_rows, n_columns), plain or with samples. A sparse matrix of this shape: an entry that is
            zero in every sample is not stored.

        Returns
        -------
        CrsMatrix

        Raises
        ------
        ValueError
            If shapes or numbers of samples do not fit.
        TypeError
            If `other` is nothing of these.

        Examples
        --------
        >>> import numpy as np
        >>> from ensemble.gallery import poisson
        >>> poisson((2,)).multiply(np.array([1.0, 10.0])).toarray().samples[..., 0]
        array([[  2., -10.],
               [ -1.,  20.]])
        """
        name = "CrsMatrix.multiply"
        if hasattr(other, "tocsr") or hasattr(other, "to_scipy"):
            return self._times_entries_of(_as_entries(other, type(self)), name)
        if isinstance(other, list | tuple):
            other = np.asarray(other)
        if not isinstance(other, Ensemble) and not is_array(other):
            return self * other
        if other.ndim == 0:
            return self * other
        samples = other.samples if isinstance(other, Ensemble) else other[..., None]
        shape = tuple(samples.shape[:-1])
        n_rows, n_columns = self.shape
        fits = shape in ((n_columns,), (1, n_columns), (n_rows, 1), (n_rows, n_columns))
        seen = f"shape {shape}"
        require(fits, name, "other", f"broadcast to the shape {tuple(self.shape)} of the matrix", seen)
        counts = {self.values.shape[1], samples.shape[-1]} - {1}
        require(len(counts) < 2, name, "operands", "have the same n_samples, or 1", " and ".join(map(str, counts)))
        samples = per_sample(samples, self.values)
        xp, rows, columns = array_namespace(self.values), self.graph.row_of_entry, self.graph.indices
        samples = xp.reshape(samples, (1,) * (3 - samples.ndim) + tuple(samples.shape))
        place = (rows % samples.shape[0]).astype(np.int64) * samples.shape[1] + columns % samples.shape[1]
        flat = xp.reshape(samples, (-1, samples.shape[-1]))
        factors = xp.take(flat, asarray_like(place, self.values), axis=0)
        given = other.sample_set if isinstance(other, Ensemble) else None
        return self._like(self.graph, _products(self.values, factors), common_set(self.sample_set, given))

    def _times_entries_of(self, other: Any, name: str) -> Any:
        seen = f"{tuple(self.shape)} and {tuple(other.shape)}"
        require(tuple(self.shape) == tuple(other.shape), name, "matrices", "have one shape", seen)
        counts = {self.values.shape[1], other.values.shape[1]} - {1}
        require(len(counts) < 2, name, "operands", "have the same n_samples, or 1", " and ".join(map(str, counts)))
        graph, own, given = united(self.graph, other.graph)
        mine, others = placed(self.values, own), placed(asarray_like(other.values, self.values), given)
        with np.errstate(all="ignore"):  # as SciPy; an infinite number times an absent entry is NaN
            values = _products(mine, others)
        sample_set = common_set(self.sample_set, other.sample_set)
        kept = nonzero_rows(values)
        if kept.all():
            return self._like(graph, values, sample_set)
        xp, places = array_namespace(values), asarray_like(np.flatnonzero(kept), values)
        return self._like(graph.subgraph(kept), xp.take(values, places, axis=0), sample_set)

    def setdiag(self, values: Any, k: int = 0) -> None:
        """Write numbers on a diagonal, in place; entries that are not stored are added to the graph.

        Other matrices on the same graph stay as they are.

        Parameters
        ----------
        values : number, array or Ensemble
            Shape (): on the whole diagonal. Shape (m,): on its first m entries; what is beyond its end is left out.
            An Ensemble gives every sample its own, and a shared matrix as many samples.
        k : int
            The diagonal: 0 the main one, above it for k > 0, below it for k < 0.

        Raises
        ------
        ValueError
            If there is no such diagonal, `values` has two axes, or another number of samples.
        TypeError
            If `values` holds no numbers, or complex ones for a real matrix.

        Examples
        --------
        >>> import numpy as np
        >>> from ensemble.gallery import poisson
        >>> A = poisson((2,))
        >>> A.setdiag(np.array([5.0, 6.0]))
        >>> A.toarray().samples[..., 0]
        array([[ 5., -1.],
               [-1.,  6.]])
        """
        name, (n_rows, n_columns) = "CrsMatrix.setdiag", self.shape
        k = operator.index(k)
        require(-n_rows < k < n_columns, name, "k", f"be from {1 - n_rows} to {n_columns - 1}", k)
        given = values if isinstance(values, Ensemble) else Ensemble(np.asarray(values)[..., None])
        require(given.ndim < 2, name, "values", "be a number or a vector", f"shape {given.shape}")
        counts = {self.values.shape[1], given.n_samples} - {1}
        require(len(counts) < 2, name, "values", "have the samples of the matrix, or 1", f"{given.n_samples} samples")
        xp, samples = array_namespace(self.values), per_sample(given.samples, self.values)
        if xp.isdtype(samples.dtype, "complex floating") and not xp.isdtype(self.values.dtype, "complex floating"):
            advice = "Use A = A.astype(complex) first."
            raise TypeError(message(name, "values", f"fit the type {self.values.dtype}", str(samples.dtype), advice))
        length = min(n_rows + min(k, 0), n_columns - max(k, 0))
        m = length if samples.ndim == 1 else min(length, samples.shape[0])
        new = samples[None, :] if samples.ndim == 1 else samples[:m, :]
        first = np.arange(m, dtype=np.int64)
        keys = (first + max(-k, 0)) * n_columns + first + max(k, 0)
        self._write(keys, xp.astype(new, self.values.dtype), common_set(self.sample_set, given.sample_set))

    def _write(self, keys: np.ndarray, new: Any, sample_set: SampleSet | None) -> None:
        """Write the rows of `new` at the entries `keys`, ascending."""
        xp, graph = array_namespace(self.values), self.graph
        stored = np.isin(keys, graph.keys)
        old = self.values
        if not stored.all():
            indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // self.shape[1], minlength=self.shape[0]))])
            added = CrsGraph(indptr, keys % self.shape[1], self.shape)
            graph, own, _ = united(graph, added)
            old = placed(old, own)
        n_samples = max(old.shape[1], new.shape[1])
        whole = xp.broadcast_to(old, (old.shape[0], n_samples))
        new = xp.broadcast_to(new, (keys.size, n_samples))
        positions = np.arange(graph.nnz)
        positions[np.searchsorted(graph.keys, keys)] = graph.nnz + np.arange(keys.size)
        self.values = xp.take(xp.concat([whole, new]), asarray_like(positions, whole), axis=0)
        self.graph, self.sample_set = graph, sample_set


class TransposedEntries:
    """Base of `TransposedMatrix`: what it passes on to the matrix."""

    T: Any
    _stored: Any

    @property
    def nnz(self) -> int:
        """The number of stored entries."""
        return int(self.T.nnz)

    @property
    def n_samples(self) -> int:
        """How many samples it holds; 1 means shared by all."""
        return int(self.T.n_samples)

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return self.T.dtype

    @property
    def sample_set(self) -> SampleSet | None:
        """That of the matrix."""
        found: SampleSet | None = self.T.sample_set
        return found

    @property
    def batched(self) -> bool:
        """Whether the values of the matrix came with an axis of samples."""
        return bool(self.T.batched)

    @property
    def real(self) -> Any:
        """The transpose of the real parts."""
        return self.T.real.T

    @property
    def imag(self) -> Any:
        """The transpose of the imaginary parts."""
        return self.T.imag.T

    def __abs__(self) -> Any:
        return abs(self.T).T

    def sum(self, axis: int | None = None) -> Ensemble:
        """The sum of all entries, of each column (``axis=0``) or of each row (``axis=1``)."""
        total: Ensemble = self._stored().sum(axis)
        return total

    def multiply(self, other: Any) -> Any:
        """The product entry by entry, as that of a `CrsMatrix`."""
        return self._stored().multiply(other)

    def setdiag(self, values: Any, k: int = 0) -> None:
        """Write numbers on a diagonal of this matrix, and so of the one that it is the transpose of."""
        self.T.setdiag(values, -operator.index(k))

    def toarray(self) -> Ensemble:
        """The transpose with its zeros, an Ensemble of shape (n_rows, n_columns)."""
        dense: Ensemble = self.T.toarray().mT
        return dense


def _products(a: Any, b: Any) -> Any:
    """``a * b``; complex ones from their parts, as NumPy rounds arrays of different shapes in different ways."""
    return times(a, b) if is_complex(a) or is_complex(b) else computed(operator.mul, a, b)


def _as_entries(matrix: Any, kind: type) -> Any:
    """Any sparse matrix as one of class `kind`, `CrsMatrix`."""
    if isinstance(matrix, kind):
        return matrix
    if hasattr(matrix, "_stored"):
        return matrix._stored()
    return kind.from_scipy(matrix)  # type: ignore[attr-defined]
