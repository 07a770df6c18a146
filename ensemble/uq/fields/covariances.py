"""Covariance functions by name, each of variance 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._check import one_of, positive

__all__ = ["NamedCovariance", "named_covariance"]

SQRT3, SQRT5 = np.sqrt(3.0), np.sqrt(5.0)

COVARIANCES: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "exponential": ("cityblock", lambda h: np.exp(-h)),
    "matern12": ("euclidean", lambda h: np.exp(-h)),
    "matern32": ("euclidean", lambda h: (1.0 + SQRT3 * h) * np.exp(-SQRT3 * h)),
    "matern52": ("euclidean", lambda h: (1.0 + SQRT5 * h + 5.0 / 3.0 * h**2) * np.exp(-SQRT5 * h)),
    "gaussian": ("sqeuclidean", lambda h: np.exp(-0.5 * h)),
}
"""Metric of `scipy.spatial.distance` for points divided by the lengths, and the covariance of a distance."""


class NamedCovariance:
    """A covariance function of two sets of points; it can be pickled."""

    def __init__(self, name: str, lengths: np.ndarray) -> None:
        self.name, self.lengths = name, lengths

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        from scipy.spatial.distance import cdist

        metric, function = COVARIANCES[self.name]
        return function(cdist(x / self.lengths, y / self.lengths, metric))


def named_covariance(name: Any, length: Any, dimension: int, function: str) -> NamedCovariance:
    """The covariance `name` with one length, or one for each axis."""
    one_of(name, COVARIANCES, function, "covariance", advice="Or give a function of two arrays of points.")
    lengths = np.array([positive(value, function, "length") for value in np.atleast_1d(length)])
    return NamedCovariance(name, np.broadcast_to(lengths, (dimension,)).copy())
