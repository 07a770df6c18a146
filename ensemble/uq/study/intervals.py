"""Confidence intervals: of independent samples, and of independent replicates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ensemble._check import require
from ensemble.scalar.statistics.quantiles import ConfidenceInterval

__all__ = ["binomial", "check_level", "is_independent", "order_statistics", "student"]


def check_level(level: Any, function: str) -> float:
    """`level` as a float in (0, 1)."""
    good = isinstance(level, (int, float)) and 0.0 < level < 1.0
    require(good, function, "level", "be a number in (0, 1)", repr(level), "Divide percentages by 100.")
    return float(level)


def student(mean: Any, std: Any, n: float, level: float) -> ConfidenceInterval:
    """``mean ± t * std / sqrt(n)`` with n - 1 degrees of freedom; `std` with ``ddof=1``."""
    from scipy.special import stdtrit

    half = std * float(stdtrit(n - 1.0, 0.5 + 0.5 * level) / math.sqrt(n))
    return ConfidenceInterval(mean - half, mean + half)


def binomial(hits: Any, n: float, level: float) -> ConfidenceInterval:
    """The interval of a probability from `hits` in `n` independent samples [1]_.

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
