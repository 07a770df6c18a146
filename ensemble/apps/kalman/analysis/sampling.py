"""Draws of whole state trajectories given all observations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._check import integer, message, one_of, random_generator
from ensemble._kernels.kalman.scan import Sengupta, check_scan, prefix_scan
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Values
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.array.square_root import semidefinite_factor
from ensemble.apps.kalman.filters import METHODS, check_scannable
from ensemble.apps.kalman.model import LinearGaussianModel
from ensemble.apps.kalman.series import Series
from ensemble.apps.kalman.smoothers import rts
from ensemble.scalar import Ensemble

__all__ = ["sample_posterior"]


@explains_calls("sample_posterior")
def sample_posterior(
    model: LinearGaussianModel,
    y: Any,
    n_samples: int,
    *,
    seed: int | np.random.Generator | None = None,
    method: str = "auto",
    scan: str | Sengupta = "chunked",
    mask: Values | None = None,
) -> Ensemble:
    """Draw trajectories from the joint distribution of all states given all observations.

    States and observations ``(x+, y+)`` are drawn from the model with all its means zero; the smoothed mean given
    ``y - y+``, plus ``x+``, is a draw [1]_. The factored covariances are those of the model, which may be singular.

    Parameters
    ----------
    model : LinearGaussianModel
        Without Ensembles: the samples are the draws.
    y : array, shape (*batch, T, ny)
        Observations, NaN where missing.
    n_samples : int
        The number of draws.
    seed : int or numpy.random.Generator, optional
        Draw i is the same for any number of draws.
    method, scan, mask
        As `kalman_filter`, for all passes.

    Returns
    -------
    Ensemble, shape (*batch, T, nx), ``n_samples`` samples

    Raises
    ------
    TypeError
        If the model or `y` holds an Ensemble.
    ValueError
        As `kalman_filter`.

    References
    ----------
    .. [1] J. Durbin, S. J. Koopman, A simple and efficient simulation smoother for state space time series analysis,
       Biometrika 89 (2002), 603-616.

    Examples
    --------
    >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> draws = sample_posterior(model, [[3.0], [float("nan")], [4.0]], 1000, seed=40129)
    >>> draws.shape, draws.n_samples
    ((3, 1), 1000)
    """
    one_of(method, METHODS, "sample_posterior", "method")
    check_scan(scan, "sample_posterior")
    n_samples = integer(n_samples, "sample_posterior", "n_samples", minimum=1)
    series = aligned(model, y, mask, "sample_posterior")
    if any(isinstance(a, Ensemble) for a in (series.y, series.F, series.Q, series.H, series.m0)):
        advice = "Draw for one sample at a time: each Ensemble's .sample(i)."
        raise TypeError(message("sample_posterior", "model and y", "hold plain arrays", "an Ensemble", advice))
    if method == "scan":
        check_scannable(series, "sample_posterior")
    rng = random_generator(seed, "sample_posterior")
    x, seen = _simulated(series, n_samples, rng, scan if method == "scan" else None)
    xp = array_namespace(x, seen)
    draws = rts(replace(series, y=Ensemble(series.y[..., None] - seen)), method, scan).mean.samples
    return Ensemble(draws + xp.moveaxis(x, 0, len(series.batch)))


def _simulated(series: Series, n: int, rng: np.random.Generator, scan: str | Sengupta | None) -> tuple[Array, Array]:
    """`n` draws of the states and observations of a model whose means are zero: (T, *batch, nx or ny, n)."""
    xp = array_namespace(series.F, series.y)
    T, batch, nx, ny = series.n_steps, series.batch, series.F.shape[-1], series.y.shape[-1]
    shapes = ((*batch, nx), (T, *batch, nx), (T, *batch, ny))
    counts = [math.prod(shape) for shape in shapes]
    normal = rng.standard_normal((n, sum(counts))).T  # a draw's numbers are one run of the generator's
    parts = np.split(normal, np.cumsum(counts)[:-1])
    start, noise, observation_noise = (xp.asarray(np.ascontiguousarray(a).reshape((*shape, n)), dtype=series.F.dtype)
                           for a, shape in zip(parts, shapes, strict=True))  # fmt: skip
    x = semidefinite_factor(series.P0) @ start
    noise = semidefinite_factor(series.Q) @ noise
    if not series.predict_first:
        noise = xp.concat([xp.broadcast_to(x, noise.shape[1:])[None, ...], noise[1:, ...]], axis=0)
    else:
        noise = xp.concat([(series.at("F", 0) @ x + noise[0, ...])[None, ...], noise[1:, ...]], axis=0)
    states = _recursion(series, noise) if scan is None else _scanned(series, noise, scan)
    return states, series.H @ states + semidefinite_factor(series.R) @ observation_noise


def _recursion(series: Series, noise: Array) -> Array:
    """``x[k] = F[k] x[k-1] + noise[k]``, step by step."""
    xp = array_namespace(noise)
    states = [noise[0, ...]]
    for k in range(1, noise.shape[0]):
        states.append(series.at("F", k) @ states[-1] + noise[k, ...])
    return xp.stack(states, axis=0)


def _scanned(series: Series, noise: Array, scan: str | Sengupta) -> Array:
    """`_recursion` as a prefix sum of affine maps."""
    xp, nx = array_namespace(noise), noise.shape[-2]
    identity = (xp.eye(nx, dtype=noise.dtype), xp.zeros(noise.shape[-2:], dtype=noise.dtype))
    F = xp.broadcast_to(series.F, (noise.shape[0], *series.batch, nx, nx))

    def combine(earlier: tuple[Array, ...], later: tuple[Array, ...]) -> tuple[Array, ...]:
        (A, a), (B, b) = earlier, later
        return B @ A, B @ a + b

    return prefix_scan(combine, (F, noise), algorithm=scan, identity=identity)[1]
