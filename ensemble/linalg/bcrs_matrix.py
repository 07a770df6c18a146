"""`BcrsMatrix`: one graph of small dense blocks, one block per entry and sample."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, to_numpy
from ensemble._check import array_of, integer, kind_of, message, require, sample_number
from ensemble._kernels.krylov.bicgstab import dot_and_square
from ensemble._kernels.sparse import bcrs, crs
from ensemble._keywords import explains_construction
from ensemble._typing import Vectors
from ensemble.linalg.arithmetic import MatrixArithmetic, computed, nonzero_rows, per_sample, placed, united
from ensemble.linalg.crs_matrix import CrsMatrix, TransposedMatrix, as_crs, is_matrix
from ensemble.linalg.elements import assembly_of, element_samples, two_sizes
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.linear_operator import MatrixOperator, inherited
from ensemble.linalg.operators import entry_values, has_sample_axis, multiply, premultiply, set_of
from ensemble.linalg.selection import Selectable
from ensemble.linalg.stored_values import StoredValues
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set


@explains_construction("BcrsMatrix")
class BcrsMatrix(StoredValues, Selectable, MatrixArithmetic, MatrixOperator):
    """A sparse matrix of dense blocks of one shape, or S of them on one graph: r * c unknowns couple per entry.

    The storage of elasticity and other systems of equations: a product reads one column index per block, and gives the
    bits of the `CrsMatrix` with the same entries. ``A + B``, ``a * A`` and the like are those of a `CrsMatrix`; a sum
    with a matrix that has no blocks of this shape is a `CrsMatrix`.

    Parameters
    ----------
    graph : CrsGraph, shape (n, m)
        One entry per block.
    values : array or Ensemble
        Shape (nnz, r, c): one matrix for all samples. Shape (nnz, r, c, n_samples), or an Ensemble of shape (nnz, r,
        c): one per sample. Entry (p, q) of the block at (i, j) is entry (r i + p, c j + q) of the matrix.

    Attributes
    ----------
    shape : (int, int)
        Scalar unknowns, (r n, c m).
    block_shape : (int, int)
        (r, c).
    nnz : int
        Scalar entries of one sample, r c per block.
    values : array, shape (nnz, r, c, n_samples)
        ``n_samples == 1`` means shared by all samples.

    Raises
    ------
    ValueError
        If `values` does not have one block per entry of `graph`.
    TypeError
        If `values` holds no numbers.

    Examples
    --------
    >>> import numpy as np
    >>> graph = CrsGraph([0, 1, 2], [0, 1], (2, 2))
    >>> A = BcrsMatrix(graph, np.arange(8.0).reshape(2, 2, 2))
    >>> A
    BcrsMatrix(shape=(4, 4), blocks=2 of 2 x 2, n_samples=1, float64)
    >>> A @ np.ones(4)
    array([ 1.,  5.,  9., 13.])
    >>> A @ np.ones((2, 2))                                  # the unknowns of a node side by side
    array([[ 1.,  5.],
           [ 9., 13.]])
    """

    has_partial_dots = True
    __array_ufunc__ = None  # NumPy leaves `array @ A` to us
    has_fused_steps = True
    queues_kernels = True

    def __init__(self, graph: CrsGraph, values: Any) -> None:
        self.sample_set = set_of(values)
        wanted = f"have shape (nnz, r, c) or (nnz, r, c, n_samples), nnz = {getattr(graph, 'nnz', 0)}"
        entries = entry_values("BcrsMatrix", graph, values, 3, wanted, "A CrsMatrix holds single numbers.")
        self.batched, values = has_sample_axis(values, 3), entries
        requirement = "hold one row, one column and one sample or more"
        require(min(values.shape[1:]) > 0, "BcrsMatrix", "values", requirement, f"shape {tuple(values.shape)}")
        self.graph = graph
        self.values = contiguous(values)

    @classmethod
    def from_crs(cls, A: Any, block_shape: tuple[int, int] | int) -> BcrsMatrix:
        """The blocks of a sparse matrix, zero where it stores nothing.

        Parameters
        ----------
        A : CrsMatrix or another stored matrix, shape (r n, c m)
        block_shape : (int, int) or int
            (r, c), or r for (r, r).

        Raises
        ------
        ValueError
            If `block_shape` does not divide the shape of `A`.
        """
        matrix, name = as_crs(A), "BcrsMatrix.from_crs"
        if matrix is NotImplemented:
            raise TypeError(message(name, "A", "be a sparse matrix", kind_of(A)))
        r, c = block_sizes(block_shape, name)
        (rows, columns), graph = matrix.shape, matrix.graph
        require(rows % r == 0 and columns % c == 0, name, "block_shape", f"divide {matrix.shape}", (r, c))
        (block_row, p), (block_column, q) = np.divmod(graph.row_of_entry, r), np.divmod(graph.indices, c)
        n, m = rows // r, columns // c
        keys, place = np.unique(block_row * np.int64(m) + block_column, return_inverse=True)
        indptr = np.searchsorted(keys, np.arange(n + 1, dtype=np.int64) * m)
        blocks = CrsGraph(indptr, keys % max(m, 1), (n, m))
        source = np.full(keys.size * r * c, -1, np.int64)
        source[(place * r + p) * c + q] = np.arange(graph.nnz)
        values = placed(matrix.values, source)
        shape = (keys.size, r, c, matrix.n_samples)
        return inherited(
            cls(blocks, Ensemble(array_namespace(values).reshape(values, shape), matrix.sample_set)), matrix
        )

    @classmethod
    def from_scipy(cls, matrices: Any, block_shape: tuple[int, int] | int | None = None) -> BcrsMatrix:
        """One SciPy sparse matrix (shared by all samples), or a list of them (one per sample).

        `block_shape` is by default that of the matrices, which then are ``bsr_array``.
        """
        many = (
            isinstance(matrices, Iterable) and not hasattr(matrices, "tocsr") and not isinstance(matrices, np.ndarray)
        )
        first = next(iter(matrices), None) if many else matrices
        if block_shape is None:
            block_shape = getattr(first, "blocksize", None)
        if block_shape is None:
            seen = kind_of(first)
            advice = "Give block_shape=(r, c)."
            raise TypeError(message("BcrsMatrix.from_scipy", "matrices", "be bsr_array", seen, advice))
        return cls.from_crs(CrsMatrix.from_scipy(matrices), block_shape)

    @classmethod
    def from_elements(cls, dofs: Any, matrices: Any, shape: tuple[int, int] | None = None) -> BcrsMatrix:
        """The sum of element matrices of blocks, elements in ascending order.

        Parameters
        ----------
        dofs : array of int, shape (n_elements, k), or ElementAssembly
            The nodes of each element.
        matrices : array or Ensemble
            Shape (n_elements, k, k, r, c) for one matrix, (n_elements, k, k, r, c, n_samples) or an Ensemble of shape
            (n_elements, k, k, r, c) for one per sample.
        shape : (int, int), optional
            Of the matrix, (r n, c n) for n nodes; not needed with an `ElementAssembly`.

        Raises
        ------
        ValueError
            If a node is out of range, or the shapes do not fit.
        """
        name = "BcrsMatrix.from_elements"
        samples = element_samples(matrices, 5, name)
        if shape is not None:
            (rows, r), (columns, c) = zip(two_sizes(shape, name), samples.shape[3:5], strict=True)
            require(rows % r == 0 and columns % c == 0, name, "shape", f"be multiples of {(r, c)}", tuple(shape))
            shape = rows // r, columns // c
        assembly = assembly_of(dofs, shape, name)
        made = cls(assembly.graph, Ensemble(assembly.matrix_values(samples), set_of(matrices)))
        made.batched = has_sample_axis(matrices, 5)
        return made

    def to_crs(self) -> CrsMatrix:
        """The same matrix with a column index for every scalar entry."""
        graph, places = self.graph.expanded(*self.block_shape)
        places = self.graph.array_on(self.values, f"expanded {self.block_shape}", places)
        values = array_namespace(self.values).take(self.flat_values, places, axis=0)
        return inherited(CrsMatrix(graph, Ensemble(values, self.sample_set)), self)

    def to_scipy(self, i: int = 0) -> Any:
        """Sample `i` as a ``scipy.sparse.bsr_array`` in memory of its own; a shared matrix answers for every sample."""
        import scipy.sparse as sp

        values = to_numpy(self.values[..., sample_number(i, self.n_samples, "BcrsMatrix", "i in to_scipy(i)")])
        return sp.bsr_array((values, self.graph.indices, self.graph.indptr), shape=self.shape, copy=True)

    # --- what it is
    @property
    def block_shape(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return int(self.values.shape[1]), int(self.values.shape[2])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, in scalar unknowns."""
        (n, m), (r, c) = self.graph.shape, self.block_shape
        return n * r, m * c

    @property
    def block_size(self) -> int:
        """Rows of a block: the components of an unknown."""
        return self.block_shape[0]

    @property
    def nnz(self) -> int:
        """Scalar entries of one sample."""
        r, c = self.block_shape
        return self.graph.nnz * r * c

    @property
    def n_samples(self) -> int:
        """Samples held; 1 means shared by all."""
        return int(self.values.shape[-1])

    @property
    def flat_values(self) -> Any:
        """The values as an array of shape (nnz, n_samples), in the order of the blocks."""
        return array_namespace(self.values).reshape(self.values, (self.nnz, self.n_samples))

    def with_flat_values(self, values: Any) -> BcrsMatrix:
        """A matrix on this graph with other `flat_values`, whose number of samples may differ."""
        shape = (self.graph.nnz, *self.block_shape, values.shape[-1])
        return BcrsMatrix(self.graph, array_namespace(values).reshape(values, shape))

    def __repr__(self) -> str:
        (r, c), counts = self.block_shape, f"blocks={self.graph.nnz}"
        return f"BcrsMatrix(shape={self.shape}, {counts} of {r} x {c}, n_samples={self.n_samples}, {self.dtype})"

    def eliminate_zeros(self) -> BcrsMatrix:
        """The matrix without the blocks that are zero in every sample, on another graph; itself if there is none."""
        xp, n_blocks = array_namespace(self.values), self.graph.nnz
        kept = nonzero_rows(xp.reshape(self.values, (n_blocks, int(np.prod(self.values.shape[1:])))))
        if kept.all():
            return self
        values = xp.take(self.values, asarray_like(np.flatnonzero(kept), self.values), axis=0)
        return inherited(BcrsMatrix(self.graph.subgraph(kept), Ensemble(values, self.sample_set)), self)

    def diagonal(self) -> Ensemble:
        """The main diagonal, an Ensemble of shape (n_rows,); zero where no block is stored."""
        r, c = self.block_shape
        if r != c:
            return self.to_crs().diagonal()
        entries = self.graph.array_on(self.values, f"diagonal of {r} x {r}", diagonal_places(self.graph, r))
        return Ensemble(crs.diagonal(entries, self.flat_values, None), self.sample_set)

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """(indptr, indices, values), all where the values live: what every kernel on a matrix begins with."""
        return (*self.graph.arrays_on(self.values), self.values)

    def replay_parts(self) -> tuple[Any, ...]:
        return self.graph, self.values

    # --- arithmetic
    def _plus(self, other: Any) -> Any:
        other = other.to_matrix() if isinstance(other, TransposedMatrix) else other
        if not isinstance(other, BcrsMatrix) or other.block_shape != self.block_shape:
            return self.to_crs() + other
        graph, own, given = united(self.graph, other.graph)
        first = _placed_blocks(self.values, own)
        second = _placed_blocks(asarray_like(other.values, self.values), given)
        values = Ensemble(computed(operator.add, first, second), common_set(self.sample_set, other.sample_set))
        return inherited(BcrsMatrix(graph, values), self, other)

    def _scaled(self, operation: Callable[[Any, Any], Any], factor: Any, sample_set: SampleSet | None) -> BcrsMatrix:
        values = computed(operation, self.values, per_sample(factor, self.values))
        return inherited(BcrsMatrix(self.graph, Ensemble(values, common_set(self.sample_set, sample_set))), self)

    # --- products
    def apply(self, x: Vectors, out: Vectors | None = None) -> Any:
        """A x on bare arrays: `x` of shape (n_columns, n_samples), the answer in `out` or a new array."""
        return bcrs.block_spmv(*self.arrays, x, out)

    def apply_dot_partials(self, x: Vectors, out: Vectors | None = None) -> tuple[Any, Any]:
        """`apply_dot` on a device, its inner products left as partial sums."""
        y, partials = bcrs.block_spmv_partials(*self.arrays, x, out)
        return y, partials

    def residual(self, x: Vectors, b: Vectors, out: Vectors | None = None) -> Any:
        """b - A x on bare arrays, in one pass over A."""
        return bcrs.block_residual(*self.arrays, x, b, out)

    def apply_transpose(self, x: Vectors, out: Vectors | None = None) -> Any:
        """A^T x on bare arrays; the values are read where they stand, in a fixed order."""
        return bcrs.block_spmv_transpose(*self.graph.transposed_arrays_on(self.values), self.values, x, out)

    def __matmul__(self, other: Any) -> Any:
        if is_matrix(other):
            return self.to_crs() @ as_crs(other)
        return _multiply_nodes(self, self.graph.shape[1], self.block_shape, other, "BcrsMatrix")

    def __rmatmul__(self, x: Any) -> Any:
        return as_crs(x) @ self.to_crs() if is_matrix(x) else premultiply(x, self)

    @property
    def T(self) -> TransposedBcrsMatrix:
        """The transpose, as an operator that shares this matrix's values."""
        return TransposedBcrsMatrix(self)

    # --- one step of a smoother, or of the power method
    def chebyshev_first(self, dinv: Any, b: Any, x: Any, c: Any, w: Any, out: Any) -> Any:
        """w = c * dinv * (b - A x), and x + w to `out`."""
        return bcrs.block_chebyshev_first(*self.arrays, dinv, b, x, c, w, out)

    def chebyshev_step(self, dinv: Any, b: Any, x: Any, a: Any, c: Any, w: Any, out: Any) -> Any:
        """w = a * w + c * dinv * (b - A x), and x + w to `out`."""
        return bcrs.block_chebyshev_step(*self.arrays, dinv, b, x, a, c, w, out)

    def chebyshev_last(self, dinv: Any, b: Any, x: Any, a: Any, c: Any, w: Any, out: Any) -> Any:
        """x + a * w + c * dinv * (b - A x) to `out`."""
        return bcrs.block_chebyshev_last(*self.arrays, dinv, b, x, a, c, w, out)

    def power_step(self, dinv: Any, q: Any, scale: Any, out: Any) -> Any:
        """z = dinv * (A (scale * q)) to `out`, its Rayleigh quotients and squares."""
        z = self.apply(q, out)
        z *= dinv
        z *= scale
        inner, square = dot_and_square(q, z)
        return z, scale * inner, square


class TransposedBcrsMatrix(TransposedMatrix):
    """``A.T`` of a `BcrsMatrix`: nothing is copied."""

    def __matmul__(self, x: Any) -> Any:
        if is_matrix(x):
            return as_crs(self) @ as_crs(x)
        (r, c), blocks = self.T.block_shape, self.T.graph.shape[0]
        return _multiply_nodes(self, blocks, (c, r), x, "BcrsMatrix.T")

    def to_matrix(self) -> BcrsMatrix:
        """A matrix of its own, values copied into the transposed order."""
        A = self.T
        indptr, indices, _ = A.graph.transposed
        xp, graph = array_namespace(A.values), CrsGraph.unchecked(indptr, indices, A.graph.shape[::-1])
        values = xp.take(A.values, A.graph.transposed_arrays_on(A.values)[2], axis=0)
        return inherited(BcrsMatrix(graph, Ensemble(xp.permute_dims(values, (0, 2, 1, 3)), self.sample_set)), A)


def block_sizes(block_shape: Any, name: str) -> tuple[int, int]:
    """(r, c) of `block_shape`, which may be one number for both."""
    sizes = (block_shape,) * 2 if isinstance(block_shape, int | np.integer) else block_shape
    if not isinstance(sizes, list | tuple) or len(sizes) != 2:
        raise TypeError(message(name, "block_shape", "be (r, c) or one number", repr(block_shape)))
    r, c = (integer(size, name, "block_shape", minimum=1) for size in sizes)
    return r, c


def diagonal_places(graph: CrsGraph, size: int) -> np.ndarray:
    """For each scalar row its diagonal entry in flattened blocks of `size` by `size`, or -1; shape (n_rows * size,)."""
    first = graph.diagonal_entries.astype(np.int64)[:, None] * size * size
    return np.where(first < 0, -1, first + np.arange(size) * (size + 1)).reshape(-1)


def _placed_blocks(values: Any, positions: np.ndarray | None) -> Any:
    if positions is None:
        return values
    xp, inner = array_namespace(values), values.shape[1:]
    found = placed(xp.reshape(values, (values.shape[0], int(np.prod(inner)))), positions)
    return xp.reshape(found, (positions.size, *inner))


def _multiply_nodes(operator: Any, n_nodes: int, block_shape: tuple[int, int], x: Any, name: str) -> Any:
    """`multiply`, also for `x` of shape (n_nodes, c) with c > 1: gives shape (n, r), or (n,) where r is 1."""
    r, c = block_shape
    if isinstance(x, list | tuple):
        x = array_of(x, f"{name} @", "x", "hold numbers")
    if c == 1 or tuple(getattr(x, "shape", ())) != (n_nodes, c):
        return multiply(operator, x, name)
    y = multiply(operator, array_namespace(x).reshape(x, (n_nodes * c,)), name)
    n = operator.shape[0] // r
    return array_namespace(y).reshape(y, (n, r) if r > 1 else (n,))
