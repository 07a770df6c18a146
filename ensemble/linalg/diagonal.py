"""`Diagonal`: a matrix of which the diagonal alone is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._check import places_of, require, sample_number
from ensemble._compile.registry import into
from ensemble._kernels.sparse.complex_numbers import is_complex, times
from ensemble._typing import DType, Ids, Vectors
from ensemble.linalg.arithmetic import MatrixArithmetic, per_sample
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs, is_matrix
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.linear_operator import MatrixOperator
from ensemble.linalg.operators import as_real, multiply, numbers_of, premultiply, set_of, shape_text
from ensemble.linalg.selection import Selectable
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set

if TYPE_CHECKING:
    import scipy.sparse


class Diagonal(Selectable, MatrixArithmetic, MatrixOperator):
    """A diagonal matrix, for Jacobi preconditioning: ``Diagonal(1 / A.diagonal())``.

    Parameters
    ----------
    entries : Ensemble or array, shape (n,)

    Examples
    --------
    >>> from ensemble.gallery import poisson
    >>> A = poisson((3,), n_samples=2)
    >>> M = Diagonal(1 / A.diagonal())
    >>> (M @ A.diagonal()).samples
    array([[1., 1.],
           [1., 1.],
           [1., 1.]])
    """

    __array_ufunc__ = None
    queues_kernels = True

    def __init__(self, entries: Any) -> None:
        self.sample_set = set_of(entries)
        samples = numbers_of(entries, "Diagonal", "entries")
        self.entries = as_real(samples if isinstance(entries, Ensemble) else samples[..., None])
        require(self.entries.ndim == 2, "Diagonal", "entries", "be a vector", shape_text(entries))
        self.shape = (self.entries.shape[0],) * 2
        self.n_samples = self.entries.shape[1]

    @property
    def reference_array(self) -> Any:
        """An array in the library and on the device of this matrix."""
        return self.entries

    @property
    def dtype(self) -> np.dtype:
        """Type of the entries."""
        made: np.dtype = self.entries.dtype
        return made

    @property
    def T(self) -> Diagonal:
        """The transpose: itself."""
        return self

    def astype(self, dtype: DType) -> Diagonal:
        """The same entries in another type."""
        xp = array_namespace(self.entries)
        return Diagonal(Ensemble(xp.astype(self.entries, dtype, copy=False), self.sample_set))

    def to_crs(self) -> CrsMatrix:
        """The same matrix with stored entries."""
        n = self.shape[0]
        return CrsMatrix(CrsGraph(np.arange(n + 1), np.arange(n), (n, n)), Ensemble(self.entries, self.sample_set))

    def to_scipy(self, i: int = 0) -> scipy.sparse.csr_array:
        """Sample `i` as a ``scipy.sparse.csr_array``; shared entries are those of every sample."""
        return self.to_crs().to_scipy(sample_number(i, self.n_samples, "Diagonal", "i in to_scipy(i)"))

    def diagonal(self) -> Ensemble:
        """The entries, an Ensemble of shape (n,)."""
        return Ensemble(self.entries, self.sample_set)

    def _plus(self, other: Any) -> Any:
        if not isinstance(other, Diagonal):
            return other + self if isinstance(other, MatrixArithmetic) else self.to_crs() + other
        entries = self.entries + asarray_like(other.entries, self.entries)
        return Diagonal(Ensemble(entries, common_set(self.sample_set, other.sample_set)))

    def _scaled(self, operation: Callable[[Any, Any], Any], factor: Any, sample_set: SampleSet | None) -> Diagonal:
        entries = operation(self.entries, per_sample(factor, self.entries))
        return Diagonal(Ensemble(entries, common_set(self.sample_set, sample_set)))

    def apply(self, x: Vectors, out: Vectors | None = None) -> Any:
        """The product on bare arrays of shape (n, n_samples)."""
        if is_complex(self.entries):
            return into(out, times(self.entries, x))
        return array_namespace(x).multiply(self.entries, x, **({} if out is None else {"out": out}))

    def take_samples(self, samples: Ids) -> Diagonal:
        """The diagonal of the samples named."""
        if self.n_samples == 1:
            return self
        places = places_of(samples, self.n_samples, "Diagonal.take_samples")
        chosen = array_namespace(self.entries).take(self.entries, asarray_like(places, self.entries), axis=1)
        return Diagonal(Ensemble(chosen, self.sample_set and self.sample_set.take(places)))

    def __matmul__(self, x: Any) -> Any:
        return self.to_crs() @ x if is_matrix(x) else multiply(self, x, "Diagonal")

    def __rmatmul__(self, x: Any) -> Any:
        return as_crs(x) @ self.to_crs() if is_matrix(x) else premultiply(x, self)
