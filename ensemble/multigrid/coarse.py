"""The coarsest level: one small dense inverse a sample, applied to all samples at once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import scipy.linalg
from threadpoolctl import ThreadpoolController

from ensemble._kernels._memory import empty
from ensemble._kernels.relaxation import dense_product
from ensemble.linalg import CrsMatrix


@functools.cache
def _blas() -> ThreadpoolController:
    """The handle on the threads of the BLAS that is loaded."""
    return ThreadpoolController()


class CoarseSolver:
    """Inverses of the coarsest matrices, shape (n, n, n_samples).

    Each sample is factored by itself (Cholesky; where that fails or the matrix is singular to working precision, the
    pseudo-inverse by eigenvalues, which deflates a constant null vector; LU where the matrix is not symmetric). A
    sample that is not finite gets NaN.
    """

    def __init__(self, A: CrsMatrix) -> None:
        n = A.shape[0]
        rows, columns = A.graph.row_of_entry, A.graph.indices
        inverses = empty((A.n_samples, n * n), np.float64)
        with _blas().limit(limits=1, user_api="blas"):  # matrices this small are slower on many threads
            for s in range(A.n_samples):
                dense = np.zeros((n, n))
                dense[rows, columns] = A.values[:, s]
                inverses[s] = inverse_of(dense).reshape(-1)
        self.inverse = empty((n * n, A.n_samples), A.dtype)
        for start in range(0, n * n, 1024):  # a transpose by blocks that fit the cache
            self.inverse[start : start + 1024] = inverses[:, start : start + 1024].T
        self.inverse = self.inverse.reshape(n, n, A.n_samples)

    def apply(self, b: Any, out: Any) -> Any:
        """The coarse solution for a right-hand side of shape (n, n_samples)."""
        return dense_product(self.inverse, b, out)

    def take_samples(self, samples: Any) -> CoarseSolver:
        """The solver of the samples named."""
        if self.inverse.shape[2] == 1:
            return self
        new = object.__new__(CoarseSolver)
        new.inverse = np.ascontiguousarray(self.inverse[:, :, samples])
        return new


ASYMMETRY = 1e-5
"""Difference from the transpose, over the largest entry, that roundoff of single precision does not explain."""


def nonsymmetric_inverse(dense: np.ndarray) -> np.ndarray:
    """The inverse by LU factorisation, or the pseudo-inverse if the matrix is singular to working precision."""
    try:
        inverse = np.linalg.inv(dense)
    except np.linalg.LinAlgError:
        return np.linalg.pinv(dense)
    condition = np.linalg.norm(dense, 1) * np.linalg.norm(inverse, 1)
    safe = np.isfinite(condition) and condition * dense.shape[0] * np.finfo(float).eps < 1.0
    return inverse if safe else np.linalg.pinv(dense)


def inverse_of(dense: np.ndarray) -> np.ndarray:
    """The inverse of a matrix, or its pseudo-inverse if it is not safely positive definite, or nonsingular."""
    n = dense.shape[0]
    if not np.all(np.isfinite(dense)):
        return np.full_like(dense, np.nan)
    if n and np.abs(dense - dense.T).max() > ASYMMETRY * np.abs(dense).max():
        return nonsymmetric_inverse(dense)
    # LAPACK wants columns contiguous; the transpose of a symmetric matrix is itself, without a copy
    factor, failed = scipy.linalg.lapack.dpotrf(dense.T, lower=1)
    if not failed:
        pivots = np.diag(factor) ** 2
        if n == 0 or pivots.min() > n * np.finfo(float).eps * pivots.max():
            inverse, failed = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
            if not failed:  # the upper triangle is zero: add the mirror image, which doubles the diagonal
                full = np.add(inverse, inverse.T, order="C")
                full.reshape(-1)[:: n + 1] *= 0.5
                return full
    values, vectors = np.linalg.eigh((dense + dense.T) / 2)
    kept = np.abs(values) > n * np.finfo(float).eps * np.abs(values).max(initial=0.0)
    return (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
