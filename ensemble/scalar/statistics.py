"""Statistics over samples: the functions whose purpose is to mix them.

Weights come from the sample set of an ensemble. Only their ratios count, and a sample of weight 0 (padding) is left out
before anything is added: it moves no statistic, not even as NaN. A NaN in any other sample propagates to the entries it
stands in. Shared data is one and the same in every sample: its mean is itself and its variance 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ensemble._check import message, require, require_type
from ensemble._typing import Array, Namespace
from ensemble.scalar.ensemble import Ensemble
from ensemble.scalar.moments import effective_count, weighted_samples
from ensemble.scalar.namespace import base_of
from ensemble.scalar.sample_set import common_set

__all__ = [
    "probability",
    "sample_corr",
    "sample_cov",
    "sample_max",
    "sample_mean",
    "sample_min",
    "sample_quantile",
    "sample_std",
    "sample_var",
]


def _lifted(x: Any, function: str) -> Ensemble:
    require_type(x, Ensemble, function, "x", "be an Ensemble", "Use en.shared(x) for data without samples.")
    return x


def _floating(xp: Namespace, samples: Array) -> Array:
    return (
        samples if xp.isdtype(samples.dtype, ("real floating", "complex floating")) else xp.astype(samples, xp.float64)
    )


def _mean(xp: Namespace, samples: Array, weights: Array | None) -> Array:
    """The weighted mean over the last axis."""
    if weights is None:
        return xp.mean(samples, axis=-1)
    return xp.sum(samples * (weights / xp.sum(weights)), axis=-1)


def sample_mean(x: Ensemble) -> Array:
    """The mean over samples.

    Parameters
    ----------
    x : Ensemble, shape `shape`

    Returns
    -------
    array of the base library, shape `shape`

    Examples
    --------
    >>> x = Ensemble(np.array([[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]]))
    >>> sample_mean(x)
    array([3., 1.])
    """
    x = _lifted(x, "sample_mean")
    samples, weights = weighted_samples(x)
    xp = base_of(samples)
    return _mean(xp, _floating(xp, samples), weights)


def sample_var(x: Ensemble, ddof: float = 0.0) -> Array:
    """The variance over samples.

    Parameters
    ----------
    x : Ensemble, shape `shape`
    ddof : float
        The divisor is ``n - ddof``; 1 makes the estimate of independent draws unbiased. Of weighted samples, ``n`` is
        ``sum(w)**2 / sum(w**2)``, the count that equal weights would need for the same precision [1]_.

    Returns
    -------
    real array of the base library, shape `shape`

    Raises
    ------
    ValueError
        If there are not more samples than `ddof`.

    References
    ----------
    .. [1] Kish (1965), Survey Sampling, Wiley, section 11.7: the effective sample size.

    Examples
    --------
    >>> sample_var(Ensemble(np.array([1.0, 2.0, 6.0])), ddof=1)
    np.float64(7.0)
    """
    x = _lifted(x, "sample_var")
    samples, weights = weighted_samples(x)
    xp = base_of(samples)
    samples = _floating(xp, samples)
    deviation = samples - _mean(xp, samples, weights)[..., None]
    return _squares(xp, deviation, weights) * _correction(x, weights, samples, ddof, "sample_var")


def _squares(xp: Namespace, deviation: Array, weights: Array | None) -> Array:
    if xp.isdtype(deviation.dtype, "complex floating"):
        return _mean(xp, xp.real(deviation) ** 2 + xp.imag(deviation) ** 2, weights)
    return _mean(xp, deviation**2, weights)


def _correction(x: Ensemble, weights: Array | None, samples: Array, ddof: float, function: str) -> float:
    """``n / (n - ddof)``; 1 for shared data, whose spread is 0 anyway."""
    if x.is_shared or ddof == 0:
        return 1.0
    n = effective_count(weights, samples.shape[-1])
    require(n > ddof, function, "ddof", "be smaller than the number of samples", f"{ddof} for {n:.6g} samples")
    return n / (n - ddof)


def sample_std(x: Ensemble, ddof: float = 0.0) -> Array:
    """The standard deviation over samples: the root of `sample_var`.

    Parameters
    ----------
    x : Ensemble, shape `shape`
    ddof : float
        As in `sample_var`.

    Returns
    -------
    real array of the base library, shape `shape`

    Raises
    ------
    ValueError
        If there are not more samples than `ddof`.

    Examples
    --------
    >>> sample_std(Ensemble(np.array([1.0, 3.0])))
    np.float64(1.0)
    """
    variance = sample_var(_lifted(x, "sample_std"), ddof)
    return base_of(x.samples).sqrt(variance)


def sample_min(x: Ensemble) -> Array:
    """The smallest value over samples.

    Parameters
    ----------
    x : real Ensemble, shape `shape`

    Returns
    -------
    array of the base library, shape `shape`

    Examples
    --------
    >>> sample_min(Ensemble(np.array([[3, 2, 6], [0, 1, 0]])))
    array([2, 0])
    """
    samples, _ = weighted_samples(_lifted(x, "sample_min"))
    return base_of(samples).min(samples, axis=-1)


def sample_max(x: Ensemble) -> Array:
    """The largest value over samples.

    Parameters
    ----------
    x : real Ensemble, shape `shape`

    Returns
    -------
    array of the base library, shape `shape`

    Examples
    --------
    >>> sample_max(Ensemble(np.array([[3, 2, 6], [0, 1, 0]])))
    array([6, 1])
    """
    samples, _ = weighted_samples(_lifted(x, "sample_max"))
    return base_of(samples).max(samples, axis=-1)


def probability(m: Ensemble) -> Array:
    """The share of the samples in which `m` holds.

    Parameters
    ----------
    m : bool Ensemble, shape `shape`

    Returns
    -------
    float64 array of the base library, shape `shape`, dimensionless

    Raises
    ------
    TypeError
        If `m` holds no bools.

    Examples
    --------
    >>> x = Ensemble(np.array([[1.0, -2.0, 6.0, 7.0]]))
    >>> probability(x > 0.0)
    array([0.75])
    """
    m = _lifted(m, "probability")
    samples, weights = weighted_samples(m)
    xp = base_of(samples)
    if not xp.isdtype(samples.dtype, "bool"):
        raise TypeError(message("probability", "m", "hold bools", f"dtype {m.dtype}", "Compare first, as in x > 0."))
    return _mean(xp, xp.astype(samples, xp.float64), weights)


def sample_quantile(x: Ensemble, q: float | Sequence[float]) -> Array:
    """Quantiles over samples, with linear interpolation between neighbours.

    Parameters
    ----------
    x : real Ensemble, shape `shape`
    q : float or sequence of floats in [0, 1], dimensionless

    Returns
    -------
    array of the base library, shape `shape`, or ``(len(q), *shape)`` for a sequence

    Raises
    ------
    ValueError
        If an entry of `q` is outside [0, 1].

    Notes
    -----
    Sorted sample k with weight ``w_k`` stands at ``(W_k - w_k) / (W - w_k)``, ``W_k`` the sum of the weights up to it.
    Equal weights give ``(k - 1) / (n - 1)``: definition 7 of Hyndman and Fan [1]_, which is NumPy's.

    References
    ----------
    .. [1] Hyndman, Fan (1996), The American Statistician 50(4), 361-365.

    Examples
    --------
    >>> sample_quantile(Ensemble(np.array([4.0, 1.0, 2.0])), [0.5, 0.75])
    array([2., 3.])
    """
    x = _lifted(x, "sample_quantile")
    samples, weights = weighted_samples(x)
    xp = base_of(samples)
    samples = _floating(xp, samples)
    levels = [float(level) for level in (q if isinstance(q, Sequence | np.ndarray) and np.ndim(q) else [q])]  # type: ignore[arg-type]
    sound = all(0.0 <= level <= 1.0 for level in levels)
    require(sound, "sample_quantile", "q", "be in [0, 1]", q, "Divide percentages by 100.")
    order = xp.argsort(samples, axis=-1)
    ordered = xp.take_along_axis(samples, order, axis=-1)
    if weights is None or ordered.shape[-1] == 1:
        n = ordered.shape[-1]
        place = xp.astype(xp.arange(n), xp.float64) / max(n - 1, 1)
        place = xp.broadcast_to(place, ordered.shape)
    else:
        flat_order = xp.reshape(order, (-1,))
        w = xp.reshape(xp.take(weights, flat_order), order.shape)
        running = xp.cumulative_sum(w, axis=-1)
        place = (running - w) / (running[..., -1:] - w)
    found = [_interpolated(xp, ordered, place, level) for level in levels]
    bad = xp.any(xp.isnan(samples), axis=-1)
    found = [xp.where(bad, xp.asarray(math.nan, dtype=samples.dtype), value) for value in found]
    return xp.stack(found, axis=0) if np.ndim(q) else found[0]


def _interpolated(xp: Namespace, ordered: Array, place: Array, level: float) -> Array:
    """The value at `level` of the line through points (place, ordered), last axis."""
    n = ordered.shape[-1]
    above = xp.sum(xp.astype(place <= level, xp.int64), axis=-1, keepdims=True)
    upper = xp.clip(above, 0, n - 1)
    lower = xp.clip(above - 1, 0, n - 1)
    a, b = (xp.take_along_axis(ordered, k, axis=-1)[..., 0] for k in (lower, upper))
    at, beyond = (xp.take_along_axis(place, k, axis=-1)[..., 0] for k in (lower, upper))
    gap = beyond - at
    share = xp.where(gap > 0.0, (level - at) / xp.where(gap > 0.0, gap, xp.ones_like(gap)), xp.zeros_like(gap))
    share = xp.astype(share, ordered.dtype)
    # A sample that the level hits must not meet an infinite neighbour: 0 * inf is NaN.
    hit = (share == 0.0) | (a == b)
    low, high = (xp.where(hit, xp.zeros_like(v), v) for v in (a, b))
    return xp.where(hit, a, (1.0 - share) * low + share * high)


def sample_cov(x: Ensemble, y: Ensemble | None = None, ddof: float = 0.0) -> Array:
    """The covariance over samples of every entry of `x` with every entry of `y`.

    Parameters
    ----------
    x : Ensemble, shape `a`
    y : Ensemble, shape `b`, optional
        Default: `x` itself.
    ddof : float
        As in `sample_var`.

    Returns
    -------
    array of the base library, shape ``(*a, *b)``
        Entry (i, j) is the mean of ``(x_i - mean(x_i)) * conj(y_j - mean(y_j))``.

    Raises
    ------
    ValueError
        If `x` and `y` have different samples, or not more of them than `ddof`.

    Examples
    --------
    >>> x = Ensemble(np.array([[1.0, 3.0], [5.0, 1.0]]))
    >>> sample_cov(x)
    array([[ 1., -2.],
           [-2.,  4.]])
    """
    x = _lifted(x, "sample_cov")
    y = x if y is None else _lifted(y, "sample_cov")
    same = x.n_samples == y.n_samples or x.is_shared or y.is_shared
    require(same, "sample_cov", "x and y", "have the same samples", f"{x.n_samples} and {y.n_samples} samples")
    sample_set = common_set(x.sample_set, y.sample_set)
    n_samples = max(x.n_samples, y.n_samples)
    xp = base_of(x.samples)
    deviations, weights = [], None
    for value in (x, y):
        wide = xp.broadcast_to(value.samples, (*value.shape, n_samples))
        samples, weights = weighted_samples(Ensemble(xp.asarray(wide), sample_set))
        samples = _floating(xp, samples)
        flat = xp.reshape(samples - _mean(xp, samples, weights)[..., None], (value.size, samples.shape[-1]))
        deviations.append(flat)
    left, right = deviations
    if xp.isdtype(right.dtype, "complex floating"):
        right = xp.conj(right)
    share = 1.0 / left.shape[-1] if weights is None else weights / xp.sum(weights)
    product = xp.matmul(left * share, xp.matrix_transpose(right))
    wider = x if y.is_shared else y
    correction = _correction(wider, weights, left, ddof, "sample_cov")
    return xp.reshape(product * correction, (*x.shape, *y.shape))


def sample_corr(x: Ensemble, y: Ensemble | None = None) -> Array:
    """The correlation over samples of every entry of `x` with every entry of `y`.

    Parameters
    ----------
    x : Ensemble, shape `a`
    y : Ensemble, shape `b`, optional
        Default: `x` itself.

    Returns
    -------
    array of the base library, shape ``(*a, *b)``, dimensionless
        NaN where one of the two does not vary.

    Raises
    ------
    ValueError
        If `x` and `y` have different samples.

    Examples
    --------
    >>> x = Ensemble(np.array([[1.0, 3.0, 5.0], [5.0, 1.0, -3.0]]))
    >>> sample_corr(x).round(12)
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    y = x if y is None else y
    covariance = sample_cov(x, y)
    xp = base_of(x.samples)
    left = xp.reshape(sample_std(x), (*x.shape, *(1,) * y.ndim))
    scale = left * sample_std(y)
    return xp.where(scale > 0.0, covariance / xp.where(scale > 0.0, scale, xp.ones_like(scale)), xp.asarray(math.nan))
