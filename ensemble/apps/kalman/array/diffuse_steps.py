"""Exact diffuse initialisation: priors ``N(m0, P0 + kappa A A')`` in the limit of infinite kappa.

Covariances are ``P + kappa B M B'``: P has a factor U, ``P = U U'``, and the columns of B are the directions that
observations leave free. Observations are taken entry by entry after their noise is made independent, as in the
univariate treatment of Koopman and Durbin: an entry ``y = h' x + r`` with ``g = h' B`` not zero fixes a direction; with
g zero it is an ordinary update. The gain of the smoother is that of an observation of the next state, so the same
function gives the limit of both. B vanishes after a few steps; all later steps are an ordinary series, by any method.

B is ``Phi A N``: Phi carries the start to the present step, N has the free directions in the coordinates of the columns
of A. An entry that fixes column p eliminates it from all others, ``b[j] - (g[j] / g[p]) b[p]``, as elimination with
exchanges of columns does on the matrix of what the observations see of A. Nothing is projected, so no result depends on
the units of states or columns. Only the part of the posterior along the columns that stay free depends on the metric
of kappa: ``M = (N' N)^-1``, and the gain of an entry that fixes a direction has the least norm in it.

**Decisions.** ``g[j]`` is zero where it is no more than the rounding of its terms, ``|h|' |Phi A| |N|`` of absolute
values; it is not zero from `DECIDED` times that on. Between the two it cannot be told: the entry's pivot is NaN.

References
----------
.. [1] S. J. Koopman, J. Durbin, Fast filtering and smoothing for multivariate state space models, J. Time Ser. Anal.
   21 (2000), 281-296.
.. [2] J. Durbin, S. J. Koopman, Time Series Analysis by State Space Methods, 2nd ed., Oxford 2012, sections 5.2-5.4,
   6.4 and 7.2.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.array.square_root import semidefinite_factor, triangle
from ensemble.apps.kalman.array.steps import LOG_2PI, apply, ldl_solve, observed_part, product
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = ["DiffuseState", "Start", "diffuse_start", "diffuse_steps", "wide"]

DECIDED = 1e4
"""What `g` must exceed the bound of its rounding by: its relative error is then below 1e-4, mostly below 1e-6."""


class Update(NamedTuple):
    """What observations ``y = H x + r`` make of a diffuse state; n is the number of their entries.

    `gain` (nx, n); `rows` (n, n): entry i has the innovation ``rows[i] v``, independent of the others; `logs` (n,), the
    logarithms of their variances, `inverses` (n,), one over these, zero where an entry fixes a direction.
    """

    state: DiffuseState
    gain: Array
    rows: Array
    logs: Array
    inverses: Array


@dataclass(frozen=True)
class DiffuseState:
    """A Gaussian with mean `m` and covariance ``U U' + kappa B (N' N)^-1 B'``; q is the number of columns of A.

    `B` (nx, q) and `N` (q, q) have columns of zeros for directions that are fixed, where `free` (q,) is 0. `whole` is
    ``Phi A``, `reach` the sizes of its terms, `sizes` (q, q) those of N. `volume` is ``log det N' N``; `age` counts
    the transitions.
    """

    m: Array
    U: Array
    B: Array
    N: Array
    free: Array
    whole: Array
    reach: Array
    sizes: Array
    volume: Array
    age: int = 0

    @property
    def P(self) -> Array:
        """The finite part of the covariance."""
        return product(self.U, self.U.mT)

    @property
    def G(self) -> Array:
        """A factor of what multiplies kappa."""
        return product(self.B, _inverse_root(self.N, self.free))

    @property
    def diffuse_covariance(self) -> Array:
        """What multiplies kappa."""
        G = self.G
        return product(G, G.mT)

    @property
    def which(self) -> Array:
        """Which series are diffuse, shape batch or ones; one that failed is not."""
        xp = array_namespace(self.B)
        return xp.any(xp.any(xp.logical_and(self.B != 0, xp.isfinite(self.B)), axis=-1), axis=-1)

    @property
    def is_diffuse(self) -> bool:
        """Whether any series of any sample is."""
        values = self.which.samples if isinstance(self.which, Ensemble) else self.which
        return bool(array_namespace(values).any(values))

    def predicted(self, F: Array, Q: Array, u: Array) -> DiffuseState:
        """One transition on."""
        xp = array_namespace(F, self.whole)
        moved = product(F, self.U)
        U = triangle(_without_known(moved, _times(xp.abs(F), _norms(self.U))), semidefinite_factor(Q))
        reach = product(xp.abs(F), xp.abs(self.whole))
        m, B, whole = _times(F, self.m) + u, product(F, self.B), product(F, self.whole)
        state = replace(self, m=m, U=U, B=B, whole=whole, reach=reach, age=self.age + 1)
        return replace(state, B=state._without_rounding(B, self.sizes))

    def updated(self, H: Array, R: Array, d: Array, y: Array) -> tuple[DiffuseState, Array, Array]:
        """The state given `y`, the gain, and the limit of the log-density of `y`."""
        H, R, v, n_seen = observed_part(H, R, y, self.m, d, product)
        found = self.conditioned(H, R)
        white = _times(found.rows, v)
        term = -0.5 * (_sum(white * white * found.inverses + found.logs) + n_seen * LOG_2PI)
        m = self.m + _times(found.gain, v)
        return replace(found.state, m=m), found.gain, term

    def smoother_gain(self, F: Array, Q: Array) -> Update:
        """The limit of the smoother's gain, and of the state given the next one, which is seen as ``F x + q``."""
        return self.conditioned(F, Q, semidefinite=True)

    def conditioned(self, H: Array, R: Array, semidefinite: bool = False) -> Update:
        """The limit of a Kalman update, but for the mean.

        With `semidefinite`, entries that are already known exactly are left out; else their pivots are NaN.
        """
        xp, n = array_namespace(H, R, self.U, self.B), H.shape[-2]
        rows, noise = _decorrelated(R)
        H, terms = product(rows, H), product(xp.abs(rows), xp.abs(H))
        state, size = self, _norms(self.U)
        gain: Any = None
        logs, inverses = [], []
        for i in range(n):
            h, reach, row = H[..., i, :], terms[..., i, :], rows[..., i, :]
            state, K, log, inverse, moved = state._entry(h, reach, noise[..., i], size, semidefinite)
            size = size + moved
            step = K[..., :, None] * row[..., None, :]
            gain = step if gain is None else gain + step
            rows = rows - _later(xp, _times(H, K), i)[..., :, None] * row[..., None, :]
            logs.append(log)
            inverses.append(inverse)
        state = replace(state, U=_without_known(triangle(state.U), size))
        return Update(state, gain, rows, xp.stack(logs, axis=-1), xp.stack(inverses, axis=-1))

    def _entry(
        self, h: Array, terms: Array, r: Array, size: Array, semidefinite: bool
    ) -> tuple[DiffuseState, Array, Array, Array, Array]:
        """The state given one entry, its gain, the logarithm of its variance, one over it, and by what U has moved.

        `h` and the rows of U have the rounding of the sums that they are: over `terms`, and over terms of `size`.
        """
        xp = array_namespace(h, self.U, self.B, self.N)
        zero, one, nan = (xp.asarray(v, dtype=self.U.dtype) for v in (0.0, 1.0, float("nan")))
        a = _times(self.U.mT, h)
        finite = _sum(a * a) + r
        margin = 16.0 if semidefinite else 1.0  # there, leaving out one that is rounding is no error
        lost = finite <= (margin * _tiny(self.U) * _sum(terms * size)) ** 2
        chosen, pivot, ratios, unclear = self._choice(h, terms)
        fix = xp.any(chosen, axis=-1)
        state, least = self._eliminated(chosen, pivot, ratios)
        known = xp.where(lost, one, finite)
        K = xp.where(fix[..., None], least, _times(self.U, a) / known[..., None])
        X = xp.where(fix[..., None], K, K / (one + xp.sqrt(xp.where(lost, zero, r / known)))[..., None])
        left_out = xp.logical_and(lost, xp.logical_not(fix))
        if semidefinite:
            K, X = (xp.where(left_out[..., None], zero * v, v) for v in (K, X))
        else:
            known = xp.where(left_out, nan, known)
        added = xp.where(fix, xp.sqrt(r), zero * r)[..., None] * xp.where(fix[..., None], K, zero * K)
        U = self.U - X[..., :, None] * a[..., None, :]
        U = xp.concat([U, xp.broadcast_to(added[..., None], (*U.shape[:-1], 1))], axis=-1)
        log = xp.where(fix, 2.0 * xp.log(xp.abs(pivot)) + state.volume - self.volume, xp.log(known))
        failed = xp.where(unclear, nan, zero)
        B = state.B + failed[..., None, None]
        K = K + failed[..., None]
        state = replace(state, U=U + failed[..., None, None], B=B)
        moved = xp.abs(X) * xp.sqrt(_sum(a * a))[..., None]
        return state, K, log + failed, xp.where(fix, zero, one / known), moved

    def _rounding(self, terms: Array) -> Array:
        """What the rounding of sums over `terms`, absolute values, may amount to."""
        nx = self.U.shape[-2]
        return (8 * nx * (1 + self.age) * float(array_namespace(terms).finfo(terms.dtype).eps)) * terms

    def _without_rounding(self, B: Array, sizes: Array) -> Array:
        xp = array_namespace(B, sizes, self.reach)
        rounded = xp.abs(B) <= self._rounding(product(self.reach, sizes))
        return xp.where(rounded, 0.0 * B, B)

    def _choice(self, h: Array, terms: Array) -> tuple[Array, Array, Array, Array]:
        """The column that an entry fixes, as a row of bools; its g; all g over that; where this cannot be told.

        Of the columns that it decides, the one of the largest g per length in the coordinates of A.
        """
        xp = array_namespace(h, self.B, self.N)
        zero, one = (xp.asarray(v, dtype=self.B.dtype) for v in (0.0, 1.0))
        g = _times(self.B.mT, h)
        bound = self._rounding(_times(self.sizes.mT, _times(self.reach.mT, terms)))
        there = xp.logical_and(self.free > 0, xp.abs(g) > bound)
        decided = xp.logical_and(there, xp.abs(g) > DECIDED * bound)
        length = xp.sqrt(_sum(xp.moveaxis(self.N * self.N, -2, -1)))
        score = xp.where(decided, xp.abs(g) / xp.where(decided, length, one), -one)
        best = xp.max(score, axis=-1, keepdims=True)
        largest = xp.logical_and(decided, score == best)
        column = xp.logical_and(largest, xp.cumulative_sum(xp.astype(largest, xp.int64), axis=-1) == 1)
        fix = xp.any(column, axis=-1)
        pivot = xp.where(fix, _sum(xp.where(column, g, zero)), one)
        ratios = xp.where(xp.logical_and(self.free > 0, fix[..., None]), g / pivot[..., None], zero)
        return column, pivot, ratios, xp.logical_and(xp.any(there, axis=-1), xp.logical_not(fix))

    def _eliminated(self, chosen: Array, pivot: Array, ratios: Array) -> tuple[DiffuseState, Array]:
        """The state without the chosen column, which is taken out of all others, and the gain that fixes the column."""
        xp = array_namespace(chosen, self.B, self.N)
        zero = xp.asarray(0.0, dtype=self.B.dtype)

        def without(a: Array, factors: Array) -> Array:
            taken = _sum(xp.where(chosen[..., None, :], a, zero))
            rest = a - taken[..., :, None] * factors[..., None, :]
            return xp.where(chosen[..., None, :], zero, rest)

        sizes = without(self.sizes, -xp.abs(ratios))
        free = xp.where(chosen, zero, self.free)
        B = self._without_rounding(without(self.B, ratios), sizes)
        N = without(self.N, ratios)
        b, n = (_sum(xp.where(chosen[..., None, :], a, zero)) / pivot[..., None] for a in (self.B, self.N))
        share, log_volume = _solve_gram(N, free, _times(N.mT, n))
        volume = xp.where(xp.any(chosen, axis=-1), log_volume, self.volume)
        return replace(self, B=B, N=N, free=free, sizes=sizes, volume=volume), b - _times(B, share)


def _times(A: Array, x: Array) -> Array:
    return apply(A, x, product)


def _sum(a: Array) -> Array:
    """The sum over the last axis, in order, so that it has the same bits in every stack."""
    if type(a) is np.ndarray:
        summed: np.ndarray = np.cumsum(a, axis=-1)[..., -1]
        return summed
    total = a[..., 0]
    for i in range(1, a.shape[-1]):
        total = total + a[..., i]
    return total


def _norms(U: Array) -> Array:
    """The norms of the rows of U."""
    return array_namespace(U).sqrt(_sum(U * U))


def _tiny(U: Array) -> float:
    return 8.0 * int(U.shape[-2]) * float(array_namespace(U).finfo(U.dtype).eps)


def _without_known(U: Array, size: Array) -> Array:
    """U with zeros in the rows of components that are known exactly: rounding of sums over terms of `size`."""
    known = _norms(U) <= _tiny(U) * size
    return array_namespace(U).where(known[..., None], 0.0 * U, U)


def _lengths(N: Array, free: Array) -> Array:
    """The lengths of the columns of N; 1 where one is fixed."""
    xp = array_namespace(N, free)
    one = xp.asarray(1.0, dtype=N.dtype)
    return xp.where(free > 0, xp.sqrt(_sum(xp.moveaxis(N * N, -2, -1))), one)


def _gram(N: Array, free: Array) -> tuple[Array, Array]:
    """``N' N`` with columns of length 1, the identity where they are fixed; and the lengths."""
    xp = array_namespace(N, free)
    lengths = _lengths(N, free)
    scaled = N / lengths[..., None, :]
    eye = xp.eye(N.shape[-1], dtype=N.dtype)
    return product(scaled.mT, scaled) + eye * xp.where(free > 0, 0.0 * free, 1.0 + 0.0 * free)[..., None, :], lengths


def _solve_gram(N: Array, free: Array, right: Array) -> tuple[Array, Array]:
    """``(N' N)^-1 right`` and ``log det N' N`` of the free columns."""
    gram, lengths = _gram(N, free)
    _, _, solved, log_det = ldl_solve(gram, (right / lengths)[..., None], floor=_floor(N))
    return solved[..., 0] / lengths, log_det + 2.0 * _sum(array_namespace(lengths).log(lengths))


def _floor(N: Array) -> float:
    """The least pivot of a Gram matrix of columns of length 1: below it there is rounding.

    Columns of N are independent. Where their Gram matrix does not show it, the split of a posterior along free
    directions is inexact; what follows from fixed directions does not depend on it.
    """
    return 8.0 * int(N.shape[-1]) * float(array_namespace(N).finfo(N.dtype).eps)


def _inverse_root(N: Array, free: Array) -> Array:
    """W with ``W W' = (N' N)^-1`` on the free columns, zero elsewhere."""
    xp = array_namespace(N, free)
    gram, lengths = _gram(N, free)
    eye = xp.broadcast_to(xp.eye(N.shape[-1], dtype=N.dtype), gram.shape)
    white, weighted, _, _ = ldl_solve(gram, eye, floor=_floor(N))  # L^-1 and D^-1 L^-1
    root = white * xp.sqrt(xp.linalg.diagonal(weighted))[..., :, None]
    return root.mT * (free / lengths)[..., :, None] * free[..., None, :]


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


class Start(NamedTuple):
    """The filtered states of the steps in which some series is diffuse, and of the one that ends them."""

    states: list[DiffuseState]
    gains: list[Array]
    terms: list[Array]

    def until(self, last: int) -> Start:
        """The steps up to `last`."""
        return Start(*(kept[: last + 1] for kept in self))

    def ends(self, batch: tuple[int, ...]) -> Array:
        """The step that ends the diffuse ones of each series, shape batch."""
        xp = array_namespace(*(state.B for state in self.states))
        count = sum((xp.astype(state.which, xp.int64) for state in self.states), start=xp.zeros(batch, dtype=xp.int64))
        most = xp.asarray(len(self.states) - 1, dtype=xp.int64)
        return xp.where(count > most, most, count)


def wide(a: Array) -> Array:
    """`a` in float64, where the library has it: the few diffuse steps decide ranks."""
    xp = array_namespace(a)
    return xp.astype(a, xp.float64, copy=False) if xp.finfo(a.dtype).bits < 64 else a


def diffuse_start(series: Series) -> DiffuseState:
    """The prior of a series."""
    assert series.diffuse is not None
    A, m0, P0 = wide(series.diffuse), wide(series.m0), wide(series.P0)
    xp = array_namespace(A, m0, P0)
    q, lead = A.shape[-1], A.shape[:-2]
    N = xp.broadcast_to(xp.eye(q, dtype=A.dtype), (*lead, q, q))
    free = xp.ones((*lead, q), dtype=A.dtype)
    sizes = xp.abs(A)
    return DiffuseState(m0, semidefinite_factor(P0), A, N, free, A, sizes, N, xp.zeros(lead, dtype=A.dtype))


def diffuse_steps(series: Series) -> Start:
    """The filter's steps until nothing is diffuse, in float64."""
    state, start = diffuse_start(series), Start([], [], [])
    for k in range(series.n_steps):
        if k or series.predict_first:
            state = state.predicted(*(wide(series.at(name, k)) for name in "FQu"))
        H, R, d = (wide(series.at(name, k)) for name in "HRd")
        state, gain, term = state.updated(H, R, d, wide(series.y[k, ...]))
        for kept, value in zip(start, (state, gain, term), strict=True):
            kept.append(value)
        if not state.is_diffuse:
            break
    return start
