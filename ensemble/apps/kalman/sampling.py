"""Draws of whole state trajectories given all observations."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._check import integer, message, one_of
from ensemble._kernels.scan import SCANS, prefix_scan
from ensemble._typing import Array
from ensemble.apps.kalman.elements import smoother_elements
from ensemble.apps.kalman.filters import METHODS, check_scannable, filtered
from ensemble.apps.kalman.model import LinearGaussianModel, aligned
from ensemble.apps.kalman.smoothers import time_first
from ensemble.apps.kalman.square_root import semidefinite_factor
from ensemble.apps.kalman.steps import apply
from ensemble.scalar import Ensemble

__all__ = ["sample_posterior"]


def sample_posterior(
    model: LinearGaussianModel,
    y: Any,
    n_samples: int,
    *,
    seed: int | np.random.Generator | None = None,
    method: str = "auto",
    scan: str = "chunked",
    mask: Any = None,
) -> Ensemble:
    """Trajectories drawn from the joint distribution of all states given all observations.

    A filter runs forwards; then each state is drawn given the next one, ``x[k] = E[k] x[k+1] + g[k] + e[k]`` with
    ``e[k] ~ N(0, L[k])``, which is a recursion or a prefix sum of affine maps.

    Parameters
    ----------
    model : LinearGaussianModel
        Without Ensembles: the samples are the draws.
    y : array, shape (*batch, T, ny)
        Observations, NaN where missing.
    n_samples : int
        The number of draws.
    seed : int or numpy.random.Generator, optional
    method : {"auto", "sequential", "scan"}
        Of both passes, see `kalman_filter`.
    scan : {"chunked", "sequential", "hillis_steele", "blelloch", "ladner_fischer", "sengupta"}
    mask : bool array, optional

    Returns
    -------
    Ensemble, shape (*batch, T, nx), ``n_samples`` samples

    Raises
    ------
    TypeError
        If the model or `y` holds an Ensemble.
    ValueError
        As `kalman_filter`.

    Examples
    --------
    >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> draws = sample_posterior(model, [[3.0], [float("nan")], [4.0]], 1000, seed=40129)
    >>> draws.shape, draws.n_samples
    ((3, 1), 1000)
    """
    one_of(method, METHODS, "sample_posterior", "method")
    one_of(scan, SCANS, "sample_posterior", "scan")
    n_samples = integer(n_samples, "sample_posterior", "n_samples", minimum=1)
    series = aligned(model, y, mask, "sample_posterior")
    if any(isinstance(a, Ensemble) for a in (series.y, series.F, series.Q, series.H, series.m0)):
        advice = "Draw for one sample at a time: each Ensemble's .sample(i)."
        raise TypeError(message("sample_posterior", "model and y", "hold plain arrays", "an Ensemble", advice))
    if method == "scan":
        check_scannable(series, "sample_posterior")
    try:
        rng = np.random.default_rng(seed)
    except (TypeError, ValueError):
        seen, kind = f"a {type(seed).__name__}", "be None, an integer from 0 or a numpy.random.Generator"
        raise TypeError(message("sample_posterior", "seed", kind, seen)) from None
    m, P = time_first(series, filtered(series, method, scan))
    xp = array_namespace(m, P)
    E, g, L = smoother_elements(series, m, P)
    # Draws stand in front of the state's axis while the maps act on them.
    normal = xp.asarray(rng.standard_normal((*m.shape[:-1], n_samples, m.shape[-1])), dtype=m.dtype)
    offset = g[..., None, :] + apply(semidefinite_factor(L)[..., None, :, :], normal)
    drawn = _scan_draws(E, offset, scan) if method == "scan" else _recursion(E, offset)
    return Ensemble(xp.asarray(xp.moveaxis(xp.moveaxis(drawn, 0, -3), -2, -1), copy=True))


def _recursion(E: Array, offset: Array) -> Array:
    xp = array_namespace(E, offset)
    x = offset[-1, ...]
    draws = [x]
    for k in range(offset.shape[0] - 2, -1, -1):
        x = apply(E[k, ...][..., None, :, :], x) + offset[k, ...]
        draws.append(x)
    return xp.stack(draws[::-1], axis=0)


def _scan_draws(E: Array, offset: Array, scan: str) -> Array:
    xp = array_namespace(E, offset)
    nx = E.shape[-1]
    neutral = (xp.eye(nx, dtype=E.dtype), xp.zeros(offset.shape[-2:], dtype=E.dtype))

    def combine(earlier: tuple[Array, ...], later: tuple[Array, ...]) -> tuple[Array, ...]:
        (Ei, hi), (Ej, hj) = earlier, later
        return Ei @ Ej, apply(Ei[..., None, :, :], hj) + hi

    return prefix_scan(combine, (E, offset), algorithm=scan, reverse=True, neutral=neutral)[1]
