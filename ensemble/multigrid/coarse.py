"""The coarsest level: one small dense inverse a sample, applied to all samples at once."""

from __future__ import annotations

from typing import Any

from ensemble._backend import array_namespace, contiguous, moved
from ensemble._kernels.dense import dense_inverses, dense_product
from ensemble.linalg import CrsMatrix, SymmetricCrsMatrix


class CoarseSolver:
    """Inverses of the coarsest matrices, shape (n, n, n_samples): a singular sample gets its pseudo-inverse."""

    def __init__(self, A: CrsMatrix | SymmetricCrsMatrix) -> None:
        if isinstance(A, SymmetricCrsMatrix):
            A = A.to_crs()
        self.inverse = dense_inverses(*A.graph.coordinates_beside(A.values), A.values, A.shape[0], None)

    def apply(self, b: Any, out: Any) -> Any:
        """The coarse solution for a right-hand side of shape (n, n_samples)."""
        return dense_product(self.inverse, b, out)

    def take_samples(self, samples: Any) -> CoarseSolver:
        """The solver of the samples named."""
        if self.inverse.shape[2] == 1:
            return self
        new = object.__new__(CoarseSolver)
        xp = array_namespace(self.inverse)
        new.inverse = contiguous(xp.take(self.inverse, moved(samples, self.inverse), axis=2))
        return new
