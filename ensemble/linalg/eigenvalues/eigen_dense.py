"""Eigenpairs of matrices of few rows by dense algebra."""

from __future__ import annotations

import warnings

import numpy as np

from ensemble.linalg.eigenvalues.eigen_operators import BELOW, SINGULAR_WEIGHT, Pencil
from ensemble.scalar import Ensemble

__all__ = ["dense_pairs"]


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
        if pencil.unfit[s] or not np.isfinite([matrix, 0.0 * matrix if weight is None else weight]).all():
            continue
        try:
            if weight is not None and pencil.semidefinite[s]:
                every, found = _semidefinite_pairs(matrix, weight, float(shifts[s]))
            else:
                every, found = eigh(matrix, weight)
        except LinAlgError:  # M is not positive definite
            continue
        if every.size < k:  # the others are infinite
            continue
        if pencil.inverts:
            goodness = -np.abs(every - shifts[s])
        else:
            goodness = {"LM": np.abs(every), "LA": every, "SA": -every}[pencil.which]
        chosen = np.sort(np.argsort(-goodness, kind="stable")[:k])
        values[:, s], vectors[:, :, s] = every[chosen], found[:, chosen].T
    return values, vectors, np.isnan(values).any(axis=0)


def _semidefinite_pairs(A: np.ndarray, M: np.ndarray, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """The finite eigenvalues of dense A and a singular M, and vectors with ``x^T M x = 1``, by the inverse at a shift.

    With ``M = R^T R`` they are those of the symmetric ``R (A - shift M)^-1 R^T`` [1]_.

    .. [1] Ericsson, Ruhe (1980), Math. Comp. 35, 1251-1268.
    """
    from scipy.linalg import LinAlgError, LinAlgWarning, eigh, solve

    weights, vectors = eigh(M)
    positive = weights > SINGULAR_WEIGHT * np.finfo(M.dtype).eps * np.abs(weights).max(initial=0.0)
    R = np.sqrt(weights[positive])[:, None] * vectors[:, positive].T
    unit = np.abs(A).sum(axis=1).max(initial=0.0) / np.abs(M).sum(axis=1).max(initial=1.0)
    for offset in (0.0, BELOW * unit, -3.0 * BELOW * unit):  # a shift that is an eigenvalue is moved
        with warnings.catch_warnings():
            warnings.simplefilter("error", LinAlgWarning)
            try:
                spanned = solve(A - (shift + offset) * M, R.T, assume_a="sym")
            except (LinAlgError, LinAlgWarning):
                continue
        inner = R @ spanned
        values, small = eigh(0.5 * (inner + inner.T))
        order = np.argsort(shift + offset + 1.0 / values, kind="stable")
        return (shift + offset + 1.0 / values)[order], (spanned @ (small / values))[:, order]
    raise LinAlgError
