"""What every iterative solver returns: one outcome a sample."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._check import samples_text


class SolveError(RuntimeError):
    """Some samples have no solution; raised by `SolveResult.raise_if_failed` only."""


class Status(enum.Enum):
    """How one sample ended."""

    converged = "converged"
    max_iterations = "max_iterations"
    breakdown = "breakdown"

    def __repr__(self) -> str:
        return self.value


@dataclass(frozen=True)
class SolveResult:
    """Outcome of an iterative solve, sample by sample.

    Attributes
    ----------
    x : Ensemble or array, shape (n,)
        The solution; for a sample that failed, its last iterate.
    status : array of Status, shape (n_samples,)
        ``breakdown``: not finite, or not positive definite where the method needs that.
    iterations : array of int, shape (n_samples,)
        Iterations each sample took.
    residual_norms : array, shape (n_iterations + 1, n_samples)
        2-norm of the residual after each iteration; a finished sample keeps its last value.
    target : array, shape (n_samples,)
        What each sample's norm had to reach.
    """

    x: Any
    status: np.ndarray
    iterations: np.ndarray
    residual_norms: np.ndarray
    target: np.ndarray
    solver: str = "solve"

    @property
    def converged(self) -> np.ndarray:
        """True for each sample that reached its target, shape (n_samples,)."""
        return self.status == Status.converged

    def raise_if_failed(self) -> SolveResult:
        """This result, or `SolveError` naming the samples that did not converge."""
        failed = np.flatnonzero(~self.converged)
        if failed.size == 0:
            return self
        norms = self.residual_norms[-1, failed]
        worst = failed[int(np.argmax(np.where(np.isnan(norms), np.inf, norms)))]
        raise SolveError(
            f"{self.solver}: {failed.size} of {self.status.size} samples did not converge in "
            f"{int(self.iterations[failed].max())} iterations ({samples_text(failed)}; worst residual "
            f"{self.residual_norms[-1, worst]:.1e}, target {self.target[worst]:.1e}; "
            f"{int(np.sum(self.status[failed] == Status.breakdown))} broke down)."
        )
