"""The states of a filter that takes observations one by one: arrays, and factors of covariances.

Those of compiled code are in `online_compiled.py`.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._check import require
from ensemble._typing import Array
from ensemble.apps.kalman.array.correlated import explained
from ensemble.apps.kalman.array.diffuse_steps import DiffuseState, diffuse_start, wide
from ensemble.apps.kalman.array.square_root import semidefinite_factor, triangle, update_factor
from ensemble.apps.kalman.array.steps import apply, predict, product, symmetric_solve, update
from ensemble.apps.kalman.devices.compiled import compiled_backend
from ensemble.apps.kalman.interop.arguments import owned
from ensemble.apps.kalman.online_compiled import CompiledState, SeriesState
from ensemble.apps.kalman.online_observations import observation, shallow
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = ["state_of"]


def state_of(series: Series, log_likelihood: Any = 0.0) -> Any:
    """Compiled code on NumPy, else arrays and Ensembles."""
    if series.diffuse is not None:
        return DiffuseArrayState(series)
    lifted = any(isinstance(a, Ensemble) for a in vars(series).values())
    state: Any = ArrayState(series)
    if compiled_backend(series, "sequential") == "numba" and 0 not in series.batch:
        state = SeriesState(series) if lifted or series.batch else CompiledState(series)
    state.log_likelihood = state.log_likelihood + log_likelihood
    return GuardedState(state, series)


class ArrayState:
    """The state as arrays or Ensembles, advanced by the matrix formulas.

    Every state has `mean`, `covariance`, `log_likelihood`, `diffuse_covariance`, `term`, the last density, `is_lost`,
    whether that may be NaN for a series, and `last_observation`, which the next transition may depend on; and the
    methods `predict`, `update`, `step`, `continued`, which gives the state to go on with, and `copied`, which gives one
    to advance by `n_steps`, while the state itself stays as it is.
    """

    diffuse_covariance: Array | None = None
    is_lost = True

    def __init__(self, series: Series) -> None:
        self.series = series
        xp = array_namespace(series.m0, series.P0, series.y)
        nx = series.F.shape[-1]
        self.mean = xp.broadcast_to(series.m0, (*series.batch, nx))
        self.covariance = xp.broadcast_to(series.P0, (*series.batch, nx, nx))
        self.log_likelihood = self.term = xp.zeros(series.batch, dtype=xp.float64)
        self.last_observation: Any = None

    def continued(self) -> Any:
        return self

    def copied(self, n_steps: int = 1) -> Any:
        return shallow(self)

    def predict(self, k: int) -> None:
        if k == 0 and not self.series.predict_first:
            return
        F, Q, u = (self.series.at(name, k) for name in "FQu")
        if self.series.S is not None and self.last_observation is not None:
            H, R, d, S = (self.series.at(name, k - 1) for name in "HRdS")
            F, Q, u = explained(F, Q, u, H, R, d, S, self.last_observation)
        self.last_observation = None
        self._predict(F, Q, u)

    def update(self, k: int, y: Any) -> None:
        if self.series.S is not None and self.last_observation is not None:
            advice = "The noise of a second observation has no given correlation with the next transition."
            require(False, "OnlineFilter", "update", "be called once a step for a model with S", "a second", advice)
        self._observe(k, observation(self.series, y))

    def step(self, k: int, y: Any) -> None:
        y = observation(self.series, y)
        self.predict(k)
        self._observe(k, y)

    def _observe(self, k: int, y: Array) -> None:
        H, R, d = (self.series.at(name, k) for name in "HRd")
        term = self._update(H, R, d, y)
        xp = array_namespace(term)
        self.term = xp.astype(term, xp.float64, copy=False)
        self.log_likelihood = self.log_likelihood + self.term
        self.last_observation = y

    def _predict(self, F: Array, Q: Array, u: Array) -> None:
        self.mean, self.covariance = predict(F, Q, u, self.mean, self.covariance, product)

    def _update(self, H: Array, R: Array, d: Array, y: Array) -> Array:
        self.mean, self.covariance, term = update(H, R, d, y, self.mean, self.covariance, product)
        return term


class DiffuseArrayState(ArrayState):
    """A state of which directions are diffuse, in float64."""

    def __init__(self, series: Series) -> None:
        super().__init__(series)
        self.state: DiffuseState = diffuse_start(series)
        self.ended = False

    @property
    def diffuse_covariance(self) -> Array | None:  # type: ignore[override]
        return self._narrow(self.state.diffuse_covariance)

    def continued(self) -> Any:
        """The ordinary state that this one has become, on square roots where its covariance is nearly singular."""
        if not self.ended:
            return self
        m0, P0, root = (self._narrow(a) for a in (self.state.m, self.state.P, self.state.U))
        series = replace(self.series, m0=m0, P0=P0, root=root, diffuse=None)
        return state_of(series, self.log_likelihood)

    def _predict(self, F: Array, Q: Array, u: Array) -> None:
        self._take(self.state.predicted(*(wide(a) for a in (F, Q, u))))

    def _update(self, H: Array, R: Array, d: Array, y: Array) -> Array:
        state, _, term = self.state.updated(*(wide(a) for a in (H, R, d, y)))
        self._take(state)
        self.ended = self.series.S is None and not state.is_diffuse
        return term

    def _take(self, state: DiffuseState) -> None:
        self.state, self.mean, self.covariance = state, self._narrow(state.m), self._narrow(state.P)

    def _narrow(self, a: Array) -> Array:
        return array_namespace(a).astype(a, self.series.F.dtype, copy=False)


class RootState(ArrayState):
    """The state as a mean and a factor of the covariance, which has twice the digits."""

    def __init__(self, series: Series, mean: Array, root: Array, last_observation: Any = None) -> None:
        super().__init__(series)
        xp = array_namespace(mean, root)
        nx = series.F.shape[-1]
        self.mean = xp.broadcast_to(mean, (*series.batch, nx))
        self.root = xp.broadcast_to(root, (*series.batch, nx, nx))
        self.covariance = product(self.root, self.root.mT)
        self.last_observation = last_observation

    def _predict(self, F: Array, Q: Array, u: Array) -> None:
        self.root = triangle(product(F, self.root), semidefinite_factor(Q))
        self.mean, self.covariance = apply(F, self.mean, product) + u, product(self.root, self.root.mT)

    def _update(self, H: Array, R: Array, d: Array, y: Array) -> Array:
        self.mean, self.root, term = update_factor(H, R, d, y, self.mean, self.root, product)
        self.covariance = product(self.root, self.root.mT)
        return term


RECORDED = 256
"""Steps from the start that are kept, to be taken again on square roots. Later ones go on from covariances."""


class GuardedState:
    """A state by covariances, and one by factors for the series whose covariances lose too many digits.

    What is lost below a wide prior shows some steps later, so the steps from the start are taken again then.
    """

    diffuse_covariance = None

    def __init__(self, state: Any, series: Series) -> None:
        self.state, self.series = state, series
        self.roots: Any = None
        self.lost: Any = None
        self.start = state.mean + 0.0, state.covariance + 0.0, state.log_likelihood + 0.0
        self.first_observation = state.last_observation
        self.taken: list[tuple[str, Any]] | None = []
        self.n_taken = 0
        if series.root is not None:
            lost = _is_nearly_singular(series)
            if _any(lost):
                self.lost, self.roots = lost, RootState(series, series.m0, series.root)
                self.roots.log_likelihood = self.roots.log_likelihood + state.log_likelihood

    def continued(self) -> Any:
        return self

    def copied(self, n_steps: int = 1) -> Any:
        made = shallow(self)
        made.roots = None if self.roots is None else self.roots.copied()
        if n_steps > 1:
            made.state = self.state.copied(n_steps)
        return made

    @property
    def mean(self) -> Array:
        return self._chosen("mean", 1)

    @property
    def covariance(self) -> Array:
        return self._chosen("covariance", 2)

    @property
    def log_likelihood(self) -> Any:
        return self._chosen("log_likelihood", 0)

    def _chosen(self, name: str, tail: int) -> Any:
        own = getattr(self.state, name)
        if self.lost is None:
            return own + 0.0 if tail else own  # not the arrays that the state is kept in
        other = getattr(self.roots, name)
        xp = array_namespace(self.lost, own, other) if tail else array_namespace(self.lost, other)
        return xp.where(xp.reshape(self.lost, (*self.lost.shape, *(1,) * tail)), other, own)

    def predict(self, k: int) -> None:
        self.state = self.state.copied()
        self.state.predict(k)
        if self.roots is not None:
            self.roots.predict(k)
        self._record("predict", k)

    def update(self, k: int, y: Any) -> None:
        self._guarded(lambda state: state.update(k, y))
        self._record("update", k, y)

    def step(self, k: int, y: Any) -> None:
        self._guarded(lambda state: state.step(k, y))
        self._record("step", k, y)

    def _record(self, name: str, k: int, *y: Any) -> None:
        if self.taken is None:
            return
        if len(self.taken) > self.n_taken:  # a copy of this state, or a step that was interrupted, went on from here
            self.taken = self.taken[: self.n_taken]
        self.taken.append((name, (k, *map(_kept, y))))
        self.n_taken += 1
        self.taken = self.taken if self.n_taken <= RECORDED else None

    def _guarded(self, advance: Any) -> None:
        before, self.state = self.state, self.state.copied()
        advance(self.state)
        if self.roots is None and not self.state.is_lost:
            return
        term = self.state.term
        if type(term) is float:
            term = np.asarray(term)
        xp = array_namespace(term)
        lost = xp.isnan(term)
        if self.roots is None and not _any(lost):
            return
        new = lost if self.lost is None else xp.logical_and(lost, xp.logical_not(self.lost))
        if _any(new):
            self._change_over(new, before.mean, before.covariance, before.log_likelihood, before.last_observation)
        advance(self.roots)

    def _change_over(self, new: Array, mean: Array, covariance: Array, log_likelihood: Any, last: Any) -> None:
        """Square roots for the series in `new`, from the start, or from the state before the step."""
        if self.taken is not None:
            mean, covariance, log_likelihood = self.start
            last = self.first_observation
        roots = RootState(self.series, mean, semidefinite_factor(covariance), last)
        roots.log_likelihood = roots.log_likelihood + log_likelihood
        for name, arguments in (self.taken or ())[: self.n_taken]:
            getattr(roots, name)(*arguments)
        if self.roots is not None:
            xp = array_namespace(new, roots.mean, self.roots.mean)
            for name, tail in (("mean", 1), ("covariance", 2), ("root", 2), ("log_likelihood", 0)):
                mask = xp.reshape(new, (*new.shape, *(1,) * tail))
                setattr(roots, name, xp.where(mask, getattr(roots, name), getattr(self.roots, name)))
        self.roots = roots
        self.lost = new if self.lost is None else array_namespace(new).logical_or(self.lost, new)


def _kept(y: Any) -> Any:
    """A copy of an observation, which may be a buffer of the caller."""
    return owned(y) if type(y) in (np.ndarray, Ensemble) else deepcopy(y)


def _any(mask: Any) -> bool:
    values = mask.samples if isinstance(mask, Ensemble) else mask
    return bool(array_namespace(values).any(values))


def _is_nearly_singular(series: Series) -> Array:
    """Where the covariance of the start, seen in deviations, has a pivot that is nearly rounding: shape batch."""
    xp = array_namespace(series.P0)
    deviation = xp.sqrt(xp.linalg.diagonal(series.P0))
    one = xp.asarray(1.0, dtype=series.P0.dtype)
    deviation = xp.where(deviation > 0, deviation, one)
    scaled = series.P0 / (deviation[..., :, None] * deviation[..., None, :])
    solved, _ = symmetric_solve(
        scaled, xp.broadcast_to(xp.eye(scaled.shape[-1], dtype=scaled.dtype), scaled.shape), least_pivot=1e-8
    )
    found = xp.any(xp.any(xp.isnan(solved), axis=-1), axis=-1)
    return xp.broadcast_to(found, series.batch)
