"""Observations without noise of more than the state's noises can be: from some step on they have no density."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._typing import Array
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = ["as_mask", "counts_of", "marked_without_density", "seen_entries", "steps_without_density"]


def marked_without_density(series: Series) -> Series:
    """Set the offset d to NaN in all `steps_without_density`, so that no method finds a density there."""
    none = steps_without_density(series)
    if none is None:
        return series
    xp = array_namespace(series.d, series.y, none)
    d = xp.broadcast_to(xp.asarray(series.d), (*none.shape, series.d.shape[-1]))
    return replace(series, d=xp.where(none[..., None], d + float("nan"), d))


def steps_without_density(series: Series) -> Array | None:
    """Find the steps where exact entries exceed the rank of the predicted covariance: bools (T, *batch); None if none.

    Each entry that is seen without noise lowers the rank of P by one. A transition raises it by no more than there are
    variances in Q that are not zero. The recursion does not show that nothing is left: rounding errors remain in P, of
    full rank. Whether there is anything to count is asked once for each model, as the question synchronises a device.
    """
    counts = counts_of(series)
    if counts is None:
        return None
    exact, driven, rank = counts
    steps = _exhausted(series, np.sum(np.logical_and(exact, seen_entries(series.y)), axis=-2), driven, rank)
    return as_mask(series, steps) if steps.any() else None


def counts_of(series: Series) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Count what bounds the rank: which entries are exact, how many variances Q has at each step, and those of P0.

    None where there is nothing to count. All have an axis of samples behind the others.
    """
    if not series.sees_exactly:
        return None
    exact = _diagonal(series.R, lambda variance: variance <= 0)
    if not exact.any():
        return None
    driven = _diagonal(series.Q, lambda variance: variance != 0).sum(axis=-2)
    rank = _diagonal(series.P0, lambda variance: variance != 0).sum(axis=-2)
    rank = np.minimum(rank + (0 if series.diffuse is None else series.diffuse.shape[-1]), series.F.shape[-1])
    return None if min(driven.min(), rank.min()) >= exact.shape[-2] else (exact, driven, rank)


def as_mask(series: Series, found: np.ndarray) -> Array:
    """Return bools with an axis of samples as an Ensemble where the series has one, else as an array."""
    lifted = found.shape[-1] > 1 or any(isinstance(a, Ensemble) for a in vars(series).values())
    mask = array_namespace(_plain(series.y)).asarray(found if lifted else found[..., 0])
    return Ensemble(mask) if lifted else mask


def _exhausted(series: Series, seen: np.ndarray, driven: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Mark the first step whose `seen` exact entries exceed the bound of the rank, and all later ones."""
    nx = series.F.shape[-1]
    over, steps = np.zeros((), bool), []
    for k in range(series.n_steps):
        if k or series.predict_first:
            rank = np.minimum(rank + driven[k if len(driven) > 1 else 0], nx)
        over, rank = np.logical_or(over, seen[k] > rank), rank - seen[k]
        steps.append(over)
    return np.stack(np.broadcast_arrays(*steps))


def _diagonal(a: Array, holds: Callable[[Array], Array]) -> np.ndarray:
    """Test the diagonals of matrices; an axis of samples comes last."""
    if type(a) is np.ndarray:  # the usual case, without the calls of a namespace
        return np.asarray(holds(a.diagonal(axis1=-2, axis2=-1)))[..., None]
    return _with_samples(holds(array_namespace(a).linalg.diagonal(a)))


def seen_entries(y: Array) -> np.ndarray:
    """Tell which entries of observations are not missing; an axis of samples comes last."""
    return ~_with_samples(array_namespace(y).isnan(y))


def _plain(a: Array) -> Array:
    return a.samples if isinstance(a, Ensemble) else a


def _with_samples(found: Array) -> np.ndarray:
    return np.asarray(to_numpy(found.samples if isinstance(found, Ensemble) else found[..., None]))
