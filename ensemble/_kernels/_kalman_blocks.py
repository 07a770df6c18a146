"""The filter of `_kalman_bodies` for models of any size: products of matrices in register tiles, arrays made once.

Every entry is made of the same operations in the same order as where steps are written out, so it has the same bits (a
sum that starts at zero is its first product). Rows of matrices are padded with zeros to whole registers.

The covariances of a constant model converge. Once those of two steps agree to rounding, gains and covariances are kept
until an entry of an observation is missing; see `_has_converged`.
"""

from __future__ import annotations

import numpy as np

from ensemble._kernels._compile import compiled_serial, inner, spliced
from ensemble._kernels._kalman_bodies import TWO_PI
from ensemble._kernels._kalman_tiles import (
    copy,
    copy_transposed,
    entry,
    factor,
    fetch,
    mirror,
    move,
    negate,
    padded,
    product,
    start,
    steps,
    transposed_rows,
)
from ensemble._kernels._lane_arithmetic import fma
from ensemble._kernels._lane_tiles import add_products_tile, subtract_squares_tile
from ensemble._kernels._lanes import ROW_BYTES, called, load, register_of, store

__all__ = ["CONVERGED", "filter_some"]

CONVERGED = 8
"""Rounding errors by which an entry of two successive predicted covariances may differ where they have converged."""


FEW = 3
"""Rows up to which a product of rows is made number by number."""


@inner
def _subtract_squares(w, A, rows, weights, C, count, stride):
    """C as the symmetric A less ``sum_i weights[i] rows[i] rows[i]'``."""
    called()
    width = ROW_BYTES // w.itemsize
    for i in range(0, stride, width):
        for j in range(i, stride, width):
            subtract_squares_tile(w, A, C, rows, weights, count, stride, i, j)


@inner
def _add_products(w, left, right, C, count, stride):
    """Add ``sum_i left[i] right[i]'`` of rows to the symmetric C."""
    called()
    width = ROW_BYTES // w.itemsize
    for i in range(0, stride, width):
        for j in range(i, stride, width):
            add_products_tile(w, C, left, right, count, stride, i, j)


@inner
def _solve_rows(w, low, inverses, B, white, X, n, p, stride):
    """The rows of ``L^-1 B`` in `white`, and those of ``(L D L')^-1 B`` in X."""
    called()
    kind, width = register_of(w), ROW_BYTES // w.itemsize
    for c in range(0, stride, width):
        for i in range(n):
            z = load(w, B + i * stride + c, kind)
            for j in range(i):
                z = fma(load(w, white + j * stride + c, kind), -entry(w, low + i * p + j), z)
            store(w, white + i * stride + c, z)
        for i in range(n - 1, -1, -1):
            z = load(w, white + i * stride + c, kind) * entry(w, inverses + i)
            for j in range(i + 1, n):
                z = fma(load(w, X + j * stride + c, kind), -entry(w, low + j * p + i), z)
            store(w, X + i * stride + c, z)


@spliced
def _rows_by_rows(w, A, inner, B, columns, C, base, n, stride, pitch, upper):
    """C as A B', n rows of each, added to the matrix at `base`, to zero where `base` is negative.

    A has rows of `inner` entries, B of `stride`, C of `pitch`. The transpose of B is written at `columns`, unless rows
    are few.
    """
    if n > FEW:
        transposed_rows(w, B, n, stride, w, columns, pitch)
        product(w, A, inner, 1, w, columns, w, C, base, pitch, n, inner, upper)
    else:
        _few_rows_by_rows(w, A, inner, B, C, base, n, stride, pitch, upper)


@inner
def _few_rows_by_rows(w, A, inner, B, C, base, n, stride, pitch, upper):
    called()
    for i in range(n):
        for j in range(i if upper else 0, n):
            total = w.dtype.type(0.0)
            if base >= 0:
                total = entry(w, base + i * pitch + j)
            for k in range(inner):
                total = fma(entry(w, B + j * stride + k), entry(w, A + i * inner + k), total)
            w[C + i * pitch + j] = total


@inner
def _take_out(y, at, w, H, R, nx, ny, p):
    """Zero rows of H and unit noise where an observation is missing."""
    called()
    for i in range(ny):
        if np.isnan(y[at + i]):
            for k in range(nx):
                w[H + i * nx + k] = 0.0
            for k in range(ny):
                w[R + i * p + k] = w[R + k * p + i] = 0.0
            w[R + i * p + i] = 1.0


@inner
def _has_gaps(y, at, ny):
    """Whether any entry of an observation is missing."""
    called()
    gaps = False
    for i in range(ny):
        gaps = gaps or np.isnan(entry(y, at + i))
    return gaps


@inner
def _innovation(d, at_d, y, at_y, w, H, m, r, nx, ny):
    """y - d - H m, zero where y is missing."""
    called()
    for i in range(ny):
        value = entry(y, at_y + i)
        total = value - entry(d, at_d + i)
        for k in range(nx):
            total = fma(-entry(w, H + i * nx + k), entry(w, m + k), total)
        w[r + i] = 0.0 if np.isnan(value) else total


@inner
def _square(w, low, r, white, inverses, n, p):
    """``r' S^-1 r``."""
    called()
    for i in range(n):
        z = entry(w, r + i)
        for j in range(i):
            z = fma(-entry(w, low + i * p + j), entry(w, white + j), z)
        w[white + i] = z
    total = entry(w, white) * (entry(w, white) * entry(w, inverses))
    for i in range(1, n):
        z = entry(w, white + i)
        total = fma(z, z * entry(w, inverses + i), total)
    return total


# --- a step
@spliced
def _places(nx, ny, like):
    """Where everything starts in the working array, and its length."""
    n, p = padded(nx, like), padded(ny, like)
    squares = 0, n * n, 2 * n * n, 3 * n * n, 4 * n * n
    at = 5 * n * n
    rows = at, at + ny * n, at + 2 * ny * n, at + 3 * ny * n, at + 4 * ny * n, at + 5 * ny * n, at + 6 * ny * n
    at += 7 * ny * n
    columns = at
    at += n * p
    small = at, at + p * p, at + 2 * p * p, at + 3 * p * p
    at += 4 * p * p
    vectors = at, at + n, at + 2 * n, at + 2 * n + p, at + 2 * n + 2 * p
    return squares, rows, columns, small, vectors, at + 2 * n + 3 * p


@spliced
def _predict_mean(u, at, places, w, nx, n):
    """u + F m."""
    Ft, m, ahead = places[0][3], places[4][0], places[4][1]
    copy(u, at, nx, 1, nx, w, ahead, n)
    product(w, m, 0, 1, w, Ft, w, ahead, ahead, n, 1, nx, False)


@spliced
def _predict(F, f, Q, q, ahead, places, w, nx, n):
    """F P F' + Q in `ahead`; the transpose of F is there."""
    P, _, _, Ft, FP = places[0]
    product(F, f, nx, 1, w, P, w, FP, -1, n, nx, nx, False)
    copy(Q, q, nx, nx, nx, w, ahead, n)
    product(w, FP, n, 1, w, Ft, w, ahead, ahead, n, nx, nx, True)
    mirror(w, ahead, n)


@spliced
def _observe(H, h, R, r, y, at, gaps, places, w, nx, ny, p):
    """H and R without what is missing, and -H."""
    observed, negative, noise = places[1][5], places[1][6], places[3][0]
    copy(H, h, nx, ny, nx, w, observed, nx)
    copy(R, r, ny, ny, ny, w, noise, p)
    mirror(w, noise, p)
    if gaps:
        _take_out(y, at, w, observed, noise, nx, ny, p)
    negate(w, observed, negative, ny * nx)


@spliced
def _gain(ahead, places, w, nx, ny, n, p):
    """The rows ``L^-1 H P`` and ``S^-1 H P`` with the factors of ``S = L D L'``."""
    HP, white, _, gain, _, H, _ = places[1]
    columns = places[2]
    noise, S, low, _ = places[3]
    inverses = places[4][2]
    product(w, H, nx, 1, w, ahead, w, HP, -1, n, ny, nx, False)
    _rows_by_rows(w, H, nx, HP, columns, S, noise, ny, n, p, True)
    factor(w, S, low, inverses, ny, p, -1.0)
    _solve_rows(w, low, inverses, HP, white, gain, ny, p, n)


@spliced
def _condition(ahead, places, w, nx, ny, n, p):
    """The covariance given an observation, corrected by the residual of the gain."""
    P = places[0][0]
    _, white, G, gain, X, _, negative = places[1]
    columns = places[2]
    noise, _, _, HG = places[3]
    _subtract_squares(w, ahead, white, places[4][2], P, ny, n)
    product(w, noise, 1, p, w, gain, w, G, -1, n, ny, ny, False)
    product(w, negative, nx, 1, w, P, w, G, G, n, ny, nx, False)
    _rows_by_rows(w, negative, nx, G, columns, HG, -1, ny, n, p, False)
    product(w, HG, p, 1, w, gain, w, X, G, n, ny, ny, False)
    _add_products(w, gain, G, P, 2 * ny, n)  # K G' + X K': rows of K and X, of G and K, lie one behind another


@spliced
def _update_mean(d, at_d, y, at_y, places, w, nx, ny, n, p):
    """The mean given an observation; ``r' S^-1 r``."""
    gain, H, low = places[1][3], places[1][5], places[3][2]
    m, ahead, inverses, r, white = places[4]
    _innovation(d, at_d, y, at_y, w, H, ahead, r, nx, ny)
    product(w, r, 0, 1, w, gain, w, m, ahead, n, 1, ny, False)
    return _square(w, low, r, white, inverses, ny, p)


@inner
def _has_converged(w, ahead, before, nx, n):
    """Whether each entry of the predicted covariance is that of the step before, but for rounding errors.

    These are counted in units of the deviations: the bound is ``CONVERGED eps sqrt(P[a, a] P[b, b])``.
    """
    called()
    bound = CONVERGED * np.finfo(w.dtype).eps
    for a in range(nx):
        for b in range(nx - 1, a - 1, -1):
            gap = entry(w, ahead + a * n + b) - entry(w, before + a * n + b)
            scale = entry(w, ahead + a * n + a) * entry(w, ahead + b * n + b)
            if not gap * gap <= bound * bound * scale:
                return False
    return True


# --- series
@compiled_serial
def filter_some(F, Q, H, R, u, d, y, m0, P0, predict_first, mean, covariance, quadratic, pivots, first, last):
    """The filter of the series from `first` to `last`, which is left out.

    Means and covariances with one step for all keep those of the last.
    """
    for s in range(first, last):
        n_steps, ny, nx = y.shape[1], y.shape[2], m0.shape[1]
        n, p = padded(nx, mean), padded(ny, mean)
        places = _places(nx, ny, mean)
        w = np.zeros(places[5], mean.dtype)
        P, ahead, before, Ft, _ = places[0]
        m, m_ahead, S = places[4][0], places[4][1], places[3][1]
        at_F, at_Q, at_H, at_R = start(F, s), start(Q, s), start(H, s), start(R, s)
        at_u, at_d, at_y, at_m, at_P = start(u, s), start(d, s), start(y, s), start(mean, s), start(covariance, s)
        lasting = H.shape[1] == 1 and R.shape[1] == 1
        constant = F.shape[1] == 1 and Q.shape[1] == 1 and lasting
        flat_F, flat_Q, flat_H, flat_R = F.reshape(-1), Q.reshape(-1), H.reshape(-1), R.reshape(-1)
        flat_u, flat_d, flat_y = u.reshape(-1), d.reshape(-1), y.reshape(-1)
        means, covariances = mean.reshape(-1), covariance.reshape(-1)
        by_P = steps(covariance)
        copy(m0.reshape(-1), start(m0, s), nx, 1, nx, w, m, n)
        copy(P0.reshape(-1), start(P0, s), nx, nx, nx, w, P, n)
        mirror(w, P, n)
        copy_transposed(flat_F, at_F, nx, nx, nx, w, Ft, n)
        kept, whole, observed = False, False, False
        for k in range(n_steps):
            if k + 1 < n_steps:
                if F.shape[1] > 1:
                    fetch(flat_F, at_F + (k + 1) * nx * nx, nx * nx)
                if Q.shape[1] > 1:
                    fetch(flat_Q, at_Q + (k + 1) * nx * nx, nx * nx)
                if by_P > 0:
                    fetch(covariances, at_P + (k + 1) * by_P, nx * nx)
            gaps = _has_gaps(flat_y, at_y + k * ny, ny)
            kept = kept and not gaps
            if k > 0 or predict_first:
                if F.shape[1] > 1:
                    copy_transposed(flat_F, at_F + k * nx * nx, nx, nx, nx, w, Ft, n)
                _predict_mean(flat_u, at_u + k * steps(u), places, w, nx, n)
                if not kept:
                    ahead, before = before, ahead
                    _predict(flat_F, at_F + k * steps(F), flat_Q, at_Q + k * steps(Q), ahead, places, w, nx, n)
            else:
                move(w, P, ahead, n * n)
                move(w, m, m_ahead, n)
            if not kept:
                if gaps or not observed:
                    rows = at_H + k * steps(H), at_R + k * steps(R)
                    _observe(flat_H, rows[0], flat_R, rows[1], flat_y, at_y + k * ny, gaps, places, w, nx, ny, p)
                    observed = lasting and not gaps
                _gain(ahead, places, w, nx, ny, n, p)
            quadratic[s, k] = _update_mean(flat_d, at_d + k * steps(d), flat_y, at_y + k * ny, places, w, nx, ny, n, p)
            if kept:
                if by_P > 0:
                    move(covariances, at_P + (k - 1) * by_P, at_P + k * by_P, nx * nx)
                for i in range(ny):
                    pivots[s, k, i] = pivots[s, k - 1, i]
            else:
                _condition(ahead, places, w, nx, ny, n, p)
                if by_P > 0:
                    copy(w, P, n, nx, nx, covariances, at_P + k * by_P, nx)
                for i in range(ny):
                    gone = np.isnan(flat_y[at_y + k * ny + i])
                    pivots[s, k, i] = 1.0 if gone else w[S + i * p + i] * TWO_PI
                kept = constant and whole and not gaps and k > 1 and _has_converged(w, ahead, before, nx, n)
                whole = constant and not gaps
            copy(w, m, nx, 1, nx, means, at_m + k * steps(mean), nx)
        if by_P == 0:
            copy(w, P, n, nx, nx, covariances, at_P, nx)
