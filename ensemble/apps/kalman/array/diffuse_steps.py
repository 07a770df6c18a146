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

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.kalman.array.diffuse_algebra import (
    any_last,
    decorrelated,
    decorrelated_by_noise,
    first_true,
    inverse_root,
    largest_last,
    last_sum,
    norms,
    solve_gram,
    times,
)
from ensemble.apps.kalman.array.square_root import semidefinite_factor, triangle
from ensemble.apps.kalman.array.steps import LOG_2PI, observed_part, product
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = ["DiffuseState", "Start", "diffuse_start", "diffuse_steps", "wide"]

DECIDED = 1e4
"""What `g` must exceed the bound of its rounding by: its relative error is then below 1e-4, mostly below 1e-6."""

SEEN = 16.0
"""What a deviation must exceed the rounding of its own sum by, to be known to about a sixteenth."""


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


class _Entry(NamedTuple):
    """One entry ``h' x + r``: h, the terms of the sums that h is, and the variance of r."""

    h: Array
    terms: Array
    r: Array


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
        return product(self.B, inverse_root(self.N, self.free))

    @property
    def diffuse_covariance(self) -> Array:
        """Return the part of the covariance that is multiplied by kappa, the infinite variance of the prior."""
        G = self.G
        return product(G, G.mT)

    @property
    def which(self) -> Array:
        """Which series are diffuse, shape batch or ones; one that failed is not."""
        xp = array_namespace(self.B)
        return any_last(xp.logical_and(self.B != 0, xp.isfinite(self.B)), 2)

    @property
    def is_diffuse(self) -> bool:
        """Whether any series of any sample is."""
        values = self.which.samples if isinstance(self.which, Ensemble) else self.which
        return bool(array_namespace(values).any(values))

    def predicted(self, F: Array, Q: Array, u: Array) -> DiffuseState:
        """One transition on."""
        xp = array_namespace(F, self.whole)
        moved = product(F, self.U)
        U = triangle(_without_known(moved, times(xp.abs(F), norms(self.U))), semidefinite_factor(Q))
        reach = product(xp.abs(F), xp.abs(self.whole))
        m, B, whole = times(F, self.m) + u, product(F, self.B), product(F, self.whole)
        state = replace(self, m=m, U=U, B=B, whole=whole, reach=reach, age=self.age + 1)
        return replace(state, B=state._without_rounding(B, self.sizes))

    def updated(self, H: Array, R: Array, d: Array, y: Array) -> tuple[DiffuseState, Array, Array]:
        """The state given `y`, the gain, and the limit of the log-density of `y`."""
        H, R, v, n_seen = observed_part(H, R, y, self.m, d, product)
        found = self.conditioned(H, R)
        white = times(found.rows, v)
        term = -0.5 * (last_sum(white * white * found.inverses + found.logs) + n_seen * LOG_2PI)
        m = self.m + times(found.gain, v)
        return replace(found.state, m=m), found.gain, term

    def smoother_gain(self, F: Array, Q: Array) -> Update:
        """Return the limits of the smoother's gain and of the state, given the next state ``F x + q``."""
        return self.conditioned(F, Q, semidefinite=True)

    def conditioned(self, H: Array, R: Array, semidefinite: bool = False) -> Update:
        """The limit of a Kalman update, but for the mean.

        With `semidefinite`, entries that are already known exactly are left out; else their pivots are NaN. Entries are
        taken in turn, or for series where one cannot be told from rounding then, the clearest ones first.
        """
        found, doubtful = self._in_turn(H, R, semidefinite)
        values = doubtful.samples if isinstance(doubtful, Ensemble) else doubtful
        if not bool(array_namespace(values).any(values)):
            return found
        return _chosen(doubtful, self._in_turn(H, R, semidefinite, ordered=True)[0], found)

    def _in_turn(self, H: Array, R: Array, semidefinite: bool, ordered: bool = False) -> tuple[Update, Array]:
        """Update by one entry after the other; tell for which series another order of entries may decide more."""
        xp, n = array_namespace(H, R, self.U, self.B), H.shape[-2]
        rows, noise = decorrelated_by_noise(R, self._scales(H)) if ordered else decorrelated(R)
        H, terms = product(rows, H), product(xp.abs(rows), xp.abs(H))
        state, size = self, norms(self.U)
        bound, waiting = (size if semidefinite else None), xp.ones_like(noise)
        gain: Any = None
        doubtful: Any = None
        taken: tuple[list[Array], ...] = ([], [], [])
        for i in range(n):
            if ordered:
                pick = state._clearest(H, terms, noise, size if bound is None else bound, waiting)
                waiting = waiting - pick
                h, reach, row = (last_sum((pick[..., :, None] * a).mT) for a in (H, terms, rows))
                entry = _Entry(h, reach, last_sum(pick * noise))
            else:
                waiting = xp.asarray([float(j > i) for j in range(n)], dtype=noise.dtype)
                row, entry = rows[..., i, :], _Entry(H[..., i, :], terms[..., i, :], noise[..., i])
            state, K, log, inverse, size, bound, doubt = state._entry(entry, size, bound)
            step = K[..., :, None] * row[..., None, :]
            gain = step if gain is None else gain + step
            rows = rows - (times(H, K) * waiting)[..., :, None] * row[..., None, :]
            doubtful = doubt if doubtful is None else xp.logical_or(doubtful, doubt)
            for kept, value in zip(taken, (row, log, inverse), strict=True):
                kept.append(value)
        state = replace(state, U=_without_known(triangle(state.U), size))
        logs, inverses = (xp.stack(kept, axis=-1) for kept in taken[1:])
        if ordered:
            rows = xp.stack([xp.broadcast_to(row, (*gain.shape[:-2], n)) for row in taken[0]], axis=-2)
        return Update(state, gain, rows, logs, inverses), doubtful

    def _entry(
        self, entry: _Entry, size: Array, bound: Array | None
    ) -> tuple[DiffuseState, Array, Array, Array, Array, Array | None, Array]:
        """Update by one entry: state, gain, log and inverse of the variance, new `size` and `bound`, and doubt.

        U has the rounding of sums over terms of `size`: its rows and all that was taken from them. ``a = U' h`` has
        that of ``terms' size``, in units of `_tiny`, and ``U - X a'`` has that of a in row i ``|X[i]|`` times, which is
        more than ``|X[i]| |a|`` where a cancels. `bound` is `size` with this. What is not known exactly must exceed
        `bound`: with it, an entry that does not is left out. It is in doubt where it cannot be told what it fixes.
        """
        h, terms, r = entry
        xp = array_namespace(h, self.U, self.B, self.N)
        zero, one, nan = (xp.asarray(v, dtype=self.U.dtype) for v in (0.0, 1.0, float("nan")))
        a = times(self.U.mT, h)
        length = last_sum(a * a)
        finite, least = length + r, _tiny(self.U) * last_sum(terms * size)
        most = least if bound is None else _tiny(self.U) * last_sum(terms * bound)
        lost = finite <= xp.minimum(most, SEEN * least) ** 2
        chosen, pivot, ratios, unclear = self._choice(h, terms)
        fix = any_last(chosen)
        state, gain = self._eliminated(chosen, pivot, ratios)
        known = xp.where(lost, one, finite)
        K = xp.where(fix[..., None], gain, times(self.U, a) / known[..., None])
        X = xp.where(fix[..., None], K, K / (one + xp.sqrt(xp.where(lost, zero, r / known)))[..., None])
        left_out, doubt = xp.logical_and(lost, xp.logical_not(fix)), unclear
        if bound is not None:
            K, X = (xp.where(left_out[..., None], zero * v, v) for v in (K, X))
            hidden = xp.logical_and(finite <= most**2, xp.logical_not(xp.logical_or(lost, fix)))
            doubt = xp.logical_or(doubt, hidden)
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
        moved = xp.abs(X) * xp.sqrt(length)[..., None]
        if bound is not None:
            bound = bound + moved + xp.abs(X) * (most / _tiny(self.U))[..., None]
        return state, K, log + failed, xp.where(fix, zero, one / known), size + moved, bound, doubt

    def _scales(self, H: Array) -> Array:
        """The sizes of what entries with these rows may be, shape (n,)."""
        H = array_namespace(H).abs(H)
        return last_sum(product(product(H, self.reach), self.sizes)) + times(H, norms(self.U))

    def _clearest(self, H: Array, terms: Array, noise: Array, bound: Array, waiting: Array) -> Array:
        """One of the waiting entries, as a row of numbers 0 and 1.

        Those that fix a direction come first, in the order given where their g are far from rounding, else the clearest
        one; then the others by their deviation over its rounding.
        """
        xp, n = array_namespace(H, noise, self.U), H.shape[-2]
        zero, one = (xp.asarray(v, dtype=self.U.dtype) for v in (0.0, 1.0))

        def over(a: Array, b: Array) -> Array:
            return xp.where(b > 0, a / xp.where(b > 0, b, one), xp.where(a > 0, one / _tiny(self.U), zero))

        g, gap = xp.abs(product(H, self.B)), self._rounding(product(product(terms, self.reach), self.sizes))
        clear = xp.max(xp.where(self.free[..., None, :] > 0, over(g, gap), zero), axis=-1)
        A = product(H, self.U)
        score = over(xp.sqrt(last_sum(A * A) + noise), _tiny(self.U) * times(terms, bound))
        turn = xp.asarray([float(n - i) for i in range(n)], dtype=self.U.dtype)
        fixing = xp.where(clear > DECIDED**2, 1e100 * turn, 1e50 * clear)
        score = xp.where(waiting > 0, xp.where(clear > DECIDED, fixing, score), -one)
        return xp.where(first_true(score == largest_last(score)), one, zero)

    def _rounding(self, terms: Array) -> Array:
        """Bound the rounding of sums whose terms have these absolute values."""
        nx = self.U.shape[-2]
        return (8 * nx * (1 + self.age) * float(array_namespace(terms).finfo(terms.dtype).eps)) * terms

    def _without_rounding(self, B: Array, sizes: Array) -> Array:
        xp = array_namespace(B, sizes, self.reach)
        rounded = xp.abs(B) <= self._rounding(product(self.reach, sizes))
        return xp.where(rounded, 0.0 * B, B)

    def _choice(self, h: Array, terms: Array) -> tuple[Array, Array, Array, Array]:
        """Choose the free column that an entry fixes: a row of bools, its g = B' h, all g over that, and doubt.

        Of the columns that it decides, the one of the largest g per length in the coordinates of A.
        """
        xp = array_namespace(h, self.B, self.N)
        zero, one = (xp.asarray(v, dtype=self.B.dtype) for v in (0.0, 1.0))
        g = times(self.B.mT, h)
        bound = self._rounding(times(self.sizes.mT, times(self.reach.mT, terms)))
        there = xp.logical_and(self.free > 0, xp.abs(g) > bound)
        decided = xp.logical_and(there, xp.abs(g) > DECIDED * bound)
        length = xp.sqrt(last_sum((self.N * self.N).mT))
        score = xp.where(decided, xp.abs(g) / xp.where(decided, length, one), -one)
        column = first_true(xp.logical_and(decided, score == largest_last(score)))
        fix = any_last(column)
        pivot = xp.where(fix, last_sum(xp.where(column, g, zero)), one)
        ratios = xp.where(xp.logical_and(self.free > 0, fix[..., None]), g / pivot[..., None], zero)
        return column, pivot, ratios, xp.logical_and(any_last(there), xp.logical_not(fix))

    def _eliminated(self, chosen: Array, pivot: Array, ratios: Array) -> tuple[DiffuseState, Array]:
        """Eliminate the chosen free column from all others: the state without it, and the gain that fixes it."""
        xp = array_namespace(chosen, self.B, self.N)
        zero = xp.asarray(0.0, dtype=self.B.dtype)

        def without(a: Array, factors: Array) -> Array:
            taken = last_sum(xp.where(chosen[..., None, :], a, zero))
            rest = a - taken[..., :, None] * factors[..., None, :]
            return xp.where(chosen[..., None, :], zero, rest)

        sizes = without(self.sizes, -xp.abs(ratios))
        free = xp.where(chosen, zero, self.free)
        B = self._without_rounding(without(self.B, ratios), sizes)
        N = without(self.N, ratios)
        b, n = (last_sum(xp.where(chosen[..., None, :], a, zero)) / pivot[..., None] for a in (self.B, self.N))
        share, log_volume = solve_gram(N, free, times(N.mT, n))
        volume = xp.where(any_last(chosen), log_volume, self.volume)
        return replace(self, B=B, N=N, free=free, sizes=sizes, volume=volume), b - times(B, share)


def _chosen(mask: Array, a: Update, b: Update) -> Update:
    """The update a for the series in `mask`, else b."""
    xp = array_namespace(mask, a.gain, b.gain)

    def select(x: Array, y: Array) -> Array:
        return xp.where(xp.reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim))), x, y)

    parts = {name: select(getattr(a.state, name), getattr(b.state, name)) for name in ("U", "B", "N", "free", "sizes")}
    volume = select(a.state.volume, b.state.volume)
    state = replace(b.state, volume=volume, **parts)
    return Update(state, *(select(x, y) for x, y in zip(a[1:], b[1:], strict=True)))


def _tiny(U: Array) -> float:
    return 8.0 * int(U.shape[-2]) * float(array_namespace(U).finfo(U.dtype).eps)


def _without_known(U: Array, size: Array) -> Array:
    """Set rows of U to zero that are rounding of sums over terms of `size`: those components are known exactly."""
    known = norms(U) <= _tiny(U) * size
    return array_namespace(U).where(known[..., None], 0.0 * U, U)


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
