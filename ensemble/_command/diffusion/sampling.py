"""Sample points of the random inputs, and the confidence interval of a mean."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from ensemble.uq.study.intervals import values_interval

__all__ = ["MOST_SOBOL_TERMS", "Estimate", "estimate", "uniform_points"]

MOST_SOBOL_TERMS = stats.qmc.Sobol.MAXDIM
"""Dimensions for which SciPy has direction numbers."""

REPLICATES = 8
"""Independent scrambles of the Sobol' sequence: the error bar is computed from their spread."""


class Estimate(NamedTuple):
    """Statistics of a response; `low` and `high` bound its mean with 95 % confidence, NaN where they cannot."""

    mean: float
    std: float
    low: float
    high: float
    method: str


def uniform_points(n: int, dimension: int, sampler: str, seed: int) -> np.ndarray:
    """Points of (-1, 1)^dimension, shape (dimension, n); point i depends on `seed` and i alone, never on `n`.

    Sobol' point i is the (i // 8)-th of the (i % 8)-th independently scrambled sequence.
    """
    if sampler == "monte-carlo":
        return 2.0 * np.random.default_rng(seed).random((n, dimension)).T - 1.0
    points = np.empty((dimension, n))
    for r, child in enumerate(np.random.SeedSequence(seed).spawn(REPLICATES)[:n]):
        own = points[:, r::REPLICATES]
        # A power of two, because shorter pieces of the sequence make SciPy warn; the surplus is dropped.
        exponent = int(np.ceil(np.log2(own.shape[1])))
        sequence = stats.qmc.Sobol(dimension, scramble=True, rng=np.random.default_rng(child))
        own[...] = 2.0 * sequence.random_base2(exponent)[: own.shape[1]].T - 1.0
    return points


def estimate(response: np.ndarray, numbers: np.ndarray, sampler: str) -> Estimate:
    """Mean, standard deviation and 95 % interval of the mean, from the samples with the given `numbers`.

    Sobol' points are not independent, so the interval rests on the means of the independent scrambles
    [Owen (2013), Monte Carlo theory, methods and examples, section 17.3].
    """
    n = response.size
    if n == 0:
        return Estimate(np.nan, np.nan, np.nan, np.nan, "no sample")
    mean = float(response.mean())
    std = float(response.std(ddof=1)) if n > 1 else np.nan
    method, replicate = f"t-interval of {n} independent samples", None
    if sampler == "sobol":
        replicate = numbers % REPLICATES
        method = f"t-interval of {np.unique(replicate).size} independent scrambles"
    if np.unique(numbers if replicate is None else replicate).size < 2:
        return Estimate(mean, std, np.nan, np.nan, "one sample gives no interval")
    low, high = values_interval(response, replicate, 0.95)
    return Estimate(mean, std, float(low), float(high), method)
