"""`SymmetricCrsMatrix`: half the values of a symmetric matrix, and half the traffic of its products."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous
from ensemble._check import kind_of, message, require, require_type
from ensemble._kernels.multigrid import symmetric as kernels
from ensemble._kernels.sparse import crs
from ensemble._keywords import explains_construction
from ensemble._typing import Vectors
from ensemble.linalg.arithmetic import MatrixArithmetic, computed, nonzero_rows, per_sample
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs, is_matrix
from ensemble.linalg.diagonal import Diagonal
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.linear_operator import MatrixOperator, inherited
from ensemble.linalg.operators import (
    has_sample_axis,
    multiply,
    numbers_of,
    premultiply,
    set_of,
    shape_text,
    with_sample_axis,
)
from ensemble.linalg.selection import Selectable
from ensemble.linalg.stored_values import StoredValues
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set

if TYPE_CHECKING:
    import scipy.sparse


@explains_construction("SymmetricCrsMatrix")
class SymmetricCrsMatrix(StoredValues, Selectable, MatrixArithmetic, MatrixOperator):
    """A symmetric sparse matrix, or S of them on one graph, of which the upper triangle is stored.

    A product of many samples takes the time that the values need from memory, and every stored value serves two
    entries here: products, smoothing steps and residuals take half of a `CrsMatrix`'s time, and give its bits.

    Parameters
    ----------
    graph : CrsGraph, shape (n, n)
        The graph of the whole matrix, itself symmetric, with a diagonal entry in every row.
    values : array or Ensemble
        The values on and above the diagonal, row by row: shape (n_stored,) for the same matrix in all samples,
        (n_stored, n_samples) or an Ensemble of shape (n_stored,) for one matrix per sample;
        ``n_stored = graph.upper.starts[-1]``.

    Attributes
    ----------
    values : array, shape (n_stored, n_samples)
        ``n_samples == 1`` means shared by all samples.
    sample_set : SampleSet or None
        That of an Ensemble of values; products carry it along.

    Raises
    ------
    ValueError
        If the graph is not symmetric or lacks a diagonal entry, or `values` does not have one row per stored value.

    Examples
    --------
    >>> import numpy as np
    >>> graph = CrsGraph([0, 2, 4], [0, 1, 0, 1], (2, 2))
    >>> A = SymmetricCrsMatrix(graph, np.array([2.0, -1.0, 3.0]))
    >>> A @ np.array([1.0, 1.0])
    array([1., 2.])
    """

    __array_ufunc__ = None  # NumPy leaves `array @ A` to us
    has_fused_steps = True
    stores_upper = True

    def __init__(self, graph: CrsGraph, values: Any) -> None:
        name, advice = "SymmetricCrsMatrix", "SymmetricCrsMatrix.from_crs picks them from a CrsMatrix."
        if not isinstance(graph, CrsGraph):
            raise TypeError(message(name, "graph", "be a CrsGraph", kind_of(graph)))
        n_stored = int(graph.upper.starts[-1])
        wanted = f"have one row per entry on and above the diagonal ({n_stored}) and a sample or more"
        self.sample_set = set_of(values)
        values = values if isinstance(values, Ensemble) else numbers_of(values, name, "values")
        self.batched = has_sample_axis(values, 1)
        seen, values = shape_text(values), with_sample_axis(values, 1, name, "values", wanted, advice)
        require(values.shape[0] == n_stored and values.shape[1] > 0, name, "values", wanted, seen, advice)
        self.graph, self.values = graph, contiguous(values)

    @classmethod
    def from_crs(cls, A: CrsMatrix) -> SymmetricCrsMatrix:
        """The stored half of `A`.

        Raises
        ------
        TypeError
            If `A` is no `CrsMatrix`.
        ValueError
            If an entry differs from the one across the diagonal, in any sample; NaN is equal to NaN here.
        """
        require_type(A, CrsMatrix, "SymmetricCrsMatrix.from_crs", "A", "be a CrsMatrix")
        xp = array_namespace(A.values)
        starts, entries, _ = A.graph.upper
        first = np.empty(int(starts[-1]), np.int64)  # of the entries that share a value, the last is the upper one
        rows = A.graph.row_of_entry
        above = A.graph.indices >= rows
        first[entries[above]] = np.flatnonzero(above)
        upper = Ensemble(xp.take(A.values, asarray_like(first, A.values), axis=0), A.sample_set)
        matrix: SymmetricCrsMatrix = inherited(cls(A.graph, upper), A)
        other = xp.take(matrix.values, asarray_like(entries, A.values), axis=0)
        alike = (A.values == other) | ((A.values != A.values) & (other != other))
        if not bool(xp.all(alike)):
            k = int(np.flatnonzero(~np.asarray(xp.all(alike, axis=1)))[0])
            require(
                False, "SymmetricCrsMatrix.from_crs", "A", "equal its transpose to the last bit",
                f"another value at ({rows[k]}, {A.graph.indices[k]}) than across the diagonal", "Keep the CrsMatrix.",
            )  # fmt: skip
        return matrix

    def to_crs(self) -> CrsMatrix:
        """The same matrix with every entry stored."""
        return inherited(CrsMatrix(self.graph, Ensemble(kernels.expanded(*self.arrays)[2], self.sample_set)), self)

    def eliminate_zeros(self) -> SymmetricCrsMatrix:
        """The matrix without the off-diagonal entries that are zero in every sample; itself if there is none."""
        starts, entries, _ = self.graph.upper
        kept = nonzero_rows(self.values)
        kept[starts[:-1]] = True  # the diagonal
        if kept.all():
            return self
        values = array_namespace(self.values).take(self.values, asarray_like(np.flatnonzero(kept), self.values), axis=0)
        return inherited(
            SymmetricCrsMatrix(self.graph.subgraph(kept[entries]), Ensemble(values, self.sample_set)), self
        )

    # --- arithmetic
    def _plus(self, other: Any) -> Any:
        total = self.to_crs() + (other.to_crs() if isinstance(other, SymmetricCrsMatrix) else other)
        return SymmetricCrsMatrix.from_crs(total) if isinstance(other, SymmetricCrsMatrix | Diagonal) else total

    def _scaled(
        self, operation: Callable[[Any, Any], Any], factor: Any, sample_set: SampleSet | None
    ) -> SymmetricCrsMatrix:
        values = computed(operation, self.values, per_sample(factor, self.values))
        return inherited(
            SymmetricCrsMatrix(self.graph, Ensemble(values, common_set(self.sample_set, sample_set))), self
        )

    def to_scipy(self, i: int = 0) -> scipy.sparse.csr_array:
        """Sample `i` as a ``scipy.sparse.csr_array``, every entry stored."""
        return self.sample(i).to_crs().to_scipy()

    # --- what it is
    def __repr__(self) -> str:
        return f"SymmetricCrsMatrix(shape={self.shape}, nnz={self.nnz}, n_samples={self.n_samples}, {self.dtype})"

    @property
    def T(self) -> SymmetricCrsMatrix:
        """The transpose, which is the matrix itself."""
        return self

    @property
    def arrays(self) -> tuple[Any, Any]:
        """((indptr, indices, starts, entries, reach), values): what every kernel on such a matrix begins with."""
        starts, _, reach = self.graph.upper
        starts = self.graph.array_on(self.values, "upper starts", starts)
        return (*self.graph.arrays_on(self.values), starts, self.entries, reach), self.values

    def replay_parts(self) -> tuple[Any, ...]:
        return self.graph, self.values

    @property
    def entries(self) -> Any:
        """For each entry of the graph the place of its value, on the device of the values."""
        return self.graph.array_on(self.values, "upper entries", self.graph.upper.entries)

    @property
    def graph_arrays(self) -> tuple[Any, Any, Any]:
        """(indptr, indices, entries) on the device of the values, for kernels that read whole rows."""
        return (*self.graph.arrays_on(self.values), self.entries)

    def diagonal(self) -> Ensemble:
        """The main diagonal, an Ensemble of shape (n_rows,)."""
        starts = self.arrays[0][2]
        return Ensemble(crs.diagonal(starts[:-1], self.values, None), self.sample_set)

    # --- products
    def apply(self, x: Vectors, out: Vectors | None = None) -> Any:
        """A x on bare arrays: `x` of shape (n, n_samples), the result in `out` or a new array."""
        return kernels.symmetric_spmv(*self.arrays, x, out)

    def apply_dot(self, x: Vectors, out: Vectors | None = None) -> tuple[Any, Any]:
        """A x and the inner product of x with it, one value per sample, in one pass over A."""
        y, inner = kernels.symmetric_spmv_dot(*self.arrays, x, out)
        return y, inner

    def residual(self, x: Vectors, b: Vectors, out: Vectors | None = None) -> Any:
        """b - A x on bare arrays, in one pass over A."""
        return kernels.symmetric_residual(*self.arrays, x, b, out)

    def restricted_residual(
        self, x: Vectors, b: Vectors, P: CrsMatrix, r: Vectors | None = None, out: Vectors | None = None
    ) -> Any:
        """P^T (b - A x) on bare arrays, in one pass over A; `r`, of the shape of x, is a buffer that it may use."""
        *restriction, p = P.transposed_arrays
        return kernels.symmetric_restricted_residual(*self.arrays, x, b, P.arrays[:2], tuple(restriction), p, r, out)

    def __matmul__(self, x: Any) -> Any:
        return self.to_crs() @ x if is_matrix(x) else multiply(self, x, "SymmetricCrsMatrix")

    def __rmatmul__(self, x: Any) -> Any:
        return as_crs(x) @ self.to_crs() if is_matrix(x) else premultiply(x, self)

    # --- one step of a smoother, or of the power method
    def chebyshev_first(self, dinv: Vectors, b: Vectors, x: Vectors, c: Vectors, w: Vectors, out: Vectors) -> Any:
        """w = c * dinv * (b - A x), and x + w to `out`."""
        return kernels.symmetric_chebyshev_first(*self.arrays, dinv, b, x, c, w, out)

    def chebyshev_step(
        self,
        dinv: Vectors,
        b: Vectors,
        x: Vectors,
        a: Vectors,
        c: Vectors,
        w: Vectors,
        out: Vectors,
    ) -> Any:
        """w = a * w + c * dinv * (b - A x), and x + w to `out`."""
        return kernels.symmetric_chebyshev_step(*self.arrays, dinv, b, x, a, c, w, out)

    def chebyshev_last(
        self,
        dinv: Vectors,
        b: Vectors,
        x: Vectors,
        a: Vectors,
        c: Vectors,
        w: Vectors,
        out: Vectors,
    ) -> Any:
        """x + a * w + c * dinv * (b - A x) to `out`."""
        return kernels.symmetric_chebyshev_last(*self.arrays, dinv, b, x, a, c, w, out)

    def chebyshev_finish(
        self,
        leave: Vectors,
        dinv: Vectors,
        b: Vectors,
        x: Vectors,
        a: Vectors,
        c: Vectors,
        w: Vectors,
        r: Vectors,
        out: Vectors,
    ) -> tuple[Any, Any]:
        """leave * (x + a * w + c * dinv * (b - A x)) to `out` in the type of r, and its inner product with r."""
        found: tuple[Any, Any] = kernels.symmetric_finish(leave, *self.arrays, dinv, b, x, a, c, w, r, out)
        return found

    def power_step(self, dinv: Vectors, q: Vectors, scale: Vectors, out: Vectors) -> Any:
        """z = dinv * (A (scale * q)) to `out`, its Rayleigh quotients and squares."""
        return kernels.symmetric_power_step(*self.arrays, dinv, q, scale, out)
