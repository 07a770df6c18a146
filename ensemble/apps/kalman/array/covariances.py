"""Checks of covariance matrices: symmetric, without negative variances, positive semidefinite up to rounding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._check import bad_samples, require
from ensemble._typing import Array
from ensemble.scalar import Ensemble

__all__ = ["check_finite", "check_independent", "checked_covariance", "has_zero_variances"]

ROUNDING = 64
"""Units of rounding, times the size of a matrix, by which symmetry and eigenvalues may be off."""

CLIP = "What is rounding of a difference: take its eigenvalues and set negative ones to zero."

FEW = 256
"""Matrices up to which LAPACK factors one after another; more are eliminated in one batch."""


def check_finite(a: Array, name: str, function: str) -> None:
    """Refuse NaN and infinity."""
    if type(a) is np.ndarray and (math.isfinite(a.item()) if a.size == 1 else np.isfinite(a).all()):  # the usual case
        return
    values = a.samples if isinstance(a, Ensemble) else a
    xp = array_namespace(values)
    finite = xp.isfinite(values)
    if not bool(xp.all(finite)):
        where = bad_samples(to_numpy(finite)) if isinstance(a, Ensemble) else "it"
        require(False, function, name, "be finite", f"NaN or infinity in {where}")


def has_zero_variances(a: Array) -> bool:
    """Whether any matrix of shape (..., n, n) has a diagonal entry that is not positive; the question synchronises."""
    if type(a) is np.ndarray:
        return bool((a.diagonal(axis1=-2, axis2=-1) <= 0).any())
    values = matrices_last(a)
    xp = array_namespace(values)
    return 0 not in values.shape and bool(xp.any(xp.linalg.diagonal(values) <= 0))


def checked_covariance(a: Array, name: str, function: str, *, in_time: bool = True) -> Array:
    """`a`, of shape (..., n, n) and finite, which must hold covariance matrices.

    Eigenvalues and variances may be negative by rounding: by `ROUNDING` n eps of the largest variance of the same
    series, over all its steps unless `in_time` is false. A matrix that is negative by more than that part of its own
    variances is replaced by the nearest one that is semidefinite.
    """
    if type(a) is np.ndarray and a.ndim == 2 and _is_covariance(a):
        return a
    values = matrices_last(a)
    xp = array_namespace(values)
    if 0 in values.shape:
        return a
    size = _sizes(values, len(a.shape) > 2 and in_time)
    bound = ROUNDING * a.shape[-1] * float(xp.finfo(values.dtype).eps)
    negative = False
    for i in range(a.shape[-1]):
        variance = values[..., i, i]
        good = variance >= -bound * size
        negative = negative or bool(xp.any(variance < 0))
        if not bool(xp.all(good)):
            several = isinstance(a, Ensemble) and a.n_samples > 1
            of = f" of {bad_samples(np.moveaxis(to_numpy(good), 0, -1))}" if several else ""
            seen = f"a negative number at ({i}, {i}){of}, {_worst(a, variance, size, in_time)}"
            require(False, function, name, "be a covariance matrix", seen, CLIP)
    if a.shape[-1] == 1:
        return _without_negative(a) if negative else a
    gap = float(xp.max(xp.abs(values - values.mT)))
    symmetric = ROUNDING * float(xp.finfo(values.dtype).eps) * float(xp.max(xp.abs(values)))
    seen = f"entries that differ by {gap:.3g} from their transpose"
    require(gap <= symmetric, function, name, "be symmetric", seen, "Use (A + A.mT) / 2.")
    if not negative and _are_semidefinite(values, bound):
        return a
    return _with_eigenvalues_checked(a, values, size, bound, name, function, in_time)


def _is_covariance(a: np.ndarray) -> bool:
    """Whether one matrix is a covariance matrix as it is: what is not is left to the questions about many."""
    if a.shape[0] == 1:
        return bool(a[0, 0] >= 0.0)
    if a.size == 0 or a.dtype not in (np.float32, np.float64) or not (a.diagonal() >= 0.0).all():
        return False
    eps = float(np.finfo(a.dtype).eps)
    symmetric = np.abs(a - a.T).max() <= ROUNDING * eps * np.abs(a).max()
    return bool(symmetric) and _are_semidefinite(a, ROUNDING * a.shape[0] * eps)


def _without_negative(a: Array) -> Array:
    """`a` with zero for negative numbers."""
    xp = array_namespace(a)
    return xp.where(a < 0, 0.0 * a, a)


def _sizes(values: Array, in_time: bool) -> Array:
    """The largest variance of every matrix, or of all steps of its series."""
    xp = array_namespace(values)
    size = xp.max(xp.linalg.diagonal(values), axis=-1)
    if not in_time:
        return size
    return xp.broadcast_to(xp.max(size, axis=-1, keepdims=True), size.shape)


def _worst(a: Array, lowest: Any, size: Any, in_time: bool) -> str:
    """Describe the most negative number, where it is, and the variance that it is judged by, for an error message."""
    lowest, size = np.asarray(to_numpy(lowest)), np.broadcast_to(to_numpy(size), lowest.shape)
    at = np.unravel_index(int(np.argmin(lowest / np.where(size > 0, size, 1.0))), lowest.shape)
    index = tuple(int(i) for i in at)[1 if isinstance(a, Ensemble) else 0 :]
    where = f" at {index}" if index else ""
    if index and in_time:
        where = f" at step {index[-1]}" + (f" of series {index[:-1]}" if index[:-1] else "")
    where += f" in sample {int(at[0])}" if isinstance(a, Ensemble) else ""
    return f"{float(lowest[at]):.6g}{where}, where the largest variance is {float(size[at]):.6g}"


def check_independent(a: Array, name: str, function: str) -> None:
    """Refuse matrices (..., n, columns) whose columns depend on each other, in whatever units rows and columns are."""
    values = _wide(to_numpy(matrices_last(a)))
    for _ in range(4):
        for axis in (-2, -1):
            norms = np.linalg.norm(values, axis=axis, keepdims=True)
            values = values / np.where(norms > 0, norms, 1.0)
    singular = np.linalg.svd(values, compute_uv=False)
    bound = ROUNDING * values.shape[-2] * float(np.finfo(values.dtype).eps)
    fits = values.shape[-1] <= values.shape[-2] and bool((singular[..., -1] > bound).all())
    seen = f"columns with the singular value {float(singular[..., -1].min()):.3g} after scaling"
    require(fits, function, name, "have independent columns, not more than states", seen)


def matrices_last(a: Array) -> Array:
    """The numbers of `a` with the axes of its matrices last: samples first."""
    if not isinstance(a, Ensemble):
        return a
    values = a.samples
    return array_namespace(values).moveaxis(values, -1, 0)


def _with_eigenvalues_checked(
    a: Array, values: Array, size: Array, bound: float, name: str, function: str, in_time: bool
) -> Array:
    """Replace matrices that are negative beyond their own rounding by the nearest semidefinite ones, or refuse."""
    host = _wide(to_numpy(values))
    eigenvalues, own = np.linalg.eigvalsh(host), _extremes(values)[1]
    lowest, allowed = eigenvalues[..., 0], np.broadcast_to(to_numpy(size), eigenvalues.shape[:-1])
    if (lowest < -bound * allowed).any():
        text = f"the eigenvalue {_worst(a, lowest, allowed, in_time)}"
        advice = "A covariance matrix has no negative eigenvalue; write it as B @ B.mT where it is made of factors."
        require(False, function, name, "be positive semidefinite", text, advice)
    negative = np.einsum("...ii->...i", host).min(axis=-1) < 0
    bad = (lowest < -bound * np.maximum(own, 0.0)) | negative
    if not bad.any():
        return a
    w, V = np.linalg.eigh(host[bad])
    repaired = np.array(host)
    repaired[bad] = (V * np.maximum(w, 0.0)[..., None, :]) @ np.swapaxes(V, -1, -2)
    repaired = 0.5 * (repaired + np.swapaxes(repaired, -1, -2))
    if not isinstance(a, Ensemble):
        return asarray_like(repaired.astype(host.dtype), a)
    return Ensemble(asarray_like(np.ascontiguousarray(np.moveaxis(repaired, 0, -1)), a.samples), a.sample_set)


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
