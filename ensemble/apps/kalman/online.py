"""The filter one step at a time, as observations arrive."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._check import integer, kind_of, message, require
from ensemble._kernels.kalman.recursions import FilterStep
from ensemble._typing import Array
from ensemble.apps.kalman.array.correlated import explained
from ensemble.apps.kalman.array.diffuse_steps import DiffuseState, diffuse_start
from ensemble.apps.kalman.array.steps import predict, symmetric, update
from ensemble.apps.kalman.devices.compiled import compiled_backend
from ensemble.apps.kalman.interop.arguments import is_pandas, real_array, with_gaps_as_nan
from ensemble.apps.kalman.model import LinearGaussianModel, aligned
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = ["OnlineFilter"]


INFINITE = (math.inf, -math.inf)


class OnlineFilter:
    """A Kalman filter that takes observations one by one and keeps nothing but its state.

    Steps are those of `kalman_filter`: ``step(y)`` is ``predict()`` and ``update(y)``, where the first prediction of a
    model whose prior is at the first observation changes nothing.

    Parameters
    ----------
    model : LinearGaussianModel
        A model of one series or of a batch, with or without Ensembles. Parts that vary in time are taken at the steps'
        own entries.

    Attributes
    ----------
    mean : array or Ensemble, shape (*batch, nx)
        Mean of the state given the observations so far.
    covariance : array or Ensemble, shape (*batch, nx, nx)
        Covariance of the state; for a diffuse prior the finite part.
    diffuse_covariance : array or Ensemble, shape (*batch, nx, nx), or None
        What multiplies kappa in the covariance while the state is diffuse, see `FilterResult`; None from then on.
    log_likelihood : float, array or Ensemble, shape batch
        Log-likelihood of the observations so far.
    k : int
        The step that the state belongs to, from 0; -1 for a prior before the first observation.

    Raises
    ------
    TypeError
        If `model` is no LinearGaussianModel.

    Examples
    --------
    >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> online = OnlineFilter(model)
    >>> for y in ([3.0], [float("nan")], [4.0]):
    ...     online.step(y)
    >>> online.mean.round(4).tolist(), online.covariance.round(4).tolist()
    ([3.4545], [[0.7273]])
    """

    def __init__(self, model: LinearGaussianModel) -> None:
        if not isinstance(model, LinearGaussianModel):
            raise TypeError(message("OnlineFilter", "model", "be a LinearGaussianModel", kind_of(model)))
        self.model = model
        series = _parts(model)
        self._length = model.n_steps if model.is_time_varying else None
        self.k = -1
        self._engine: Any = _ArrayState(series) if series.diffuse is not None else _engine_of(series)

    def __repr__(self) -> str:
        return f"OnlineFilter(k={self.k}, {self.model!r})"

    @property
    def mean(self) -> Array:
        return self._engine.mean

    @property
    def covariance(self) -> Array:
        return self._engine.covariance

    @property
    def diffuse_covariance(self) -> Array | None:
        return self._engine.diffuse_covariance

    @property
    def log_likelihood(self) -> Any:
        return self._engine.log_likelihood

    def predict(self, n_steps: int = 1) -> None:
        """Advance by `n_steps` transitions without an observation.

        Parameters
        ----------
        n_steps : int

        Raises
        ------
        ValueError
            If the model varies in time and has no entry for a step.
        """
        for _ in range(integer(n_steps, "OnlineFilter.predict", "n_steps", minimum=1)):
            k = self._next("predict")
            self._engine.predict(k)
            self.k = k

    def update(self, y: Any) -> None:
        """Condition the state on an observation of the present step.

        Parameters
        ----------
        y : array or Ensemble, shape (*batch, ny)
            NaN where missing.

        Raises
        ------
        TypeError, ValueError
            If `y` is no array of that shape, or infinite; if there was no prediction to the first observation.
        """
        k = self.k
        if k < 0 and self.model.prior_at == "first_observation":
            k = self._next("update")
        if k < 0:
            require(False, "OnlineFilter", "update", "follow a prediction", "the prior", "Call predict or step first.")
        self._engine.update(k, y)
        self.k = k
        if self._engine.diffuse_ended:
            self._engine = _engine_of(self._engine.proper_series(), self._engine.log_likelihood)

    def step(self, y: Any) -> None:
        """Predict, then condition on the observation `y` of shape (*batch, ny)."""
        k = self._next("step")
        self._engine.step(k, y)
        self.k = k
        if self._engine.diffuse_ended:
            self._engine = _engine_of(self._engine.proper_series(), self._engine.log_likelihood)

    def _next(self, name: str) -> int:
        k = self.k + 1
        if self._length is not None and k >= self._length:
            advice = "Make a model of the steps to come whose prior is this state."
            require(False, "OnlineFilter", name, f"be called for the model's {self._length} steps", f"step {k}", advice)
        return k


def _parts(model: LinearGaussianModel) -> Series:
    """The model's parts in one form; noises stay correlated."""
    xp = array_namespace(next((a for a in vars(model).values() if isinstance(a, Ensemble)), model.F))
    n = model.n_steps if model.is_time_varying else 1
    y = xp.full((n, model.ny), float("nan"), dtype=model.F.dtype)
    return aligned(model, y, None, "OnlineFilter", correlated=True, diffuse=True)


def _engine_of(series: Series, log_likelihood: Any = 0.0) -> Any:
    """Compiled code for one series on NumPy, else arrays and Ensembles."""
    lifted = any(isinstance(a, Ensemble) for a in vars(series).values())
    plain = not (lifted or series.batch or series.S is not None)
    is_compiled = plain and compiled_backend(series, "sequential") == "numba"
    engine: Any = _CompiledState(series) if is_compiled else _ArrayState(series)
    engine.log_likelihood = engine.log_likelihood + log_likelihood
    return engine


def _entries(y: Any) -> Array:
    """One observation as an array; a row of a pandas table is a Series."""
    values = with_gaps_as_nan(y, "OnlineFilter")
    if is_pandas(y) and len(y.shape) == 1:
        values = values[:, 0]
    return real_array(values, "y", "OnlineFilter")


def _refused(y: Any, shape: tuple[int, ...]) -> None:
    seen = f"shape {tuple(y.shape)}" if tuple(y.shape) != shape else "infinity in it"
    require(tuple(y.shape) == shape, "OnlineFilter", "y", f"have shape {shape}", seen)
    require(False, "OnlineFilter", "y", "be finite, or NaN where missing", seen, "Missing is NaN.")


class _ArrayState:
    """The state as arrays or Ensembles, advanced by the matrix formulas."""

    def __init__(self, series: Series) -> None:
        self.series = series
        xp = array_namespace(series.m0, series.P0, series.y)
        nx = series.F.shape[-1]
        self.mean = xp.broadcast_to(series.m0, (*series.batch, nx))
        self.covariance = xp.broadcast_to(series.P0, (*series.batch, nx, nx))
        self.log_likelihood = xp.zeros(series.batch, dtype=xp.float64)
        self.last_observation: Any = None
        self.diffuse: DiffuseState | None = None if series.diffuse is None else diffuse_start(series)
        self.diffuse_ended = False

    @property
    def diffuse_covariance(self) -> Array | None:
        return None if self.diffuse is None else self.diffuse.diffuse_covariance

    def proper_series(self) -> Series:
        """The series whose prior is this state, which is no longer diffuse."""
        return replace(self.series, m0=self.mean, P0=self.covariance, diffuse=None)

    def predict(self, k: int) -> None:
        if k == 0 and not self.series.predict_first:
            return
        F, Q, u = (self.series.at(name, k) for name in "FQu")
        if self.series.S is not None and self.last_observation is not None:
            H, R, d, S = (self.series.at(name, k - 1) for name in "HRdS")
            F, Q, u = explained(F, Q, u, H, R, d, S, self.last_observation)
        self.last_observation = None
        if self.diffuse is None:
            self.mean, self.covariance = predict(F, Q, u, self.mean, self.covariance)
        else:
            self.diffuse = self.diffuse.predicted(F, Q, u)
            self.mean, self.covariance = self.diffuse.m, self.diffuse.P

    def update(self, k: int, y: Any) -> None:
        if self.series.S is not None and self.last_observation is not None:
            advice = "The noise of a second observation has no given correlation with the next transition."
            require(False, "OnlineFilter", "update", "be called once a step for a model with S", "a second", advice)
        self._update(k, self._observation(y))

    def step(self, k: int, y: Any) -> None:
        y = self._observation(y)
        self.predict(k)
        self._update(k, y)

    def _update(self, k: int, y: Array) -> None:
        H, R, d = (self.series.at(name, k) for name in "HRd")
        if self.diffuse is None:
            self.mean, self.covariance, term = update(H, R, d, y, self.mean, self.covariance)
        else:
            self.diffuse, _, term = self.diffuse.updated(H, R, d, y)
            self.mean, self.covariance = self.diffuse.m, self.diffuse.P
            self.diffuse_ended = self.series.S is None and not self.diffuse.is_diffuse
        xp = array_namespace(term)
        self.log_likelihood = self.log_likelihood + xp.astype(term, xp.float64, copy=False)
        self.last_observation = y

    def _observation(self, y: Any) -> Array:
        series = self.series
        y = _entries(y)
        shape = (*series.batch, series.y.shape[-1])
        xp = array_namespace(*(a for a in (y, series.y) if isinstance(a, Ensemble)), y, series.y)
        y = xp.astype(xp.asarray(y), series.y.dtype, copy=False)
        values = y.samples if isinstance(y, Ensemble) else y
        of_values = array_namespace(values)
        if tuple(y.shape) != shape or bool(of_values.any(of_values.isinf(values))):
            _refused(y, shape)
        return y


class _CompiledState:
    """The state of one series as arrays of NumPy, advanced by the compiled recursion."""

    diffuse_covariance, diffuse_ended = None, False

    def __init__(self, series: Series) -> None:
        nx, ny = series.F.shape[-1], series.y.shape[-1]
        self.filter_step, self.first = FilterStep(nx, ny, series.F.dtype), series.predict_first
        self.shape, self.log_likelihood = (ny,), 0.0
        self.varying = []
        for name in ("F", "Q", "H", "R", "u", "d"):
            part, place = getattr(series, name), getattr(self.filter_step, name)
            place[...] = part[0]
            if part.shape[0] > 1:
                self.varying.append((place, part))
        self.filter_step.m[...], self.filter_step.P[...] = series.m0, series.P0

    @property
    def mean(self) -> Array:
        return self.filter_step.m.copy()

    @property
    def covariance(self) -> Array:
        return self.filter_step.P.copy()

    def predict(self, k: int) -> None:
        self.filter_step.y.fill(math.nan)
        self._advance(k, k > 0 or self.first)

    def update(self, k: int, y: Any) -> None:
        self._observe(y)
        self.log_likelihood += self._advance(k, False)

    def step(self, k: int, y: Any) -> None:
        self._observe(y)
        self.log_likelihood += self._advance(k, k > 0 or self.first)

    def _observe(self, y: Any) -> None:
        if type(y) is not np.ndarray or y.dtype.kind != "f":
            y = np.asarray(_entries(y))
        if y.shape != self.shape:
            _refused(y, self.shape)
        for value in y.tolist():
            if value in INFINITE:
                _refused(y, self.shape)
        self.filter_step.y[:] = y

    def _advance(self, k: int, predict_first: bool) -> float:
        for place, part in self.varying:
            place[...] = part[k]
        return self.filter_step(predict_first)
