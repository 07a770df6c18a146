"""The filter of `_kalman_bodies` for models of any size: products of matrices in register tiles, arrays made once.

Every entry is made of the same operations in the same order as where steps are written out, so it has the same bits (a
sum that starts at zero is its first product). Rows of matrices are padded with zeros to whole registers.

The covariances of a constant model converge. Once those of two steps agree to rounding, gains and covariances are kept
until an entry of an observation is missing; see `_has_converged`.
"""

from __future__ import annotations

import numpy as np

from ensemble._kernels._compile import compiled, compiled_serial, inner, prange, spliced
from ensemble._kernels._kalman_bodies import TWO_PI
from ensemble._kernels._lane_arithmetic import fma
from ensemble._kernels._lanes import ROW_BYTES, called, load, register_of, store

__all__ = ["CONVERGED", "filter_alone", "filter_each"]

CONVERGED = 8
"""Rounding errors by which an entry of two successive predicted covariances may differ where they have converged."""


# --- matrices: (array, offset, stride of rows)
@spliced
def _padded(n, like):
    """`n` rounded up to whole registers."""
    width = ROW_BYTES // like.itemsize
    return (n + width - 1) // width * width


@inner
def _multiply(A, a, by_row, by_inner, B, b, C, c, stride, rows, inner, sign, upper):
    """Add ``sign * A B`` to C, rows `stride` apart; with `upper` without the registers left of the diagonal."""
    called()
    kind, width = register_of(C), ROW_BYTES // C.itemsize
    i = 0
    while i + 4 <= rows:
        j = i // width * width if upper else 0
        while j < stride:
            at = c + i * stride + j
            a0 = a + i * by_row
            a1, a2, a3 = a0 + by_row, a0 + 2 * by_row, a0 + 3 * by_row
            if j + width < stride:
                p0, p1 = load(C, at, kind), load(C, at + stride, kind)
                p2, p3 = load(C, at + 2 * stride, kind), load(C, at + 3 * stride, kind)
                q0, q1 = load(C, at + width, kind), load(C, at + stride + width, kind)
                q2, q3 = load(C, at + 2 * stride + width, kind), load(C, at + 3 * stride + width, kind)
                for k in range(inner):
                    p, q = load(B, b + k * stride + j, kind), load(B, b + k * stride + j + width, kind)
                    x0, x1 = sign * A[a0 + k * by_inner], sign * A[a1 + k * by_inner]
                    x2, x3 = sign * A[a2 + k * by_inner], sign * A[a3 + k * by_inner]
                    p0, p1, p2, p3 = fma(p, x0, p0), fma(p, x1, p1), fma(p, x2, p2), fma(p, x3, p3)
                    q0, q1, q2, q3 = fma(q, x0, q0), fma(q, x1, q1), fma(q, x2, q2), fma(q, x3, q3)
                store(C, at + width, q0)
                store(C, at + stride + width, q1)
                store(C, at + 2 * stride + width, q2)
                store(C, at + 3 * stride + width, q3)
                j += 2 * width
            else:
                p0, p1 = load(C, at, kind), load(C, at + stride, kind)
                p2, p3 = load(C, at + 2 * stride, kind), load(C, at + 3 * stride, kind)
                for k in range(inner):
                    p = load(B, b + k * stride + j, kind)
                    x0, x1 = sign * A[a0 + k * by_inner], sign * A[a1 + k * by_inner]
                    x2, x3 = sign * A[a2 + k * by_inner], sign * A[a3 + k * by_inner]
                    p0, p1, p2, p3 = fma(p, x0, p0), fma(p, x1, p1), fma(p, x2, p2), fma(p, x3, p3)
                j += width
            store(C, at, p0)
            store(C, at + stride, p1)
            store(C, at + 2 * stride, p2)
            store(C, at + 3 * stride, p3)
        i += 4
    while i < rows:
        j = i // width * width if upper else 0
        while j < stride:
            at, a0 = c + i * stride + j, a + i * by_row
            if j + 2 * width < stride:
                p0, q0, r0 = load(C, at, kind), load(C, at + width, kind), load(C, at + 2 * width, kind)
                for k in range(inner):
                    x0, start = sign * A[a0 + k * by_inner], b + k * stride + j
                    p0 = fma(load(B, start, kind), x0, p0)
                    q0 = fma(load(B, start + width, kind), x0, q0)
                    r0 = fma(load(B, start + 2 * width, kind), x0, r0)
                store(C, at + width, q0)
                store(C, at + 2 * width, r0)
                j += 3 * width
            else:
                p0 = load(C, at, kind)
                for k in range(inner):
                    p0 = fma(load(B, b + k * stride + j, kind), sign * A[a0 + k * by_inner], p0)
                j += width
            store(C, at, p0)
        i += 1


@inner
def _add_row(x, B, b, C, c, stride):
    """Add x times a row of B to a row of C."""
    called()
    kind, width = register_of(C), ROW_BYTES // C.itemsize
    for j in range(0, stride, width):
        store(C, c + j, fma(load(B, b + j, kind), x, load(C, c + j, kind)))


@inner
def _scaled_row(x, B, b, C, c, stride):
    """A row of C as x times a row of B."""
    called()
    kind, width = register_of(C), ROW_BYTES // C.itemsize
    for j in range(0, stride, width):
        store(C, c + j, load(B, b + j, kind) * x)


@inner
def _copy(A, a, rows, columns, C, c, stride):
    """Rows of A, side by side, to padded rows of C."""
    called()
    for i in range(rows):
        for j in range(columns):
            C[c + i * stride + j] = A[a + i * columns + j]


@inner
def _copy_transposed(A, a, by_row, rows, columns, C, c, stride):
    called()
    for i in range(rows):
        for j in range(columns):
            C[c + j * stride + i] = A[a + i * by_row + j]


@inner
def _mirror(A, a, n, stride):
    """The entries above the diagonal below it, too."""
    called()
    for i in range(n):
        for j in range(i):
            A[a + i * stride + j] = A[a + j * stride + i]


@inner
def _fill(C, c, count):
    called()
    for i in range(c, c + count):
        C[i] = 0.0


@inner
def _move(A, a, b, count):
    """Entries from `a` on, from `b` on."""
    called()
    for c in range(count):
        A[b + c] = A[a + c]


@inner
def _factor(w, S, low, inverses, n, p):
    """Unit lower triangle, pivots, on the diagonal of S, and their inverses of ``S = L D L'``."""
    called()
    for j in range(n):
        w[inverses + j] = 1.0 / w[S + j * p + j]
        for i in range(j + 1, n):
            factor = w[S + j * p + i] * w[inverses + j]
            w[low + i * p + j] = factor
            for k in range(i, n):
                w[S + i * p + k] = fma(-factor, w[S + j * p + k], w[S + i * p + k])


@inner
def _subtract_squares(w, A, rows, weights, C, n, count, stride):
    """C as A less ``sum_i weights[i] rows[i] rows[i]'``, symmetric to the bit."""
    called()
    kind, width = register_of(w), ROW_BYTES // w.itemsize
    for a in range(n):
        for j in range(0, stride, width):
            entry = load(w, A + a * stride + j, kind)
            for i in range(count):
                product = load(w, rows + i * stride + j, kind) * -w[rows + i * stride + a]
                entry = fma(product, w[weights + i], entry)
            store(w, C + a * stride + j, entry)


@inner
def _add_products(w, K, G, X, P, n, count, stride):
    """Add ``sum_i K[i] G[i]' + sum_i X[i] K[i]'`` of rows to P, from the diagonal's registers on."""
    called()
    kind, width = register_of(w), ROW_BYTES // w.itemsize
    for a in range(n):
        for j in range(a // width * width, stride, width):
            entry = kind
            for i in range(count):
                entry = fma(load(w, G + i * stride + j, kind), w[K + i * stride + a], entry)
            for i in range(count):
                entry = fma(load(w, K + i * stride + j, kind), w[X + i * stride + a], entry)
            store(w, P + a * stride + j, load(w, P + a * stride + j, kind) + entry)


@inner
def _take_out(y, at, w, H, R, nx, ny, p):
    """Zero rows of H and unit noise where an observation is missing; whether any is."""
    called()
    gaps = False
    for i in range(ny):
        if np.isnan(y[at + i]):
            gaps = True
            for k in range(nx):
                w[H + i * nx + k] = 0.0
            for k in range(ny):
                w[R + i * p + k] = w[R + k * p + i] = 0.0
            w[R + i * p + i] = 1.0
    return gaps


@inner
def _innovation(d, at_d, y, at_y, w, H, m, r, nx, ny):
    """y - d - H m, zero where y is missing."""
    called()
    for i in range(ny):
        total = y[at_y + i] - d[at_d + i]
        for k in range(nx):
            total = fma(-w[H + i * nx + k], w[m + k], total)
        w[r + i] = 0.0 if np.isnan(y[at_y + i]) else total


@inner
def _square(w, low, r, white, inverses, n, p):
    """``r' S^-1 r``."""
    called()
    for i in range(n):
        z = w[r + i]
        for j in range(i):
            z = fma(-w[low + i * p + j], w[white + j], z)
        w[white + i] = z
    total = w[white] * (w[white] * w[inverses])
    for i in range(1, n):
        total = fma(w[white + i], w[white + i] * w[inverses + i], total)
    return total


# --- a step
@spliced
def _places(nx, ny, like):
    """Where everything starts in the working array, and its length."""
    n, p = _padded(nx, like), _padded(ny, like)
    squares = 0, nx * n, 2 * nx * n, 3 * nx * n, 4 * nx * n
    at = 5 * nx * n
    rows = at, at + ny * n, at + 2 * ny * n, at + 3 * ny * n, at + 4 * ny * n, at + 5 * ny * n
    at += 6 * ny * n
    columns = at, at + nx * p
    at += 2 * nx * p
    small = at, at + ny * p, at + 2 * ny * p, at + 3 * ny * p
    at += 4 * ny * p
    vectors = at, at + n, at + 2 * n, at + 2 * n + p, at + 2 * n + 2 * p
    return squares, rows, columns, small, vectors, at + 2 * n + 3 * p


@spliced
def _predict_mean(u, at, places, w, nx, n):
    """u + F m in place of m: a sum of columns of F."""
    Ft, m, ahead = places[0][3], places[4][0], places[4][1]
    for a in range(nx):
        w[ahead + a] = u[at + a]
    for k in range(nx):
        _add_row(w[m + k], w, Ft + k * n, w, ahead, n)
    _move(w, ahead, m, n)


@spliced
def _predict(F, f, Q, q, places, w, nx, n):
    """F P F' + Q; the transpose of F is there."""
    P, ahead, _, Ft, FP = places[0]
    _fill(w, FP, nx * n)
    _multiply(F, f, nx, 1, w, P, w, FP, n, nx, nx, 1.0, False)
    _copy(Q, q, nx, nx, w, ahead, n)
    _multiply(w, FP, n, 1, w, Ft, w, ahead, n, nx, nx, 1.0, True)
    _mirror(w, ahead, nx, n)


@spliced
def _observe(H, h, R, r, y, at, places, w, nx, ny, p):
    """H and R without what is missing; whether anything is."""
    observed, noise = places[1][5], places[3][0]
    _copy(H, h, ny, nx, w, observed, nx)
    _copy(R, r, ny, ny, w, noise, p)
    _mirror(w, noise, ny, p)
    return _take_out(y, at, w, observed, noise, nx, ny, p)


@spliced
def _gain(places, w, nx, ny, n, p):
    """The rows ``L^-1 H P`` and ``S^-1 H P`` with the factors of ``S = L D L'``."""
    ahead = places[0][1]
    HP, white, gain, _, _, H = places[1]
    PHt = places[2][0]
    noise, S, low, _ = places[3]
    inverses = places[4][2]
    _fill(w, HP, ny * n)
    _multiply(w, H, nx, 1, w, ahead, w, HP, n, ny, nx, 1.0, False)
    _copy_transposed(w, HP, n, ny, nx, w, PHt, p)
    _move(w, noise, S, ny * p)
    _multiply(w, H, nx, 1, w, PHt, w, S, p, ny, nx, 1.0, True)
    _factor(w, S, low, inverses, ny, p)
    _move(w, HP, white, ny * n)
    for i in range(ny):
        for j in range(i):
            _add_row(-w[low + i * p + j], w, white + j * n, w, white + i * n, n)
    for i in range(ny - 1, -1, -1):
        _scaled_row(w[inverses + i], w, white + i * n, w, gain + i * n, n)
        for j in range(i + 1, ny):
            _add_row(-w[low + j * p + i], w, gain + j * n, w, gain + i * n, n)


@spliced
def _condition(places, w, nx, ny, n, p):
    """The covariance given an observation, corrected by the residual of the gain."""
    P, ahead = places[0][:2]
    _, white, gain, G, X, H = places[1]
    columns = places[2][1]
    noise, _, _, HG = places[3]
    inverses = places[4][2]
    _subtract_squares(w, ahead, white, inverses, P, nx, ny, n)
    _fill(w, G, ny * n)
    _multiply(w, noise, 1, p, w, gain, w, G, n, ny, ny, 1.0, False)
    _multiply(w, H, nx, 1, w, P, w, G, n, ny, nx, -1.0, False)
    _copy_transposed(w, G, n, ny, nx, w, columns, p)
    _fill(w, HG, ny * p)
    _multiply(w, H, nx, 1, w, columns, w, HG, p, ny, nx, 1.0, False)
    _move(w, G, X, ny * n)
    _multiply(w, HG, p, 1, w, gain, w, X, n, ny, ny, -1.0, False)
    _add_products(w, gain, G, X, P, nx, ny, n)
    _mirror(w, P, nx, n)


@spliced
def _update_mean(d, at_d, y, at_y, places, w, nx, ny, n, p):
    """The mean given an observation in place of m; ``r' S^-1 r``."""
    gain, H, low = places[1][2], places[1][5], places[3][2]
    m, _, inverses, r, white = places[4]
    _innovation(d, at_d, y, at_y, w, H, m, r, nx, ny)
    for i in range(ny):
        _add_row(w[r + i], w, gain + i * n, w, m, n)
    return _square(w, low, r, white, inverses, ny, p)


@inner
def _has_converged(places, w, nx, n):
    """Whether each entry of the predicted covariance is that of the step before, but for rounding errors.

    These are counted in units of the deviations: the bound is ``CONVERGED eps sqrt(P[a, a] P[b, b])``.
    """
    called()
    ahead, before = places[0][1], places[0][2]
    bound = CONVERGED * np.finfo(w.dtype).eps
    for a in range(nx):
        for b in range(nx - 1, a - 1, -1):
            gap = w[ahead + a * n + b] - w[before + a * n + b]
            scale = w[ahead + a * n + a] * w[ahead + b * n + b]
            if not gap * gap <= bound * bound * scale:
                return False
    return True


# --- series
@spliced
def _steps(a):
    """Entries from one step to the next, none where one stands for all."""
    return a.size // (a.shape[0] * a.shape[1]) if a.shape[1] > 1 else 0


@spliced
def _start(a, s):
    """Where series s starts."""
    return s * (a.size // a.shape[0]) if a.shape[0] > 1 else 0


@compiled_serial
def filter_alone(F, Q, H, R, u, d, y, m0, P0, predict_first, mean, covariance, quadratic, pivots, s):
    """The filter of series s."""
    n_steps, ny, nx = y.shape[1], y.shape[2], m0.shape[1]
    n, p = _padded(nx, mean), _padded(ny, mean)
    places = _places(nx, ny, mean)
    w = np.zeros(places[5], mean.dtype)
    P, ahead, before, Ft, _ = places[0]
    m, S = places[4][0], places[3][1]
    at_F, at_Q, at_H, at_R = _start(F, s), _start(Q, s), _start(H, s), _start(R, s)
    at_u, at_d, at_y, at_m, at_P = _start(u, s), _start(d, s), _start(y, s), _start(mean, s), _start(covariance, s)
    constant = F.shape[1] == 1 and Q.shape[1] == 1 and H.shape[1] == 1 and R.shape[1] == 1
    flat_F, flat_Q, flat_H, flat_R = F.reshape(-1), Q.reshape(-1), H.reshape(-1), R.reshape(-1)
    flat_u, flat_d, flat_y = u.reshape(-1), d.reshape(-1), y.reshape(-1)
    means, covariances = mean.reshape(-1), covariance.reshape(-1)
    _copy(m0.reshape(-1), _start(m0, s), 1, nx, w, m, n)
    _copy(P0.reshape(-1), _start(P0, s), nx, nx, w, P, n)
    _mirror(w, P, nx, n)
    _copy_transposed(flat_F, at_F, nx, nx, nx, w, Ft, n)
    kept, whole = False, False
    for k in range(n_steps):
        if kept:
            for i in range(ny):
                kept = kept and not np.isnan(flat_y[at_y + k * ny + i])
        if k > 0 or predict_first:
            if F.shape[1] > 1:
                _copy_transposed(flat_F, at_F + k * nx * nx, nx, nx, nx, w, Ft, n)
            _predict_mean(flat_u, at_u + k * _steps(u), places, w, nx, n)
            if not kept:
                if whole:
                    _move(w, ahead, before, nx * n)
                _predict(flat_F, at_F + k * _steps(F), flat_Q, at_Q + k * _steps(Q), places, w, nx, n)
        else:
            _move(w, P, ahead, nx * n)
        if kept:
            quadratic[s, k] = _update_mean(flat_d, at_d + k * _steps(d), flat_y, at_y + k * ny, places, w, nx, ny, n, p)
            _move(covariances, at_P + (k - 1) * nx * nx, at_P + k * nx * nx, nx * nx)
            for i in range(ny):
                pivots[s, k, i] = pivots[s, k - 1, i]
        else:
            rows = at_H + k * _steps(H), at_R + k * _steps(R)
            gaps = _observe(flat_H, rows[0], flat_R, rows[1], flat_y, at_y + k * ny, places, w, nx, ny, p)
            _gain(places, w, nx, ny, n, p)
            quadratic[s, k] = _update_mean(flat_d, at_d + k * _steps(d), flat_y, at_y + k * ny, places, w, nx, ny, n, p)
            _condition(places, w, nx, ny, n, p)
            for a in range(nx):
                for b in range(nx):
                    covariances[at_P + (k * nx + a) * nx + b] = w[P + a * n + b]
            for i in range(ny):
                gone = np.isnan(flat_y[at_y + k * ny + i])
                pivots[s, k, i] = 1.0 if gone else w[S + i * p + i] * TWO_PI
            kept = constant and whole and not gaps and k > 1 and _has_converged(places, w, nx, n)
            whole = constant and not gaps
        for a in range(nx):
            means[at_m + k * nx + a] = w[m + a]


@compiled
def filter_each(F, Q, H, R, u, d, y, m0, P0, predict_first, mean, covariance, quadratic, pivots):
    """The filter of every series."""
    for s in prange(y.shape[0]):
        filter_alone(F, Q, H, R, u, d, y, m0, P0, predict_first, mean, covariance, quadratic, pivots, np.int64(s))
