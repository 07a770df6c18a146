"""The smoother of `_kalman_bodies` for models of any size: products of matrices in register tiles, arrays made once.

In a constant model, a gain depends on the filtered covariance alone. Where that equals the one of the step after, entry
by entry, the gain is that of the step after; where the smoothed covariance there equals its successor, too, so does
this one. Both are exact.
"""

from __future__ import annotations

import numpy as np

from ensemble._kernels._compile import compiled_serial, inner, spliced
from ensemble._kernels._kalman_tiles import (
    add_row,
    added,
    copy,
    copy_transposed,
    factor,
    fetch,
    fill,
    is_same,
    mirror,
    move,
    negate,
    padded,
    product,
    scaled_row,
    start,
    steps,
)
from ensemble._kernels._lanes import called

__all__ = ["smooth_some"]


@spliced
def _places(nx, like):
    """Where everything starts in the working array, and its length; some matrices share a place, one after another."""
    n = padded(nx, like)
    size = n * n
    vectors = 7 * size, 7 * size + n, 7 * size + 2 * n
    return (0, size, 2 * size, 3 * size, 4 * size, 5 * size, 6 * size), vectors, 7 * size + 3 * n


@inner
def _solve(w, low, inverses, X, nx, n):
    """``S^-1 X`` in place of X, from the negative triangle of ``S = L D L'``."""
    called()
    for i in range(nx):
        tile = i // 4 * 4
        if i == tile:
            product(w, low + i * n, n, 1, w, X, w, X + i * n, X + i * n, n, min(4, nx - i), i, False)
        else:
            product(w, low + i * n + tile, n, 1, w, X + tile * n, w, X + i * n, X + i * n, n, 1, i - tile, False)
    for i in range(nx):
        scaled_row(w[inverses + i], w, X + i * n, w, X + i * n, n)
    for i in range(nx - 2, -1, -1):
        later = (i + 1) * n
        product(w, low + later + i, 1, n, w, X + later, w, X + i * n, X + i * n, n, 1, nx - 1 - i, False)


@spliced
def _transition(F, f, places, w, nx, n):
    """The transpose of F, and that of -F."""
    Ft, less = places[0][0], places[0][1]
    copy_transposed(F, f, nx, nx, nx, w, Ft, n)
    negate(w, Ft, less, nx * n)


@spliced
def _gain(F, f, Q, q, P, at_P, regular, places, w, nx, n):
    """The transposed gain E', ``(I - E F)'`` and ``(I - E F) P``."""
    Ft, less, Et, At, AP, S, low = places[0]
    inverses = places[1][0]
    copy(P, at_P, nx, nx, nx, w, AP, n)
    mirror(w, AP, n)
    product(F, f, nx, 1, w, AP, w, Et, -1, n, nx, nx, False)
    copy(Q, q, nx, nx, nx, w, S, n)
    product(w, Et, n, 1, w, Ft, w, S, S, n, nx, nx, True)
    factor(w, S, low, inverses, nx, n, regular)
    negate(w, low, low, nx * n)
    _solve(w, low, inverses, Et, nx, n)
    fill(w, At, nx * n)
    for i in range(nx):
        w[At + i * n + i] = 1.0
    product(w, less, n, 1, w, Et, w, At, At, n, nx, nx, False)
    move(w, AP, S, nx * n)
    product(w, At, 1, n, w, S, w, AP, -1, n, nx, nx, False)


@spliced
def _covariance(Q, q, P, at_P, places, w, nx, n):
    """``(I - E F) P (I - E F)' + E (Q + P_next) E'``, written before the smoothed covariance of the step after."""
    _, _, Et, At, AP, S, ES = places[0]
    added(Q, q, P, at_P, nx, w, S, n)
    mirror(w, S, n)
    product(w, Et, 1, n, w, S, w, ES, -1, n, nx, nx, False)
    product(w, ES, n, 1, w, Et, w, S, -1, n, nx, nx, True)
    product(w, AP, n, 1, w, At, w, S, S, n, nx, nx, True)
    mirror(w, S, n)
    copy(w, S, n, nx, nx, P, at_P - nx * nx, nx)


@spliced
def _mean(u, at_u, m, at_m, mean, places, w, nx, n):
    """``m + E (m_next - u - F m)``, written before the smoothed mean of the step after."""
    Ft, Et = places[0][0], places[0][2]
    _, gap, out = places[1]
    for i in range(nx):
        w[gap + i] = mean[at_m + nx + i] - u[at_u + i]
        w[out + i] = m[at_m + i]
    for k in range(nx):
        add_row(-m[at_m + k], w, Ft + k * n, w, gap, n)
    for i in range(nx):
        add_row(w[gap + i], w, Et + i * n, w, out, n)
    for i in range(nx):
        mean[at_m + i] = w[out + i]


# --- series
@compiled_serial
def smooth_some(F, Q, u, m, P, regular, mean, covariance, first, last):
    """The smoother of the series from `first` to `last`, which is left out; their last steps are there."""
    for s in range(first, last):
        n_steps, nx = m.shape[1], m.shape[2]
        n = padded(nx, mean)
        places = _places(nx, mean)
        w = np.zeros(places[2], mean.dtype)
        at_F, at_Q, at_u, at_m, at_P = start(F, s), start(Q, s), start(u, s), start(mean, s), start(covariance, s)
        constant = F.shape[1] == 1 and Q.shape[1] == 1
        flat_F, flat_Q, flat_u, flat_m, flat_P = (
            F.reshape(-1),
            Q.reshape(-1),
            u.reshape(-1),
            m.reshape(-1),
            P.reshape(-1),
        )
        means, covariances = mean.reshape(-1), covariance.reshape(-1)
        kept, size = False, nx * nx
        for k in range(n_steps - 2, -1, -1):
            here = at_P + k * size
            f, q = at_F + (k + 1) * steps(F), at_Q + (k + 1) * steps(Q)
            if k > 0:
                fetch(flat_P, here - size, size)
                fetch(covariances, here - size, size)
                if F.shape[1] > 1:
                    fetch(flat_F, f - size, size)
                if Q.shape[1] > 1:
                    fetch(flat_Q, q - size, size)
            same = constant and k < n_steps - 2 and is_same(flat_P, here, here + size, size)
            if F.shape[1] > 1 or k == n_steps - 2:
                _transition(flat_F, f, places, w, nx, n)
            if not same:
                _gain(flat_F, f, flat_Q, q, flat_P, here, regular, places, w, nx, n)
            kept = same and (kept or is_same(covariances, here + size, here + 2 * size, size))
            if kept:
                move(covariances, here + size, here, size)
            else:
                _covariance(flat_Q, q, covariances, here + size, places, w, nx, n)
            _mean(flat_u, at_u + (k + 1) * steps(u), flat_m, at_m + k * nx, means, places, w, nx, n)
