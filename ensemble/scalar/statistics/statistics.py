"""Statistics over samples: the functions that combine samples by design.

Weights come from the sample set of an ensemble. Only their ratios count, and a sample of weight 0 (padding) is left out
before anything is added: it moves no statistic, not even as NaN. A NaN in any other sample propagates to the entries it
stands in. Shared data is one and the same in every sample: its mean is itself and its variance 0.
"""

from __future__ import annotations

import math
from typing import Any

from ensemble._backend import base_of
from ensemble._check import message, require, require_one_library, require_type
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Namespace, PlainArray
from ensemble.scalar.ensemble import Ensemble
from ensemble.scalar.sample_set import SampleSet, common_set
from ensemble.scalar.statistics.moments import effective_count, exact_mean, weighted_samples

__all__ = [
    "probability",
    "sample_corr",
    "sample_cov",
    "sample_max",
    "sample_mean",
    "sample_min",
    "sample_std",
    "sample_var",
]


def lifted(x: Ensemble, function: str) -> Ensemble:
    require_type(x, Ensemble, function, "x", "be an Ensemble", "Use en.shared(x) for data without samples.")
    return x


def weighed(x: Any, function: str, *, ordered: bool = False) -> tuple[Namespace, Array, Array | None]:
    """The base library, the samples of `x` that count, and their weights; complex samples have no order."""
    samples, weights = weighted_samples(lifted(x, function))
    xp = base_of(samples)
    if ordered and xp.isdtype(samples.dtype, "complex floating"):
        raise TypeError(message(function, "x", "be real", f"dtype {x.dtype}", "Take xp.real(x) or xp.abs(x)."))
    return xp, samples, weights


def floating(xp: Namespace, samples: Array) -> Array:
    """Samples of integers and bools as float64, others as they are."""
    kinds = ("real floating", "complex floating")
    return samples if xp.isdtype(samples.dtype, kinds) else xp.astype(samples, xp.float64)


def _mean(xp: Namespace, samples: Array, weights: Array | None) -> Array:
    """The weighted mean over the last axis."""
    if weights is None:
        return xp.mean(samples, axis=-1)
    return xp.sum(samples * (weights / xp.sum(weights)), axis=-1)


@explains_calls("sample_mean")
def sample_mean(x: Ensemble) -> PlainArray:
    """Compute the mean over samples.

    Parameters
    ----------
    x : Ensemble, shape `shape`

    Returns
    -------
    array of the base library, shape `shape`

    Examples
    --------
    >>> import numpy as np
    >>> x = Ensemble(np.array([[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]]))
    >>> sample_mean(x)
    array([3., 1.])
    """
    xp, samples, weights = weighed(x, "sample_mean")
    samples = floating(xp, samples)
    return exact_mean(xp, samples, _mean(xp, samples, weights))


@explains_calls("sample_var")
def sample_var(x: Ensemble, ddof: float = 0.0) -> PlainArray:
    """Compute the variance over samples.

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
    >>> import numpy as np
    >>> sample_var(Ensemble(np.array([1.0, 2.0, 6.0])), ddof=1)
    np.float64(7.0)
    """
    xp, samples, weights = weighed(x, "sample_var")
    samples = floating(xp, samples)
    deviation = samples - exact_mean(xp, samples, _mean(xp, samples, weights))[..., None]
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


@explains_calls("sample_std")
def sample_std(x: Ensemble, ddof: float = 0.0) -> PlainArray:
    """Compute the standard deviation over samples: the root of `sample_var`.

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
    >>> import numpy as np
    >>> sample_std(Ensemble(np.array([1.0, 3.0])))
    np.float64(1.0)
    """
    variance = sample_var(lifted(x, "sample_std"), ddof)
    return base_of(x.samples).sqrt(variance)


@explains_calls("sample_min")
def sample_min(x: Ensemble) -> PlainArray:
    """Compute the smallest value over samples.

    Parameters
    ----------
    x : real Ensemble, shape `shape`

    Returns
    -------
    array of the base library, shape `shape`

    Raises
    ------
    TypeError
        If `x` is complex.

    Examples
    --------
    >>> import numpy as np
    >>> sample_min(Ensemble(np.array([[3, 2, 6], [0, 1, 0]])))
    array([2, 0])
    """
    xp, samples, _ = weighed(x, "sample_min", ordered=True)
    return xp.min(samples, axis=-1)


@explains_calls("sample_max")
def sample_max(x: Ensemble) -> PlainArray:
    """Compute the largest value over samples.

    Parameters
    ----------
    x : real Ensemble, shape `shape`

    Returns
    -------
    array of the base library, shape `shape`

    Raises
    ------
    TypeError
        If `x` is complex.

    Examples
    --------
    >>> import numpy as np
    >>> sample_max(Ensemble(np.array([[3, 2, 6], [0, 1, 0]])))
    array([6, 1])
    """
    xp, samples, _ = weighed(x, "sample_max", ordered=True)
    return xp.max(samples, axis=-1)


def probability(m: Ensemble) -> PlainArray:
    """Compute the share of the samples in which `m` holds.

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
    >>> import numpy as np
    >>> x = Ensemble(np.array([[1.0, -2.0, 6.0, 7.0]]))
    >>> probability(x > 0.0)
    array([0.75])
    """
    xp, samples, weights = weighed(m, "probability")
    if not xp.isdtype(samples.dtype, "bool"):
        raise TypeError(message("probability", "m", "hold bools", f"dtype {m.dtype}", "Compare first, as in x > 0."))
    return _mean(xp, xp.astype(samples, xp.float64), weights)


@explains_calls("sample_cov")
def sample_cov(x: Ensemble, y: Ensemble | None = None, ddof: float = 0.0) -> PlainArray:
    """Compute the covariance over samples of every entry of `x` with every entry of `y`.

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
    >>> import numpy as np
    >>> x = Ensemble(np.array([[1.0, 3.0], [5.0, 1.0]]))
    >>> sample_cov(x)
    array([[ 1., -2.],
           [-2.,  4.]])
    """
    x = lifted(x, "sample_cov")
    y = x if y is None else lifted(y, "sample_cov")
    require_one_library("sample_cov", "x and y", x.samples, y.samples)
    same = x.n_samples == y.n_samples or x.is_shared or y.is_shared
    require(same, "sample_cov", "x and y", "have the same samples", f"{x.n_samples} and {y.n_samples} samples")
    sample_set = common_set(x.sample_set, y.sample_set)
    n_samples = max(x.n_samples, y.n_samples)
    xp = base_of(x.samples)
    deviations, weights = [], None
    for value in (x, y):
        wide = xp.broadcast_to(value.samples, (*value.shape, n_samples))
        _, samples, weights = weighed(Ensemble(xp.asarray(wide), sample_set), "sample_cov")
        samples = floating(xp, samples)
        mean = exact_mean(xp, samples, _mean(xp, samples, weights))
        flat = xp.reshape(samples - mean[..., None], (value.size, samples.shape[-1]))
        deviations.append(flat)
    left, right = deviations
    if xp.isdtype(right.dtype, "complex floating"):
        right = xp.conj(right)
    share = 1.0 / left.shape[-1] if weights is None else weights / xp.sum(weights)
    product = xp.matmul(left * share, xp.matrix_transpose(right))
    wider = x if y.is_shared else y
    correction = _correction(wider, weights, left, ddof, "sample_cov")
    return xp.reshape(product * correction, (*x.shape, *y.shape))


def sample_corr(x: Ensemble, y: Ensemble | None = None) -> PlainArray:
    """Compute the correlation over samples of every entry of `x` with every entry of `y`.

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
    >>> import numpy as np
    >>> x = Ensemble(np.array([[1.0, 3.0, 5.0], [5.0, 1.0, -3.0]]))
    >>> sample_corr(x).round(12)
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    x = lifted(x, "sample_corr")
    y = x if y is None else lifted(y, "sample_corr")
    both = common_set(x.sample_set, y.sample_set)  # one of the two may have come without
    x, y = (_in_units(value, None if value.is_shared else both) for value in (x, y))
    covariance = sample_cov(x, y)
    xp = base_of(x.samples)

    def pairs(of_x: Array, of_y: Array) -> tuple[Array, Array]:
        return xp.reshape(of_x, (*x.shape, *(1,) * y.ndim)), of_y

    (left, right), (one, other) = pairs(sample_std(x), sample_std(y)), pairs(_varies(x), _varies(y))
    scale = left * right
    defined = xp.logical_and(xp.logical_and(one, other), scale > 0.0)
    ratio = covariance / xp.where(defined, scale, xp.ones_like(scale))
    # Roundoff alone can take a correlation out of the unit circle; what is inside is left as it is.
    size = xp.abs(ratio)
    return xp.where(defined, ratio / xp.where(size > 1.0, size, xp.ones_like(size)), xp.asarray(math.nan))


def _in_units(x: Ensemble, sample_set: SampleSet | None) -> Ensemble:
    """`x` divided by a power of two for each entry, so that squares stay in range; other bits are the same."""
    xp, samples, _ = weighed(Ensemble(x.samples, sample_set), "sample_corr")
    size = xp.max(xp.abs(floating(xp, samples)), axis=-1, keepdims=True)
    ordinary = xp.logical_and(size > 0.0, xp.isfinite(size))
    unit = xp.pow(xp.asarray(2.0, dtype=size.dtype), xp.floor(xp.log2(xp.where(ordinary, size, xp.ones_like(size)))))
    return Ensemble(floating(xp, x.samples) / unit, sample_set)


def _varies(x: Ensemble) -> Array:
    """Whether samples that count differ, for each entry: rounding of the mean is no variation."""
    xp, samples, _ = weighed(x, "sample_corr")
    return xp.any(samples != samples[..., :1], axis=-1)
