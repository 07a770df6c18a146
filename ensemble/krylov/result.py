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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary})"

    @property
    def summary(self) -> str:
        """How many samples converged, in how many iterations, and which ended otherwise."""
        low, high = int(self.iterations.min()), int(self.iterations.max())
        text = f"{self.solver}: {int(self.converged.sum())} of {self.status.size} samples converged, "
        text += f"{high} iteration{'s' * (high != 1)}" if low == high else f"{low} to {high} iterations"
        for outcome in (Status.max_iterations, Status.breakdown):
            samples = np.flatnonzero(self.status == outcome)
            if samples.size:
                text += f"; {outcome.value}: {samples_text(samples)}"
        return text

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
