"""The states of a filter that takes observations one by one: compiled, arrays, and factors of covariances.

Longer than 400 lines: one class for each form of the state, with the same methods and shared helpers.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._check import require
from ensemble._kernels.kalman.recursions import FilterStep, filter_series
from ensemble._typing import Array
from ensemble.apps.kalman.array.correlated import explained
from ensemble.apps.kalman.array.diffuse_steps import DiffuseState, diffuse_start, wide
from ensemble.apps.kalman.array.square_root import semidefinite_factor, triangle, update_factor
from ensemble.apps.kalman.array.steps import apply, predict, product, symmetric_solve, update
from ensemble.apps.kalman.devices.compiled import compiled_backend, filter_arguments, from_series, n_samples_of
from ensemble.apps.kalman.interop.arguments import is_pandas, real_array, with_gaps_as_nan
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = ["entries", "state_of"]

INFINITE = (math.inf, -math.inf)


def state_of(series: Series, log_likelihood: Any = 0.0) -> Any:
    """Compiled code on NumPy, else arrays and Ensembles."""
    if series.diffuse is not None:
        return DiffuseArrayState(series)
    lifted = any(isinstance(a, Ensemble) for a in vars(series).values())
    is_compiled = series.S is None and compiled_backend(series, "sequential") == "numba"
    state: Any = ArrayState(series)
    if is_compiled:
        state = SeriesState(series) if lifted or series.batch else CompiledState(series)
    state.log_likelihood = state.log_likelihood + log_likelihood
    return GuardedState(state, series)


def entries(y: Any) -> Array:
    """One observation as an array; a row of a pandas table is a Series."""
    values = with_gaps_as_nan(y, "OnlineFilter")
    if is_pandas(y) and len(y.shape) == 1:
        values = values[:, 0]
    return real_array(values, "y", "OnlineFilter")


def _refused(y: Any, shape: tuple[int, ...]) -> None:
    seen = f"shape {tuple(y.shape)}" if tuple(y.shape) != shape else "infinity in it"
    require(tuple(y.shape) == shape, "OnlineFilter", "y", f"have shape {shape}", seen)
    require(False, "OnlineFilter", "y", "be finite, or NaN where missing", seen, "Missing is NaN.")


class ArrayState:
    """The state as arrays or Ensembles, advanced by the matrix formulas.

    Every state has `mean`, `covariance`, `log_likelihood`, `diffuse_covariance`, `term`, the last density, and the
    methods `predict`, `update`, `step`, `continued`, which gives the state to go on with, and `copied`, which gives one
    to advance by `n_steps`, while the state itself stays as it is.
    """

    diffuse_covariance: Array | None = None

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
        return _shallow(self)

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
        self._observe(k, _observation(self.series, y))

    def step(self, k: int, y: Any) -> None:
        y = _observation(self.series, y)
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


class SeriesState(ArrayState):
    """The state of several series or samples, advanced by the compiled recursion: each has its own bits."""

    def _predict(self, F: Array, Q: Array, u: Array) -> None:
        y = self.series.y[:1, ...] * float("nan")
        self._run((F, Q, *(self.series.at(name, 0) for name in "HR"), u, self.series.at("d", 0)), y, True)

    def step(self, k: int, y: Any) -> None:
        y = _observation(self.series, y)
        self._advance(k, y, k > 0 or self.series.predict_first)

    def _observe(self, k: int, y: Array) -> None:
        self._advance(k, y, False)

    def _advance(self, k: int, y: Array, predict_first: bool) -> None:
        self.term = self._run(
            [self.series.at(name, k) for name in ("F", "Q", "H", "R", "u", "d")], y[None, ...], predict_first
        )
        self.log_likelihood = self.log_likelihood + self.term

    def _run(self, parts: Any, y: Array, predict_first: bool) -> Array:
        xp = array_namespace(y, self.series.y)
        wide_y = xp.broadcast_to(xp.asarray(y), (1, *self.series.batch, self.series.y.shape[-1]))
        named = {name: a[None, ...] for name, a in zip(("F", "Q", "H", "R", "u", "d"), parts, strict=True)}
        one = replace(self.series, **named, y=wide_y, m0=self.mean, P0=self.covariance)
        n_samples = n_samples_of(one)
        last = n_samples is not None and not one.batch
        m, P, terms = filter_series(*filter_arguments(one, n_samples), predict_first, last)
        self.mean, self.covariance = from_series(one, m[:, 0], n_samples), from_series(one, P[:, 0], n_samples)
        return from_series(one, terms[:, 0].astype(np.float64), n_samples)


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
        self.first_observation = getattr(state, "last_observation", None)
        self.taken: list[tuple[str, Any]] | None = []
        if series.root is not None:
            lost = _is_nearly_singular(series)
            if _any(lost):
                self.lost, self.roots = lost, RootState(series, series.m0, series.root)
                self.roots.log_likelihood = self.roots.log_likelihood + state.log_likelihood

    def continued(self) -> Any:
        return self

    def copied(self, n_steps: int = 1) -> Any:
        made = _shallow(self)
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
        if self.taken is not None:
            self.taken.append((name, (k, *deepcopy(y))))  # y may be a buffer of the caller
            self.taken = self.taken if len(self.taken) <= RECORDED else None

    def _guarded(self, advance: Any) -> None:
        before, self.state = self.state, self.state.copied()
        advance(self.state)
        term = self.state.term
        if type(term) is float:
            if term == term and self.roots is None:
                return
            term = np.asarray(term)
        xp = array_namespace(term)
        lost = xp.isnan(term)
        if self.roots is None and not _any(lost):
            return
        new = lost if self.lost is None else xp.logical_and(lost, xp.logical_not(self.lost))
        if _any(new):
            last = getattr(before, "last_observation", None)
            self._change_over(new, before.mean, before.covariance, before.log_likelihood, last)
        advance(self.roots)

    def _change_over(self, new: Array, mean: Array, covariance: Array, log_likelihood: Any, last: Any) -> None:
        """Square roots for the series in `new`, from the start, or from the state before the step."""
        if self.taken is not None:
            mean, covariance, log_likelihood = self.start
            last = self.first_observation
        roots = RootState(self.series, mean, semidefinite_factor(covariance), last)
        roots.log_likelihood = roots.log_likelihood + log_likelihood
        for name, arguments in self.taken or ():
            getattr(roots, name)(*arguments)
        if self.roots is not None:
            xp = array_namespace(new, roots.mean, self.roots.mean)
            for name, tail in (("mean", 1), ("covariance", 2), ("root", 2), ("log_likelihood", 0)):
                mask = xp.reshape(new, (*new.shape, *(1,) * tail))
                setattr(roots, name, xp.where(mask, getattr(roots, name), getattr(self.roots, name)))
        self.roots = roots
        self.lost = new if self.lost is None else array_namespace(new).logical_or(self.lost, new)


def _shallow(state: Any) -> Any:
    """A copy with the same arrays; `copy.copy` takes four times as long."""
    made = object.__new__(type(state))
    made.__dict__.update(state.__dict__)
    return made


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


def _observation(series: Series, y: Any) -> Array:
    """One observation of shape (*batch, ny), which the caller may write to again."""
    y = entries(y)
    shape = (*series.batch, series.y.shape[-1])
    xp = array_namespace(*(a for a in (y, series.y) if isinstance(a, Ensemble)), y, series.y)
    y = xp.astype(xp.asarray(y), series.y.dtype, copy=True)
    values = y.samples if isinstance(y, Ensemble) else y
    of_values = array_namespace(values)
    if tuple(y.shape) != shape or bool(of_values.any(of_values.isinf(values))):
        _refused(y, shape)
    return y


class CompiledState:
    """The state of one series, by the compiled recursion, in two places that copies share: a step writes the other."""

    diffuse_covariance = None

    def __init__(self, series: Series) -> None:
        nx, ny = series.F.shape[-1], series.y.shape[-1]
        self.filter_step, self.first = FilterStep(nx, ny, series.F.dtype), series.predict_first
        self.shape, self.log_likelihood, self.term = (ny,), 0.0, 0.0
        self.varying = []
        for name in ("F", "Q", "H", "R", "u", "d"):
            part, place = getattr(series, name), getattr(self.filter_step, name)
            place[...] = part[0]
            if part.shape[0] > 1:
                self.varying.append((name, part))
        self.place = 0
        m, P = self.filter_step.states[0]
        m[...], P[...] = series.m0, series.P0

    def copied(self, n_steps: int = 1) -> Any:
        made = _shallow(self)
        if n_steps > 1:
            made.filter_step = self.filter_step.copied(self.place)
            made.place = 0
        return made

    @property
    def mean(self) -> Array:
        return self.filter_step.states[self.place][0]

    @property
    def covariance(self) -> Array:
        return self.filter_step.states[self.place][1]

    def predict(self, k: int) -> None:
        self.filter_step.y.fill(math.nan)
        self._advance(k, k > 0 or self.first)

    def update(self, k: int, y: Any) -> None:
        self._observe(y)
        self.term = self._advance(k, False)
        self.log_likelihood += self.term

    def step(self, k: int, y: Any) -> None:
        self._observe(y)
        self.term = self._advance(k, k > 0 or self.first)
        self.log_likelihood += self.term

    def _observe(self, y: Any) -> None:
        if type(y) is not np.ndarray or y.dtype.kind != "f":
            y = np.asarray(entries(y))
        if y.shape != self.shape:
            _refused(y, self.shape)
        for value in y.tolist():
            if value in INFINITE:
                _refused(y, self.shape)
        self.filter_step.y[:] = y

    def _advance(self, k: int, predict_first: bool) -> float:
        for name, part in self.varying:
            getattr(self.filter_step, name)[...] = part[k]
        term = self.filter_step(self.place, predict_first)
        self.place = 1 - self.place
        return term
