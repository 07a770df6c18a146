"""States between ranges of one series, and the information of later observations, from the elements of the ranges.

Written out for each series, so that its bits do not depend on how many there are: libraries of linear algebra multiply
and solve stacks of matrices in other orders than single ones.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import compiled_serial

__all__ = ["condition_states", "states_between"]


@compiled_serial
def _solve(M, B, n, columns):
    # B <- M^-1 B by elimination with row exchanges; NaN where M is singular
    for k in range(n):
        p = k
        for i in range(k + 1, n):
            if abs(M[i, k]) > abs(M[p, k]):
                p = i
        if p != k:
            for j in range(n):
                M[k, j], M[p, j] = M[p, j], M[k, j]
            for j in range(columns):
                B[k, j], B[p, j] = B[p, j], B[k, j]
        pivot = M[k, k]
        inverse = 1.0 / pivot if pivot != 0.0 else np.nan
        for i in range(k + 1, n):
            factor = M[i, k] * inverse
            for j in range(k + 1, n):
                M[i, j] -= factor * M[k, j]
            for j in range(columns):
                B[i, j] -= factor * B[k, j]
        M[k, k] = inverse
    for k in range(n - 1, -1, -1):
        for j in range(columns):
            total = B[k, j]
            for i in range(k + 1, n):
                total -= M[k, i] * B[i, j]
            B[k, j] = total * M[k, k]


@compiled_serial
def _condition(m, P, eta, J, M, right):
    # right <- (I + P J)^-1 [P, m + P eta]
    n = m.shape[0]
    for i in range(n):
        mean = m[i]
        for j in range(n):
            mean += P[i, j] * eta[j]
            total = 1.0 if i == j else 0.0
            for k in range(n):
                total += P[i, k] * J[k, j]
            M[i, j] = total
            right[i, j] = P[i, j]
        right[i, n] = mean
    _solve(M, right, n, n + 1)


@compiled_serial
def _advance(A, b, C, m, P, right, M, later_m, later_P):
    # the state after an interval from the one before it, given `right` of `_condition`
    n = m.shape[0]
    for i in range(n):
        mean = b[i]
        for j in range(n):
            mean += A[i, j] * right[j, n]
            total = 0.0
            for k in range(n):
                total += A[i, k] * right[k, j]
            M[i, j] = total
        later_m[i] = mean
    for i in range(n):
        for j in range(i, n):
            upper, lower = 0.0, 0.0
            for k in range(n):
                upper += M[i, k] * A[j, k]
                lower += M[j, k] * A[i, k]
            later_P[i, j] = later_P[j, i] = 0.5 * (upper + lower) + C[i, j]


@compiled_serial
def _advance_back(A, b, C, own_eta, own_J, eta, J, M, right, before_eta, before_J):
    # the information before an interval from that after it: right <- (I + J C)^-1 [J A, eta - J b]
    n = eta.shape[0]
    for i in range(n):
        gap = eta[i]
        for j in range(n):
            gap -= J[i, j] * b[j]
            total, product = (1.0 if i == j else 0.0), 0.0
            for k in range(n):
                total += J[i, k] * C[k, j]
                product += J[i, k] * A[k, j]
            M[i, j] = total
            right[i, j] = product
        right[i, n] = gap
    _solve(M, right, n, n + 1)
    for i in range(n):
        total = own_eta[i]
        for k in range(n):
            total += A[k, i] * right[k, n]
        before_eta[i] = total
        for j in range(i, n):
            upper, lower = 0.0, 0.0
            for k in range(n):
                upper += A[k, i] * right[k, j]
                lower += A[k, j] * right[k, i]
            before_J[i, j] = before_J[j, i] = own_J[i, j] + 0.5 * (upper + lower)


@compiled_serial
def _between(A, b, C, eta, J, m, P, later_eta, later_J):
    n_ranges, n_series, n = b.shape
    M, right = np.empty((n, n), b.dtype), np.empty((n, n + 1), b.dtype)
    for s in range(n_series):
        for k in range(n_ranges - 1):
            _condition(m[k, s], P[k, s], eta[k, s], J[k, s], M, right)
            _advance(A[k, s], b[k, s], C[k, s], m[k, s], P[k, s], right, M, m[k + 1, s], P[k + 1, s])
        for k in range(n_ranges - 1, 0, -1):
            _advance_back(
                A[k, s], b[k, s], C[k, s], eta[k, s], J[k, s], later_eta[k, s], later_J[k, s], M, right,
                later_eta[k - 1, s], later_J[k - 1, s],
            )  # fmt: skip


@compiled_serial
def _conditioned(m, P, eta, J):
    n_states, n = m.shape
    M, right = np.empty((n, n), m.dtype), np.empty((n, n + 1), m.dtype)
    for s in range(n_states):
        _condition(m[s], P[s], eta[s], J[s], M, right)
        for i in range(n):
            m[s, i] = right[i, n]
            for j in range(n):
                P[s, i, j] = 0.5 * (right[i, j] + right[j, i])


def states_between(elements: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Means and covariances before each range, and the information (eta, J) of all observations after each range.

    `elements` are A, b, C, eta, J, each (ranges, series, ...), those of the first range with the prior in them. The
    state before the first range is not known from them: zeros. Nothing is observed after the last range: zeros.
    """
    _, b, C, _, _ = elements
    m, P, eta, J = np.zeros_like(b), np.zeros_like(C), np.zeros_like(b), np.zeros_like(C)
    _between(*(np.ascontiguousarray(a) for a in elements), m, P, eta, J)
    return m, P, eta, J


def condition_states(m: np.ndarray, P: np.ndarray, eta: np.ndarray, J: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and covariances, each (states, ...), given information (eta, J) on them."""
    found = np.array(m, order="C"), np.array(P, order="C")
    _conditioned(*found, np.ascontiguousarray(eta), np.ascontiguousarray(J))
    return found
