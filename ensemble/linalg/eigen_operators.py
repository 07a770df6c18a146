"""The operators of symmetric eigenproblems: a matrix, or the inverse of a shifted one; small problems as dense ones."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from ensemble._check import finite, message, require
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs
from ensemble.linalg.diagonal import Diagonal
from ensemble.linalg.factorization import Factorization
from ensemble.linalg.ritz import products
from ensemble.scalar import Ensemble

__all__ = ["Pencil", "dense_pairs"]

BELOW = 1e-6
"""Distance of a shift from Gershgorin's bound, or from the one where a pivot is zero, by the norm of A."""


CLEAR = 1e-8
"""Least pivot, by the norm of A, of a matrix that counts as positive definite."""

ROUNDOFFS = 16.0
"""Backward error of a solution with the shifted matrix, in units of rounding, above which it is corrected."""


class Pencil:
    """A and M of a problem ``A x = value M x``, and the operator whose largest values are wanted."""

    def __init__(self, A: CrsMatrix, M: CrsMatrix | None, sigma: Any, which: str, name: str) -> None:
        self.A, self.M, self.which = A, M, which
        self.n = A.shape[0]
        shift = _checked_shift(sigma, name)
        counts = {m.n_samples for m in (A, M, shift) if isinstance(m, CrsMatrix | Ensemble)} - {1}
        require(len(counts) < 2, name, "A, M and sigma", "have the same n_samples, or 1", sorted(counts))
        self.n_samples = max(counts, default=1)
        with np.errstate(all="ignore"):
            self.norm_A, self.norm_M = _norms(A), np.ones(1) if M is None else _norms(M)
            bound = which == "SA" and M is None and sigma is None
            self.refines = not bound  # definite matrices need no exchanges
            if which == "SM":
                shift = 0.0
            elif bound:
                shift = Ensemble(self._shift_below(A))
            self.shift = shift
            self.shifted: CrsMatrix | None = None
            self.norm_shifted = np.ones(1)
            self.factors: Factorization | None = None
            if shift is not None:
                self.factorise(A, Diagonal(np.ones(self.n, A.dtype)) if M is None else M)
            elif M is not None:
                self.factors = Factorization(M, kind="ldlt")

    def _shift_below(self, A: CrsMatrix) -> np.ndarray:
        """A number below all eigenvalues, per sample: 0 where all pivots are clearly positive, else Gershgorin's bound.

        Zero is nearer to the eigenvalues, so that fewer steps are needed.
        """
        bound = _lower_bound(A, self.norm_A)
        if not (bound < 0.0).any():
            return bound
        least = Factorization(A, kind="ldlt")._least_pivot()
        return np.where((bound < 0.0) & (least > CLEAR * self.norm_A), 0.0, bound).astype(A.dtype)

    def factorise(self, A: CrsMatrix, M: Any) -> None:
        """The shifted matrix and its factors; a sample with a zero pivot has its shift moved."""
        shifts = self.shift.samples if isinstance(self.shift, Ensemble) else np.full(1, self.shift, A.dtype)
        for factor in (0.0, 1.0, 3.0):
            broken = np.zeros(1, bool) if self.factors is None else self.factors.broken
            if self.factors is not None and not broken.any():
                return
            moved = np.where(broken, shifts + (factor * BELOW * self.norm_A / self.norm_M).astype(A.dtype), shifts)
            self.shifted = as_crs(A - Ensemble(moved) * M)
            self.norm_shifted = _norms(self.shifted)
            self.factors = Factorization(self.shifted, kind="ldlt")

    @property
    def inverts(self) -> bool:
        """Whether the operator is the inverse of the shifted matrix."""
        return self.shifted is not None

    @property
    def wanted(self) -> str:
        """Which values of the operator are wanted."""
        return "LM" if self.inverts else self.which

    def take_samples(self, samples: np.ndarray) -> Pencil:
        """The problem of the samples named."""
        made = object.__new__(Pencil)
        made.__dict__.update(self.__dict__)
        for name in ("A", "M", "shifted", "factors"):
            own = getattr(self, name)
            setattr(made, name, None if own is None else own.take_samples(samples))
        for name in ("norm_A", "norm_M", "norm_shifted"):
            own = getattr(self, name)
            setattr(made, name, own if own.size == 1 else own[samples])
        made.n_samples = samples.size
        return made

    def operate(self, vectors: np.ndarray, images: np.ndarray) -> np.ndarray:
        """The operator times `vectors`, whose products with M are `images`; vectors have shape (n, n_samples)."""
        if self.factors is None:
            return products(self.A, vectors)
        if self.shifted is None:
            return self._solve(products(self.A, vectors))
        found = self._solve(images)
        return self._refined(found, images) if self.refines else found

    def _refined(self, found: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Solutions with the shifted matrix, with a correction in the samples whose residual is large."""
        defects = images - products(self.shifted, found)
        size = (self.norm_shifted * np.abs(found).max(axis=1) + np.abs(images).max(axis=1)).astype(found.dtype)
        large = np.any(np.abs(defects).max(axis=1) > ROUNDOFFS * np.finfo(found.dtype).eps * size, axis=0)
        return np.where(large, found + self._solve(defects), found) if large.any() else found

    def _solve(self, vectors: np.ndarray) -> np.ndarray:
        """The inverse of the factorised matrix times all vectors in one pass."""
        assert self.factors is not None
        solved = self.factors @ Ensemble(np.ascontiguousarray(vectors.transpose(1, 0, 2)))
        return np.ascontiguousarray(solved.samples.transpose(1, 0, 2))


def dense_pairs(pencil: Pencil, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The k wanted pairs by dense algebra, one sample after the other: values, vectors, and bad samples."""
    from scipy.linalg import LinAlgError, eigh

    n, count, A, M = pencil.n, pencil.n_samples, pencil.A, pencil.M
    values, vectors = np.full((k, count), np.nan), np.full((k, n, count), np.nan, A.dtype)
    shift = pencil.shift
    shifts = np.broadcast_to(shift.samples if isinstance(shift, Ensemble) else np.array([shift or 0.0]), count)
    for s in range(count):
        matrix = A.to_scipy(s).toarray()
        weight = None if M is None else M.to_scipy(s).toarray()
        if not np.isfinite(matrix).all() or (weight is not None and not np.isfinite(weight).all()):
            continue
        try:
            every, found = eigh(matrix, weight)
        except LinAlgError:  # M is not positive definite
            continue
        if pencil.inverts:
            goodness = -np.abs(every - shifts[s])
        else:
            goodness = {"LM": np.abs(every), "LA": every, "SA": -every}[pencil.which]
        chosen = np.sort(np.argsort(-goodness, kind="stable")[:k])
        values[:, s], vectors[:, :, s] = every[chosen], found[:, chosen].T
    return values, vectors, np.isnan(values).any(axis=0)


def _checked_shift(sigma: Any, name: str) -> Any:
    """The shift: None, a finite float, or an Ensemble of shape ()."""
    if sigma is None or (isinstance(sigma, Ensemble) and sigma.ndim == 0):
        return sigma
    if isinstance(sigma, numbers.Number) or np.ndim(sigma) == 0:
        return finite(sigma, name, "sigma")
    seen = f"shape {np.shape(sigma)}"
    raise TypeError(message(name, "sigma", "be a number or an Ensemble of shape ()", seen))


def _norms(A: CrsMatrix) -> np.ndarray:
    """The largest sum of magnitudes of a row, per sample."""
    sums = CrsMatrix(A.graph, np.abs(A.values)).apply(np.ones((A.shape[1], A.n_samples), A.dtype))
    return np.asarray(sums.max(axis=0, initial=0.0), np.float64)


def _lower_bound(A: CrsMatrix, norm: np.ndarray) -> np.ndarray:
    """A number below all eigenvalues, per sample: the least of Gershgorin's circles, and a little less."""
    diagonal = np.asarray(A.diagonal().samples)
    sums = CrsMatrix(A.graph, np.abs(A.values)).apply(np.ones((A.shape[1], A.n_samples), A.dtype))
    least = np.min(diagonal - (sums - np.abs(diagonal)), axis=0)
    return np.asarray(least - BELOW * norm, A.dtype)
