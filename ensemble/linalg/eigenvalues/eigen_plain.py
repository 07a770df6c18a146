"""Symmetric eigenproblems of matrices whose rows are spread over processes: no factorisation, products alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ensemble._check import require
from ensemble._kernels.krylov.start_vectors import scattered
from ensemble.linalg.eigenvalues.eigen_operators import Pencil, exponents_of, row_norms

__all__ = ["PlainPencil", "require_plain"]

_Found = TypeVar("_Found", bound=tuple[np.ndarray, ...])


class PlainPencil(Pencil):
    """A of a problem ``A x = value x`` as the operator whose values are wanted; `n` are the rows of this process.

    Parameters
    ----------
    A : operator over processes, with `values`, `asymmetry` and `gathered`
    which : {"LM", "LA", "SA"}
    rtol : float
    """

    def __init__(self, A: Any, which: str, rtol: float) -> None:
        self.exponents = exponents_of(A)
        if self.exponents.any():
            A = A.with_values(np.ldexp(A.values, -self.exponents), A.sample_set)
        self.A, self.M, self.which, self.rtol = A, None, which, rtol
        self.n, self.n_samples = A.local_shape[0], A.n_samples
        self.norm_A, self.norm_M = row_norms(A), np.ones(1)
        self.unit = np.where(self.norm_A > 0.0, self.norm_A, 1.0)
        least = max(rtol, 16.0 * float(np.finfo(A.dtype).eps))
        self.unfit = A.asymmetry() > least * self.norm_A
        self.semidefinite = np.zeros(self.n_samples, bool)
        self.approached = np.zeros(self.n_samples, np.int64)
        self.side, self.refines = 0.0, False
        self.shift = self.shifted = self.factors = None
        self.norm_shifted, self.shifts, self.offsets = np.ones(1), np.zeros(1), np.zeros(1)

    def start_vectors(self, count: int, seed: int) -> np.ndarray:
        """Vectors to begin with, which depend on the numbers of rows alone."""
        first, n = self.A.space.first, self.A.shape[0]
        return np.stack([scattered((seed + q) * n + first, self.n) for q in range(count)]).astype(self.A.dtype)

    def dense_pairs(self, found: Callable[[Pencil], _Found]) -> _Found:
        """What `found` makes of the whole matrix, the vectors on the rows of this process."""
        whole = copy.copy(self)
        whole.A, whole.n = self.A.gathered(), self.A.shape[0]
        values, vectors, bad = self.A.space.agreed(found(whole))
        first = self.A.space.first
        own = np.ascontiguousarray(vectors[:, first : first + self.n])
        return values, own, bad  # type: ignore[return-value]


def require_plain(name: str, M: Any, sigma: Any, which: str) -> None:
    """Refuse what takes a factorisation, for a matrix over processes."""
    advice = "Give A.gather(), the whole matrix, on each process."
    require(M is None, name, "M", "be None for a matrix over ranks, whose factorisation it takes", repr(M), advice)
    wanted = "for a matrix over ranks, whose shifted factorisation it takes"
    require(sigma is None, name, "sigma", f"be None {wanted}", repr(sigma), advice)
    require(which != "SM", name, "which", f'be "LM", "LA" or "SA" {wanted}', repr(which), advice)
