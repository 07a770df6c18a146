"""`Moments`: mean and variance over samples that are never held all at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ensemble._backend import base_of, copy_of, is_array, to_numpy
from ensemble._check import message, require
from ensemble._typing import Array, PlainArray
from ensemble.scalar.ensemble import Ensemble

__all__ = ["Moments", "effective_count", "exact_mean", "moments_from", "scaled", "sums_of", "weighted_samples"]


def weighted_samples(x: Ensemble) -> tuple[Array, Array | None]:
    """The samples of weight above 0, and their weights, the largest in [0.5, 1); None where all weigh the same."""
    weights = None if x.sample_set is None else x.sample_set.weights
    if weights is None:
        return x.samples, None
    xp = base_of(x.samples)
    samples, kept = x.samples, weights
    if not np.all(weights > 0.0):
        chosen = np.flatnonzero(weights > 0.0)
        kept = weights[chosen]
        samples = xp.take(samples, xp.asarray(chosen, device=x.device), axis=-1)
    if np.all(kept == kept[0]):
        return samples, None
    kept = scaled(kept)
    real = xp.real(samples).dtype if xp.isdtype(samples.dtype, "complex floating") else samples.dtype
    dtype = real if xp.isdtype(real, "real floating") else xp.float64
    return samples, xp.asarray(kept, dtype=dtype, device=x.device)


def scaled(weights: np.ndarray) -> np.ndarray:
    """`weights` times the power of two that takes the largest to [0.5, 1): no sum of them overflows."""
    result: np.ndarray = np.ldexp(weights, -np.frexp(np.max(weights))[1])
    return result


def exact_mean(xp: Any, samples: Array, mean: Array) -> Array:
    """`mean` over the last axis, or where all samples are equal their value: rounding of a sum is no variation."""
    first = samples[..., 0]
    if isinstance(samples, np.ndarray):  # a comparison of all samples only where the mean is that near to the first
        with np.errstate(all="ignore"):
            rounding = 4.0 * samples.shape[-1] * np.finfo(mean.dtype).eps * np.abs(first)
            near = (first != mean) & ((np.abs(first - mean) <= rounding) | ~np.isfinite(mean))
        if not near.any():
            return mean
    equal = xp.all(samples == samples[..., :1], axis=-1)
    if isinstance(samples, np.ndarray):
        equal = equal & near  # zeros of both signs are equal: an entry must not depend on others
    result = xp.where(equal, xp.astype(first, mean.dtype), mean)
    return result[()] if isinstance(samples, np.ndarray) else result


def sum_last(xp: Any, values: Array) -> Array:
    """The sum over the last axis; over a few samples of many entries in NumPy's order, at a fourth of its time."""
    n = values.shape[-1]
    if type(values) is not np.ndarray or not 1 < n < 8 or values.ndim < 2 or not values.flags.c_contiguous:
        return xp.sum(values, axis=-1)
    result = values[..., 0] + values[..., 1]
    for k in range(2, n):
        result += values[..., k]
    return result


def effective_count(weights: Array | None, n_samples: int) -> float:
    """``sum(w)**2 / sum(w**2)``: how many samples of equal weight these are worth."""
    if weights is None:
        return float(n_samples)
    w = to_numpy(weights).astype(np.float64)
    return float(w.sum() ** 2 / (w**2).sum())


class Moments:
    """Mean and variance over samples, gathered batch by batch and mergeable.

    Batches may come in any sizes, with or without weights; two accumulators add up to the one of both their samples
    [1]_. Sums are kept in float64 (or complex128).

    Parameters
    ----------
    x : Ensemble, optional
        A first batch.

    Attributes
    ----------
    count : int
        Samples of weight above 0 so far.
    weight : float
        The sum of their weights.

    Notes
    -----
    A shared ensemble counts as one sample unless `update` gets weights. Samples of weight 0 leave every bit as it
    is. NaN propagates.

    References
    ----------
    .. [1] Chan, Golub, LeVeque (1983), The American Statistician 37(3), 242-247, eq. 2.1.

    Examples
    --------
    >>> total = Moments()
    >>> total += Ensemble(np.array([1.0, 2.0]))
    >>> total += Ensemble(np.array([6.0]))
    >>> float(total.mean()), float(total.var(ddof=1))
    (3.0, 7.0)
    """

    def __init__(self, x: Ensemble | None = None) -> None:
        self.count = 0
        self.weight = 0.0
        self._weight_squares = 0.0
        self._mean: Any = None
        self._squares: Any = None
        if x is not None:
            self.update(x)

    def update(self, x: Ensemble | Array, weights: Array | None = None) -> Moments:
        """Add the samples of `x`.

        Parameters
        ----------
        x : Ensemble, shape `shape`, or a plain array: one sample
        weights : array, shape (n_samples,), optional
            Default: those of the sample set of `x`, or 1 each. A shared `x` counts once for every weight.

        Returns
        -------
        Moments
            Itself.

        Raises
        ------
        ValueError
            If the shape is not that of earlier batches, or the weights do not fit.
        """
        if not isinstance(x, Ensemble):
            x = Ensemble((x if is_array(x) and not isinstance(x, np.generic) else np.asarray(x))[..., None])
        if weights is None:
            own = None if x.sample_set is None else x.sample_set.weights
            w = np.ones(x.n_samples) if own is None else own
        else:
            w = to_numpy(weights).astype(np.float64)
            valid = w.ndim == 1 and bool(np.all(w >= 0.0)) and (x.is_shared or w.size == x.n_samples)
            seen = f"shape {w.shape} for {x.n_samples} samples"
            require(valid, "Moments.update", "weights", "be zero or above, one per sample", seen)
        if self._mean is not None:
            shape = tuple(self._mean.shape)
            require(x.shape == shape, "Moments.update", "x", f"have shape {shape}", f"shape {x.shape}")
        chosen = np.flatnonzero(w > 0.0)
        if chosen.size:
            with np.errstate(over="ignore", under="ignore"):
                total, squares = float(w.sum()), float((w**2).sum())
            valid = math.isfinite(total) and math.isfinite(squares) and squares > 0.0
            seen = f"weights from {w[chosen].min():.3g} to {w.max():.3g}"
            advice = "Divide all weights by one number near the largest."
            require(valid, "Moments.update", "weights", "have a finite sum of squares above 0", seen, advice)
            self._add(*_batch(x, w[chosen], chosen))
        return self

    def merge(self, other: Moments) -> Moments:
        """Add the samples of `other`; returns itself."""
        if other.count:
            if self._mean is not None:
                shapes = tuple(self._mean.shape), tuple(other._mean.shape)
                require(shapes[0] == shapes[1], "Moments.merge", "other", f"have shape {shapes[0]}", shapes[1])
            self._add(other.count, other.weight, other._weight_squares, other._mean, other._squares)
        return self

    def _add(self, count: int, weight: float, weight_squares: float, mean: Array, squares: Array) -> None:
        if self._mean is None:
            self._mean, self._squares = mean, squares
        else:
            total = self.weight + weight
            delta = mean - self._mean
            xp = base_of(delta)
            self._mean = self._mean + delta * (weight / total)
            self._squares = self._squares + squares + xp.abs(delta) ** 2 * (self.weight * weight / total)
        self.count += count
        self.weight += weight
        self._weight_squares += weight_squares

    def __iadd__(self, other: Moments | Ensemble | Array) -> Moments:
        return self.merge(other) if isinstance(other, Moments) else self.update(other)

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        return Moments().merge(self).merge(other)

    def __repr__(self) -> str:
        shape = None if self._mean is None else tuple(self._mean.shape)
        return f"Moments(count={self.count}, weight={self.weight:g}, shape={shape})"

    def _seen(self, function: str) -> None:
        if not self.count:
            raise ValueError(
                message(f"Moments.{function}", "the accumulator", "hold a sample", "none", "Add one first.")
            )

    def mean(self) -> PlainArray:
        """The mean of the samples so far, shape `shape`: a copy."""
        self._seen("mean")
        return copy_of(self._mean)

    def var(self, ddof: float = 0.0) -> PlainArray:
        """The variance of the samples so far, shape `shape`; `ddof` as in `sample_var`."""
        self._seen("var")
        n = self.weight**2 / self._weight_squares
        seen = f"{ddof} for {n:.6g} samples"
        require(n > ddof, "Moments.var", "ddof", "be smaller than the number of samples", seen)
        return self._squares * (n / (n - ddof) / self.weight)

    def std(self, ddof: float = 0.0) -> PlainArray:
        """The standard deviation of the samples so far, shape `shape`."""
        return base_of(self._mean if self.count else np.empty(0)).sqrt(self.var(ddof))


def moments_from(count: int, mean: np.ndarray, squares: np.ndarray) -> Moments:
    """The `Moments` of `count` samples of weight one with this mean and sum of squared deviations, not copied."""
    result = Moments()
    if count:
        result._add(count, float(count), float(count), mean, squares)
    return result


def sums_of(moments: Moments) -> tuple[np.ndarray, np.ndarray] | None:
    """The mean and the sum of squared deviations, not copied; None before the first sample."""
    return None if moments._mean is None else (moments._mean, moments._squares)


def _batch(x: Ensemble, w: np.ndarray, chosen: np.ndarray) -> tuple[int, float, float, Array, Array]:
    """Count, weights, mean and sum of squared deviations of the chosen samples."""
    xp = base_of(x.samples)
    wide = xp.complex128 if xp.isdtype(x.dtype, "complex floating") else xp.float64
    samples = xp.astype(x.samples, wide)
    total = float(w.sum())
    if x.is_shared:
        mean = samples[..., 0]
        return chosen.size, total, float((w**2).sum()), mean, xp.zeros_like(xp.abs(mean))
    if chosen.size < x.n_samples:
        samples = xp.take(samples, xp.asarray(chosen, device=x.device), axis=-1)
    weights = xp.asarray(w, dtype=xp.float64, device=x.device)
    mean = exact_mean(xp, samples, sum_last(xp, samples * (weights / total)))
    squares = sum_last(xp, xp.abs(samples - mean[..., None]) ** 2 * weights)
    return chosen.size, total, float((w**2).sum()), mean, squares
