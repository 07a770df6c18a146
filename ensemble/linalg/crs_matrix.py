"""`CrsMatrix`: one graph, one value per entry and sample.

Longer than 400 lines: a matrix and its transpose refer to each other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, needs_gradient, to_numpy
from ensemble._check import kind_of, message, require, require_unmasked, sample_number
from ensemble._kernels.multigrid import galerkin
from ensemble._kernels.sparse import crs
from ensemble._keywords import explains_construction
from ensemble._typing import DType, Ids, Vectors
from ensemble.linalg.arithmetic import (
    MatrixArithmetic,
    computed,
    nonzero_rows,
    per_sample,
    placed,
    product_terms,
    united,
)
from ensemble.linalg.elements import assembly_of, element_samples, summed_coordinates
from ensemble.linalg.entries import Entries, TransposedEntries
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.linear_operator import MatrixOperator, inherited
from ensemble.linalg.operators import entry_values, has_sample_axis, multiply, premultiply, set_of
from ensemble.linalg.scipy_matrices import require_valid
from ensemble.linalg.selection import Selectable, moved_values
from ensemble.linalg.stored_values import StoredValues
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set

if TYPE_CHECKING:
    import scipy.sparse


@explains_construction("CrsMatrix")
class CrsMatrix(Entries, StoredValues, Selectable, MatrixArithmetic, MatrixOperator):
    """A sparse matrix, or S of them on one graph.

    ``A + B``, ``A - B``, ``a * A``, ``A / a`` and ``-A`` give matrices, with `a` a number or an Ensemble of shape ()
    (one number per sample) and `B` any matrix of this module or of SciPy. Graphs are united where they differ; an entry
    that becomes zero stays until `eliminate_zeros`. ``A[rows]``, ``A[:, columns]`` and
    `submatrix` choose rows and columns. `real`, `imag`, ``abs(A)``, `sum`, `multiply`, `setdiag` and `toarray` mean
    what they mean for SciPy's sparse arrays.

    Parameters
    ----------
    graph : CrsGraph
    values : array or Ensemble
        Shape (nnz,): the same matrix for all samples. Shape (nnz, n_samples), or an Ensemble of shape (nnz,): one
        matrix per sample. Samples are contiguous: a product reads each index once for all of them.

    Attributes
    ----------
    values : array, shape (nnz, n_samples)
        ``n_samples == 1`` means shared by all samples.
    sample_set : SampleSet or None
        That of an Ensemble of values; products carry it along.

    Raises
    ------
    ValueError
        If `values` does not have one row per entry of `graph`.
    TypeError
        If `values` holds no numbers.

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

    has_partial_dots = True
    __array_ufunc__ = None  # NumPy leaves `array @ A` to us
    queues_kernels = True

    def __init__(self, graph: CrsGraph, values: Any) -> None:
        self.sample_set = set_of(values)
        wanted = f"have one row per stored entry (nnz = {getattr(graph, 'nnz', 0)})"
        entries = entry_values("CrsMatrix", graph, values, 1, wanted)
        self.batched, values = has_sample_axis(values, 1), entries
        require(values.shape[1] > 0, "CrsMatrix", "values", "hold one sample or more", f"shape {tuple(values.shape)}")
        self.graph = graph
        self.values = contiguous(values)

    @classmethod
    def from_scipy(cls, matrices: Any) -> CrsMatrix:
        """One SciPy sparse matrix (shared by all samples), or a list of them (one per sample).

        Doubles are summed; matrices with different patterns get the union of their graphs, without the entries that
        are zero in every matrix. Of matrices with one pattern every stored entry stays; see `eliminate_zeros`.
        """
        import scipy.sparse as sp

        name = "CrsMatrix.from_scipy"
        many = not (sp.issparse(matrices) or isinstance(matrices, np.ndarray))
        if many and not isinstance(matrices, Iterable):
            seen = kind_of(matrices)
            raise TypeError(message(name, "matrices", "be a SciPy sparse matrix or a list of them", seen))
        given = []
        for m in matrices if many else [matrices]:
            good = sp.issparse(m) or isinstance(m, np.ndarray)
            if not good or m.ndim != 2:
                seen = f"shape {m.shape}" if good else kind_of(m)
                raise TypeError(message(name, "matrices", "be SciPy sparse matrices with two axes", seen))
            require_unmasked(m, name, "matrices")
            require_valid(m, name)
            if m.dtype.kind not in "biufc":
                raise TypeError(message(name, "matrices", "hold numbers", f"dtype {m.dtype}"))
            dtype = np.float64 if m.dtype.kind in "biu" else np.result_type(m.dtype, np.float32)
            given.append(sp.csr_array(m).astype(dtype))
        require(len(given) > 0, name, "matrices", "hold one matrix or more", "an empty list")
        shape = given[0].shape
        for m in given:
            require(m.shape == shape, name, "matrices", f"all have shape {shape}", m.shape)
            m.sum_duplicates()
            m.sort_indices()
        first = given[0]
        alike = all(np.array_equal(m.indptr, first.indptr) and np.array_equal(m.indices, first.indices) for m in given)
        if alike:
            values = np.stack([m.data for m in given], axis=1) if many else first.data
            return cls(CrsGraph(first.indptr, first.indices, shape), values)
        union = sum(sp.csr_array((np.ones(m.nnz), m.indices, m.indptr), shape=shape) for m in given)
        union.sort_indices()
        graph = CrsGraph(union.indptr, union.indices, shape)
        keys = graph.keys
        values = np.zeros((graph.nnz, len(given)), np.result_type(*(m.dtype for m in given)))
        for s, m in enumerate(given):
            rows = np.repeat(np.arange(shape[0], dtype=np.int64), np.diff(m.indptr))
            values[np.searchsorted(keys, rows * shape[1] + m.indices), s] = m.data
        return cls(graph, values).eliminate_zeros()

    @classmethod
    def from_coo(cls, rows: Any, cols: Any, values: Any, shape: tuple[int, int]) -> CrsMatrix:
        """The matrix with ``values[t]`` at (``rows[t]``, ``cols[t]``); entries named twice are added in input order.

        `rows` and `cols` have shape (n_entries,); `values` too for one matrix, or shape (n_entries, n_samples) or an
        Ensemble of shape (n_entries,) for one per sample. ValueError if a coordinate is out of range.

        Examples
        --------
        >>> CrsMatrix.from_coo([0, 1, 0], [1, 0, 1], [1.0, 2.0, 3.0], (2, 2)).to_scipy().toarray()
        array([[0., 4.],
               [2., 0.]])
        """
        graph, summed = summed_coordinates(rows, cols, values, shape, "CrsMatrix.from_coo")
        made = cls(graph, Ensemble(summed, set_of(values)))
        made.batched = has_sample_axis(values, 1)
        return made

    @classmethod
    def from_elements(cls, dofs: Any, matrices: Any, shape: tuple[int, int] | None = None) -> CrsMatrix:
        """The sum of element matrices, elements in ascending order.

        Parameters
        ----------
        dofs : array of int, shape (n_elements, k), or ElementAssembly
            The unknowns of each element; an `ElementAssembly` where the same elements are assembled again.
        matrices : array or Ensemble
            Shape (n_elements, k, k) for one matrix, (n_elements, k, k, n_samples) or an Ensemble of shape
            (n_elements, k, k) for one per sample.
        shape : (int, int), optional
            (n, n); not needed with an `ElementAssembly`.

        Raises
        ------
        ValueError
            If an unknown is out of range, or the shapes do not fit.

        Examples
        --------
        >>> import numpy as np
        >>> CrsMatrix.from_elements([[0, 1], [1, 2]], np.ones((2, 2, 2)), (3, 3)).diagonal().samples[:, 0]
        array([1., 2., 1.])
        """
        assembly = assembly_of(dofs, shape, "CrsMatrix.from_elements")
        summed = assembly.matrix_values(element_samples(matrices, 3, "CrsMatrix.from_elements"))
        made = cls(assembly.graph, Ensemble(summed, set_of(matrices)))
        made.batched = has_sample_axis(matrices, 3)
        return made

    def to_scipy(self, i: int = 0) -> scipy.sparse.csr_array:
        """Sample `i` as a ``scipy.sparse.csr_array`` in memory of its own; a shared matrix answers for every sample."""
        import scipy.sparse as sp

        values = to_numpy(self.values[:, sample_number(i, self.n_samples, "CrsMatrix", "i in to_scipy(i)")])
        # SciPy's methods rewrite index arrays in place, and the graph is everyone's.
        return sp.csr_array((values, self.graph.indices, self.graph.indptr), shape=self.shape, copy=True)

    # --- what it is
    def __repr__(self) -> str:
        return f"CrsMatrix(shape={self.shape}, nnz={self.graph.nnz}, n_samples={self.n_samples}, {self.dtype})"

    def eliminate_zeros(self) -> CrsMatrix:
        """The matrix without the entries that are zero in every sample, on a graph of its own; itself if there is none.

        Stored zeros count as couplings in `smoothed_aggregation` and cost iterations there.
        """
        kept = nonzero_rows(self.values)
        if kept.all():
            return self
        values = moved_values(self.values, np.flatnonzero(kept))
        return inherited(CrsMatrix(self.graph.subgraph(kept), Ensemble(values, self.sample_set)), self)

    def diagonal(self) -> Ensemble:
        """The main diagonal, an Ensemble of shape (n_rows,); zero where no entry is stored."""
        entries = self.graph.diagonal_on(self.values)
        return Ensemble(crs.diagonal(entries, self.values, None), self.sample_set)

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """(indptr, indices, values), all where the values live: what every kernel on a matrix begins with."""
        return (*self.graph.arrays_on(self.values), self.values)

    def replay_parts(self) -> tuple[Any, ...]:
        return self.graph, self.values

    @property
    def graph_arrays(self) -> tuple[Any, Any]:
        """(indptr, indices) where the values live."""
        found: tuple[Any, Any] = self.graph.arrays_on(self.values)
        return found

    @property
    def transposed_arrays(self) -> tuple[Any, Any, Any, Any]:
        """(indptr, indices, entries, values) of the transpose, which reads the values where they stand."""
        return (*self.graph.transposed_arrays_on(self.values), self.values)

    # --- arithmetic
    def _stored(self) -> CrsMatrix:
        return self

    def _plus(self, other: Any) -> Any:
        other = as_crs(other)
        if other is NotImplemented:
            return other
        graph, own, given = united(self.graph, other.graph)
        own_values, others = placed(self.values, own), placed(asarray_like(other.values, self.values), given)
        values = computed(operator.add, own_values, others)
        return inherited(CrsMatrix(graph, Ensemble(values, common_set(self.sample_set, other.sample_set))), self, other)

    def _scaled(self, operation: Callable[[Any, Any], Any], factor: Any, sample_set: SampleSet | None) -> CrsMatrix:
        values = computed(operation, self.values, per_sample(factor, self.values))
        return inherited(CrsMatrix(self.graph, Ensemble(values, common_set(self.sample_set, sample_set))), self)

    # --- products
    def apply(self, x: Vectors, out: Vectors | None = None) -> Any:
        """A x on bare arrays: `x` of shape (n_columns, n_samples), the answer in `out`, not `x`, or a new array.

        For loops of solvers: shapes and types are not checked, as those of all methods on bare arrays. `A @ x` checks.
        """
        graph = self.graph
        product = crs.product_of_few(graph.indptr, graph.indices, self.values, x) if out is None else None
        return crs.spmv(*self.arrays, x, out) if product is None else product

    def apply_dot(self, x: Vectors, out: Vectors | None = None) -> tuple[Any, Any]:
        """A x and the inner product of x with it, one value per sample, in one pass over A."""
        y, inner = crs.spmv_dot(*self.arrays, x, out)
        return y, inner

    def apply_dot_partials(self, x: Vectors, out: Vectors | None = None) -> tuple[Any, Any]:
        """`apply_dot` on a device, its inner products left as partial sums."""
        y, partials = crs.spmv_dot_partials(*self.arrays, x, out)
        return y, partials

    def residual(self, x: Vectors, b: Vectors, out: Vectors | None = None) -> Any:
        """b - A x on bare arrays, in one pass over A."""
        return crs.residual(*self.arrays, x, b, out)

    def add_product(self, x: Vectors, out: Vectors) -> Any:
        """out += A x on bare arrays."""
        return crs.spmv_add(*self.arrays, x, out)

    def apply_transpose(self, x: Vectors, out: Vectors | None = None) -> Any:
        """A^T x on bare arrays; the values are read where they stand, in a fixed order."""
        return crs.spmv_transpose(*self.transposed_arrays, x, out)

    def __matmul__(self, other: Any) -> Any:
        graph, kind = self.graph, type(other)
        if kind is np.ndarray and not self.batched:  # what takes the least time: as `multiply` has it
            if other.shape == graph.shape[1:]:
                product = crs.product_of_few(graph.indptr, graph.indices, self.values, other)
                if product is not None:
                    return product
        elif kind is Ensemble:
            samples = other.samples
            if samples.ndim == 2 and samples.shape[0] == graph.shape[1]:
                product = crs.product_of_few(graph.indptr, graph.indices, self.values, samples)
                if product is not None:
                    return Ensemble(product, common_set(other.sample_set, self.sample_set))
        return self._times_matrix(as_crs(other)) if is_matrix(other) else multiply(self, other, "CrsMatrix")

    def __rmatmul__(self, x: Any) -> Any:
        return as_crs(x) @ self if is_matrix(x) else premultiply(x, self)

    def _times_matrix(self, other: CrsMatrix) -> CrsMatrix:
        require(
            self.shape[1] == other.shape[0], "CrsMatrix @ CrsMatrix", "other",
            f"have {self.shape[1]} rows", f"shape {other.shape}",
        )  # fmt: skip
        counts = self.n_samples, other.n_samples
        same = counts[0] == counts[1] or 1 in counts
        require(same, "CrsMatrix @", "operands", "have the same n_samples, or 1", f"{counts[0]} and {counts[1]}")
        graph = self.graph.product(other.graph)
        values = asarray_like(self.values, other.values), asarray_like(other.values, self.values)
        xp = array_namespace(*values)
        a, b = (xp.astype(array, xp.result_type(*values), copy=False) for array in values)
        if needs_gradient(a) or needs_gradient(b):
            values = self._product_with_gradient(other, graph, a, b)
        else:
            values = galerkin.product_values(
                self.graph.arrays_on(a), a, other.graph.arrays_on(b), b, graph.arrays_on(a), None
            )
        return inherited(CrsMatrix(graph, Ensemble(values, common_set(self.sample_set, other.sample_set))), self, other)

    def _product_with_gradient(self, other: CrsMatrix, graph: CrsGraph, a: Any, b: Any) -> Any:
        """The values of the product by operations that have derivatives: its terms, and a product that sums them."""
        first, second, sums = product_terms(self.graph, other.graph, graph)
        xp = array_namespace(a)
        terms = xp.take(a, asarray_like(first, a), axis=0) * xp.take(b, asarray_like(second, a), axis=0)
        ones = xp.astype(asarray_like(np.ones((first.size, 1)), terms), terms.dtype)
        return (CrsMatrix(sums, ones) @ Ensemble(terms)).samples

    @property
    def T(self) -> TransposedMatrix:
        """The transpose, as an operator that shares this matrix's values."""
        return TransposedMatrix(self)


def is_matrix(x: Any) -> bool:
    """Whether `x` is a sparse matrix, of this package or of SciPy."""
    if type(x) is np.ndarray or type(x) is Ensemble:
        return False
    return isinstance(x, MatrixArithmetic) or hasattr(x, "tocsr")


def as_crs(matrix: Any) -> Any:
    """Any sparse matrix as a `CrsMatrix`; NotImplemented for what is none."""
    if isinstance(matrix, CrsMatrix):
        return matrix
    if isinstance(matrix, TransposedMatrix):
        return as_crs(matrix.to_matrix())
    if hasattr(matrix, "to_crs"):
        return matrix.to_crs()
    return CrsMatrix.from_scipy(matrix) if hasattr(matrix, "tocsr") else NotImplemented


class TransposedMatrix(TransposedEntries, Selectable, MatrixArithmetic, MatrixOperator):  # type: ignore[override]
    """``A.T`` of a `CrsMatrix`: nothing is copied, and most of what a matrix can do is passed on to it."""

    __array_ufunc__ = None

    def __init__(self, matrix: Any) -> None:
        self.T = matrix
        self.shape = matrix.shape[::-1]

    def __repr__(self) -> str:
        return f"{self.T!r}.T"

    def _stored(self) -> CrsMatrix:
        return as_crs(self.to_matrix())  # type: ignore[no-any-return]

    def _plus(self, other: Any) -> Any:
        return self.to_matrix() + other

    def _scaled(self, operation: Callable[[Any, Any], Any], factor: Any, sample_set: SampleSet | None) -> Any:
        return self.T._scaled(operation, factor, sample_set).T

    def apply(self, x: Vectors, out: Vectors | None = None) -> Any:
        """A^T x on bare arrays."""
        return self.T.apply_transpose(x, out)

    def __matmul__(self, x: Any) -> Any:
        return as_crs(self) @ as_crs(x) if is_matrix(x) else multiply(self, x, f"{type(self.T).__name__}.T")

    def __rmatmul__(self, x: Any) -> Any:
        return as_crs(x) @ as_crs(self) if is_matrix(x) else premultiply(x, self)

    @property
    def reference_array(self) -> Any:
        """An array of the library and the device of this matrix."""
        return self.T.reference_array

    def diagonal(self) -> Ensemble:
        """The main diagonal, an Ensemble of shape (n_rows,); zero where no entry is stored."""
        entries: Ensemble = self.T.diagonal()
        rows = self.shape[0]
        if entries.shape[0] >= rows:
            return entries[:rows]
        xp = array_namespace(entries)
        padded: Ensemble = xp.concat([entries, xp.zeros(rows - entries.shape[0], dtype=entries.dtype)])
        return padded

    def sample(self, i: int) -> Any:
        """Sample `i` alone, on the same graph."""
        return self.T.sample(i).T

    def take_samples(self, samples: Ids) -> Any:
        """The transposes of the samples named, in that order; a shared matrix is its own answer."""
        return self.T.take_samples(samples).T

    def astype(self, dtype: DType) -> Any:
        """The transpose of the matrix with values of another type."""
        return self.T.astype(dtype).T

    def eliminate_zeros(self) -> Any:
        """The transpose without the entries that are zero in every sample; itself if there is none."""
        without = self.T.eliminate_zeros()
        return self if without is self.T else without.T

    def to_scipy(self, i: int = 0) -> scipy.sparse.csr_array:
        """Sample `i` as a ``scipy.sparse.csr_array``; a shared matrix answers for every sample."""
        return self.T.to_scipy(i).T.tocsr()

    def to_matrix(self) -> Any:
        """A matrix of its own, values copied into the transposed order."""
        indptr, indices, _ = self.T.graph.transposed
        values, graph = self.T.values, CrsGraph.unchecked(indptr, indices, self.shape)
        values = array_namespace(values).take(values, self.T.graph.transposed_arrays_on(values)[2], axis=0)
        return inherited(CrsMatrix(graph, Ensemble(values, self.sample_set)), self.T)
