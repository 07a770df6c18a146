"""The recursions of `_kalman_bodies` as loops over matrices of any size: for those that are too large to write out.

Every entry is made of the same operations in the same order, so it has the same bits (a sum that starts at zero is its
first product); the innermost loops run along rows, where SIMD registers hold them.
"""

from __future__ import annotations

import numpy as np

from ensemble._kernels._compile import compiled, compiled_serial, prange
from ensemble._kernels._kalman_bodies import TWO_PI
from ensemble._kernels._lane_arithmetic import fma

__all__ = ["filter_alone", "filter_each", "smooth_alone", "smooth_each"]


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
def _update(H, R, d, y, m, P):
    """`_kalman_bodies.update`, without what it needs for other series."""
    ny = H.shape[0]
    H, noise, gone = H.copy(), R.copy(), np.isnan(y)
    r = np.zeros((ny, 1), H.dtype)
    _mirror(noise)
    for i in range(ny):
        if gone[i]:
            H[i, :], noise[i, :], noise[:, i] = 0.0, 0.0, 0.0
            noise[i, i] = 1.0
        else:
            r[i, 0] = y[i] - d[i]
    _subtract(H, m, r[:, 0])
    for i in range(ny):
        r[i, 0] = 0.0 if gone[i] else r[i, 0]
    PHt = _times(P, H.T.copy())
    S = noise.copy()
    _add_symmetric(H, PHt, S)
    lower, pivots, inverses = _factored(S, -1.0)
    white = PHt.T.copy()
    _forward(lower, white)
    gain = white.copy()
    _scale(inverses, gain)
    _backward(lower, gain)
    K, mean = gain.T.copy(), m.copy()
    _add(K, r[:, 0], mean)
    _forward(lower, r)
    quadratic = r[0, 0] * (r[0, 0] * inverses[0])
    for i in range(1, ny):
        quadratic = fma(r[i, 0], r[i, 0] * inverses[i], quadratic)
    covariance = P.copy()
    for a in range(P.shape[0]):
        for i in range(ny):
            for b in range(P.shape[0]):
                covariance[a, b] = fma(-(white[i, a] * white[i, b]), inverses[i], covariance[a, b])
    _correct(covariance, H, noise, K, gain)
    pivots *= TWO_PI
    pivots[gone] = 1.0
    return mean, covariance, quadratic, pivots


@compiled_serial
def _correct(M, H, R, K, Kt):
    """`_kalman_bodies._corrected` in place of `M`."""
    G, columns = _times(K, R), H.T.copy()
    for a in range(G.shape[0]):
        for b in range(M.shape[0]):
            for i in range(R.shape[0]):
                G[a, i] = fma(-M[a, b], columns[b, i], G[a, i])
    HG, spread = _times(H, G), np.zeros_like(M)
    _add_symmetric(K, G.T.copy(), spread)
    for a in range(G.shape[0]):
        for j in range(R.shape[0]):
            for i in range(R.shape[0]):
                G[a, j] = fma(-K[a, i], HG[j, i], G[a, j])
    _add_symmetric(G, Kt, spread)
    M += spread


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
def filter_alone(F, Q, H, R, u, d, y, m0, P0, predict_first, mean, covariance, quadratic, pivots, s):
    """The filter of series s."""
    m, P = m0[s if m0.shape[0] > 1 else 0].copy(), P0[s if P0.shape[0] > 1 else 0].copy()
    _mirror(P)
    for k in range(y.shape[1]):
        if k > 0 or predict_first:
            transition, ahead, shifted = _at(F, s, k), _at(Q, s, k).copy(), _at(u, s, k).copy()
            _add(transition, m, shifted)
            _add_symmetric(_times(transition, P), transition.T.copy(), ahead)
            m, P = shifted, ahead
        m, P, quadratic[s, k], scaled = _update(_at(H, s, k), _at(R, s, k), _at(d, s, k), _at(y, s, k), m, P)
        mean[s, k], covariance[s, k], pivots[s, k] = m, P, scaled


@compiled
def filter_each(F, Q, H, R, u, d, y, m0, P0, predict_first, mean, covariance, quadratic, pivots):
    """The filter of every series."""
    for s in prange(y.shape[0]):
        filter_alone(F, Q, H, R, u, d, y, m0, P0, predict_first, mean, covariance, quadratic, pivots, np.int64(s))


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
