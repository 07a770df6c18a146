"""Checks of covariance matrices: symmetric, without negative variances, positive semidefinite up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._check import bad_samples, require
from ensemble._typing import Array
from ensemble.scalar import Ensemble

__all__ = ["check_covariance", "check_finite", "check_independent"]

ROUNDING = 64
"""Units of rounding, times the size of a matrix, by which symmetry and eigenvalues may be off."""

FEW = 256
"""Matrices up to which LAPACK factors one after another; more are eliminated in one batch."""


def check_finite(a: Array, name: str, function: str) -> None:
    """Refuse NaN and infinity."""
    values = a.samples if isinstance(a, Ensemble) else a
    xp = array_namespace(values)
    finite = xp.isfinite(values)
    if not bool(xp.all(finite)):
        where = bad_samples(to_numpy(finite)) if isinstance(a, Ensemble) else "it"
        require(False, function, name, "be finite", f"NaN or infinity in {where}")


def check_covariance(a: Array, name: str, function: str) -> None:
    """Refuse what is no covariance matrix: `a` has shape (..., n, n) and is finite."""
    values = matrices_last(a)
    xp = array_namespace(values)
    if 0 in values.shape:
        return
    for i in range(a.shape[-1]):
        good = values[..., i, i] >= 0
        if not bool(xp.all(good)):
            several = isinstance(a, Ensemble) and a.n_samples > 1
            of = f" of {bad_samples(np.moveaxis(to_numpy(good), 0, -1))}" if several else ""
            require(False, function, name, "be a covariance matrix", f"a negative number at ({i}, {i}){of}")
    if a.shape[-1] == 1:
        return
    gap = float(xp.max(xp.abs(values - values.mT)))
    bound = ROUNDING * float(xp.finfo(values.dtype).eps) * float(xp.max(xp.abs(values)))
    seen = f"entries that differ by {gap:.3g} from their transpose"
    require(gap <= bound, function, name, "be symmetric", seen, "Use (A + A.mT) / 2.")
    _check_eigenvalues(a, values, name, function)


def check_independent(a: Array, name: str, function: str) -> None:
    """Refuse matrices (..., n, columns) whose columns depend on each other."""
    values = _wide(to_numpy(matrices_last(a)))
    norms = np.linalg.norm(values, axis=-2, keepdims=True)
    singular = np.linalg.svd(values / np.where(norms > 0, norms, 1.0), compute_uv=False)
    bound = float(np.finfo(values.dtype).eps) ** 0.5
    fits = values.shape[-1] <= values.shape[-2] and bool((singular[..., -1] > bound).all())
    seen = f"columns with the singular value {float(singular[..., -1].min()):.3g} after scaling"
    require(fits, function, name, "have independent columns, not more than states", seen)


def matrices_last(a: Array) -> Array:
    """The numbers of `a` with the axes of its matrices last: samples first."""
    if not isinstance(a, Ensemble):
        return a
    values = a.samples
    return array_namespace(values).moveaxis(values, -1, 0)


def _check_eigenvalues(a: Array, values: Array, name: str, function: str) -> None:
    bound = ROUNDING * a.shape[-1] * float(array_namespace(values).finfo(values.dtype).eps)
    if _are_semidefinite(values, bound):
        return
    lowest, size = _extremes(values)
    bad = lowest < -bound * size
    if not bad.any():
        return
    first = np.unravel_index(int(np.argmin(np.where(bad, lowest / np.where(size > 0, size, 1.0), 0.0))), bad.shape)
    index = tuple(int(i) for i in first)
    place = ""
    if isinstance(a, Ensemble):
        place, index = f" in sample {index[0]}", index[1:]
    place = (f" at {index}" if index else "") + place
    seen = f"the eigenvalue {float(lowest[first]):.6g}{place}"
    advice = "A covariance matrix has no negative eigenvalue; write it as B @ B.mT where it is made of factors."
    require(False, function, name, "be positive semidefinite", seen, advice)


def _wide(values: np.ndarray) -> np.ndarray:
    """`values` in a type that LAPACK supports."""
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _are_semidefinite(values: Array, bound: float) -> bool:
    """Whether all matrices, shifted by their rounding, have a Cholesky factor."""
    xp, n = array_namespace(values), values.shape[-1]
    flat = xp.reshape(values, (-1, n, n))
    if flat.shape[0] > FEW:
        return _have_positive_pivots(xp, flat, bound)
    host = _wide(to_numpy(flat))
    size = host[:, range(n), range(n)].max(axis=1)
    shift = np.maximum(bound * size, 4.0 * np.finfo(host.dtype).tiny)
    try:
        np.linalg.cholesky(host + shift[:, None, None] * np.eye(n, dtype=host.dtype))
    except np.linalg.LinAlgError:
        return False
    return True


def _have_positive_pivots(xp: Any, flat: Array, bound: float) -> bool:
    """Whether batched elimination of all matrices finds positive pivots only."""
    n = flat.shape[-1]
    size = xp.max(xp.linalg.diagonal(flat), axis=-1)
    least = xp.asarray(4.0 * xp.finfo(flat.dtype).smallest_normal, dtype=flat.dtype)
    shift = xp.where(bound * size > least, bound * size, least)
    entries = xp.asarray(xp.moveaxis(flat, 0, -1), copy=True)  # each entry of all matrices in one run of memory
    rows = [[entries[i, j, :] + shift if i == j else entries[i, j, :] for j in range(i, n)] for i in range(n)]
    positive = xp.ones((flat.shape[0],), dtype=xp.bool)
    for k in range(n):
        pivot = rows[k][0]
        positive = xp.logical_and(positive, pivot > 0)
        safe = xp.where(pivot > 0, pivot, least)
        for i in range(k + 1, n):
            factor = rows[k][i - k] / safe
            for j in range(i, n):
                rows[i][j - i] = rows[i][j - i] - factor * rows[k][j - k]
    return bool(xp.all(positive))


def _extremes(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """The lowest eigenvalue of every matrix, and its largest variance."""
    host = _wide(to_numpy(values))
    n = host.shape[-1]
    return np.linalg.eigvalsh(host)[..., 0], host[..., range(n), range(n)].max(axis=-1)
