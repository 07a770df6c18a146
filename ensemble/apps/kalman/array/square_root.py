"""Filter and smoother on square roots of covariances: every covariance is a product ``U U'``, so semidefinite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._kernels.kalman.step import lost_part
from ensemble._typing import Array
from ensemble.apps.kalman.array.steps import LOG_2PI, Product, apply, matmul, observed_part, stacked, symmetric
from ensemble.apps.kalman.series import Series

__all__ = [
    "last_factor",
    "lost_directions",
    "semidefinite_factor",
    "square_root_filter",
    "square_root_smoother",
    "triangle",
    "update_factor",
]


def semidefinite_factor(A: Array) -> Array:
    """Factorise A = U U', U lower triangular; columns whose pivot is lost in rounding are zero."""
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


def lost_directions(P: Array, U: Array) -> Array:
    """Whether a pivot of P, the square on the diagonal of its factor U, keeps no more than `lost_part` of its entry.

    Of a narrow direction rounding is left then. An entry of zero, a component that is known exactly, loses nothing.
    """
    xp = array_namespace(P, U)
    entry, root = xp.linalg.diagonal(P), xp.linalg.diagonal(U)
    small = root * root <= lost_part(str(P.dtype).split(".")[-1]) * xp.abs(entry)
    return xp.any(xp.logical_and(small, entry != 0), axis=-1)


def triangle(*blocks: Array) -> Array:
    """Return the lower triangular U for which U U' is the sum of B B' over the blocks, which have equally many rows."""
    xp = array_namespace(*blocks)
    lead = np.broadcast_shapes(*(tuple(b.shape[:-2]) for b in blocks))
    wide = xp.concat([xp.broadcast_to(b, (*lead, *b.shape[-2:])) for b in blocks], axis=-1)
    return xp.linalg.qr(wide.mT)[1].mT


def square_root_filter(series: Series) -> tuple[Array, Array, Array]:
    """Predict and update by one orthogonal triangularisation each."""
    xp = array_namespace(series.y, series.F, series.m0)
    m, U = series.m0, _start(series)
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


def last_factor(series: Series) -> Array:
    """Filter a series, and return a factor of the last covariance: it has twice the digits that the covariance has."""
    m, U = series.m0, _start(series)
    for k in range(series.n_steps):
        if k or series.predict_first:
            F, Q, u = (series.at(name, k) for name in ("F", "Q", "u"))
            m, U = apply(F, m) + u, triangle(F @ U, semidefinite_factor(Q))
        m, U, _ = _update(series, k, m, U)
    return U


def _start(series: Series) -> Array:
    """Factorise P0, where the series has no factor yet."""
    return semidefinite_factor(series.P0) if series.root is None else series.root


def _update(series: Series, k: int, m: Array, U: Array) -> tuple[Array, Array, Array]:
    H, R, d = (series.at(name, k) for name in "HRd")
    return update_factor(H, R, d, series.y[k, ...], m, U)


def update_factor(
    H: Array, R: Array, d: Array, y: Array, m: Array, U: Array, times: Product = matmul
) -> tuple[Array, Array, Array]:
    """Update the mean and the factor of the covariance by `y`; the log-density of `y` is NaN where it has none."""
    xp = array_namespace(m, U, y)
    H, R, innovation, n_observed = observed_part(H, R, y, m, d, times)
    before = _deviations(U)
    S_root, gain, U = _triangularised(H, R, U, times)
    scale = xp.sqrt(xp.linalg.diagonal(R)) + xp.sum(xp.abs(H) * before[..., None, :], axis=-1)
    tiny = 8 * U.shape[-1] * float(xp.finfo(U.dtype).eps)
    lost = xp.abs(xp.linalg.diagonal(S_root)) <= tiny * scale  # rounding: no density
    S_root = xp.where(lost[..., None], S_root + float("nan"), S_root)
    U = xp.where((_deviations(U) <= tiny * before)[..., None], 0.0 * U, U)  # components that are known exactly
    white = _forward_rows(S_root, innovation[..., None])[..., 0]
    diagonal = xp.linalg.diagonal(S_root)
    diagonal = xp.where(lost, diagonal + float("nan"), diagonal)
    log_det = 2.0 * xp.sum(xp.log(xp.abs(diagonal)), axis=-1)
    term = -0.5 * (xp.sum(white * white, axis=-1) + log_det + n_observed * LOG_2PI)
    return m + apply(gain, white, times), U, term


def _triangularised(H: Array, R: Array, U: Array, times: Product = matmul) -> tuple[Array, Array, Array]:
    """Triangularise ``[[R^1/2, H U], [0, U]]``: the factor A of H P H' + R, K A of the gain K, the updated U."""
    xp, ny, nx = array_namespace(H, R, U), H.shape[-2], H.shape[-1]
    root = semidefinite_factor(R)
    HU = times(H, U)
    lead = tuple(HU.shape[:-2])
    root = xp.broadcast_to(root, (*lead, ny, ny))
    top = xp.concat([root, HU], axis=-1)
    zeros = xp.zeros((*lead, nx, ny), dtype=HU.dtype)
    bottom = xp.concat([zeros, xp.broadcast_to(U, (*lead, nx, nx))], axis=-1)
    post = triangle(xp.concat([top, bottom], axis=-2))
    return post[..., :ny, :ny], post[..., ny:, :ny], post[..., ny:, ny:]


def _forward_rows(U: Array, x: Array) -> Array:
    """``U^-1 x`` for lower triangular `U`."""
    xp = array_namespace(U, x)
    solved: list[Any] = []
    for i in range(U.shape[-1]):
        right = x[..., i, :]
        for j, value in enumerate(solved):
            right = right - U[..., i, j, None] * value
        solved.append(right / U[..., i, i, None])
    return xp.stack(solved, axis=-2)


def square_root_smoother(series: Series) -> tuple[Array, Array]:
    """The smoother of `square_root_loops.py` for any array library: by gains or by disturbances, step by step.

    Gains come from a singular value decomposition: singular values that are rounding are left out.
    """
    steps = _filter_steps(series)
    xp = array_namespace(steps[-1].m, steps[-1].U)
    nx, dtype = series.F.shape[-1], steps[-1].U.dtype
    eps = float(xp.finfo(dtype).eps)
    tiny = 8 * nx * eps
    m, U = steps[-1].m, steps[-1].U
    means, covariances = [m], [symmetric(U @ U.mT)]
    gap = steps[-1].mean_step
    adjoint, adjoint_covariance = xp.zeros_like(m), xp.zeros_like(U @ U.mT)
    error, cancellation, by_disturbances, P = xp.zeros_like(m[..., 0]), xp.zeros_like(m[..., 0]), gap, covariances[0]
    for k in range(series.n_steps - 2, -1, -1):
        step, after = steps[k], steps[k + 1]
        F = series.at("F", k + 1)
        E, L, least = _gain(F, step, semidefinite_factor(series.at("Q", k + 1)), tiny)
        seeded = xp.logical_and(xp.asarray(k < series.n_steps - 2), eps * cancellation / least**2 < error + eps / least)
        error = xp.where(seeded, eps * cancellation / least**2, error + eps / least)
        gap = xp.where(seeded[..., None], by_disturbances + after.mean_step, gap)
        U = xp.where(seeded[..., None, None], semidefinite_factor(P), U)
        adjoint, adjoint_covariance = _before(F, after, adjoint, adjoint_covariance)
        by_disturbances, P, cancellation = _disturbance_form(step, adjoint, adjoint_covariance, tiny)
        chained = apply(E, gap)
        U = triangle(L, E @ U)
        disturbed = eps * cancellation < error
        means.append(step.m + xp.where(disturbed[..., None], by_disturbances, chained))
        covariances.append(xp.where(disturbed[..., None, None], P, symmetric(U @ U.mT)))
        gap = chained + step.mean_step
    return stacked(series.batch, means[::-1], covariances[::-1])


@dataclass(frozen=True)
class _Step:
    """A step of the filter: mean, factor, deviations before the observation, and the whitened observation.

    With ``S = A A'``: `white` is ``A^-1 r``, `seen` ``A^-1 H``, `gain` ``K A``, and `mean_step` the step of the mean.
    """

    m: Array
    U: Array
    before: Array
    white: Array
    seen: Array
    gain: Array
    mean_step: Array


def _filter_steps(series: Series) -> list[_Step]:
    m, U = series.m0, _start(series)
    steps = []
    for k in range(series.n_steps):
        if k or series.predict_first:
            F, Q, u = (series.at(name, k) for name in ("F", "Q", "u"))
            m, U = apply(F, m) + u, triangle(F @ U, semidefinite_factor(Q))
        before = _deviations(U)
        H, R, r, _ = observed_part(series.at("H", k), series.at("R", k), series.y[k, ...], m, series.at("d", k))
        A, gain, U = _triangularised(H, R, U)
        xp, n = array_namespace(m, A, r), m.shape[-1]
        lead = np.broadcast_shapes(tuple(r.shape[:-1]), tuple(A.shape[:-2]))
        H = xp.broadcast_to(H, (*lead, *H.shape[-2:]))
        solved = _forward_rows(A, xp.concat([H, xp.broadcast_to(r, (*lead, r.shape[-1]))[..., None]], axis=-1))
        mean_step = apply(gain, solved[..., n])
        m = m + mean_step
        steps.append(_Step(m, U, before, solved[..., n], solved[..., :n], gain, mean_step))
    return steps


def _deviations(U: Array) -> Array:
    xp = array_namespace(U)
    return xp.sqrt(xp.sum(U * U, axis=-1))


def _gain(F: Array, step: _Step, U_q: Array, tiny: float) -> tuple[Array, Array, Array]:
    """Find E and L of the smoothed covariance L L' + E P_next E', and the least singular value over rounding."""
    xp = array_namespace(F, step.U, U_q)
    n = F.shape[-1]
    zero, one = (xp.asarray(v, dtype=step.U.dtype) for v in (0.0, 1.0))
    scale = xp.sum(xp.abs(F) * step.before[..., None, :], axis=-1) + _deviations(U_q)
    scale = xp.where(scale > zero, scale, one)[..., None]
    FU = F @ step.U
    left = xp.concat([FU, xp.broadcast_to(U_q, FU.shape) if U_q.shape != FU.shape else U_q], axis=-1) / scale
    left = xp.where(xp.isfinite(left), left, zero)  # a series that failed must not stop the others
    V, s, Z = xp.linalg.svd(left, full_matrices=False)
    kept = s > tiny
    inverse = xp.where(kept, one / xp.where(kept, s, one), zero)
    Z = xp.where(kept[..., None], Z, zero)
    seen = step.U @ Z[..., :n].mT
    L = xp.concat([step.U, xp.zeros_like(step.U)], axis=-1) - seen @ Z
    E = (seen * inverse[..., None, :]) @ V.mT / scale.mT
    return E, L, xp.min(xp.where(kept, s, one), axis=-1)


def _before(F: Array, step: _Step, adjoint: Array, adjoint_covariance: Array) -> tuple[Array, Array]:
    """Take the information of later steps on the state back over one `step`, by de Jong's recursion.

    The smoothed state is ``m + P adjoint`` there, with covariance ``P - P adjoint_covariance P``.
    """
    xp = array_namespace(F, step.U)
    A = xp.eye(F.shape[-1], dtype=step.U.dtype) - step.gain @ step.seen
    adjoint = apply(A.mT, adjoint) + apply(step.seen.mT, step.white)
    adjoint_covariance = A.mT @ adjoint_covariance @ A + step.seen.mT @ step.seen
    return apply(F.mT, adjoint), symmetric(F.mT @ adjoint_covariance @ F)


def _disturbance_form(
    step: _Step, adjoint: Array, adjoint_covariance: Array, tiny: float
) -> tuple[Array, Array, Array]:
    """Smooth one state by disturbances: P adjoint, P - P adjoint_covariance P, and how much larger its terms are."""
    xp = array_namespace(step.U, adjoint_covariance)
    zero, one = (xp.asarray(v, dtype=step.U.dtype) for v in (0.0, 1.0))
    P = symmetric(step.U @ step.U.mT)
    smoothed = symmetric(P - P @ adjoint_covariance @ P)
    size = xp.sum((xp.abs(P) @ xp.abs(adjoint_covariance)) * xp.abs(P), axis=-1) + xp.linalg.diagonal(P)
    kept = xp.linalg.diagonal(smoothed)
    rounded = xp.linalg.diagonal(P) <= (tiny * step.before) ** 2
    factor = xp.where(kept > zero, size / xp.where(kept > zero, kept, one), xp.asarray(np.inf, dtype=P.dtype))
    factor = xp.where(rounded, one, factor)
    return apply(P, adjoint), smoothed, xp.max(factor, axis=-1)
