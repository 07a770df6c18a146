"""Exact diffuse initialisation: priors ``N(m0, P0 + kappa A A')`` in the limit of infinite kappa.

Covariances are ``P + kappa G G'`` with a finite part P and a diffuse factor G of as many columns as A. Observations
are taken entry by entry after their noise is made independent, as in the univariate treatment of Koopman and Durbin:
an entry ``y = h' x + r`` with ``g = h' G`` not zero fixes the direction ``G g`` and removes it from G; with g zero it
is an ordinary update of P. The gain of the smoother is that of an observation of the next state, so the same function
gives the limit of both. G vanishes after a few steps; all later steps are an ordinary series, by any method.

References
----------
.. [1] S. J. Koopman, J. Durbin, Fast filtering and smoothing for multivariate state space models, J. Time Ser. Anal.
   21 (2000), 281-296.
.. [2] J. Durbin, S. J. Koopman, Time Series Analysis by State Space Methods, 2nd ed., Oxford 2012, sections 5.2-5.4,
   6.4 and 7.2.2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.array.steps import LOG_2PI, apply, innovation_scale, observed_part, predict, symmetric
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = ["Conditioned", "DiffuseState", "Start", "diffuse_gain", "diffuse_steps", "diffuse_update"]


class Conditioned(NamedTuple):
    """What observations ``y = H x + r`` make of a diffuse Gaussian; n is the number of their entries.

    `gain` (nx, n); `P` and `G`, the covariance after the update; `rows` (n, n), `pivots` (n,) and `fixes` (n,): entry i
    has the innovation ``rows[i] v``, independent of the others, with variance ``pivots[i]``, which multiplies kappa
    where ``fixes[i]``.
    """

    gain: Array
    P: Array
    G: Array
    rows: Array
    pivots: Array
    fixes: Array


def diffuse_update(H: Array, R: Array, P: Array, G: Array, whole: Array, semidefinite: bool = False) -> Conditioned:
    """The limit of a Kalman update of a Gaussian with covariance ``P + kappa G G'``.

    An entry fixes a direction where ``|h' G|`` is above the square root of the unit roundoff times ``|h' whole|``;
    `whole` is G without what earlier entries have removed. With `semidefinite`, entries that are already known exactly
    are left out; else their pivots are NaN.
    """
    xp = array_namespace(H, R, P, G)
    n, nx = H.shape[-2], H.shape[-1]
    eps = xp.finfo(P.dtype).eps
    one, nan = (xp.asarray(v, dtype=P.dtype) for v in (1.0, float("nan")))
    rows, noise = _decorrelated(R)
    H = rows @ H
    gain: Any = None
    pivots, fixes = [], []
    for i in range(n):
        h, r, row = H[..., i, :], noise[..., i], rows[..., i, :]
        g, M = apply(G.mT, h), apply(P, h)
        diffuse = xp.sum(g * g, axis=-1)
        fix = diffuse > eps * xp.sum(apply(whole.mT, h) ** 2, axis=-1)
        finite = xp.sum(h * M, axis=-1) + r
        size = innovation_scale(h[..., None, :], r[..., None, None], P)[..., 0]
        lost = xp.logical_and(xp.logical_not(fix), finite <= 8 * nx * eps * size)
        pivot = xp.where(fix, diffuse, xp.where(lost, one if semidefinite else nan, finite))
        direction = apply(G, g)
        K = xp.where(fix[..., None], direction, M) / pivot[..., None]
        if semidefinite:
            K = xp.where(lost[..., None], 0.0 * K, K)
        A = xp.eye(nx, dtype=P.dtype) - K[..., :, None] * h[..., None, :]
        P = symmetric(A @ P @ A.mT + r[..., None, None] * (K[..., :, None] * K[..., None, :]))
        G = xp.where(fix[..., None, None], G - K[..., :, None] * g[..., None, :], G)
        step = K[..., :, None] * row[..., None, :]
        gain = step if gain is None else gain + step
        rows = rows - _later(xp, apply(H, K), i)[..., :, None] * row[..., None, :]
        pivots.append(pivot)
        fixes.append(fix)
    return Conditioned(gain, P, G, rows, xp.stack(pivots, axis=-1), xp.stack(fixes, axis=-1))


def _later(xp: Any, a: Array, i: int) -> Array:
    """The entries of `a` after entry i; zero in place of the others."""
    return a * xp.asarray([float(j > i) for j in range(a.shape[-1])], dtype=a.dtype)


def _decorrelated(R: Array) -> tuple[Array, Array]:
    """Unit lower triangular B and the diagonal of ``B R B'``, for semidefinite R."""
    xp = array_namespace(R)
    n = R.shape[-1]
    zero, one = (xp.asarray(v, dtype=R.dtype) for v in (0.0, 1.0))
    eye = xp.zeros_like(R) + xp.eye(n, dtype=R.dtype)
    rows = [xp.concat([R[..., i, :], eye[..., i, :]], axis=-1) for i in range(n)]
    diagonal = []
    for j in range(n):
        pivot = rows[j][..., j]
        lost = pivot <= 8 * n * xp.finfo(R.dtype).eps * xp.abs(R[..., j, j])
        inverse = xp.where(lost, zero, one / xp.where(lost, one, pivot))
        for i in range(j + 1, n):
            rows[i] = rows[i] - (rows[i][..., j] * inverse)[..., None] * rows[j]
        diagonal.append(xp.where(lost, zero, pivot))
    return xp.stack([row[..., n:] for row in rows], axis=-2), xp.stack(diagonal, axis=-1)


def _without_rounding(G: Array, whole: Array) -> Array:
    """G with rows that are zero up to rounding set to zero."""
    xp = array_namespace(G, whole)
    bound = xp.finfo(G.dtype).eps * xp.sum(whole * whole, axis=-1)
    negligible = xp.sum(G * G, axis=-1) <= bound
    return xp.where(negligible[..., None], 0.0 * G, G)


class Start(NamedTuple):
    """The filtered states of the steps in which some series is diffuse, and of the one that ends them."""

    means: list[Array]
    covariances: list[Array]
    factors: list[Array]
    wholes: list[Array]
    gains: list[Array]
    terms: list[Array]


class DiffuseState(NamedTuple):
    """A filtered Gaussian with covariance ``P + kappa G G'``; `whole` is G without what observations have removed."""

    m: Array
    P: Array
    G: Array
    whole: Array

    @property
    def is_diffuse(self) -> bool:
        """Whether any series of any sample is."""
        values = self.G.samples if isinstance(self.G, Ensemble) else self.G
        return bool(array_namespace(values).any(values != 0))

    def predicted(self, F: Array, Q: Array, u: Array) -> DiffuseState:
        """One transition on."""
        return DiffuseState(*predict(F, Q, u, self.m, self.P), F @ self.G, F @ self.whole)

    def updated(self, H: Array, R: Array, d: Array, y: Array) -> tuple[DiffuseState, Array, Array]:
        """The state given `y`, the gain, and the limit of the log-density of `y`."""
        H, R, v, n_seen = observed_part(H, R, y, self.m, d)
        found = diffuse_update(H, R, self.P, self.G, self.whole)
        white = apply(found.rows, v)
        xp = array_namespace(white, found.pivots)
        quadratic = xp.where(found.fixes, 0.0 * white, white * white / found.pivots)
        term = -0.5 * (xp.sum(quadratic + xp.log(found.pivots), axis=-1) + n_seen * LOG_2PI)
        G = _without_rounding(found.G, self.whole)
        return DiffuseState(self.m + apply(found.gain, v), found.P, G, self.whole), found.gain, term


def diffuse_steps(series: Series) -> Start:
    """The filter's steps until nothing is diffuse."""
    assert series.diffuse is not None
    state = DiffuseState(series.m0, series.P0, series.diffuse, series.diffuse)
    start = Start([], [], [], [], [], [])
    for k in range(series.n_steps):
        if k or series.predict_first:
            state = state.predicted(*(series.at(name, k) for name in "FQu"))
        H, R, d = (series.at(name, k) for name in "HRd")
        state, gain, term = state.updated(H, R, d, series.y[k, ...])
        for kept, value in zip(start, (*state, gain, term), strict=True):
            kept.append(value)
        if not state.is_diffuse:
            break
    return start


def diffuse_gain(F: Array, Q: Array, P: Array, G: Array, whole: Array) -> Conditioned:
    """The limit of the smoother's gain and of the covariance given the next state, which is seen as ``F x + q``."""
    found = diffuse_update(F, Q, P, G, F @ whole, semidefinite=True)
    return found._replace(G=_without_rounding(found.G, whole))
