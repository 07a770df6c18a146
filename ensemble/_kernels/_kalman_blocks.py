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
from ensemble._kernels._kalman_tiles import (
    add_row,
    copy,
    copy_transposed,
    factor,
    fill,
    mirror,
    move,
    multiply,
    negate,
    padded,
    scaled_row,
    start,
    steps,
)
from ensemble._kernels._lane_arithmetic import fma
from ensemble._kernels._lanes import ROW_BYTES, called, load, register_of, store

__all__ = ["CONVERGED", "filter_alone", "filter_each"]

CONVERGED = 8
"""Rounding errors by which an entry of two successive predicted covariances may differ where they have converged."""


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
    n, p = padded(nx, like), padded(ny, like)
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
        add_row(w[m + k], w, Ft + k * n, w, ahead, n)
    move(w, ahead, m, n)


@spliced
def _predict(F, f, Q, q, places, w, nx, n):
    """F P F' + Q; the transpose of F is there."""
    P, ahead, _, Ft, FP = places[0]
    fill(w, FP, nx * n)
    multiply(F, f, nx, 1, w, P, w, FP, n, nx, nx, False)
    copy(Q, q, nx, nx, nx, w, ahead, n)
    multiply(w, FP, n, 1, w, Ft, w, ahead, n, nx, nx, True)
    mirror(w, ahead, nx, n)


@spliced
def _observe(H, h, R, r, y, at, places, w, nx, ny, p):
    """H and R without what is missing; whether anything is."""
    observed, noise = places[1][5], places[3][0]
    copy(H, h, nx, ny, nx, w, observed, nx)
    copy(R, r, ny, ny, ny, w, noise, p)
    mirror(w, noise, ny, p)
    return _take_out(y, at, w, observed, noise, nx, ny, p)


@spliced
def _gain(places, w, nx, ny, n, p):
    """The rows ``L^-1 H P`` and ``S^-1 H P`` with the factors of ``S = L D L'``."""
    ahead = places[0][1]
    HP, white, gain, _, _, H = places[1]
    PHt = places[2][0]
    noise, S, low, _ = places[3]
    inverses = places[4][2]
    fill(w, HP, ny * n)
    multiply(w, H, nx, 1, w, ahead, w, HP, n, ny, nx, False)
    copy_transposed(w, HP, n, ny, nx, w, PHt, p)
    move(w, noise, S, ny * p)
    multiply(w, H, nx, 1, w, PHt, w, S, p, ny, nx, True)
    factor(w, S, low, inverses, ny, p, -1.0)
    move(w, HP, white, ny * n)
    for i in range(ny):
        for j in range(i):
            add_row(-w[low + i * p + j], w, white + j * n, w, white + i * n, n)
    for i in range(ny - 1, -1, -1):
        scaled_row(w[inverses + i], w, white + i * n, w, gain + i * n, n)
        for j in range(i + 1, ny):
            add_row(-w[low + j * p + i], w, gain + j * n, w, gain + i * n, n)


@spliced
def _condition(places, w, nx, ny, n, p):
    """The covariance given an observation, corrected by the residual of the gain."""
    P, ahead = places[0][:2]
    _, white, gain, G, X, H = places[1]
    columns = places[2][1]
    noise, _, _, HG = places[3]
    inverses = places[4][2]
    _subtract_squares(w, ahead, white, inverses, P, nx, ny, n)
    fill(w, G, ny * n)
    multiply(w, noise, 1, p, w, gain, w, G, n, ny, ny, False)
    negate(w, H, X, ny * nx)
    multiply(w, X, nx, 1, w, P, w, G, n, ny, nx, False)
    copy_transposed(w, G, n, ny, nx, w, columns, p)
    fill(w, HG, ny * p)
    multiply(w, H, nx, 1, w, columns, w, HG, p, ny, nx, False)
    move(w, G, X, ny * n)
    negate(w, HG, HG, ny * p)
    multiply(w, HG, p, 1, w, gain, w, X, n, ny, ny, False)
    _add_products(w, gain, G, X, P, nx, ny, n)
    mirror(w, P, nx, n)


@spliced
def _update_mean(d, at_d, y, at_y, places, w, nx, ny, n, p):
    """The mean given an observation in place of m; ``r' S^-1 r``."""
    gain, H, low = places[1][2], places[1][5], places[3][2]
    m, _, inverses, r, white = places[4]
    _innovation(d, at_d, y, at_y, w, H, m, r, nx, ny)
    for i in range(ny):
        add_row(w[r + i], w, gain + i * n, w, m, n)
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
@compiled_serial
def filter_alone(F, Q, H, R, u, d, y, m0, P0, predict_first, mean, covariance, quadratic, pivots, s):
    """The filter of series s."""
    n_steps, ny, nx = y.shape[1], y.shape[2], m0.shape[1]
    n, p = padded(nx, mean), padded(ny, mean)
    places = _places(nx, ny, mean)
    w = np.zeros(places[5], mean.dtype)
    P, ahead, before, Ft, _ = places[0]
    m, S = places[4][0], places[3][1]
    at_F, at_Q, at_H, at_R = start(F, s), start(Q, s), start(H, s), start(R, s)
    at_u, at_d, at_y, at_m, at_P = start(u, s), start(d, s), start(y, s), start(mean, s), start(covariance, s)
    constant = F.shape[1] == 1 and Q.shape[1] == 1 and H.shape[1] == 1 and R.shape[1] == 1
    flat_F, flat_Q, flat_H, flat_R = F.reshape(-1), Q.reshape(-1), H.reshape(-1), R.reshape(-1)
    flat_u, flat_d, flat_y = u.reshape(-1), d.reshape(-1), y.reshape(-1)
    means, covariances = mean.reshape(-1), covariance.reshape(-1)
    copy(m0.reshape(-1), start(m0, s), nx, 1, nx, w, m, n)
    copy(P0.reshape(-1), start(P0, s), nx, nx, nx, w, P, n)
    mirror(w, P, nx, n)
    copy_transposed(flat_F, at_F, nx, nx, nx, w, Ft, n)
    kept, whole = False, False
    for k in range(n_steps):
        if kept:
            for i in range(ny):
                kept = kept and not np.isnan(flat_y[at_y + k * ny + i])
        if k > 0 or predict_first:
            if F.shape[1] > 1:
                copy_transposed(flat_F, at_F + k * nx * nx, nx, nx, nx, w, Ft, n)
            _predict_mean(flat_u, at_u + k * steps(u), places, w, nx, n)
            if not kept:
                if whole:
                    move(w, ahead, before, nx * n)
                _predict(flat_F, at_F + k * steps(F), flat_Q, at_Q + k * steps(Q), places, w, nx, n)
        else:
            move(w, P, ahead, nx * n)
        if kept:
            quadratic[s, k] = _update_mean(flat_d, at_d + k * steps(d), flat_y, at_y + k * ny, places, w, nx, ny, n, p)
            move(covariances, at_P + (k - 1) * nx * nx, at_P + k * nx * nx, nx * nx)
            for i in range(ny):
                pivots[s, k, i] = pivots[s, k - 1, i]
        else:
            rows = at_H + k * steps(H), at_R + k * steps(R)
            gaps = _observe(flat_H, rows[0], flat_R, rows[1], flat_y, at_y + k * ny, places, w, nx, ny, p)
            _gain(places, w, nx, ny, n, p)
            quadratic[s, k] = _update_mean(flat_d, at_d + k * steps(d), flat_y, at_y + k * ny, places, w, nx, ny, n, p)
            _condition(places, w, nx, ny, n, p)
            copy(w, P, n, nx, nx, covariances, at_P + k * nx * nx, nx)
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
