"""The smoother of `_kalman_bodies` as loops over matrices of any size: for those that are too large to write out.

Every entry is made of the same operations in the same order, so it has the same bits (a sum that starts at zero is its
first product); the innermost loops run along rows, where SIMD registers hold them.
"""

from __future__ import annotations

import numpy as np

from ensemble._kernels._compile import compiled, compiled_serial, prange
from ensemble._kernels._lane_arithmetic import fma

__all__ = ["smooth_alone", "smooth_each"]


# --- matrices
@compiled_serial
def _times(A, B):
    """A B."""
    out = np.zeros((A.shape[0], B.shape[1]), B.dtype)
    for i in range(A.shape[0]):
        for k in range(A.shape[1]):
            for j in range(B.shape[1]):
                out[i, j] = fma(A[i, k], B[k, j], out[i, j])
    return out


@compiled_serial
def _add_symmetric(A, columns, out):
    """The symmetric product of `A` and the matrix whose `columns` are given, added to `out`."""
    n = A.shape[0]
    for i in range(n):
        for k in range(A.shape[1]):
            for j in range(i, n):
                out[i, j] = fma(A[i, k], columns[k, j], out[i, j])
    _mirror(out)


@compiled_serial
def _mirror(A):
    """The entries above the diagonal below it, too."""
    for i in range(A.shape[0]):
        for j in range(i):
            A[i, j] = A[j, i]


@compiled_serial
def _add(A, x, out):
    """A x, added to `out`."""
    for i in range(A.shape[0]):
        for k in range(A.shape[1]):
            out[i] = fma(A[i, k], x[k], out[i])


@compiled_serial
def _subtract(A, x, out):
    """A x, taken from `out`."""
    for i in range(A.shape[0]):
        for k in range(A.shape[1]):
            out[i] = fma(-A[i, k], x[k], out[i])


@compiled_serial
def _identity_minus(K, H):
    out = np.zeros((K.shape[0], H.shape[1]), K.dtype)
    for i in range(K.shape[0]):
        out[i, i] = 1.0
        for k in range(K.shape[1]):
            for j in range(H.shape[1]):
                out[i, j] = fma(-K[i, k], H[k, j], out[i, j])
    return out


@compiled_serial
def _factored(S, regular):
    """Unit lower triangle, pivots and their inverses of ``S = L D L'``.

    A pivot below `regular` of its diagonal entry, negative for none, has the inverse NaN; zero where that entry is.
    """
    n = S.shape[0]
    rest, lower, inverses = S.copy(), np.zeros_like(S), np.empty(n, S.dtype)
    for j in range(n):
        inverses[j] = 1.0 / rest[j, j]
        if regular >= 0.0 and rest[j, j] <= regular * S[j, j]:
            inverses[j] = 0.0 if S[j, j] <= 0.0 else np.nan
        for i in range(j + 1, n):
            lower[i, j] = rest[j, i] * inverses[j]
            for k in range(i, n):
                rest[i, k] = fma(-lower[i, j], rest[j, k], rest[i, k])
    return lower, np.diag(rest).copy(), inverses


@compiled_serial
def _forward(lower, x):
    """``L^-1 x`` in place of the rows of `x`."""
    for i in range(x.shape[0]):
        for j in range(i):
            for c in range(x.shape[1]):
                x[i, c] = fma(-lower[i, j], x[j, c], x[i, c])


@compiled_serial
def _solve(lower, inverses, x):
    """``S^-1 x`` in place of the rows of `x`."""
    _forward(lower, x)
    _scale(inverses, x)
    _backward(lower, x)


@compiled_serial
def _scale(factors, x):
    """Each row of `x` times its factor."""
    for i in range(x.shape[0]):
        for c in range(x.shape[1]):
            x[i, c] *= factors[i]


@compiled_serial
def _backward(lower, x):
    """``L'^-1 x`` in place of the rows of `x`."""
    n = x.shape[0]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            for c in range(x.shape[1]):
                x[i, c] = fma(-lower[j, i], x[j, c], x[i, c])


# --- steps
@compiled_serial
def _smooth(F, Q, u, m, P, later_m, later_P, regular):
    """`_kalman_bodies.smooth`."""
    FP, ahead = _times(F, P), Q.copy()
    _add_symmetric(FP, F.T.copy(), ahead)
    lower, _, inverses = _factored(ahead, regular)
    _solve(lower, inverses, FP)
    E, gap, mean = FP.T.copy(), later_m - u, m.copy()
    _subtract(F, m, gap)
    _add(E, gap, mean)
    A = _identity_minus(E, F)
    spread = Q + later_P
    _mirror(spread)
    covariance = np.zeros_like(P)
    _add_symmetric(_times(E, spread), FP, covariance)
    _add_symmetric(_times(A, P), A.T.copy(), covariance)
    return mean, covariance


# --- series
@compiled_serial
def _at(a, s, k):
    """The entry of series s and step k, which may stand for all."""
    return a[s if a.shape[0] > 1 else 0, k if a.shape[1] > 1 else 0]


@compiled_serial
def smooth_alone(F, Q, u, m, P, regular, mean, covariance, s):
    """The smoother of series s; its last step is there."""
    for k in range(m.shape[1] - 2, -1, -1):
        filtered = P[s, k].copy()
        _mirror(filtered)
        parts = _at(F, s, k + 1), _at(Q, s, k + 1), _at(u, s, k + 1), m[s, k], filtered
        mean[s, k], covariance[s, k] = _smooth(*parts, mean[s, k + 1], covariance[s, k + 1], regular)


@compiled
def smooth_each(F, Q, u, m, P, regular, mean, covariance):
    """The smoother of every series."""
    for s in prange(m.shape[0]):
        smooth_alone(F, Q, u, m, P, regular, mean, covariance, np.int64(s))
