"""Matrices over ranks whose entries are affine in a few parameters: shared terms instead of values per sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ensemble._check import array_of, message, places_of, require
from ensemble._kernels.sparse import affine as kernels
from ensemble._kernels.sparse.row_sums import in_space
from ensemble._typing import Array
from ensemble.distributed.rank_matrix import RankMatrix
from ensemble.linalg.linear_operator import MatrixOperator
from ensemble.linalg.operators import multiply, samples_of, set_of
from ensemble.multigrid.affine import affine_matrix
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet

__all__ = ["RankAffineMatrix"]


class RankAffineMatrix(MatrixOperator):
    """An `AffineMatrix` over ranks: ``A_0 + sum over i of c_i A_i``; made by `DistributedCrsMatrix.affine`.

    Attributes
    ----------
    stored : RankMatrix
        Its samples are the terms A_0, ..., A_m.
    coefficients : array, shape (m, n_samples)
        The same on every rank.
    """

    __array_ufunc__ = None

    def __init__(self, stored: RankMatrix, coefficients: np.ndarray, sample_set: SampleSet | None = None) -> None:
        self.stored, self.coefficients, self.sample_set = stored, coefficients, sample_set
        self.shape, self.space, self.dtype = stored.shape, stored.space, stored.dtype
        self.terms = self.reference_array = stored.values

    def __repr__(self) -> str:
        n_terms = self.terms.shape[1]
        return f"RankAffineMatrix(n_terms={n_terms}, n_samples={self.n_samples}, of {self.stored!r})"

    @property
    def local_shape(self) -> tuple[int, int]:
        return self.stored.local_shape

    @property
    def nnz(self) -> int:
        """Stored entries of a term, those of all ranks."""
        return self.stored.nnz

    @property
    def n_samples(self) -> int:
        """Samples held; 1 means shared by all."""
        return int(self.coefficients.shape[1])

    @property
    def mean(self) -> RankMatrix:
        """A_0, the matrix of coefficients zero, shared by all samples."""
        mean: RankMatrix = self.stored.take_samples([0])
        return mean

    def with_coefficients(self, coefficients: Ensemble | Array) -> RankAffineMatrix:
        """The matrices of other coefficients on the same terms, an Ensemble or array of shape (m,)."""
        return affine_over_ranks(self.stored, coefficients)

    def has_terms_like(self, other: Any) -> bool:
        """Whether `other` has as many terms, with entries at the same places, on every rank."""
        same = isinstance(other, RankAffineMatrix) and self.terms.shape == other.terms.shape
        same = same and np.array_equal(self.stored.numbers, other.stored.numbers)
        return not bool(self.space.any(np.array(not same)))

    def take_samples(self, samples: ArrayLike) -> RankAffineMatrix:
        """The matrices of the samples named; a shared matrix is returned unchanged."""
        if self.n_samples == 1:
            return self
        places = places_of(samples, self.n_samples, "RankAffineMatrix.take_samples")
        chosen = np.ascontiguousarray(self.coefficients[:, places])
        return RankAffineMatrix(self.stored, chosen, self.sample_set and self.sample_set.take(places))

    def astype(self, dtype: DTypeLike) -> RankAffineMatrix:
        """The same terms and coefficients in another floating-point type; itself where that is its type."""
        if dtype == self.dtype:
            return self
        return RankAffineMatrix(self.stored.astype(dtype), self.coefficients.astype(dtype), self.sample_set)

    def diagonal(self) -> Ensemble:
        """The entries of the main diagonal in this rank's rows; zero where none is stored."""
        terms = np.ascontiguousarray(self.stored.diagonal().samples)
        return Ensemble(kernels.affine_values(terms, self.coefficients, None), self.sample_set)

    def to_crs(self) -> RankMatrix:
        """The stored matrices over ranks."""
        values = kernels.affine_values(self.terms, self.coefficients, None)
        made: RankMatrix = self.stored.with_values(values, self.sample_set)
        return made

    # --- products, on bare arrays of shape (n_local, n_samples)
    def _arrays(self, x: Array) -> tuple[Any, ...]:
        coefficients = self.coefficients
        if coefficients.shape[1] != x.shape[1]:
            coefficients = np.repeat(coefficients, x.shape[1], axis=1)
        return self.stored.indptr, self.stored.indices, self.terms, coefficients

    def whole(self, x: Array) -> Array:
        """`x` and behind it the ghost rows, as their owners have them."""
        return self.stored.whole(x)

    def apply(self, x: Array, out: Array = None) -> Array:
        """A x on bare arrays."""
        return kernels.affine_spmv(*self._arrays(x), self.whole(x), out)

    def apply_dot(self, x: Array, out: Array = None) -> tuple[Array, Array]:
        """A x, and the inner product of x with it over the rows of all ranks."""
        with in_space(self.space):
            y, inner = kernels.affine_spmv_dot(*self._arrays(x), self.whole(x), out)
        return y, inner

    def residual(self, x: Array, b: Array, out: Array = None) -> Array:
        """b - A x on bare arrays."""
        return kernels.affine_residual(*self._arrays(x), self.whole(x), b, out)

    def chebyshev_first(self, dinv: Array, b: Array, x: Array, c: Array, w: Array, out: Array) -> Array:
        """w = c * dinv * (b - A x), and x + w to `out`."""
        return kernels.affine_chebyshev_first(*self._arrays(x), dinv, b, self.whole(x), c, w, out)

    def chebyshev_step(self, dinv: Array, b: Array, x: Array, a: Array, c: Array, w: Array, out: Array) -> Array:
        """w = a * w + c * dinv * (b - A x), and x + w to `out`."""
        return kernels.affine_chebyshev_step(*self._arrays(x), dinv, b, self.whole(x), a, c, w, out)

    def chebyshev_last(self, dinv: Array, b: Array, x: Array, a: Array, c: Array, w: Array, out: Array) -> Array:
        """x + a * w + c * dinv * (b - A x) to `out`."""
        return kernels.affine_chebyshev_last(*self._arrays(x), dinv, b, self.whole(x), a, c, w, out)

    def __matmul__(self, x: Any) -> Any:
        return multiply(self, x, "RankAffineMatrix")


@affine_matrix.register(RankMatrix)
def affine_over_ranks(stored: RankMatrix, coefficients: Any) -> RankAffineMatrix:
    """The matrices whose terms are the samples of `stored`, of some coefficients."""
    name, m = "DistributedCrsMatrix.affine", stored.n_samples - 1
    if not isinstance(coefficients, Ensemble):
        coefficients = array_of(coefficients, name, "coefficients", "be real")
    samples = samples_of(coefficients)
    if not isinstance(samples, np.ndarray) or samples.dtype.kind not in "biuf":
        raise TypeError(message(name, "coefficients", "be real numbers of NumPy", f"dtype {samples.dtype}"))
    wanted = f"have shape ({m},), one number for each sample of the matrix after the first"
    fits = samples.ndim == 2 and samples.shape[0] == m
    require(fits, name, "coefficients", wanted, f"shape {tuple(samples.shape[:-1])}")
    agreed = stored.space.agreed(np.ascontiguousarray(samples, stored.dtype))
    return RankAffineMatrix(stored, agreed, set_of(coefficients))
