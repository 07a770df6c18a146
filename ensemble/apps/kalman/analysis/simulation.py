"""Draws of states and observations from a linear model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._check import integer, kind_of, message, random_generator, require
from ensemble._keywords import explains_calls
from ensemble._sample_numbers import sample_numbers
from ensemble._typing import Array
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.array.correlated import joint_covariance
from ensemble.apps.kalman.array.square_root import semidefinite_factor
from ensemble.apps.kalman.array.steps import apply
from ensemble.apps.kalman.model import LinearGaussianModel
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = ["SimulationResult", "simulate"]


@dataclass(frozen=True)
class SimulationResult:
    """States and observations drawn from a model.

    Attributes
    ----------
    states : array or Ensemble, shape (*batch, n_steps, nx)
    observations : array or Ensemble, shape (*batch, n_steps, ny)
    """

    states: Array
    observations: Array

    def __repr__(self) -> str:
        n = f", n_samples={self.states.n_samples}" if isinstance(self.states, Ensemble) else ""
        return f"SimulationResult(states {tuple(self.states.shape)}, observations {tuple(self.observations.shape)}{n})"


@explains_calls("simulate")
def simulate(
    model: LinearGaussianModel,
    n_steps: int | None = None,
    *,
    n_samples: int | None = None,
    seed: int | np.random.Generator | None = None,
) -> SimulationResult:
    """Draw states and observations from a model: the prior, the process noise and the observation noise.

    Parameters
    ----------
    model : LinearGaussianModel
    n_steps : int, optional
        The number of observations; needed where the model is constant in time.
    n_samples : int, optional
        The number of draws, of which sample i has noise that is the same whatever their number. Where it is not given:
        that of the model's Ensembles, or one draw as arrays, equal to sample 0.
    seed : int or numpy.random.Generator, optional
        In a model that `uq.propagate` and its like call, the noise of Ensembles is made from an integer and the ids of
        the samples, the same for any size of the groups.

    Returns
    -------
    SimulationResult

    Raises
    ------
    TypeError
        If `model` is no LinearGaussianModel, or a number is no integer.
    ValueError
        If `n_steps` or `n_samples` do not fit the model, or it has diffuse states, which have no distribution.

    Examples
    --------
    >>> model = LinearGaussianModel(F=[[0.9]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> simulate(model, 50, n_samples=3, seed=20731)
    SimulationResult(states (50, 1), observations (50, 1), n_samples=3)
    """
    if not isinstance(model, LinearGaussianModel):
        raise TypeError(message("simulate", "model", "be a LinearGaussianModel", kind_of(model)))
    if n_steps is None:
        require(model.is_time_varying, "simulate", "n_steps", "be given for a model that is constant in time", None)
        n_steps = model.n_steps
    n_steps = integer(n_steps, "simulate", "n_steps", minimum=1)
    fits = not model.is_time_varying or n_steps == model.n_steps
    require(fits, "simulate", "n_steps", f"be {model.n_steps} as the model has", n_steps)
    rng = random_generator(seed, "simulate")
    series = _parts(model, n_steps)
    n = _count(model, n_samples)
    numbers = sample_numbers()
    if numbers is not None and numbers.size == n and isinstance(seed, int | np.integer):
        rngs = [np.random.default_rng([int(seed), int(number)]) for number in numbers]
    else:
        rngs = [rng]
    noise = _normal(series, rngs, n_steps, n)
    if n is not None:
        xp = array_namespace(*noise)
        names = ("F", "Q", "H", "R", "u", "d", "m0", "P0", *(("S",) if series.S is not None else ()))
        series = replace(series, **{name: xp.asarray(getattr(series, name)) for name in names})
    states = _states(series, noise)
    return SimulationResult(*(array_namespace(a).moveaxis(a, 0, len(series.batch)) for a in states))


def _parts(model: LinearGaussianModel, n_steps: int) -> Series:
    """The parts with time first; noises stay correlated."""
    xp = array_namespace(next((a for a in vars(model).values() if isinstance(a, Ensemble)), model.F))
    y = xp.zeros((n_steps, model.ny), dtype=model.F.dtype)
    return aligned(model, y, None, "simulate", correlated=True)


def _count(model: LinearGaussianModel, n_samples: Any) -> int | None:
    """How many samples are drawn; None for arrays."""
    own = max((a.n_samples for a in vars(model).values() if isinstance(a, Ensemble)), default=None)
    if n_samples is None:
        return own
    n = integer(n_samples, "simulate", "n_samples", minimum=1)
    require(own in (None, 1, n), "simulate", "n_samples", f"be {own} as the model's Ensembles have", n)
    return n


def _normal(
    series: Series, rngs: Sequence[np.random.Generator], n_steps: int, n: int | None
) -> tuple[Array, Array]:  # fmt: skip
    """Standard normal numbers of the prior and the first transition, and of the steps.

    Samples are drawn one after the other, so that their number changes none of them, or each from a generator of its
    own.
    """
    nx, ny = series.F.shape[-1], series.y.shape[-1]
    base = series.y.samples if isinstance(series.y, Ensemble) else series.y
    of_base = array_namespace(base)
    first, steps = (*series.batch, 2 * nx), (*series.batch, n_steps, nx + ny)
    shape = ((n or 1) // len(rngs), math.prod(first) + math.prod(steps))
    drawn = np.concatenate([rng.standard_normal(shape) for rng in rngs])

    def as_model_array(values: np.ndarray) -> Array:
        values = values[0] if n is None else np.ascontiguousarray(np.moveaxis(values, 0, -1))
        values = of_base.asarray(values, dtype=base.dtype)
        return values if n is None else Ensemble(values)

    cut = math.prod(first)
    start = drawn[:, :cut].reshape((-1, *first))
    return as_model_array(start), as_model_array(np.moveaxis(drawn[:, cut:].reshape((-1, *steps)), -2, 1))


def _states(series: Series, noise: tuple[Array, Array]) -> tuple[Array, Array]:
    """States and observations with time first.

    Entry k of the second noise makes q[k+1] and r[k], the first noise the prior and q[0].
    """
    start, steps = noise
    nx, T = series.F.shape[-1], series.n_steps
    q = apply(semidefinite_factor(series.Q), _later(start[None, ..., nx:], steps[..., :nx]))
    r = apply(semidefinite_factor(series.R), steps[..., nx:])
    if series.S is not None and T > 1:
        xp, before = array_namespace(q), slice(0, T - 1)
        S = series.S[before, ...] if series.S.shape[0] > 1 else series.S
        joint = joint_covariance(series.each("Q", slice(1, None)), S, series.each("R", before))
        both = apply(semidefinite_factor(joint), steps[:-1, ...])
        q = xp.concat([q[:1, ...], both[..., :nx]], axis=0)
        r = xp.concat([both[..., nx:], r[-1:, ...]], axis=0)
    x = series.m0 + apply(semidefinite_factor(series.P0), start[..., :nx])
    moves = series.u + q
    states = []
    for k in range(T):
        if k or series.predict_first:
            x = apply(series.at("F", k), x) + moves[k, ...]
        states.append(x)
    xp = array_namespace(*states)
    x = xp.stack(states, axis=0)
    return x, apply(series.H, x) + series.d + r


def _later(first: Array, steps: Array) -> Array:
    """The first entry, then all of `steps` but the last."""
    return array_namespace(first, steps).concat([first, steps[:-1, ...]], axis=0)
