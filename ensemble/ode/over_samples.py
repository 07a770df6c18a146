"""Statistics over samples that come in groups: moments, and quantiles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._check import require
from ensemble._typing import Array
from ensemble.scalar import Ensemble, SampleSet, sample_quantile
from ensemble.scalar.statistics.histograms import Histograms

__all__ = ["Moments", "Quantiles", "merged", "moments_of"]

MOST_KEPT = 1 << 23
"""Values up to which all are kept for quantiles; more are counted in bins."""


class Moments(NamedTuple):
    """Of samples at each time: counts and sums of weights and their squares (n_times,), and (n_times, m) each."""

    count: Array
    weight: Array
    weight_square: Array
    mean: Array
    square: Array
    """The weighted sum of squares of deviations from the mean."""
    minimum: Array
    maximum: Array


def moments_of(values: Array, valid: Array, weights: np.ndarray) -> Moments:
    """The moments of one group."""
    xp = array_namespace(values)
    w = xp.astype(asarray_like(weights, values), values.dtype)
    valid = valid & (w > 0.0)
    chosen, each = valid[:, None], xp.where(valid, w, 0.0)
    weight = xp.sum(each, axis=-1)
    mean = xp.sum(xp.where(chosen, w * values, 0.0), axis=-1) / xp.where(weight > 0.0, weight, 1.0)[:, None]
    deviations = xp.where(chosen, values - mean[..., None], 0.0)
    least, most = (xp.where(chosen, values, bound) for bound in (xp.inf, -xp.inf))
    square = xp.sum(w * (deviations * deviations), axis=-1)
    sums = xp.sum(valid, axis=-1), weight, xp.sum(each * each, axis=-1)
    return Moments(*sums, mean, square, xp.min(least, axis=-1), xp.max(most, axis=-1))


def merged(a: Moments, b: Moments) -> Moments:
    """The moments of two groups together."""
    xp = array_namespace(a.mean)
    sums = a.count + b.count, a.weight + b.weight, a.weight_square + b.weight_square
    part = b.weight[:, None] / xp.where(sums[1] > 0.0, sums[1], 1.0)[:, None]
    rise = b.mean - a.mean
    square = a.square + b.square + rise * rise * (a.weight[:, None] * part)
    least, most = xp.minimum(a.minimum, b.minimum), xp.maximum(a.maximum, b.maximum)
    return Moments(*sums, a.mean + rise * part, square, least, most)


class Quantiles:
    """Quantiles of values (n_times, m, S) that come in groups, of the samples that are there at a time.

    Up to `MOST_KEPT` values are kept, and their quantiles are those of `sample_quantile`. More are counted in bins of
    two-power width, whatever the groups are: the memory is that of the bins.
    """

    def __init__(self, levels: np.ndarray, shape: tuple[int, int], weights: np.ndarray, function: str) -> None:
        self.levels, self.shape, self.weights = levels, shape, weights
        n_entries = shape[0] * shape[1]
        self.values: list[np.ndarray] = []
        self.valid: list[np.ndarray] = []
        self.counts: Histograms | None = None
        if n_entries * weights.size > MOST_KEPT:
            advice = "ode.solve and sample_quantile take weights."
            wanted = f"be left out for weights and more than {MOST_KEPT:,} values"
            require(bool(np.all(weights == 1.0)), function, "quantiles", wanted, "samples that weigh unlike", advice)
            self.counts = Histograms(n_entries)
            self.is_finite = np.ones(n_entries, bool)

    def add(self, values: Array, valid: Array) -> None:
        """Add the next group, with what is there at each time (n_times, S)."""
        here = to_numpy(values)
        present = np.broadcast_to(to_numpy(valid)[:, None], here.shape)
        if self.counts is None:
            self.values.append(np.array(here))
            self.valid.append(to_numpy(valid))
            return
        here, present = here.reshape(-1, here.shape[-1]), present.reshape(-1, here.shape[-1])
        finite = np.isfinite(here)
        self.is_finite &= (finite | ~present).all(axis=-1)
        if (present & finite).all():
            ends = here.min(axis=-1), here.max(axis=-1)
            self.counts.add_parts(np.ascontiguousarray(here)[None], np.array([here.shape[-1]]), *ends)
        else:
            self.counts.add_present(here, present & finite)

    def result(self, like: Array) -> Array:
        """The quantiles, shape (*levels, n_times, m), as an array of the library and type of `like`."""
        shape = (*self.levels.shape, *self.shape)
        if self.counts is None:
            found = self._of_kept()
        else:
            rows = [np.where(self.is_finite, self.counts.quantile(q), np.nan) for q in self.levels.reshape(-1).tolist()]
            found = np.array(rows)
        return array_namespace(like).astype(asarray_like(found.reshape(shape), like), like.dtype)

    def _of_kept(self) -> np.ndarray:
        values, valid = np.concatenate(self.values, axis=-1), np.concatenate(self.valid, axis=-1) & (self.weights > 0.0)
        found = np.full((self.levels.size, *self.shape), np.nan)
        whole = valid.all(axis=-1)
        for chosen in [np.flatnonzero(whole), *np.flatnonzero(~whole & valid.any(axis=-1))[:, None]]:
            if chosen.size:
                there = valid[chosen[0]]
                weights = self.weights[there]
                of = None if np.all(weights == weights[0]) else SampleSet(weights=weights)
                x = Ensemble(np.compress(there, values[chosen], axis=-1), of)
                found[:, chosen] = sample_quantile(x, self.levels.reshape(-1))
        return found
