"""Filter and smoother on square roots of covariances: every covariance is a product ``U U'``, so semidefinite."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.model import Series
from ensemble.apps.kalman.steps import LOG_2PI, apply, observed_part, stacked, symmetric, symmetric_solve

__all__ = ["semidefinite_factor", "square_root_filter", "square_root_rts"]


def semidefinite_factor(A: Array) -> Array:
    """Lower triangular `U` with ``U U' = A``; columns of pivots lost in rounding are zero."""
    xp = array_namespace(A)
    n = A.shape[-1]
    zero, one = (xp.asarray(v, dtype=A.dtype) for v in (0.0, 1.0))
    smallest = 8 * n * xp.finfo(A.dtype).eps
    columns = []
    rest = A
    for j in range(n):
        pivot = rest[..., j, j]
        lost = pivot <= smallest * xp.abs(A[..., j, j])
        root = xp.where(lost, zero, one / xp.sqrt(xp.where(lost, one, pivot)))
        below = xp.asarray([float(i >= j) for i in range(n)], dtype=A.dtype)
        column = rest[..., :, j] * root[..., None] * below
        rest = rest - column[..., :, None] * column[..., None, :]
        columns.append(column)
    return xp.stack(columns, axis=-1)


def triangle(*blocks: Array) -> Array:
    """Lower triangular `U` with ``U U'`` the sum of ``B B'`` over the blocks, of equally many rows."""
    xp = array_namespace(*blocks)
    lead = np.broadcast_shapes(*(tuple(b.shape[:-2]) for b in blocks))
    wide = xp.concat([xp.broadcast_to(b, (*lead, *b.shape[-2:])) for b in blocks], axis=-1)
    return xp.linalg.qr(wide.mT)[1].mT


def square_root_filter(series: Series) -> tuple[Array, Array, Array]:
    """Predict and update by one orthogonal triangularisation each."""
    xp = array_namespace(series.y, series.F, series.m0)
    m, U = series.m0, semidefinite_factor(series.P0)
    means, covariances, terms = [], [], []
    for k in range(series.n_steps):
        if k or series.predict_first:
            F, Q, u = (series.at(name, k) for name in ("F", "Q", "u"))
            m, U = apply(F, m) + u, triangle(F @ U, semidefinite_factor(Q))
        m, U, term = _update(series, k, m, U)
        means.append(m)
        covariances.append(symmetric(U @ U.mT))
        terms.append(xp.broadcast_to(term, series.batch))
    return *stacked(series.batch, means, covariances), xp.stack(terms, axis=0)


def _update(series: Series, k: int, m: Array, U: Array) -> tuple[Array, Array, Array]:
    y = series.y[k, ...]
    xp = array_namespace(m, U, y)
    H, R, innovation, n_observed = observed_part(series.at("H", k), series.at("R", k), y, m, series.at("d", k))
    ny, nx = H.shape[-2], H.shape[-1]
    root = semidefinite_factor(R)
    HU = H @ U
    lead = tuple(HU.shape[:-2])
    root = xp.broadcast_to(root, (*lead, ny, ny))
    top = xp.concat([root, HU], axis=-1)
    zeros = xp.zeros((*lead, nx, ny), dtype=HU.dtype)
    bottom = xp.concat([zeros, xp.broadcast_to(U, (*lead, nx, nx))], axis=-1)
    post = triangle(xp.concat([top, bottom], axis=-2))
    S_root, gain, U = post[..., :ny, :ny], post[..., ny:, :ny], post[..., ny:, ny:]
    white = _forward(S_root, innovation)
    diagonal = xp.linalg.diagonal(S_root)
    log_det = 2.0 * xp.sum(xp.log(xp.abs(diagonal)), axis=-1)
    term = -0.5 * (xp.sum(white * white, axis=-1) + log_det + n_observed * LOG_2PI)
    return m + apply(gain, white), U, term


def _forward(U: Array, x: Array) -> Array:
    """``U^-1 x`` for lower triangular `U`."""
    xp = array_namespace(U, x)
    solved: list[Any] = []
    for i in range(U.shape[-1]):
        right = x[..., i]
        for j, value in enumerate(solved):
            right = right - U[..., i, j] * value
        solved.append(right / U[..., i, i])
    return xp.stack(solved, axis=-1)


def square_root_rts(series: Series, m: Array, P: Array) -> tuple[Array, Array]:
    """The recursion of Rauch, Tung and Striebel on square roots."""
    xp = array_namespace(m, P)
    T = series.n_steps
    mean, U = m[T - 1, ...], semidefinite_factor(P[T - 1, ...])
    means, covariances = [mean], [P[T - 1, ...]]
    eye = xp.eye(m.shape[-1], dtype=m.dtype)
    for k in range(T - 2, -1, -1):
        F, Q, u = (series.at(name, k + 1) for name in ("F", "Q", "u"))
        U_k, U_q = semidefinite_factor(P[k, ...]), semidefinite_factor(Q)
        FP = F @ P[k, ...]
        E = symmetric_solve(symmetric(FP @ F.mT + Q), FP, semidefinite=True)[0].mT
        mean = m[k, ...] + apply(E, mean - apply(F, m[k, ...]) - u)
        U = triangle((eye - E @ F) @ U_k, E @ U_q, E @ U)
        means.append(mean)
        covariances.append(symmetric(U @ U.mT))
    return stacked(series.batch, means[::-1], covariances[::-1])
