"""`CrsMatrix`: one graph, one value per entry and sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, contiguous, is_array, moved, to_numpy
from ensemble._check import message, require
from ensemble._kernels import galerkin, krylov, sparse
from ensemble._kernels.product_graphs import product_graph
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.operators import samples_of, wrap_like
from ensemble.scalar import Ensemble


class CrsMatrix:
    """A sparse matrix, or S of them on one graph.

    Parameters
    ----------
    graph : CrsGraph
    values : array or Ensemble
        Shape (nnz,): the same matrix for all samples. Shape (nnz, n_samples), or an Ensemble of shape (nnz,): one
        matrix a sample. Samples are contiguous: a product reads each index once for all of them.

    Attributes
    ----------
    values : array, shape (nnz, n_samples)
        ``n_samples == 1`` means shared by all samples.

    Raises
    ------
    ValueError
        If `values` does not have one row per entry of `graph`.

    Examples
    --------
    >>> import numpy as np
    >>> graph = CrsGraph([0, 2, 4], [0, 1, 0, 1], (2, 2))
    >>> A = CrsMatrix(graph, np.array([[2.0, 4.0], [1.0, 1.0], [1.0, 1.0], [2.0, 4.0]]))
    >>> A
    CrsMatrix(shape=(2, 2), nnz=4, n_samples=2, float64)
    >>> (A @ np.array([1.0, 0.0])).samples
    array([[2., 4.],
           [1., 1.]])
    """

    __array_ufunc__ = None  # NumPy leaves `array @ A` to us
    queues_kernels = True

    def __init__(self, graph: CrsGraph, values: Any) -> None:
        if not isinstance(graph, CrsGraph):
            raise TypeError(message("CrsMatrix", "graph", "be a CrsGraph", f"a {type(graph).__name__}"))
        if isinstance(values, Ensemble):
            values = values.samples
        if not is_array(values):
            values = np.asarray(values)
        if values.ndim == 1:
            values = values[:, None]
        require(
            values.ndim == 2 and values.shape[0] == graph.nnz, "CrsMatrix", "values",
            f"have one row per stored entry (nnz = {graph.nnz})", f"shape {tuple(values.shape)}",
        )  # fmt: skip
        require(values.shape[1] > 0, "CrsMatrix", "values", "hold one sample or more", f"shape {tuple(values.shape)}")
        if isinstance(values, np.ndarray) and values.dtype.kind in "iub":
            values = values.astype(np.float64)
        self.graph = graph
        self.values = contiguous(values)

    @classmethod
    def from_scipy(cls, matrices: Any) -> CrsMatrix:
        """One SciPy sparse matrix (shared by all samples), or a list of them (one a sample).

        Doubles are summed; matrices with different patterns get the union of their graphs. An explicit zero stays.
        """
        import scipy.sparse as sp

        many = isinstance(matrices, (list, tuple))
        given = [
            sp.csr_array(m).astype(np.result_type(m.dtype, np.float32)) for m in (matrices if many else [matrices])
        ]
        require(len(given) > 0, "CrsMatrix.from_scipy", "matrices", "hold one matrix or more", "an empty list")
        shape = given[0].shape
        for m in given:
            require(m.shape == shape, "CrsMatrix.from_scipy", "matrices", f"all have shape {shape}", m.shape)
            m.sum_duplicates()
            m.sort_indices()
        first = given[0]
        alike = all(np.array_equal(m.indptr, first.indptr) and np.array_equal(m.indices, first.indices) for m in given)
        if alike:
            return cls(CrsGraph(first.indptr, first.indices, shape), np.stack([m.data for m in given], axis=1))
        union = sum(sp.csr_array((np.ones(m.nnz), m.indices, m.indptr), shape=shape) for m in given)
        union.sort_indices()
        graph = CrsGraph(union.indptr, union.indices, shape)
        keys = graph.row_of_entry.astype(np.int64) * shape[1] + graph.indices
        values = np.zeros((graph.nnz, len(given)), np.result_type(*(m.dtype for m in given)))
        for s, m in enumerate(given):
            rows = np.repeat(np.arange(shape[0], dtype=np.int64), np.diff(m.indptr))
            values[np.searchsorted(keys, rows * shape[1] + m.indices), s] = m.data
        return cls(graph, values)

    def to_scipy(self, i: int = 0) -> Any:
        """Sample `i` as a ``scipy.sparse.csr_array``; a shared matrix answers for every sample."""
        import scipy.sparse as sp

        values = to_numpy(self.values[:, 0 if self.n_samples == 1 else i])
        arrays = (values.copy(), self.graph.indices, self.graph.indptr)
        return sp.csr_array(arrays, shape=self.shape)

    # --- what it is
    def __repr__(self) -> str:
        return f"CrsMatrix(shape={self.shape}, nnz={self.graph.nnz}, n_samples={self.n_samples}, {self.dtype})"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.graph.shape

    @property
    def nnz(self) -> int:
        """Stored entries of one sample."""
        return self.graph.nnz

    @property
    def n_samples(self) -> int:
        """Samples held; 1 means shared by all."""
        return self.values.shape[1]

    @property
    def dtype(self) -> Any:
        """Type of the values."""
        return self.values.dtype

    def sample(self, i: int) -> CrsMatrix:
        """Sample `i` alone, on the same graph."""
        return CrsMatrix(self.graph, self.values[:, 0 if self.n_samples == 1 else i])

    def take_samples(self, samples: Any) -> CrsMatrix:
        """The matrix of the samples named, in that order; a shared matrix is its own answer."""
        if self.n_samples == 1:
            return self
        return CrsMatrix(self.graph, krylov.take_samples(self.values, moved(np.asarray(samples), self.values), None))

    def to(self, like: Any) -> CrsMatrix:
        """This matrix with its values in the library and on the device of the array `like`."""
        if is_array(like) and type(like) is type(self.values):
            return self
        return CrsMatrix(self.graph, moved(to_numpy(self.values), like))

    def astype(self, dtype: Any) -> CrsMatrix:
        """The same matrix with values of another type; itself where that is their type."""
        if self.dtype == dtype:
            return self
        return CrsMatrix(self.graph, array_namespace(self.values).astype(self.values, dtype))

    def diagonal(self) -> Ensemble:
        """The main diagonal, an Ensemble of shape (n_rows,); zero where no entry is stored."""
        return Ensemble(sparse.diagonal(self.graph.diagonal_beside(self.values), self.values, None))

    @property
    def home(self) -> Any:
        """An array that lives where this matrix does."""
        return self.values

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """(indptr, indices, values), all where the values live: what every kernel on a matrix begins with."""
        return (*self.graph.beside(self.values), self.values)

    @property
    def transposed_arrays(self) -> tuple[Any, Any, Any, Any]:
        """(indptr, indices, entries, values) of the transpose, which reads the values where they stand."""
        return (*self.graph.transposed_beside(self.values), self.values)

    # --- products
    def apply(self, x: Any, out: Any = None) -> Any:
        """A x on bare arrays: `x` of shape (n_columns, n_samples), the answer in `out` or a new array."""
        return sparse.spmv(*self.arrays, x, out)

    def apply_dot(self, x: Any, out: Any = None) -> tuple[Any, Any]:
        """A x and the inner product of x with it, one value a sample, in one pass over A."""
        return sparse.spmv_dot(*self.arrays, x, out)

    def apply_dot_partials(self, x: Any, out: Any = None) -> tuple[Any, Any]:
        """`apply_dot` on a device, its inner products left as partial sums."""
        return sparse.spmv_dot_partials(*self.arrays, x, out)

    def residual(self, x: Any, b: Any, out: Any = None) -> Any:
        """b - A x on bare arrays, in one pass over A."""
        return sparse.residual(*self.arrays, x, b, out)

    def apply_transpose(self, x: Any, out: Any = None) -> Any:
        """A^T x on bare arrays; the values are read where they stand, in a fixed order."""
        return sparse.spmv_transpose(*self.transposed_arrays, x, out)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, CrsMatrix):
            return self._times_matrix(other)
        return multiply(self, other)

    def _times_matrix(self, other: CrsMatrix) -> CrsMatrix:
        require(
            self.shape[1] == other.shape[0], "CrsMatrix @ CrsMatrix", "other",
            f"have {self.shape[1]} rows", f"shape {other.shape}",
        )  # fmt: skip
        _same_samples(self.n_samples, other.n_samples)
        graph_a, graph_b = ((m.graph.indptr, m.graph.indices) for m in (self, other))
        indptr, indices = product_graph(*graph_a, *graph_b, other.shape[1])
        graph = CrsGraph.unchecked(indptr, indices, (self.shape[0], other.shape[1]))
        xp, dtype = array_namespace(self.values), np.result_type(self.dtype, other.dtype)
        a, b = (xp.astype(m.values, dtype, copy=False) for m in (self, other))
        values = galerkin.product_values(self.graph.beside(a), a, other.graph.beside(b), b, graph.beside(a), None)
        return CrsMatrix(graph, values)

    @property
    def T(self) -> TransposedMatrix:
        """The transpose, as an operator that shares this matrix's values."""
        return TransposedMatrix(self)


class TransposedMatrix:
    """``A.T`` of a `CrsMatrix`: nothing is copied."""

    __array_ufunc__ = None

    def __init__(self, matrix: CrsMatrix) -> None:
        self.T = matrix
        self.shape = matrix.shape[::-1]
        self.n_samples = matrix.n_samples
        self.dtype = matrix.dtype

    def __repr__(self) -> str:
        return f"{self.T!r}.T"

    def astype(self, dtype: Any) -> TransposedMatrix:
        """The transpose of the matrix with values of another type."""
        return self if self.dtype == dtype else type(self)(self.T.astype(dtype))

    def apply(self, x: Any, out: Any = None) -> Any:
        """A^T x on bare arrays."""
        return self.T.apply_transpose(x, out)

    def __matmul__(self, x: Any) -> Any:
        if isinstance(x, CrsMatrix):
            return self.to_matrix() @ x
        return multiply(self, x)

    def to_matrix(self) -> CrsMatrix:
        """A `CrsMatrix` of its own, values copied into the transposed order."""
        indptr, indices, entries = self.T.graph.transposed
        return CrsMatrix(CrsGraph(indptr, indices, self.shape), self.T.values[entries])


def _same_samples(a: int, b: int) -> None:
    require(a == b or 1 in (a, b), "CrsMatrix @", "operands", "have the same n_samples, or 1", f"{a} and {b}")


def multiply(matrix: Any, x: Any) -> Any:
    """``matrix @ x`` for a vector or a tall array, plain or Ensemble."""
    if not is_array(x) and not isinstance(x, Ensemble):
        return NotImplemented
    samples = samples_of(x)
    require(
        samples.ndim in (2, 3) and samples.shape[0] == matrix.shape[1], "CrsMatrix @", "x",
        f"have {matrix.shape[1]} rows (the matrix has shape {matrix.shape})", f"shape {tuple(samples.shape[:-1])}",
    )  # fmt: skip
    _same_samples(matrix.n_samples, samples.shape[-1])
    n_samples = max(matrix.n_samples, samples.shape[-1])
    dtype = np.result_type(matrix.dtype, samples.dtype)
    if samples.ndim == 3:  # the columns of x one after another
        columns = [multiply(matrix, Ensemble(samples[:, j, :])).samples for j in range(samples.shape[1])]
        return wrap_like(x, array_namespace(samples).stack(columns, axis=1), matrix.n_samples)
    if samples.shape[1] != n_samples:
        samples = array_namespace(samples).broadcast_to(samples, (samples.shape[0], n_samples))
    y = matrix.astype(dtype).apply(contiguous(samples, dtype))
    return wrap_like(x, y, matrix.n_samples)
