"""Many observations of few states as few: what they say of the states, and the density of the rest.

With ``R = L L'`` and ``L^-1 H = Q [T; 0]``, Q orthogonal and T with as many rows as there are states, the observation
``Q' L^-1 (y - d)`` has independent noises of variance 1. Its first entries see the states through T. The others are
noise alone: their density is a number, beside the determinant of L [1]_. Householder's reflections make no square of H
and serve H of any rank. What is missing is left out, so that a new factor is made where the gaps change.

References
----------
.. [1] B. Jungbacker, S. J. Koopman, Likelihood-based dynamic factor analysis for measurement and forecasting,
   Econometrics J. 18 (2015), C1-C21.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ensemble._compile.numba import compiled_serial, heard

__all__ = ["FARTHEST", "LEAST_PIVOT", "collapse", "have_roots"]

LEAST_PIVOT = 1e-8
"""The part of its variance that an entry's noise must have for itself, beside what the others show of it."""

FARTHEST = 1e9
"""Deviations of its noise by which an entry may be from zero: beyond, its rounding would be seen in the others."""


@compiled_serial
def _root(R, seen, count, L):
    """The triangle L of ``R = L L'`` for the entries that are seen; the inverse of its diagonal in place of that.

    Returns whether all pivots are large enough.
    """
    for i in range(count):
        for j in range(i + 1):
            left = R[seen[i], seen[j]]
            for k in range(j):
                left -= L[i, k] * L[j, k]
            if j < i:
                L[i, j] = left * L[j, j]
            elif left > LEAST_PIVOT * R[seen[i], seen[i]]:
                L[i, i] = 1.0 / math.sqrt(left)
            else:
                return False
    return True


@compiled_serial
def _is_diagonal(R):
    for i in range(R.shape[0]):
        for j in range(i):
            if R[i, j] != 0.0 or R[j, i] != 0.0:
                return False
    return True


@compiled_serial
def _have_roots(R, found):
    n, steps, ny, _ = R.shape
    L, seen = np.empty((ny, ny)), np.arange(ny)
    for s in range(n):
        found[s] = True
        for k in range(steps):
            if _is_diagonal(R[s, k]):
                for i in range(ny):
                    found[s] = found[s] and R[s, k, i, i] > 0.0
            elif not _root(R[s, k], seen, ny, L):
                found[s] = False


@compiled_serial
def _whiten(L, root, is_diagonal, x, count):
    """``L^-1 x``, in place; `root` has the inverses of L's diagonal."""
    if is_diagonal:
        for i in range(count):
            x[i] *= root[i]
        return
    for i in range(count):
        for j in range(i):
            x[i] -= L[i, j] * x[j]
        x[i] *= root[i]


@compiled_serial
def _reflect(v, first, count, scale, x):
    """x less its part along the vector v, whose entries before `first` are zero."""
    total = 0.0
    for i in range(first, count):
        total += v[i] * x[i]
    total *= scale
    for i in range(first, count):
        x[i] -= total * v[i]


@compiled_serial
def _factor(A, nx, count, V, scales):
    """Reflections that make the columns of A, its rows here, a triangle, whose entries stay there."""
    for j in range(min(nx, count)):
        size = 0.0
        for i in range(j, count):
            size = max(size, abs(A[j, i]))
        scales[j] = 0.0
        if size == 0.0:
            continue
        total = 0.0
        for i in range(j, count):
            V[j, i] = A[j, i] / size
            total += V[j, i] * V[j, i]
        norm = math.copysign(math.sqrt(total), V[j, j])
        V[j, j] += norm
        scales[j] = 1.0 / (norm * V[j, j])
        for c in range(j + 1, nx):
            _reflect(V[j], j, count, scales[j], A[c])
        A[j, j] = -norm * size
        for i in range(j + 1, count):
            A[j, i] = 0.0


@compiled_serial
def _collapse(H, R, y, T, z, terms):
    """See `collapse`; `y` is without its offset, `terms` are the logarithms of the densities of the rest.

    Longer than 60 lines: a step takes the factors of the last one where its H, R and missing entries are the same.
    """
    n, n_steps, ny = y.shape
    nx = H.shape[3]
    seen, before = np.empty(ny, np.int64), np.empty(ny, np.bool_)
    A, V, scales, L, w = np.empty((nx, ny)), np.empty((nx, ny)), np.empty(nx), np.empty((ny, ny)), np.empty(ny)
    root, roots, logs = np.empty(ny), np.empty(ny), np.empty(ny)
    count, rows, log_det, is_diagonal = 0, 0, 0.0, False
    of_H = of_R = at_H = at_R = -1
    by_step = H.shape[0] == R.shape[0] == 1 and T.shape[1] > 1  # series share the factor of a step
    for number in range(n * n_steps):
        s, k = (number % n, number // n) if by_step else (number // n_steps, number % n_steps)
        s_H, s_R = s if H.shape[0] > 1 else 0, s if R.shape[0] > 1 else 0
        k_H, k_R = k if H.shape[1] > 1 else 0, k if R.shape[1] > 1 else 0
        missing = 0
        for i in range(ny):
            missing += y[s, k, i] != y[s, k, i]
        if missing == ny:
            z[s, k, :] = np.nan
            terms[s, k] = 0.0
            continue
        same = of_H == s_H and of_R == s_R and at_H == k_H and at_R == k_R
        for i in range(ny):
            is_seen = y[s, k, i] == y[s, k, i]
            same = same and before[i] == is_seen
            before[i] = is_seen
        if not same:
            if of_R != s_R or at_R != k_R:
                is_diagonal = _is_diagonal(R[s_R, k_R])
                for i in range(ny):
                    roots[i] = 1.0 / math.sqrt(R[s_R, k_R, i, i])
                    logs[i] = math.log(R[s_R, k_R, i, i])
            of_H, of_R, at_H, at_R = s_H, s_R, k_H, k_R
            count = 0
            for i in range(ny):
                if before[i]:
                    seen[count] = i
                    count += 1
            if not is_diagonal:
                _root(R[s_R, k_R], seen, count, L)
            log_det = 0.0
            for i in range(count):
                root[i] = roots[seen[i]] if is_diagonal else L[i, i]
                log_det += logs[seen[i]] if is_diagonal else -2.0 * math.log(L[i, i])
            for c in range(nx):
                for i in range(count):
                    A[c, i] = H[s_H, k_H, seen[i], c]
                _whiten(L, root, is_diagonal, A[c], count)
            _factor(A, nx, count, V, scales)
            rows = min(nx, count)
        if not same or T.shape[1] > 1:
            for i in range(nx):
                for c in range(nx):
                    T[s if T.shape[0] > 1 else 0, k if T.shape[1] > 1 else 0, i, c] = A[c, i] if i < rows else 0.0
        farthest = 0.0
        for i in range(count):
            w[i] = y[s, k, seen[i]]
        _whiten(L, root, is_diagonal, w, count)
        for i in range(count):
            farthest = max(farthest, abs(w[i]))
        for j in range(rows):
            if scales[j] != 0.0:
                _reflect(V[j], j, count, scales[j], w)
        for i in range(nx):
            z[s, k, i] = w[i] if i < rows else np.nan
        for i in range(rows):  # what is not a number must not pass for a missing entry
            farthest = farthest if abs(w[i]) < np.inf else np.inf
        total = log_det + (count - rows) * math.log(2.0 * math.pi)
        for i in range(rows, count):
            total += w[i] * w[i]
        terms[s, k] = -0.5 * total if farthest <= FARTHEST else np.nan


def have_roots(R: np.ndarray) -> np.ndarray:
    """Which series' noises (n, steps, ny, ny) have a factor that is not close to singular, at all steps: bools (n,)."""
    found = np.empty(R.shape[0], np.bool_)
    values = np.ascontiguousarray(R, np.float64)
    heard(lambda: _have_roots(values, found), values.size)
    return found


def collapse(
    H: np.ndarray, R: np.ndarray, d: np.ndarray, y: np.ndarray, same: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fewer observations ``T x + r``, r with independent entries of variance 1, and the log-densities of what is left.

    Parameters
    ----------
    H, R, d, y : array of float64, shape (n_series or 1, n_steps or 1, ...)
        NaN in `y` where missing.
    same : bool
        Whether no step of any series misses some of its entries but not all.

    Returns
    -------
    T : array, shape (n or 1, n_steps or 1, nx, nx)
        With `same`, one series or step for all where H and R have one.
    z : array, shape (n or 1, n_steps, nx)
        NaN where missing.
    terms : array, shape (n or 1, n_steps)
        NaN where an entry is so far from zero that its rounding would be seen in others.
    """
    only = y[:1] if y.strides[0] == 0 else y
    values = only - d
    n, n_steps, _ = values.shape
    of_factors = max(H.shape[0], R.shape[0])
    if of_factors > n:
        values, n = np.broadcast_to(values, (of_factors, *values.shape[1:])), of_factors
    constant = same and H.shape[1] == R.shape[1] == 1
    nx = H.shape[-1]
    T = np.zeros((of_factors if same else n, 1 if constant else n_steps, nx, nx))
    z, terms = np.empty((n, n_steps, nx)), np.empty((n, n_steps))
    arrays: Any = [np.ascontiguousarray(a, np.float64) for a in (H, R, values)]
    heard(lambda: _collapse(*arrays, T, z, terms), 4 * values.size * nx)
    return T, z, terms
