"""The filter on triangular factors of covariances, as loops over matrices of any size.

Each step triangularises by Householder reflections: the blocks of a matrix W side by side give the lower triangular L
with ``L L' = W W'``.
"""

from __future__ import annotations

import numpy as np

from ensemble._kernels._compile import compiled_serial, inner
from ensemble._kernels._kalman_bodies import TWO_PI

__all__ = ["square_root_each"]


@inner
def _root(A, U):
    """Lower triangular U with ``U U' = A``; columns of pivots lost in rounding are zero. A is overwritten."""
    n = A.shape[0]
    U[:] = 0.0
    limit = A.dtype.type(8 * n * np.finfo(A.dtype).eps)
    first = A.copy()
    for j in range(n):
        if A[j, j] <= limit * abs(first[j, j]):
            continue
        root = 1.0 / np.sqrt(A[j, j])
        for i in range(j, n):
            U[i, j] = A[i, j] * root
        for i in range(j, n):
            for k in range(j, n):
                A[i, k] -= U[i, j] * U[k, j]


@inner
def _triangularise(W):
    """The lower triangle L in place of W."""
    rows, columns = W.shape
    for i in range(min(rows, columns)):
        total = W[i, i] * 0.0
        for c in range(i, columns):
            total += W[i, c] * W[i, c]
        norm = np.sqrt(total)
        if norm == 0.0:
            continue
        end = -norm if W[i, i] >= 0.0 else norm
        head = W[i, i] - end
        scale = 1.0 / (norm * (norm + abs(W[i, i])))
        for k in range(i + 1, rows):
            along = W[k, i] * head
            for c in range(i + 1, columns):
                along += W[k, c] * W[i, c]
            along *= scale
            W[k, i] -= along * head
            for c in range(i + 1, columns):
                W[k, c] -= along * W[i, c]
        W[i, i] = end
        for c in range(i + 1, columns):
            W[i, c] = 0.0


@compiled_serial
def square_root_each(F, Q, H, R, u, d, y, m0, P0, predict_first, mean, covariance, terms):
    """Filtered means and covariances and log-densities of every series, one after another."""
    n_series, n_steps, ny = y.shape
    nx = m0.shape[1]
    zero = mean.dtype.type(0.0)
    ahead, wide = np.zeros((nx, 2 * nx), mean.dtype), np.zeros((ny + nx, ny + nx), mean.dtype)
    U, root_Q, root_R = np.zeros((nx, nx), mean.dtype), np.zeros((nx, nx), mean.dtype), np.zeros((ny, ny), mean.dtype)
    noise, m, r = np.zeros((ny, ny), mean.dtype), np.zeros(nx, mean.dtype), np.zeros(ny, mean.dtype)
    for s in range(n_series):
        m[:] = m0[s if m0.shape[0] > 1 else 0]
        _root(P0[s if P0.shape[0] > 1 else 0].copy(), U)
        for k in range(n_steps):
            if k > 0 or predict_first:
                Fk = F[s if F.shape[0] > 1 else 0, k if F.shape[1] > 1 else 0]
                uk = u[s if u.shape[0] > 1 else 0, k if u.shape[1] > 1 else 0]
                if (k == 0 or Q.shape[1] > 1) or (k == 1 and not predict_first):
                    _root(Q[s if Q.shape[0] > 1 else 0, k if Q.shape[1] > 1 else 0].copy(), root_Q)
                for i in range(nx):
                    r_i = uk[i]
                    for j in range(nx):
                        r_i += Fk[i, j] * m[j]
                        total = zero
                        for c in range(nx):
                            total += Fk[i, c] * U[c, j]
                        ahead[i, j], ahead[i, nx + j] = total, root_Q[i, j]
                    mean[s, k, i] = r_i
                m[:] = mean[s, k]
                _triangularise(ahead)
                U[:] = ahead[:, :nx]
            Hk = H[s if H.shape[0] > 1 else 0, k if H.shape[1] > 1 else 0]
            dk = d[s if d.shape[0] > 1 else 0, k if d.shape[1] > 1 else 0]
            noise[:] = R[s if R.shape[0] > 1 else 0, k if R.shape[1] > 1 else 0]
            seen = 0
            wide[:] = 0.0
            for i in range(ny):
                r[i] = 0.0
                if np.isnan(y[s, k, i]):
                    noise[i, :], noise[:, i] = 0.0, 0.0
                    noise[i, i] = 1.0
                    continue
                seen += 1
                r[i] = y[s, k, i] - dk[i]
                for j in range(nx):
                    r[i] -= Hk[i, j] * m[j]
                    total = zero
                    for c in range(nx):
                        total += Hk[i, c] * U[c, j]
                    wide[i, ny + j] = total
            _root(noise, root_R)
            wide[:ny, :ny] = root_R
            wide[ny:, ny:] = U
            _triangularise(wide)
            term = seen * np.log(TWO_PI)
            for i in range(ny):
                white = r[i]
                for j in range(i):
                    white -= wide[i, j] * r[j]
                white /= wide[i, i]
                r[i] = white
                term += white * white + 2.0 * np.log(abs(wide[i, i]))
                for a in range(nx):
                    m[a] += wide[ny + a, i] * white
            terms[s, k] = -0.5 * term
            U[:] = wide[ny:, ny:]
            mean[s, k] = m
            for a in range(nx):
                for b in range(a, nx):
                    total = zero
                    for c in range(a + 1):
                        total += U[a, c] * U[b, c]
                    covariance[s, k, a, b] = covariance[s, k, b, a] = total
