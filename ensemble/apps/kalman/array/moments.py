"""What follows from filtered and smoothed states, all steps at once: predictions, innovations, gains, covariances.

Arrays have time in front, as in `Series`.
"""

from __future__ import annotations

from typing import Any

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.array.diffuse_steps import diffuse_steps, wide
from ensemble.apps.kalman.array.steps import (
    apply,
    observed_covariance,
    observed_part,
    rts_gain,
    symmetric,
    symmetric_solve,
)
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = [
    "covariances_of_neighbours",
    "gains",
    "innovation_covariances",
    "innovations",
    "lag_one_covariances",
    "predicted",
    "predicted_diffuse",
]


def _as(a: Array, dtype: Any) -> Array:
    return array_namespace(a).astype(a, dtype, copy=False)


def _joined(first: Array, rest: Array | None) -> Array:
    """Join the first step's entry with those of the others, which may have more batch axes."""
    if rest is None:
        return first[None, ...]
    xp = array_namespace(first, rest)
    return xp.concat([xp.broadcast_to(first, rest.shape[1:])[None, ...], rest], axis=0)


def predicted(series: Series, m: Array, P: Array) -> tuple[Array, Array]:
    """Predict every state, given the observations before its step, from the filtered states: means and covariances."""
    nx, first = m.shape[-1], (series.m0, series.P0)
    if series.predict_first:
        F, Q, u = (series.at(name, 0) for name in "FQu")
        first = apply(_as(F, m.dtype), series.m0) + u, symmetric(F @ series.P0 @ F.mT + Q)
    xp = array_namespace(m, P, *first)
    shapes = ((*series.batch, nx), (*series.batch, nx, nx))
    start = [xp.broadcast_to(a, shape) for a, shape in zip(first, shapes, strict=True)]
    if series.n_steps == 1:
        return start[0][None, ...], start[1][None, ...]
    F, Q, u = (series.each(name, slice(1, None)) for name in "FQu")
    mean = apply(_as(F, m.dtype), m[:-1, ...]) + u
    return _joined(start[0], mean), _joined(start[1], symmetric(F @ P[:-1, ...] @ F.mT + Q))


def predicted_diffuse(series: Series, diffuse: Array) -> Array:
    """Predict the part of diffuse covariances that multiplies kappa, from that of the filtered ones."""
    A = series.diffuse
    assert A is not None
    G = series.at("F", 0) @ A if series.predict_first else A
    xp = array_namespace(G, diffuse)
    first = xp.broadcast_to(symmetric(G @ G.mT), diffuse.shape[1:])
    if diffuse.shape[0] == 1:
        return first[None, ...]
    F = series.each("F", slice(1, diffuse.shape[0]))
    return _joined(first, symmetric(F @ diffuse[:-1, ...] @ F.mT))


def innovations(series: Series, mean: Array) -> Array:
    """Subtract from the observations what the predicted means predict of them; NaN where missing."""
    return series.y - apply(_as(series.H, series.y.dtype), mean) - series.d


def innovation_covariances(series: Series, P: Array) -> Array:
    """Compute H P H' + R of the predicted covariances, for every entry, seen or not."""
    return observed_covariance(series.H, series.R, P)


def gains(series: Series, P: Array) -> Array:
    """Compute Kalman's gains from the predicted covariances; columns of missing entries are zero."""
    y = _as(series.y, P.dtype)
    xp = array_namespace(P, y, series.H)
    origin = xp.zeros((P.shape[-1],), dtype=P.dtype)
    H, R, _, _ = observed_part(series.H, series.R, y, origin, xp.zeros((y.shape[-1],), dtype=P.dtype))
    HP = H @ P
    solved, _ = symmetric_solve(symmetric(HP @ H.mT + R), HP)
    K = solved.mT
    if series.diffuse is None:
        return K
    early = [xp.broadcast_to(_as(a, K.dtype), K.shape[1:]) for a in diffuse_steps(series).gains]
    return xp.concat([xp.stack(early, axis=0), K[len(early) :, ...]], axis=0)


def lag_one_covariances(series: Series, m: Array, P: Array, smoothed: Array) -> Array:
    """Compute cov(x[k], x[k+1] | y) for k from 0 to T - 2 from filtered states and smoothed covariances.

    The product of the smoother's gain and the smoothed covariance; where a gain is NaN, because the predicted
    covariance is nearly singular, by `covariances_of_neighbours`, and NaN where that has less than six digits.
    """
    F, Q, u = (series.each(name, slice(1, None)) for name in "FQu")
    E, _, _ = rts_gain(F, Q, _as(u, P.dtype), _as(m[:-1, ...], P.dtype), P[:-1, ...])
    xp = array_namespace(E, smoothed)
    found = E @ smoothed[1:, ...]
    lost = xp.logical_and(xp.isnan(found), xp.logical_not(xp.isnan(smoothed[1:, ...])))
    values = lost.samples if isinstance(lost, Ensemble) else lost
    if bool(array_namespace(values).any(values)):
        other, error = covariances_of_neighbours(series, m, P)
        spread = xp.sqrt(xp.abs(xp.max(xp.linalg.diagonal(smoothed), axis=-1)))
        valid = error <= 1e-6 * spread[:-1, ...] * spread[1:, ...]
        found = xp.where(xp.logical_and(lost, valid[..., None, None]), other, found)
    if series.diffuse is None:
        return found
    start, early = diffuse_steps(series), []
    for k in range(len(start.states) - 1):
        F, Q = wide(series.at("F", k + 1)), wide(series.at("Q", k + 1))
        gain = _as(start.states[k].smoother_gain(F, Q).gain, smoothed.dtype)
        early.append(xp.broadcast_to(gain @ smoothed[k + 1, ...], found.shape[1:])[None, ...])
    return xp.concat([*early, found[len(early) :, ...]], axis=0) if early else found


def covariances_of_neighbours(series: Series, m: Array, P: Array) -> tuple[Array, Array]:
    """Compute cov(x[k], x[k+1] | y) and its rounding errors without an inverse of predicted covariances.

    ``P[k] F[k+1]' (I - N[k] P*[k+1])`` with predicted covariances P* and the information N[k] of all observations
    after step k, a recursion backwards (P. de Jong, M. J. Mackinnon, Biometrika 75 (1988), 601-602). It loses digits
    where P* is much wider than what is known in the end.
    """
    _, ahead = predicted(series, m, P)
    y, nx = _as(series.y, P.dtype), P.shape[-1]
    xp = array_namespace(P, ahead, y)
    origin = xp.zeros((nx,), dtype=P.dtype)
    H, R, _, _ = observed_part(series.H, series.R, y, origin, xp.zeros((y.shape[-1],), dtype=P.dtype))
    HP = H @ ahead
    S = symmetric(HP @ H.mT + R)
    W, _ = symmetric_solve(S, xp.broadcast_to(H, (*S.shape[:-2], *H.shape[-2:])))
    eye = xp.eye(nx, dtype=P.dtype)
    own, kept = H.mT @ W, eye - (W.mT @ HP).mT

    def size(a: Array) -> Array:
        return xp.max(xp.abs(a), axis=(-2, -1))

    eps = nx * xp.finfo(P.dtype).eps
    N, found, errors = own[-1, ...], [], []
    for k in range(series.n_steps - 2, -1, -1):
        F = series.at("F", k + 1)
        first = P[k, ...] @ F.mT
        found.append(first @ (eye - N @ ahead[k + 1, ...]))
        errors.append(eps * size(first) * (1.0 + size(N) * size(ahead[k + 1, ...])))
        back = F @ kept[k, ...]
        N = own[k, ...] + back.mT @ N @ back
    return xp.stack(found[::-1], axis=0), xp.stack(errors[::-1], axis=0)
