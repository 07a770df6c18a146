"""`AffineMatrix`: entries affine in a few parameters, shared terms instead of values per sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous, is_array
from ensemble._check import array_of, kind_of, message, places_of, require, sample_number
from ensemble._kernels.krylov import vectors
from ensemble._kernels.sparse import affine as kernels
from ensemble._keywords import explains_construction
from ensemble._typing import DType, Ids, Vectors
from ensemble.linalg.arithmetic import MatrixArithmetic, nonzero_rows, per_sample, placed, united
from ensemble.linalg.crs_matrix import CrsMatrix, TransposedMatrix, as_crs, is_matrix
from ensemble.linalg.graph import CrsGraph, OnGraph
from ensemble.linalg.linear_operator import MatrixOperator
from ensemble.linalg.operators import multiply, premultiply, samples_of, set_of
from ensemble.linalg.selection import Selectable
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set

if TYPE_CHECKING:
    import scipy.sparse


@explains_construction("AffineMatrix")
class AffineMatrix(OnGraph, Selectable, MatrixArithmetic, MatrixOperator):
    """S sparse matrices ``A_0 + sum over i of c_i A_i`` on one graph, of which only the A_i are stored.

    Entry k of sample s is ``terms[k, 0] + sum over i of terms[k, i + 1] * coefficients[i, s]``. A product computes the
    ``A_i x`` in one pass and combines them with the coefficients, so that memory traffic per sample falls as 1/S; the
    bits of a sample do not depend on the others, and differ from those of the stored matrix by rounding [1]_.

    Parameters
    ----------
    graph : CrsGraph
    terms : array, shape (nnz, m + 1)
        The values of A_0, ..., A_m, the same for all samples.
    coefficients : Ensemble or array, shape (m,)
        One set of coefficients a sample.

    Attributes
    ----------
    terms : array, shape (nnz, m + 1)
    coefficients : array, shape (m, n_samples)
    sample_set : SampleSet or None
        That of an Ensemble of coefficients; products carry it along.

    Raises
    ------
    ValueError
        If `terms` does not have one row per entry of `graph`, or `coefficients` not one row per term after the first.
    TypeError
        If one of them is not real.

    Notes
    -----
    Work per entry and sample: m + 1 fused multiply-adds, against one of a stored matrix. Where m is large, or the same
    matrix is used very often, `to_crs` may be faster.

    References
    ----------
    .. [1] A truncated Karhunen-Loeve coefficient makes a diffusion matrix affine: Phipps et al. (2017), SIAM J. Sci.
       Comput. 39, C162-C193, eq. 8.

    Examples
    --------
    >>> import numpy as np
    >>> graph = CrsGraph([0, 2, 4], [0, 1, 0, 1], (2, 2))
    >>> terms = np.array([[2.0, 1.0], [-1.0, 0.0], [-1.0, 0.0], [2.0, 1.0]])
    >>> A = AffineMatrix(graph, terms, Ensemble(np.array([[0.0, 10.0]])))
    >>> A
    AffineMatrix(shape=(2, 2), nnz=4, n_terms=2, n_samples=2, float64)
    >>> (A @ np.array([1.0, 0.0])).samples
    array([[ 2., 12.],
           [-1., -1.]])
    """

    has_partial_dots = True
    __array_ufunc__ = None  # NumPy leaves `array @ A` to us

    def __init__(self, graph: CrsGraph, terms: Any, coefficients: Any) -> None:
        if not isinstance(graph, CrsGraph):
            raise TypeError(message("AffineMatrix", "graph", "be a CrsGraph", kind_of(graph)))
        terms = terms if is_array(terms) else array_of(terms, "AffineMatrix", "terms", "be real")
        if not is_array(coefficients) and not isinstance(coefficients, Ensemble):
            coefficients = array_of(coefficients, "AffineMatrix", "coefficients", "be real")
        self.sample_set, coefficients = set_of(coefficients), samples_of(coefficients)
        for name, array in (("terms", terms), ("coefficients", coefficients)):
            if not array_namespace(array).isdtype(array.dtype, ("bool", "integral", "real floating")):
                raise TypeError(message("AffineMatrix", name, "be real", f"dtype {array.dtype}"))
        require(
            terms.ndim == 2 and terms.shape[0] == graph.nnz and terms.shape[1] > 0, "AffineMatrix", "terms",
            f"have one row per stored entry (nnz = {graph.nnz}) and one column or more", f"shape {tuple(terms.shape)}",
        )  # fmt: skip
        m = terms.shape[1] - 1
        require(
            coefficients.ndim == 2 and coefficients.shape[0] == m, "AffineMatrix", "coefficients",
            f"have shape ({m},), one number for each term after the first", f"shape {tuple(coefficients.shape[:-1])}",
            "For many samples, pass an Ensemble, its samples in the last axis.",
        )  # fmt: skip
        xp = array_namespace(terms)
        dtype = terms.dtype if terms.dtype in (xp.float32, xp.float64) else xp.float64
        self.graph = graph
        self.terms = contiguous(terms, dtype)
        self.coefficients = contiguous(asarray_like(coefficients, terms), dtype)

    # --- what it is
    def __repr__(self) -> str:
        return (
            f"AffineMatrix(shape={self.shape}, nnz={self.nnz}, n_terms={self.terms.shape[1]}, "
            f"n_samples={self.n_samples}, {self.dtype})"
        )

    @property
    def n_samples(self) -> int:
        """Samples held; 1 means shared by all."""
        return int(self.coefficients.shape[1])

    @property
    def dtype(self) -> np.dtype:
        """Type of the terms."""
        made: np.dtype = self.terms.dtype
        return made

    @property
    def mean(self) -> CrsMatrix:
        """A_0, the matrix of coefficients zero, shared by all samples."""
        return CrsMatrix(self.graph, self.terms[:, 0])

    def with_coefficients(self, coefficients: Any) -> AffineMatrix:
        """The matrices of other coefficients on the same terms, an Ensemble or array of shape (m,)."""
        return AffineMatrix(self.graph, self.terms, coefficients)

    def has_terms_like(self, other: Any) -> bool:
        """Whether `other` has as many terms, with entries at the same places."""
        same = isinstance(other, AffineMatrix) and self.shape == other.shape and self.terms.shape == other.terms.shape
        return same and (self.graph is other.graph or np.array_equal(self.graph.indices, other.graph.indices))

    def astype(self, dtype: DType) -> AffineMatrix:
        """The same terms and coefficients in another floating-point type; itself where that is its type."""
        if dtype == self.dtype:
            return self
        xp = array_namespace(self.terms)
        coefficients = Ensemble(xp.astype(self.coefficients, dtype), self.sample_set)
        return AffineMatrix(self.graph, xp.astype(self.terms, dtype), coefficients)

    def sample(self, i: int) -> AffineMatrix:
        """Sample `i` alone, on the same terms."""
        return self.take_samples(np.array([sample_number(i, self.n_samples, "AffineMatrix")]))

    def take_samples(self, samples: Ids) -> AffineMatrix:
        """The matrices of the samples named, in that order; a shared matrix is returned unchanged."""
        if self.n_samples == 1:
            return self
        places = places_of(samples, self.n_samples, "AffineMatrix.take_samples")
        chosen = vectors.take_samples(self.coefficients, asarray_like(places, self.terms), None)
        chosen_set = self.sample_set and self.sample_set.take(places)
        return AffineMatrix(self.graph, self.terms, Ensemble(chosen, chosen_set))

    def diagonal(self) -> Ensemble:
        """The main diagonal, an Ensemble of shape (n_rows,); zero where no entry is stored."""
        xp, entries = array_namespace(self.terms), self.graph.diagonal_on(self.terms)
        if not self.nnz:
            shape = (self.shape[0], self.n_samples)
            return Ensemble(xp.zeros(shape, dtype=self.dtype, device=self.terms.device), self.sample_set)
        rows = xp.take(self.terms, xp.where(entries < 0, xp.zeros_like(entries), entries), axis=0)
        terms = xp.where((entries < 0)[:, None], xp.zeros_like(rows), rows)
        return Ensemble(kernels.affine_values(terms, self.coefficients, None), self.sample_set)

    def to_crs(self) -> CrsMatrix:
        """The stored matrices: nnz times n_samples values."""
        values = kernels.affine_values(self.terms, self.coefficients, None)
        return CrsMatrix(self.graph, Ensemble(values, self.sample_set))

    def to_scipy(self, i: int = 0) -> scipy.sparse.csr_array:
        """Sample `i` as a ``scipy.sparse.csr_array``; a shared matrix is every sample."""
        return (
            self.take_samples([sample_number(i, self.n_samples, "AffineMatrix", "i in to_scipy(i)")])
            .to_crs()
            .to_scipy()
        )

    def eliminate_zeros(self) -> AffineMatrix:
        """The matrix without the entries whose terms are all zero; itself if there is none."""
        kept = nonzero_rows(self.terms)
        if kept.all():
            return self
        terms = array_namespace(self.terms).take(self.terms, asarray_like(np.flatnonzero(kept), self.terms), axis=0)
        return AffineMatrix(self.graph.subgraph(kept), terms, Ensemble(self.coefficients, self.sample_set))

    # --- arithmetic
    def _plus(self, other: Any) -> Any:
        """Affine where `other` is affine (all terms concatenated) or real and the same for all samples; else stored."""
        xp = array_namespace(self.terms)
        if not isinstance(other, AffineMatrix):
            other = as_crs(other)
            if other is NotImplemented:
                return other
            if other.n_samples > 1 or "complex" in str(other.dtype):
                return self.to_crs() + other
            other = AffineMatrix(
                other.graph, asarray_like(other.values, self.terms), Ensemble(self.coefficients[:0, :1])
            )
        graph, own, given = united(self.graph, other.graph)
        a, b = placed(self.terms, own), placed(other.terms, given)
        n_samples = max(self.n_samples, other.n_samples)
        coefficients = [xp.broadcast_to(m.coefficients, (m.coefficients.shape[0], n_samples)) for m in (self, other)]
        terms = xp.concat([a[:, :1] + b[:, :1], a[:, 1:], b[:, 1:]], axis=1)
        common = common_set(self.sample_set, other.sample_set)
        return AffineMatrix(graph, terms, Ensemble(xp.concat(coefficients, axis=0), common))

    def _scaled(self, operation: Callable[[Any, Any], Any], factor: Any, sample_set: SampleSet | None) -> Any:
        """A number goes to the terms; one number per sample makes A_0 a term with a coefficient.

        Complex numbers make it a `CrsMatrix`: terms and coefficients are real.
        """
        if isinstance(factor, complex) or "complex" in str(getattr(factor, "dtype", "")):
            return self.to_crs()._scaled(operation, factor, sample_set)
        common = common_set(self.sample_set, sample_set)
        if not is_array(factor) or factor.ndim == 0:
            terms = operation(self.terms, factor)
            return AffineMatrix(self.graph, terms, Ensemble(self.coefficients, common))
        xp, factor = array_namespace(self.terms), per_sample(factor, self.terms)
        terms = xp.concat([xp.zeros_like(self.terms[:, :1]), self.terms], axis=1)
        own = xp.ones((1, self.n_samples), dtype=self.dtype)
        coefficients = operation(xp.concat([own, self.coefficients], axis=0), factor)
        return AffineMatrix(self.graph, terms, Ensemble(coefficients, common))

    # --- products, on bare arrays of shape (n, n_samples)
    def _arrays(self, n_samples: int) -> tuple[Any, ...]:
        """What the kernels take, coefficients widened to the vectors' samples where the matrix is shared."""
        coefficients = self.coefficients
        if coefficients.shape[1] != n_samples:
            coefficients = array_namespace(coefficients).repeat(coefficients, n_samples, axis=1)
        return (*self.graph.arrays_on(self.terms), self.terms, coefficients)

    @property
    def reference_array(self) -> Any:
        """An array in the library and on the device of this matrix."""
        return self.terms

    def apply(self, x: Vectors, out: Vectors | None = None) -> Any:
        """A x: `x` of shape (n_columns, n_samples), the result in `out` or a new array."""
        return kernels.affine_spmv(*self._arrays(x.shape[1]), x, out)

    def apply_dot(self, x: Vectors, out: Vectors | None = None) -> tuple[Any, Any]:
        """A x and the inner product of x with it, one value per sample, in one pass over the terms."""
        y, inner = kernels.affine_spmv_dot(*self._arrays(x.shape[1]), x, out)
        return y, inner

    def apply_dot_partials(self, x: Vectors, out: Vectors | None = None) -> tuple[Any, Any]:
        """`apply_dot` on a device, its inner products left as partial sums."""
        indptr, indices, terms, coefficients = self._arrays(x.shape[1])
        y, partials = kernels.affine_spmv_dot_partials(indptr, indices, terms, coefficients, x, out)
        return y, partials

    def residual(self, x: Vectors, b: Vectors, out: Vectors | None = None) -> Any:
        """b - A x, in one pass over the terms."""
        return kernels.affine_residual(*self._arrays(x.shape[1]), x, b, out)

    def apply_transpose(self, x: Vectors, out: Vectors | None = None) -> Any:
        """A^T x; the terms are read in place, in a fixed order."""
        _, _, terms, coefficients = self._arrays(x.shape[1])
        return kernels.affine_spmv_transpose(*self.graph.transposed_arrays_on(terms), terms, coefficients, x, out)

    # --- one step of a Chebyshev smoother, in one pass over the terms
    def chebyshev_first(self, dinv: Vectors, b: Vectors, x: Vectors, c: Vectors, w: Vectors, out: Vectors) -> Any:
        """w = c * dinv * (b - A x), and x + w to `out`."""
        return kernels.affine_chebyshev_first(*self._arrays(x.shape[1]), dinv, b, x, c, w, out)

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
        return kernels.affine_chebyshev_step(*self._arrays(x.shape[1]), dinv, b, x, a, c, w, out)

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
        return kernels.affine_chebyshev_last(*self._arrays(x.shape[1]), dinv, b, x, a, c, w, out)

    def __matmul__(self, x: Any) -> Any:
        return self.to_crs() @ x if is_matrix(x) else multiply(self, x, "AffineMatrix")

    def __rmatmul__(self, x: Any) -> Any:
        return as_crs(x) @ self.to_crs() if is_matrix(x) else premultiply(x, self)

    @property
    def T(self) -> TransposedAffineMatrix:
        """The transpose, as an operator that shares this matrix's terms."""
        return TransposedAffineMatrix(self)


class TransposedAffineMatrix(TransposedMatrix):
    """``A.T`` of an `AffineMatrix`: nothing is copied."""

    def to_matrix(self) -> Any:
        """An `AffineMatrix` of its own, terms copied into the transposed order."""
        matrix: Any = self.T
        indptr, indices, entries = matrix.graph.transposed
        coefficients = Ensemble(matrix.coefficients, self.sample_set)
        return AffineMatrix(CrsGraph.unchecked(indptr, indices, self.shape), matrix.terms[entries], coefficients)
