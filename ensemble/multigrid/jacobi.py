"""Damped Jacobi smoothing, with damping of each sample's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ensemble._check import integer, positive
from ensemble._keywords import explains_construction
from ensemble._typing import Array


@explains_construction("Jacobi")
@dataclass(frozen=True)
class Jacobi:
    """Options of the damped Jacobi smoother: ``x += damping / lambda_max D^-1 (b - A x)``.

    Parameters
    ----------
    damping : float above zero, dimensionless
        Over each sample's largest eigenvalue of D^-1 A, as estimated from below; 2 is the limit of stability.
    sweeps : int, at least 1
        Before and after the coarse correction each.

    Examples
    --------
    >>> from ensemble.gallery import poisson
    >>> from ensemble.multigrid import smoothed_aggregation
    >>> smoothed_aggregation(poisson((40, 40)), smoother=Jacobi(sweeps=1)).smoother
    Jacobi(damping=1.3333333333333333, sweeps=1)
    """

    damping: float = 4.0 / 3.0
    sweeps: int = 2

    def __post_init__(self) -> None:
        positive(self.damping, "Jacobi", "damping")
        integer(self.sweeps, "Jacobi", "sweeps", minimum=1)

    def coefficients(self, lambda_max: Array) -> list[tuple[np.ndarray, np.ndarray]]:
        """(a, c) of each step ``w = a w + c D^-1 (b - A x), x = x + w``, one value per sample."""
        with np.errstate(all="ignore"):  # a NaN stays in its sample
            return [(np.zeros_like(lambda_max), self.damping / lambda_max) for _ in range(self.sweeps)]
