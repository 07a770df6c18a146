"""Levels of a multilevel estimate: their samples, their statistics, the rates, the optimal numbers."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from ensemble.scalar import Ensemble, Moments
from ensemble.uq.algorithms.evaluations import Evaluations, normal_points

__all__ = ["Level", "decay_rate", "optimal_numbers", "smoothed", "without_models"]

SLOWEST = 0.5
"""The smallest decay rate that is used: estimates from few samples may be negative."""


class Level:
    """Differences of two models on the same samples; level 0 has one model.

    Parameters
    ----------
    number : int
    fine, coarse : Evaluations
        `coarse` is None at level 0.
    seed : int
    cost : float or None
        Cost of one sample of both models; None: seconds are measured.
    """

    def __init__(
        self, number: int, fine: Evaluations, coarse: Evaluations | None, seed: int, cost: float | None
    ) -> None:
        self.number, self.seed, self.given_cost = number, seed, cost
        self.connect(fine, coarse)
        self.difference, self.value = Moments(), Moments()
        self.n_run = self.n_failed = self.n_values = 0
        self.times: list[tuple[float, float]] = []

    def connect(self, fine: Evaluations, coarse: Evaluations | None) -> None:
        """The models that further samples run through."""
        self.fine, self.coarse = fine, coarse

    @property
    def n(self) -> int:
        """Samples that did not fail."""
        return self.n_run - self.n_failed

    def extend(self, n_more: int) -> None:
        """Run `n_more` samples, the next of this level's stream; nothing changes where their time is up."""
        z, n_failed, times = normal_points(self.seed, self.number, self.n_run, n_more, self.fine.n_germs), 0, []
        fine_values, differences = [], []
        size = self.fine.samples_at_a_time(n_more)
        for i in range(0, n_more, size):
            group, first = z[:, i : i + size], self.n_run + i
            values, failed = self.fine(group, first, 2 * self.number)
            self.n_values = len(values)
            coarse_values, coarse_seconds = np.zeros_like(values), 0.0
            if self.coarse is not None:
                coarse_values, coarse_failed = self.coarse(group, first, 2 * self.number + 1)
                failed, coarse_seconds = failed | coarse_failed, self.coarse.seconds
            share = 1.0 / group.shape[1]
            times.append((self.fine.seconds * share, coarse_seconds * share))
            fine_values.append(values[:, ~failed])
            differences.append(values[:, ~failed] - coarse_values[:, ~failed])
            n_failed += int(np.count_nonzero(failed))
        self.n_run, self.n_failed, self.times = self.n_run + n_more, self.n_failed + n_failed, self.times + times
        for moments, parts in ((self.difference, differences), (self.value, fine_values)):
            all_parts = np.concatenate(parts, axis=1)
            if all_parts.shape[1]:
                moments.update(Ensemble(np.ascontiguousarray(all_parts)), np.ones(all_parts.shape[1]))

    def seconds(self) -> np.ndarray:
        """Per sample, of the fine and the coarse model: medians over calls but the first, which may compile."""
        median: np.ndarray = np.median(np.array(self.times[1:] or self.times), axis=0)
        return median

    @property
    def cost(self) -> float:
        """Cost of one sample of both models."""
        return float(self.seconds().sum()) if self.given_cost is None else self.given_cost

    def mean(self) -> np.ndarray:
        """Mean of the differences, shape (m,); NaN where all samples failed."""
        return np.asarray(self.difference.mean()) if self.n else np.full(self.n_values, np.nan)

    def variance(self) -> np.ndarray:
        """Variance of the differences, shape (m,); NaN where all samples but one failed."""
        return np.asarray(self.difference.var(ddof=1)) if self.n > 1 else np.full(self.n_values, np.nan)


def decay_rate(sizes: np.ndarray) -> float:
    """The rate r in ``sizes ~ 2^(-r level)``, for the largest entry of each level from 1 on (Giles 2008)."""
    if len(sizes) < 3:
        return 1.0
    largest = sizes[1:].max(axis=1)
    if not np.all(largest > 0.0):
        return 1.0
    slope = np.polynomial.polynomial.polyfit(np.arange(len(largest)), np.log2(largest), 1)[1]
    return max(float(-slope), SLOWEST)


def smoothed(sizes: np.ndarray, rate: float) -> np.ndarray:
    """`sizes` kept from falling, by chance, below half of what the rate predicts from the level before."""
    result = sizes.copy()
    for k in range(2, len(sizes)):
        result[k] = np.maximum(result[k], 0.5 * result[k - 1] * 2.0**-rate)
    return result


def optimal_numbers(variances: np.ndarray, costs: Sequence[float], budget: np.ndarray) -> np.ndarray:
    """Samples per level of the least total cost for which the sum of variance / n is `budget` (Giles 2008, eq. 12).

    `variances` have shape (n_levels, m), `budget` shape (m,); each entry of the output gets what it needs.
    """
    cost = np.asarray(costs)[:, None]
    total = np.sqrt(variances * cost).sum(axis=0)
    numbers = np.sqrt(variances / cost) * total / budget
    return np.asarray(np.ceil(numbers.max(axis=1))).astype(np.int64)


def without_models(level: Level) -> Level:
    """A shallow copy that holds no models, which may not be copied deeply."""
    bare = copy.copy(level)
    bare.fine = bare.coarse = None  # type: ignore[assignment]
    return bare
