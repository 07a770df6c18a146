"""Quantiles over samples, and intervals that hold the true mean."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ensemble._check import array_of, check_level, message, one_of, require
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Namespace, PlainArray, Values
from ensemble.scalar.ensemble import Ensemble
from ensemble.scalar.statistics.moments import effective_count, scaled
from ensemble.scalar.statistics.statistics import floating, sample_mean, sample_std, weighed

__all__ = ["ConfidenceInterval", "levels_of", "sample_confidence_interval", "sample_quantile", "tail_factor"]


@explains_calls("sample_quantile")
def sample_quantile(x: Ensemble, q: Values, *, method: str = "linear") -> PlainArray:
    """Compute quantiles over samples, exact: of all samples, sorted.

    Parameters
    ----------
    x : real Ensemble, shape `shape`
    q : float or array of floats in [0, 1], dimensionless
    method : {"linear", "inverted_cdf"}
        "linear" interpolates between neighbours. "inverted_cdf" gives the smallest sample up to which the weights
        reach `q`, so that a sample of weight 2 counts as two.

    Returns
    -------
    array of the base library, shape ``(*q.shape, *shape)``

    Raises
    ------
    ValueError
        If an entry of `q` is outside [0, 1], or `method` is something else.
    TypeError
        If `x` is complex.

    Notes
    -----
    Linear: between sorted samples k and k + 1 the quantile rises along a stretch of ``min(w_k, w_(k+1))`` on the axis
    of weights; where a sample weighs more than its neighbours, the rest of its weight is a constant part. Of equal
    samples the smallest weight counts there, so that their order makes no difference. The axis
    starts and ends in samples 1 and n, so levels 0 and 1 are the extremes. Equal weights leave rises alone and put
    sample k at ``(k - 1) / (n - 1)``: definition 7 of Hyndman and Fan [1]_, which is NumPy's. A sample of more than
    half of all weight is the median. Where of two neighbours one weighs 1 and all weights are whole numbers, the
    result is definition 7 of as many copies as the weights say.

    References
    ----------
    .. [1] Hyndman, Fan (1996), The American Statistician 50(4), 361-365.

    Examples
    --------
    >>> import numpy as np
    >>> sample_quantile(Ensemble(np.array([4.0, 1.0, 2.0])), [0.5, 0.75])
    array([2., 3.])
    >>> from ensemble.scalar import SampleSet
    >>> float(sample_quantile(Ensemble(np.array([1.0, 3.0]), SampleSet(weights=[1.0, 99.0])), 0.5))
    3.0
    """
    xp, samples, weights = weighed(x, "sample_quantile", ordered=True)
    samples = floating(xp, samples)
    given = levels_of(q, "sample_quantile", "q")
    levels = given.reshape(-1).tolist()
    one_of(method, ("linear", "inverted_cdf"), "sample_quantile", "method")
    order = xp.argsort(samples, axis=-1)
    ordered = xp.take_along_axis(samples, order, axis=-1)
    if method == "inverted_cdf":
        w = xp.ones(ordered.shape) if weights is None else xp.take(_double(xp, x), xp.reshape(order, (-1,)))
        running = xp.cumulative_sum(xp.reshape(w, order.shape), axis=-1)
        found = [_reached(xp, ordered, running, level) for level in levels]
        return _unless_nan(xp, samples, found, given.shape)
    if weights is None or ordered.shape[-1] == 1:
        n = ordered.shape[-1]
        place = xp.astype(xp.arange(n), xp.float64) / max(n - 1, 1)
        place = xp.broadcast_to(place, ordered.shape)
    else:
        w = xp.reshape(xp.take(_double(xp, x), xp.reshape(order, (-1,))), order.shape)
        ordered, place = _weighted_line(xp, ordered, w)
    return _unless_nan(xp, samples, [_interpolated(xp, ordered, place, level) for level in levels], given.shape)


def levels_of(q: Values, function: str, argument: str) -> np.ndarray:
    """Levels of quantiles as float64, each in [0, 1]."""
    given = array_of(q, function, argument, "hold numbers in [0, 1]")
    if given.dtype.kind not in "biuf":
        raise TypeError(message(function, argument, "hold numbers in [0, 1]", repr(q)))
    valid = bool(np.all((given >= 0.0) & (given <= 1.0)))
    require(valid, function, argument, "be in [0, 1]", q, "Divide percentages by 100.")
    return given.astype(np.float64)


def _weighted_line(xp: Namespace, ordered: Array, w: Array) -> tuple[Array, Array]:
    """Values and places, from 0 to 1, of a line through samples that are `ordered`: two points for each."""
    least = _least_of_equal(xp, ordered, w)
    rise = xp.minimum(least[..., :-1], least[..., 1:])
    left, right = xp.concat([rise[..., :1], rise], axis=-1), xp.concat([rise, rise[..., -1:]], axis=-1)
    lengths = xp.stack([w - 0.5 * (left + right), right], axis=-1)  # of the constant part, of the rise behind it
    ends = xp.cumulative_sum(xp.reshape(lengths, (*w.shape[:-1], -1)), axis=-1, include_initial=True)[..., :-1]
    doubled = xp.reshape(xp.stack([ordered, ordered], axis=-1), (*w.shape[:-1], 2 * w.shape[-1]))
    return doubled, ends / ends[..., -1:]


def _least_of_equal(xp: Namespace, ordered: Array, w: Array) -> Array:
    """The smallest weight of the samples that are equal to each one, so that their order makes no difference."""
    n, step = ordered.shape[-1], 1
    while step < n:
        equal = ordered[..., step:] == ordered[..., :-step]
        if isinstance(equal, np.ndarray) and not equal.any():
            break
        before, after = w[..., :-step], w[..., step:]
        low = xp.where(equal, xp.minimum(before, after), before), xp.where(equal, xp.minimum(before, after), after)
        w = xp.concat([low[0], w[..., n - step :]], axis=-1)
        w = xp.concat([w[..., :step], xp.minimum(w[..., step:], low[1])], axis=-1)
        step *= 2
    return w


def _double(xp: Namespace, x: Ensemble) -> Array:
    """The weights above 0 in float64, whatever the samples are."""
    assert x.sample_set is not None and x.sample_set.weights is not None
    weights = x.sample_set.weights
    return xp.asarray(scaled(weights[weights > 0.0]), device=x.device)


def _unless_nan(xp: Namespace, samples: Array, found: list[Array], shape: tuple[int, ...]) -> Array:
    """The quantiles `found`, NaN for entries in which a sample is."""
    bad = xp.any(xp.isnan(samples), axis=-1)
    found = [xp.where(bad, xp.asarray(math.nan, dtype=samples.dtype), value) for value in found]
    if not shape:
        return found[0]
    stacked = xp.stack(found, axis=0) if found else xp.zeros((0, *samples.shape[:-1]), dtype=samples.dtype)
    return xp.reshape(stacked, (*shape, *samples.shape[:-1]))


def _reached(xp: Namespace, ordered: Array, running: Array, level: float) -> Array:
    """The first of `ordered` at which the weights so far are `level` of all."""
    if level == 1.0:
        return ordered[..., -1]  # a small weight at the end leaves the sum of all as it is
    below = xp.sum(xp.astype(running < level * running[..., -1:], xp.int32), axis=-1, keepdims=True)
    return xp.take_along_axis(ordered, xp.clip(below, 0, ordered.shape[-1] - 1), axis=-1)[..., 0]


def _interpolated(xp: Namespace, ordered: Array, place: Array, level: float) -> Array:
    """The value at `level` of the line through points (place, ordered), last axis."""
    if level in (0.0, 1.0):
        return ordered[..., -1 if level else 0]  # weights may differ so much that several samples have this place
    n = ordered.shape[-1]
    above = xp.sum(xp.astype(place <= level, xp.int32), axis=-1, keepdims=True)
    upper = xp.clip(above, 0, n - 1)
    lower = xp.clip(above - 1, 0, n - 1)
    a, b = (xp.take_along_axis(ordered, k, axis=-1)[..., 0] for k in (lower, upper))
    at, beyond = (xp.take_along_axis(place, k, axis=-1)[..., 0] for k in (lower, upper))
    gap = beyond - at
    share = xp.where(gap > 0.0, (level - at) / xp.where(gap > 0.0, gap, xp.ones_like(gap)), xp.zeros_like(gap))
    share = xp.astype(share, ordered.dtype)
    # A sample that the level hits must not be combined with an infinite neighbour: 0 * inf is NaN.
    hit = (share == 0.0) | (a == b)
    low, high = (xp.where(hit, xp.zeros_like(v), v) for v in (a, b))
    return xp.where(hit, a, (1.0 - share) * low + share * high)


TAIL_AT_95 = 0.7384
"""``(2 z**2 + 1) / (6 z)`` at a level of 0.95, at which the factor was set."""


class ConfidenceInterval(NamedTuple):
    """An interval for every entry."""

    low: Any
    high: Any


def tail_factor(skewness: Any, n: float, n_units: float, level: float) -> Any:
    """By how much the half-width of Student's interval of a mean grows on the side of the long tail, 1 or more.

    Samples that lack the tail have both a mean on the near side and too small a deviation. To first order the error
    of a Student interval is proportional to ``(2 z**2 + 1) / 6`` times the skewness over the root of the number of
    independent units [1]_. The skewness is itself too small in few samples: the factor 0.7 + 8 / sqrt(n) is set by
    measured coverage (``python -m benchmarks coverage``).

    Parameters
    ----------
    skewness : real array
        Third standardised moment of the samples; its sign does not count.
    n, n_units : float
        Samples, and independent units that the error comes from: the samples, or replicates of them.
    level : float in (0, 1)

    References
    ----------
    .. [1] Hall (1992), On the removal of skewness by transformation, J. R. Statist. Soc. B 54(1), 221-228.
    """
    from scipy.special import ndtri

    z = float(ndtri(0.5 + 0.5 * level))
    at_level = (2.0 * z * z + 1.0) / (6.0 * z) / TAIL_AT_95
    return 1.0 + abs(skewness) * (at_level * (0.7 + min(8.0 / math.sqrt(n), n / 64.0)) / math.sqrt(n_units))


@explains_calls("sample_confidence_interval")
def sample_confidence_interval(x: Ensemble, level: float = 0.95) -> ConfidenceInterval:
    """Compute the interval that holds the true mean with probability `level` or more, by Student's t.

    Parameters
    ----------
    x : real Ensemble, shape `shape`
    level : float in (0, 1), dimensionless

    Returns
    -------
    ConfidenceInterval
        `low` and `high`, arrays of the base library, shape `shape`.

    Raises
    ------
    ValueError
        If `level` is outside (0, 1), or the effective number of samples is below two.
    TypeError
        If `x` is complex.

    Notes
    -----
    ``mean ± t * std / sqrt(n)`` with ``ddof=1`` and n - 1 degrees of freedom; n is the count that equal weights would
    need, as in `sample_var`. The half-width is longer on the side of the long tail, in proportion to the skewness of
    the samples. Of independent samples it holds the mean as often as it says within 2 %, or more often, for normal to
    lognormal samples (s = 1) from n = 64 on. Samples of a Sobol sequence are not independent: their mean is closer to
    the exact value than the interval
    suggests.

    Examples
    --------
    >>> import numpy as np
    >>> low, high = sample_confidence_interval(Ensemble(np.array([1.0, 2.0, 3.0])))
    >>> round(float(low), 3), round(float(high), 3)
    (-0.484, 4.484)
    """
    from scipy.special import stdtrit

    xp, samples, weights = weighed(x, "sample_confidence_interval", ordered=True)
    level = check_level(level, "sample_confidence_interval")
    mean = sample_mean(x)
    if x.is_shared:
        return ConfidenceInterval(mean, mean)
    n = effective_count(weights, samples.shape[-1])
    require(n > 1.0, "sample_confidence_interval", "x", "have samples worth more than one", f"{n:.6g}")
    std = sample_std(x, ddof=1.0)
    half = std * float(stdtrit(n - 1.0, 0.5 + 0.5 * level) / math.sqrt(n))
    deviations = (samples - mean[..., None]) / xp.where(std > 0.0, std, xp.ones_like(std))[..., None]
    share = 1.0 / samples.shape[-1] if weights is None else weights / weights.sum()
    second, third = (xp.sum(deviations**order * share, axis=-1) for order in (2, 3))
    skewness = third / xp.where(second > 0.0, second, xp.ones_like(second)) ** 1.5
    longer = tail_factor(xp.where(xp.isfinite(skewness), skewness, xp.zeros_like(skewness)), n, n, level)
    return ConfidenceInterval(
        mean - xp.where(skewness < 0.0, half * longer, half), mean + xp.where(skewness > 0.0, half * longer, half)
    )
