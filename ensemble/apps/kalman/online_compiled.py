"""The states of an `OnlineFilter` in compiled code: of one series, and of many series or samples in one kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._check import require
from ensemble._kernels.kalman.recursions import LANES_FROM, FilterStep
from ensemble._typing import Array
from ensemble.apps.kalman.array.correlated import explanation
from ensemble.apps.kalman.array.steps import product
from ensemble.apps.kalman.devices.compiled import filter_arguments, n_samples_of, series_first
from ensemble.apps.kalman.online_observations import INFINITE, entries, observation, refuse, shallow
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble
from ensemble.scalar.namespace import set_of
from ensemble.scalar.sample_set import common_set

__all__ = ["CompiledState", "SeriesState"]

MODEL = ("F", "Q", "H", "R", "u", "d")

PATTERNS = 64
"""Patterns of missing entries whose transitions are kept."""


def _at(a: np.ndarray, k: int) -> np.ndarray:
    """A part of all series at step k; a constant is every step."""
    return a[:, k if a.shape[1] > 1 else 0]


class Correlation:
    """What the last observation tells of the next transition, for parts with axes of series and time in front."""

    def __init__(self, parts: dict[str, np.ndarray], S: np.ndarray) -> None:
        self.parts, self.S = parts, S
        self.is_constant = all(a.shape[1] == 1 for name, a in {**parts, "S": S}.items() if name not in ("u", "d"))
        self.kept: dict[bytes, tuple[np.ndarray, ...]] = {}

    def transition(self, k: int, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """F, Q and u that lead to step k, where `y` (n_series, ny) was seen before, with the series in front."""
        missing = np.isnan(y)
        some = bool(missing.any())
        key = missing.tobytes() if some else b""
        found = self.kept.get(key) if self.is_constant else None
        if found is None:
            F, Q = (_at(self.parts[name], k) for name in "FQ")
            H, R = (_at(self.parts[name], k - 1) for name in "HR")
            S = _at(self.S, k - 1)
            found = explanation(F, Q, H, R, S, missing if some else missing[:1], product)
            if self.is_constant:
                if len(self.kept) >= PATTERNS:
                    self.kept.clear()
                self.kept[key] = found
        F, Q, C = found
        seen = y - _at(self.parts["d"], k - 1)
        if some:
            seen = np.where(missing, 0.0, seen)
        return F, Q, _at(self.parts["u"], k) + (C * seen[:, None, :]).cumsum(axis=-1)[..., -1]


class _Compiled:
    """What both states share: the parts of the model in the kernel's arrays, and the order of calls.

    States have the series in front in two places that copies share: a step writes the other one.
    """

    diffuse_covariance = None

    def __init__(self, series: Series, filter_step: FilterStep, parts: dict[str, np.ndarray], S: Any) -> None:
        self.series, self.filter_step, self.parts = series, filter_step, parts
        self.correlation = None if S is None else Correlation(parts, S)
        self.seen: Any = None  # the last observation, where noises are correlated
        self.place = 0
        self.varying = [name for name in MODEL if parts[name].shape[1] > 1]
        for name in MODEL:
            self._put(name, parts[name][:, 0])

    def _put(self, name: str, values: np.ndarray) -> None:
        getattr(self.filter_step, name)[...] = values

    def copied(self, n_steps: int = 1) -> Any:
        made = shallow(self)
        if n_steps > 1:
            made.filter_step = self.filter_step.copied(self.place)
            made.place = 0
        return made

    def predict(self, k: int) -> None:
        if k == 0 and not self.series.predict_first:
            return
        self.filter_step.y.fill(math.nan)
        self._advance(k, True)
        self.seen = None

    def update(self, k: int, y: Any) -> None:
        if self.seen is not None:
            advice = "The noise of a second observation has no given correlation with the next transition."
            require(False, "OnlineFilter", "update", "be called once a step for a model with S", "a second", advice)
        self._observe(y)
        self._take(k, False)

    def step(self, k: int, y: Any) -> None:
        self._observe(y)
        self._take(k, k > 0 or self.series.predict_first)

    def _observe(self, y: Any) -> None:
        raise NotImplementedError

    def _take(self, k: int, predict_first: bool) -> None:
        raise NotImplementedError

    def _advance(self, k: int, predict_first: bool) -> Any:
        """Take a step of the kernel, and what it returns."""
        for name in self.varying:
            self._put(name, self.parts[name][:, k])
        if self.correlation is not None and predict_first:
            self._correlate(self.correlation, k)
        found = self.filter_step(self.place, predict_first)
        self.place = 1 - self.place
        if self.correlation is not None:
            self.seen = self._rows(self.filter_step.y).copy()
        return found

    def _correlate(self, correlation: Correlation, k: int) -> None:
        if self.seen is not None:
            found = correlation.transition(k, self.seen)
        else:
            found = _at(self.parts["F"], k), _at(self.parts["Q"], k), _at(self.parts["u"], k)
        for name, values in zip("FQu", found, strict=True):
            self._put(name, values)

    def _rows(self, y: np.ndarray) -> np.ndarray:
        """An observation with the series in front."""
        return y


class CompiledState(_Compiled):
    """The state of one series."""

    def __init__(self, series: Series) -> None:
        nx, ny = series.F.shape[-1], series.y.shape[-1]
        parts = dict(zip(MODEL, filter_arguments(series, None)[: len(MODEL)], strict=True))
        S = None if series.S is None else series.S[None]
        super().__init__(series, FilterStep(nx, ny, series.F.dtype), parts, S)
        self.shape, self.log_likelihood, self.term = (ny,), 0.0, 0.0
        m, P = self.filter_step.states[0]
        m[...], P[...] = series.m0, series.P0

    def _put(self, name: str, values: np.ndarray) -> None:
        getattr(self.filter_step, name)[...] = values[0]

    def _rows(self, y: np.ndarray) -> np.ndarray:
        return y[None]

    @property
    def mean(self) -> Array:
        return self.filter_step.states[self.place][0]

    @property
    def covariance(self) -> Array:
        return self.filter_step.states[self.place][1]

    @property
    def last_observation(self) -> Any:
        """The observation that the next transition depends on, or None."""
        return None if self.seen is None else self.seen[0]

    @property
    def is_lost(self) -> bool:
        """Whether the last step had no density."""
        return self.term != self.term

    def _observe(self, y: Any) -> None:
        if type(y) is not np.ndarray or y.dtype.kind != "f":
            y = np.asarray(entries(y))
        if y.shape != self.shape:
            refuse(y, self.shape)
        for value in y.tolist():
            if value in INFINITE:
                refuse(y, self.shape)
        self.filter_step.y[:] = y

    def _take(self, k: int, predict_first: bool) -> None:
        self.term = self._advance(k, predict_first)
        self.log_likelihood += self.term


class SeriesState(_Compiled):
    """The state of several series or samples: each has its own bits.

    Until the first step, mean and covariance are those of the prior, which samples may share.
    """

    def __init__(self, series: Series, n_samples: int | None = None) -> None:
        counts = [n for n in (n_samples, n_samples_of(series), getattr(series.S, "n_samples", None)) if n is not None]
        self.n_samples = max(counts, default=None)
        nx, ny = series.F.shape[-1], series.y.shape[-1]
        *model, _, m0, P0 = filter_arguments(series, self.n_samples)
        parts = dict(zip(MODEL, model, strict=True))
        S = None if series.S is None else series_first(series.S, 2, series.batch, self.n_samples, 0)
        n_series = math.prod(series.batch) * (self.n_samples or 1)
        own = [name for name in MODEL if parts[name].shape[0] > 1 or (S is not None and name in "FQu")]
        lifted = self.n_samples is not None and not series.batch
        super().__init__(series, FilterStep(nx, ny, series.F.dtype, n_series, tuple(own), lifted), parts, S)
        m, P = self.filter_step.states[0]
        m[...], P[...] = m0, P0
        self.shape, self.begun, self.is_lost = (*series.batch, ny), False, False
        # covariances of samples that differ in their data alone are one, until an observation is missing
        shared = [*(parts[name] for name in "FQHR"), P0, *(() if S is None else (S,))]
        self.alike = lifted and all(a.shape[0] == 1 for a in shared)
        self.sample_set = set_of(*(getattr(series, name) for name in (*MODEL, "m0", "P0", "S")))
        self.total = self.raw_term = np.zeros((*series.batch, *(() if self.n_samples is None else (self.n_samples,))))

    def _view(self, a: np.ndarray) -> np.ndarray:
        """An array with the series in front in the user's shape, the samples last."""
        if self.filter_step.series_last:
            return a.transpose(*range(1, a.ndim), 0)  # a fourth of the time of `moveaxis`
        batch, tail = self.series.batch, a.shape[1:]
        if self.n_samples is None:
            return a.reshape((*batch, *tail))
        return np.moveaxis(a.reshape((*batch, self.n_samples, *tail)), len(batch), -1)

    def _given(self, values: np.ndarray) -> Array:
        """An array or Ensemble of what has the user's shape."""
        if self.n_samples is None:
            return values
        return Ensemble(np.ascontiguousarray(values), None if values.shape[-1] == 1 else self.sample_set)

    @property
    def mean(self) -> Array:
        if not self.begun:
            return self._prior(self.series.m0, 1)
        return self._given(self._view(self.filter_step.states[self.place][0]))

    @property
    def covariance(self) -> Array:
        if not self.begun:
            return self._prior(self.series.P0, 2)
        found = self._view(self.filter_step.states[self.place][1])
        return self._given(found[..., :1] if self.alike and (self.n_samples or 0) >= LANES_FROM else found)

    def _prior(self, a: Array, tail: int) -> Array:
        xp = array_namespace(a, self.series.y)
        return xp.broadcast_to(a, (*self.series.batch, *a.shape[len(a.shape) - tail :]))

    @property
    def log_likelihood(self) -> Array:
        return self._given(self.total)

    @log_likelihood.setter
    def log_likelihood(self, value: Array) -> None:
        values = value.samples if isinstance(value, Ensemble) else np.asarray(value)
        self.total = np.broadcast_to(values, self.total.shape)

    @property
    def term(self) -> Array:
        return self._given(self.raw_term)

    @property
    def last_observation(self) -> Any:
        """The observation that the next transition depends on, or None."""
        return None if self.seen is None else self._given(self._view(self.seen))

    def _observe(self, y: Any) -> None:
        values = y.samples if type(y) is Ensemble else y
        if type(values) is not np.ndarray or values.dtype.kind != "f" or y.shape != self.shape:
            y = observation(self.series, y)
            values = y.samples if isinstance(y, Ensemble) else y
        if type(y) is Ensemble:
            self._fit(y)
        elif self.n_samples is not None:
            values = values[..., None]
        place = self._view(self.filter_step.y)
        place[...] = values
        if np.isinf(place).any():
            refuse(y, self.shape)

    def _fit(self, y: Ensemble) -> None:
        """Allocate the states of the samples of `y`, and keep their sample set."""
        n = self.n_samples
        if n is None or (n == 1 and y.n_samples > 1):
            wider = SeriesState(self.series, y.n_samples)
            for place, state in zip(wider.filter_step.states, self.filter_step.states, strict=True):
                for target, values in zip(place, state, strict=True):
                    own = self._view(values)
                    wider._view(target)[...] = own[..., None] if n is None else own
            wider.total = wider.total + (self.total[..., None] if n is None else self.total)
            wider.place, wider.begun, wider.alike = self.place, self.begun, self.alike and wider.alike
            if self.seen is not None:
                wider.seen = np.repeat(self.seen, wider.filter_step.y.shape[0] // self.seen.shape[0], axis=0)
            self.__dict__.update(wider.__dict__)
        fits = y.n_samples in (1, self.n_samples)
        require(fits, "OnlineFilter", "y", f"have {self.n_samples} samples as the model has", f"{y.n_samples}")
        if y.sample_set is not None and y.sample_set is not self.sample_set:
            self.sample_set = y.sample_set if self.sample_set is None else common_set(self.sample_set, y.sample_set)

    def predict(self, k: int) -> None:
        if k or self.series.predict_first:
            super().predict(k)
            self.begun, self.alike = True, self.alike and self.n_samples == 1

    def _take(self, k: int, predict_first: bool) -> None:
        terms = self._advance(k, predict_first)
        self.is_lost = bool(np.isnan(terms).any())
        whole = self.n_samples == 1 or not (self.is_lost or np.isnan(self.filter_step.y).any())
        self.begun, self.alike = True, self.alike and whole
        self.raw_term = self._view(terms).astype(np.float64)
        self.total = self.total + self.raw_term
