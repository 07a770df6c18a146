"""The filter and the smoother on square roots of covariances, as loops over matrices of any size.

A covariance P is carried as a matrix W with ``W' W = P``. Orthogonal transformations of the rows of W leave P as it is;
their rounding errors are in proportion to deviations, not to variances, so that ranks can be told down to a condition
number of P near 1 / eps² [1]_.

The smoother is that of Rauch, Tung and Striebel with the gain from the triangularisation

    [ W F'   W ]      [ A  B ]
    [ W_Q    0 ]  ->  [ 0  C ],   E' = A^-1 B,   P_s = C' C + E P_next E'

of the filtered factor W. The columns of the left half are taken in the order of what is left of each relative to the
rounding of its terms (`RANK`); where nothing but rounding is left, the components of the next state that remain follow
from those taken, and E is zero for them.

.. [1] P. Park, T. Kailath, New square-root algorithms for Kalman filtering and smoothing: IEEE Trans. Automat. Control
   40 (1995), 895-899, and Int. J. Control 62 (1995), 1043-1060.
"""

from __future__ import annotations

import math

import numpy as np

from ensemble._kernels._compile import compiled_serial
from ensemble._kernels._kalman_bodies import TWO_PI

__all__ = ["root_filter", "root_smooth"]


@compiled_serial
def _at(a, s, k):
    """The entry of series s and step k, which may stand for all."""
    return a[s if a.shape[0] > 1 else 0, k if a.shape[1] > 1 else 0]


@compiled_serial
def _first(a, s):
    """The starting value of series s, which may stand for all."""
    return a[s if a.shape[0] > 1 else 0]


@compiled_serial
def _product(A, B, out):
    """A B, written to `out`."""
    for i in range(A.shape[0]):
        for j in range(B.shape[1]):
            out[i, j] = 0.0
        for k in range(A.shape[1]):
            a = A[i, k]
            if a != 0.0:
                for j in range(B.shape[1]):
                    out[i, j] += a * B[k, j]


@compiled_serial
def _gram(W, P):
    """W' W, written to `P`."""
    n = W.shape[1]
    P[:, :] = 0.0
    for r in range(W.shape[0]):
        for i in range(n):
            w = W[r, i]
            if w != 0.0:
                for j in range(i, n):
                    P[i, j] += w * W[r, j]
    for i in range(n):
        for j in range(i):
            P[i, j] = P[j, i]


@compiled_serial
def _root(P, tiny, W):
    """W with ``W' W = P``, semidefinite and read above the diagonal, by elimination with diagonal pivoting.

    Pivots are taken in the order of what is left relative to the diagonal of P; below `tiny` of it they are rounding.
    """
    n = P.shape[0]
    rest = P.copy()
    W[:, :] = 0.0
    taken = np.zeros(n, np.bool_)
    for i in range(n):
        for j in range(i):
            rest[i, j] = rest[j, i]
    for r in range(n):
        best, j = np.float64(tiny), -1
        for i in range(n):
            if not taken[i] and P[i, i] > 0.0 and rest[i, i] > best * P[i, i]:
                best, j = np.float64(rest[i, i] / P[i, i]), i
        if j < 0:
            break
        root = math.sqrt(rest[j, j])
        taken[j] = True
        W[r, j] = root
        for i in range(n):
            if not taken[i]:
                W[r, i] = rest[j, i] / root
        for i in range(n):
            if not taken[i]:
                for c in range(n):
                    rest[i, c] -= W[r, i] * W[r, c]


@compiled_serial
def _triangular(M, n, scale, tiny, order):
    """Householder's triangularisation of the first `n` columns of M, in place; the number of columns taken.

    Row r is that of column ``order[r]``: of what is left of each column, the largest relative to `scale`. Columns of
    which nothing but `tiny` of `scale` is left are not taken.
    """
    rows, columns = M.shape
    left, w = np.empty(n, M.dtype), np.empty(columns, M.dtype)
    taken = np.zeros(n, np.bool_)
    rank = 0
    while rank < n and rank < rows:
        left[:] = 0.0
        for i in range(rank, rows):
            for c in range(n):
                left[c] += M[i, c] * M[i, c]
        best, j = np.float64(tiny), -1
        for c in range(n):
            if not taken[c] and scale[c] > 0.0 and math.sqrt(left[c]) > best * scale[c]:
                best, j = np.float64(math.sqrt(left[c]) / scale[c]), c
        if j < 0:
            break
        taken[j] = True
        order[rank] = j
        norm = math.sqrt(left[j])
        diagonal = -norm if M[rank, j] > 0.0 else norm
        head = M[rank, j] - diagonal
        w[:] = M[rank]
        for i in range(rank + 1, rows):
            M[i, j] /= head
            v = M[i, j]
            if v != 0.0:
                for c in range(columns):
                    w[c] += v * M[i, c]
        w *= -head / diagonal
        for c in range(columns):
            M[rank, c] -= w[c]
        for i in range(rank + 1, rows):
            v = M[i, j]
            if v != 0.0:
                for c in range(columns):
                    M[i, c] -= v * w[c]
                M[i, j] = 0.0
        M[rank, j] = diagonal
        rank += 1
    return rank


@compiled_serial
def _add_deviations(W, out):
    """The norms of the columns of W, added to `out`."""
    squares = np.zeros(W.shape[1], W.dtype)
    for i in range(W.shape[0]):
        for j in range(W.shape[1]):
            squares[j] += W[i, j] * W[i, j]
    out += np.sqrt(squares)


@compiled_serial
def _scale(A, deviations, noise):
    """What the rounding of each column of [W A'; noise] is in proportion to: the terms of W A' may cancel."""
    out = np.zeros(A.shape[0], deviations.dtype)
    _add_deviations(noise, out)
    for i in range(A.shape[0]):
        for k in range(A.shape[1]):
            out[i] += abs(A[i, k]) * deviations[k]
    return out


@compiled_serial
def _advance(F, W, noise):
    """The factor one transition on."""
    nx = F.shape[0]
    M = np.empty((W.shape[0] + nx, nx), W.dtype)
    _product(W, F.T.copy(), M[: W.shape[0]])
    M[W.shape[0] :] = noise
    return _compressed(M)


@compiled_serial
def _compressed(M):
    """The rows of M transformed to as many as it has columns."""
    n = M.shape[1]
    _triangular(M, n, np.ones(n, M.dtype), 0.0, np.empty(n, np.int64))
    return M[:n].copy()


@compiled_serial
def _update(H, R, d, y, m, W, tiny, jump, pivots, white, seen, gain):
    """The factor given `y`, and the square of the whitened innovation; the mean in place, its step in `jump`.

    With ``S = A' A``, `white` is ``A'^-1 r``, `seen` ``A'^-1 H``, and `gain` ``A K'``.
    """
    ny, nx = H.shape
    H, noise, gone = H.copy(), R.copy(), np.isnan(y)
    r = np.zeros(ny, W.dtype)
    for i in range(ny):
        if gone[i]:
            H[i, :], noise[i, :], noise[:, i] = 0.0, 0.0, 0.0
            noise[i, i] = 1.0
        else:
            r[i] = y[i] - d[i]
            for k in range(nx):
                r[i] -= H[i, k] * m[k]
    M = np.zeros((ny + nx, ny + nx), W.dtype)
    root, order = np.empty((ny, ny), W.dtype), np.empty(ny, np.int64)
    _root(noise, tiny, root)
    M[:ny, :ny] = root
    _product(W, H.T.copy(), M[ny:, :ny])
    M[ny:, ny:] = W
    rank = _triangular(M, ny, np.ones(ny, W.dtype), 0.0, order)
    quadratic = r[0] * 0.0
    if rank < ny:  # no density
        quadratic = np.nan
        m[:] = np.nan
    jump[:], gain[:] = 0.0, M[:ny, ny:]
    for a in range(rank):
        j = order[a]
        white[a], seen[a] = r[j], H[j]
        for b in range(a):
            white[a] -= M[b, j] * white[b]
            for k in range(nx):
                seen[a, k] -= M[b, j] * seen[b, k]
        white[a] /= M[a, j]
        quadratic += white[a] * white[a]
        pivots[j] = 1.0 if gone[j] else TWO_PI * M[a, j] * M[a, j]
        for k in range(nx):
            seen[a, k] /= M[a, j]
            jump[k] += gain[a, k] * white[a]
    m += jump
    return M[ny:, ny:].copy(), quadratic


@compiled_serial
def _prepared(F, W, before, noise, tiny):
    """The triangularisation of the module's description, and the least pivot relative to its rounding."""
    nx = F.shape[0]
    M = np.zeros((2 * nx, 2 * nx), W.dtype)
    order = np.empty(nx, np.int64)
    _product(W, F.T.copy(), M[:nx, :nx])
    M[nx:, :nx] = noise
    M[:nx, nx:] = W
    scale = _scale(F, before, noise)
    rank = _triangular(M, nx, scale, tiny, order)
    least = 1.0
    for a in range(rank):
        least = min(least, abs(M[a, order[a]]) / scale[order[a]])
    return M, least, order, rank


@compiled_serial
def _smooth(M, order, rank, later):
    """The transposed gain, and the rows whose products are the smoothed covariance, from the next smoothed factor."""
    nx = later.shape[1]
    Et = np.zeros((nx, nx), later.dtype)
    for a in range(rank - 1, -1, -1):
        j = order[a]
        Et[j] = M[a, nx:]
        for b in range(a + 1, rank):
            i = order[b]
            for c in range(nx):
                Et[j, c] -= M[a, i] * Et[i, c]
        for c in range(nx):
            Et[j, c] /= M[a, j]
    rows = np.empty((2 * nx - rank + nx, nx), later.dtype)
    rows[: 2 * nx - rank] = M[rank:, nx:]
    _product(later, Et, rows[2 * nx - rank :])
    return Et, rows


# --- the disturbance form
@compiled_serial
def _before_observation(white, seen, gain, pull, weight):
    """`pull` and `weight` of later observations, in place, with those of this step and at the predicted state.

    What all of them say of the state is ``exp(pull' x - x' weight x / 2)`` up to its prediction's own share:
    ``pull = H' S^-1 r + (I - K H)' pull`` and ``weight = H' S^-1 H + (I - K H)' weight (I - K H)``.
    """
    ny, nx = seen.shape
    A = np.zeros((nx, nx), weight.dtype)
    for i in range(nx):
        A[i, i] = 1.0
        for a in range(ny):
            for j in range(nx):
                A[i, j] -= gain[a, i] * seen[a, j]
    _congruent(A, pull, weight)
    for a in range(ny):
        for i in range(nx):
            pull[i] += seen[a, i] * white[a]
            for j in range(nx):
                weight[i, j] += seen[a, i] * seen[a, j]


@compiled_serial
def _congruent(A, pull, weight):
    """``A' pull`` and ``A' weight A``, in place."""
    nx = A.shape[1]
    moved, left, whole = np.zeros(nx, A.dtype), np.empty((A.shape[0], nx), A.dtype), np.empty((nx, nx), A.dtype)
    for k in range(A.shape[0]):
        for i in range(nx):
            moved[i] += A[k, i] * pull[k]
    _product(weight, A, left)
    _product(A.T.copy(), left, whole)
    pull[:] = moved
    for i in range(nx):
        for j in range(i, nx):
            weight[i, j] = weight[j, i] = 0.5 * (whole[i, j] + whole[j, i])


@compiled_serial
def _by_disturbances(W, before, pull, weight, least, step, P):
    """``P pull`` and ``P - P weight P`` for ``P = W' W``; by what factor a variance falls most."""
    nx = W.shape[1]
    filtered, left, taken = np.empty((nx, nx), W.dtype), np.empty((nx, nx), W.dtype), np.empty((nx, nx), W.dtype)
    _gram(W, filtered)
    _product(filtered, weight, left)
    _product(left, filtered, taken)
    sizes, moves = np.empty((nx, nx), W.dtype), np.abs(filtered)
    _product(moves, np.abs(weight), sizes)
    factor = 1.0
    for i in range(nx):
        step[i], size = 0.0, filtered[i, i]
        for j in range(nx):
            step[i] += filtered[i, j] * pull[j]
            size += sizes[i, j] * moves[i, j]
        for j in range(i, nx):
            P[i, j] = P[j, i] = filtered[i, j] - 0.5 * (taken[i, j] + taken[j, i])
        if filtered[i, i] > (least * before[i]) ** 2:
            factor = max(factor, size / P[i, i]) if P[i, i] > 0.0 else np.inf
    return factor


# --- series
@compiled_serial
def _filter(F, Q, H, R, u, d, y, m0, P0, predict_first, tiny, kept, quadratic, pivots, s):
    """The filter of series s; `kept` holds for every step what `_update` gives, and the deviations before it."""
    means, factors, before, jumps, white, seen, gain = kept
    nx = m0.shape[-1]
    m, W = _first(m0, s).copy(), np.empty((nx, nx), means.dtype)
    noise = np.empty((nx, nx), means.dtype)
    _root(_first(P0, s), tiny, W)
    _root(_at(Q, s, 0), tiny, noise)
    for k in range(means.shape[0]):
        if k > 0 or predict_first:
            transition, shifted = _at(F, s, k), _at(u, s, k).copy()
            for i in range(nx):
                for j in range(nx):
                    shifted[i] += transition[i, j] * m[j]
            if k > 0 and Q.shape[1] > 1:
                _root(_at(Q, s, k), tiny, noise)
            m, W = shifted, _advance(transition, W, noise)
        before[k] = 0.0
        _add_deviations(W, before[k])
        parts = _at(H, s, k), _at(R, s, k), _at(d, s, k), y[s, k]
        results = jumps[k], pivots[k], white[k], seen[k], gain[k]
        W, quadratic[k] = _update(*parts, m, W, tiny, *results)
        means[k], factors[k] = m, W


@compiled_serial
def _step_arrays(n_steps, nx, ny, like):
    """Arrays for what `_filter` keeps."""
    means, before, jumps = np.empty((3, n_steps, nx), like.dtype)
    factors, white = np.empty((n_steps, nx, nx), like.dtype), np.empty((n_steps, ny), like.dtype)
    seen, gain = np.empty((2, n_steps, ny, nx), like.dtype)
    return means, factors, before, jumps, white, seen, gain


@compiled_serial
def root_filter(F, Q, H, R, u, d, y, m0, P0, predict_first, tiny, mean, covariance, quadratic, pivots, s):
    """The filter of series s."""
    n_steps, nx = mean.shape[1:]
    kept = _step_arrays(n_steps, nx, H.shape[-2], mean)
    _filter(F, Q, H, R, u, d, y, m0, P0, predict_first, tiny, kept, quadratic[s], pivots[s], s)
    for k in range(n_steps):
        mean[s, k] = kept[0][k]
        _gram(kept[1][k], covariance[s, k])


@compiled_serial
def root_smooth(F, Q, H, R, u, d, y, m0, P0, predict_first, tiny, mean, covariance, s, to):
    """The smoother of series s, written to series `to` of the results; the last step is left as it is."""
    n_steps, nx = mean.shape[1:]
    kept = _step_arrays(n_steps, nx, H.shape[-2], mean)
    means, factors, before, jumps, white, seen, gain = kept
    unused = np.empty(n_steps, mean.dtype), np.empty((n_steps, H.shape[-2]), mean.dtype)
    _filter(F, Q, H, R, u, d, y, m0, P0, predict_first, tiny, kept, *unused, s)
    noise, P = np.empty((2, nx, nx), mean.dtype)
    pull, weight = np.zeros(nx, mean.dtype), np.zeros((nx, nx), mean.dtype)
    later, gap = factors[-1].copy(), jumps[-1].copy()  # of the chain of gains
    step, by_disturbance = np.empty((2, nx), mean.dtype)
    eps = tiny / (8 * nx)
    error, fall = 0.0, 0.0
    _root(_at(Q, s, 0), tiny, noise)
    for k in range(n_steps - 2, -1, -1):
        transition = _at(F, s, k + 1)
        if Q.shape[1] > 1:
            _root(_at(Q, s, k + 1), tiny, noise)
        M, least, order, rank = _prepared(transition, factors[k], before[k], noise, tiny)
        if k < n_steps - 2 and eps * fall / least**2 < error + eps / least:
            error = eps * fall / least**2
            gap[:] = by_disturbance + jumps[k + 1]
            _root(P, tiny, later)
        else:
            error += eps / least
        _before_observation(white[k + 1], seen[k + 1], gain[k + 1], pull, weight)
        _congruent(transition, pull, weight)
        fall = _by_disturbances(factors[k], before[k], pull, weight, tiny, by_disturbance, P)
        Et, rows = _smooth(M, order, rank, later)
        step[:] = 0.0
        for i in range(nx):
            for j in range(nx):
                step[j] += Et[i, j] * gap[i]
        if eps * fall < error:
            mean[to, k], covariance[to, k] = means[k] + by_disturbance, P
        else:
            mean[to, k] = means[k] + step
            _gram(rows, covariance[to, k])
        later[:], gap[:] = _compressed(rows), step + jumps[k]
