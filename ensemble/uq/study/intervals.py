"""Confidence intervals: of independent samples, and of independent replicates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ensemble.scalar.statistics.histograms import Histograms
from ensemble.scalar.statistics.moments import effective_count
from ensemble.scalar.statistics.quantiles import ConfidenceInterval, tail_factor

__all__ = [
    "binomial", "is_independent", "jump_of", "jumps_of", "order_statistics", "quantile_of_units",
    "share_of_units", "skewed", "standard_error", "student", "unseen", "values_interval", "variance",
]  # fmt: skip


TWO_GROUPS = 0.8
"""Share of the variance from which on a split of the samples makes two groups."""


def student(mean: Any, std: Any, n: float, level: float) -> ConfidenceInterval:
    """``mean ± t * std / sqrt(n)`` with n - 1 degrees of freedom; `std` with ``ddof=1``."""
    from scipy.special import stdtrit

    half = std * float(stdtrit(n - 1.0, 0.5 + 0.5 * level) / math.sqrt(n))
    return ConfidenceInterval(mean - half, mean + half)


def standard_error(values: Any, sizes: np.ndarray) -> Any:
    """The standard error of the mean over units ``(..., U)``, each of the given weight: the delta method of a ratio.

    For equal weights it is ``std(ddof=1) / sqrt(U)``.
    """
    n = sizes.size
    total = sizes.sum()
    with np.errstate(invalid="ignore"):
        errors = sizes * (values - (values * (sizes / total)).sum(axis=-1, keepdims=True))
        largest = np.abs(errors).max(axis=-1, keepdims=True)  # so that no square overflows
        errors = errors / np.where(largest > 0.0, largest, 1.0)
    return largest[..., 0] * np.sqrt((errors**2).sum(axis=-1) * (n / (n - 1.0))) / total


def jump_of(values: np.ndarray, counts: np.ndarray | None = None) -> Any:
    """The largest jump that outputs ``(..., n)``, sorted, may have: shape `shape`.

    It is the longest gap between neighbours. Where the values fall into two groups that overlap, it is the distance
    of the means of the groups, if that is longer: their split explains more than `TWO_GROUPS` of the variance, more
    than for one normal (0.64) or uniform (0.75) group. `counts` tells how often each value is there.
    """
    w = 1.0 if counts is None else counts  # a factor of one changes no bit
    total = float(values.shape[-1]) if counts is None else counts.sum(axis=-1, keepdims=True)
    deviations = values - values[..., :1]
    scale = np.where(deviations[..., -1:] > 0.0, deviations[..., -1:], 1.0)
    deviations /= scale
    deviations -= (w * deviations).sum(axis=-1, keepdims=True) / total
    reached = np.arange(1.0, values.shape[-1] + 1.0) if counts is None else np.cumsum(counts, axis=-1)
    below = (reached / total)[..., :-1]
    shares = below * (1.0 - below)
    sums = np.cumsum(w * deviations / total, axis=-1)[..., :-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = -sums / shares
        if counts is not None or not np.isfinite(distance).all():
            distance = np.nan_to_num(distance, posinf=0.0, neginf=0.0)
        between = shares * distance**2
    best = between.argmax(axis=-1)[..., None]
    square = (w * deviations**2).sum(axis=-1) / (total if counts is None else np.asarray(total)[..., 0])
    split = np.take_along_axis(between, best, axis=-1)[..., 0] > TWO_GROUPS * square
    apart = np.where(split, np.take_along_axis(distance, best, axis=-1)[..., 0], 0.0)
    return np.maximum(apart, np.diff(deviations, axis=-1).max(axis=-1)) * scale[..., 0]


def jumps_of(histograms: Histograms, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest jump that each entry may have, and that of its squares about `mean`, from the filled bins."""
    counts, places = histograms.counts, np.arange(histograms.n_bins)
    filled = np.maximum.accumulate(np.where(counts > 0, places, -1), axis=-1)
    start = np.argmax(counts > 0, axis=-1)[:, None]
    filled = np.maximum(filled, start)  # an empty bin counts as one more sample of the filled one before
    values = np.ldexp(histograms.first[:, None] + filled + 0.0, histograms.exponents[:, None])
    changes = np.diff(values, axis=-1) * np.abs(values[:, 1:] + values[:, :-1] - 2.0 * mean[:, None])
    return jump_of(values, counts.astype(np.float64)), changes.max(axis=-1)


def unseen(jump: Any, n: float, n_replicates: int, level: float) -> Any:
    """The error that a jump of an output may have made in the mean without a trace in the spread of replicates.

    A replicate of m well spread points has ``p * m`` points on one side of the jump up to rounding to a whole number.
    If all round to the same side, the rest is below ``1 - ((1 - level) / 2)**(1 / n_replicates)`` of one point.
    """
    return jump * ((1.0 - (0.5 - 0.5 * level) ** (1.0 / n_replicates)) * n_replicates / n)


def skewed(
    mean: Any, error: Any, skewness: Any, n: float, n_units: float, level: float, least: Any = 0.0
) -> ConfidenceInterval:
    """Student's interval of `n_units` units, longer on the side of the long tail by `tail_factor`.

    `least` is the shortest half-width.
    """
    half = np.maximum(student(0.0, error * math.sqrt(n_units), n_units, level).high, least)
    low, high = mean - half, mean + half
    longer = tail_factor(np.where(np.isfinite(skewness), skewness, 0.0), n, n_units, level)
    low = np.where(np.asarray(skewness) < 0.0, mean - (mean - low) * longer, low)
    high = np.where(np.asarray(skewness) > 0.0, mean + (high - mean) * longer, high)
    return ConfidenceInterval(low[()], high[()])


def variance(
    value: Any, error: Any, skewness: Any, n: float, n_units: float, level: float, least: Any = 0.0
) -> ConfidenceInterval:
    """The interval of a variance: of its logarithm, as a mean of squares, whose tail is longer than that of a mean.

    `skewness` is that of the squares, `least` the shortest half-width. The further factor of independent samples is
    set by measured coverage.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        half = np.maximum(student(0.0, error * math.sqrt(n_units), n_units, level).high, least)
        high = np.where(value > 0.0, half / np.where(value > 0.0, value, 1.0), 0.0)
        low = -high
        skew = np.where(np.isfinite(skewness), np.maximum(skewness, 0.0), 0.0)
        short = tail_factor(skew, n, n, level) - 1.0
        high = high * (tail_factor(skew, n, n_units, level) + short + 2.0 * skew * skew / n)
        return ConfidenceInterval((value * np.exp(low))[()], (value * np.exp(np.minimum(high, 700.0)))[()])


def values_interval(values: np.ndarray, replicates: np.ndarray | None, level: float) -> ConfidenceInterval:
    """The interval of the mean of values ``(n,)``, independent ones, or with their replicate's number each."""
    mean, std = values.mean(), values.std()
    skewness = float((((values - mean) / std) ** 3).mean()) if std > 0.0 else 0.0
    units, sizes = values, np.ones(values.size)
    if replicates is not None:
        sizes = np.bincount(replicates).astype(np.float64)
        units, sizes = np.bincount(replicates, values)[sizes > 0.0] / sizes[sizes > 0.0], sizes[sizes > 0.0]
    least = 0.0
    if replicates is not None:
        least = unseen(jump_of(np.sort(values)), values.size, units.size, level)
    return skewed(mean, standard_error(units, sizes), skewness, values.size, units.size, level, least)


def _unit_error(hits: np.ndarray, share: Any, weights: np.ndarray | None, replicates: np.ndarray | None) -> Any:
    """The standard error of a weighted share from the spread over its units, shape `shape`; `hits` is (..., n)."""
    w = np.ones(hits.shape[-1]) if weights is None else weights
    if replicates is None:
        return standard_error(hits.astype(np.float64), w)
    sizes = np.bincount(replicates, w)
    order = np.argsort(replicates, kind="stable")
    starts = np.searchsorted(replicates[order], np.arange(sizes.size))
    sums = np.add.reduceat((hits * w)[..., order], starts, axis=-1)
    return standard_error(sums / sizes, sizes)


def share_of_units(
    hits: np.ndarray, weights: np.ndarray | None, replicates: np.ndarray | None, level: float
) -> ConfidenceInterval:
    """The interval of a probability from bools ``(..., n)``, their weights, and their replicates' numbers.

    Independent samples: `binomial`, at weights with the count that has the variance of the weighted share. Replicates:
    Student's of their shares; where all agree, `binomial`, which is wider.
    """
    n = hits.shape[-1]
    w = np.ones(n) if weights is None else weights
    share = (hits * (w / w.sum())).sum(axis=-1) if weights is not None else hits.mean(axis=-1)
    count = effective_count(weights, n)
    if replicates is None and weights is None:
        return binomial(share * n, n, level)
    error = _unit_error(hits, share, weights, replicates)
    if replicates is None:
        spread = share * (1.0 - share)
        counts = np.where((error > 0.0) & (spread > 0.0), spread / np.where(error > 0.0, error, 1.0) ** 2, count)
        return binomial(share * counts, counts, level)
    wide, units = binomial(share * count, count, level), int(replicates.max()) + 1
    spread = np.sqrt(share * (1.0 - share))
    skewness = np.where(spread > 0.0, (1.0 - 2.0 * share) / np.where(spread > 0.0, spread, 1.0), 0.0)
    skewness = skewness * math.sqrt(units / count)  # of the sum over a replicate: samples in it are hardly dependent
    low, high = skewed(share, error, skewness, count, units, level, unseen(1.0, count, units, level))
    agree = error <= 1e-14
    low = np.where(agree, wide.low, np.clip(low, 0.0, 1.0))[()]
    return ConfidenceInterval(low, np.where(agree, wide.high, np.clip(high, 0.0, 1.0))[()])


def quantile_of_units(
    values: np.ndarray, q: float, weights: np.ndarray | None, replicates: np.ndarray | None, level: float
) -> ConfidenceInterval:
    """The interval of a quantile from samples ``(..., n)``, their weights, and their replicates' numbers [1]_.

    Independent samples of equal weight: two order statistics. Else the share of samples up to the quantile of all has
    a standard error from the spread over replicates, and the interval is between the quantiles of all samples at
    ``q ± t * error``. Shares are unbiased for any number of samples in a replicate, quantiles of replicates are not.
    A replicate of m samples counts whole ones: its variance is at least that of rounding ``q * m`` at random.

    References
    ----------
    .. [1] Woodruff (1952), J. Am. Statist. Assoc. 47(260), 635-646.
    """
    n = values.shape[-1]
    order = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=-1).astype(np.float64)
    if weights is None and replicates is None:
        first, last = order_statistics(n, q, level)
        low = np.full(values.shape[:-1], -np.inf) if first < 0 else ordered[..., first]
        high = np.full(values.shape[:-1], np.inf) if last >= n else ordered[..., last]
        return ConfidenceInterval(low[()], high[()])
    w = np.ones(n) if weights is None else weights
    reached = np.cumsum(w[order], axis=-1) / w.sum()
    middle = np.minimum((reached < q - 1e-12).sum(axis=-1), n - 1)[..., None]
    at = np.take_along_axis(ordered, middle, axis=-1)
    count = effective_count(weights, n)
    units, floor = count, q * (1.0 - q) / count
    if replicates is not None:
        units = int(replicates.max()) + 1
        part = np.bincount(replicates) * q % 1.0
        floor = float((part * (1.0 - part)).sum()) / n**2
    factor = student(0.0, math.sqrt(units), units, level).high
    ends = []
    for hits, sign in ((values <= at, -1.0), (values < at, 1.0)):
        error = _unit_error(hits, q, weights, replicates)
        bound = (q + sign * factor * np.maximum(error, math.sqrt(floor)))[..., None]
        place = (reached < bound - 1e-12 if sign < 0.0 else reached <= bound + 1e-12).sum(axis=-1)
        found = np.take_along_axis(ordered, np.minimum(place, n - 1)[..., None], axis=-1)[..., 0]
        outside = bound[..., 0] <= 1e-12 if sign < 0.0 else place >= n
        ends.append(np.where(outside, sign * np.inf, found)[()])
    return ConfidenceInterval(*ends)


def binomial(hits: Any, n: Any, level: float) -> ConfidenceInterval:
    """The interval of a probability from `hits` in `n` independent samples [1]_; `n` may be an array, too.

    References
    ----------
    .. [1] Clopper, Pearson (1934), Biometrika 26(4), 404-413: it holds the true value at least as often as `level`.
    """
    from scipy.special import betaincinv

    hits = np.asarray(hits, np.float64)
    tail = 0.5 * (1.0 - level)
    inner = np.clip(hits, 0.5, n)
    low = np.where(hits > 0.0, betaincinv(inner, n - inner + 1.0, tail), 0.0)
    inner = np.clip(hits, 0.0, n - 0.5)
    high = np.where(hits < n, betaincinv(inner + 1.0, n - inner, 1.0 - tail), 1.0)
    return ConfidenceInterval(low[()], high[()])


def order_statistics(n: int, q: float, level: float) -> tuple[int, int]:
    """Places among n sorted independent samples between which the quantile at `q` lies [1]_.

    -1 and n stand for no bound.

    References
    ----------
    .. [1] David, Nagaraja (2003), Order Statistics, Wiley, section 7.1.
    """
    from scipy.stats import binom

    tail = 0.5 * (1.0 - level)
    low = int(binom.ppf(tail, n, q)) - 1
    high = int(binom.ppf(1.0 - tail, n, q))
    return max(low, -1), min(high, n)


def is_independent(sampler: Any) -> bool:
    """Whether the points of a sampler are independent of each other."""
    return bool(getattr(sampler, "independent", getattr(sampler, "name", "") == "monte_carlo"))
