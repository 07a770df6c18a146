"""The result of a solve of the random diffusion problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble.krylov import NewtonResult

__all__ = ["DiffusionResult"]


@dataclass(frozen=True)
class DiffusionResult:
    """Outcome of `RandomDiffusion.solve`, sample by sample.

    Attributes
    ----------
    u : Ensemble, shape (n_nodes,)
        The solution at the nodes; for a sample that failed, its last finite iterate. A plain array if y was one.
    response : Ensemble, shape ()
        The mean of u^2 over the nodes; NaN for a sample that failed. A plain number if y was a plain array.
    newton_iterations, iterations : ndarray of int, shape (n_samples,)
        Newton steps, and iterations of the linear solver over all of them.
    newton : NewtonResult
        Status and residual norms, step by step.
    seconds : dict of str to float
        Wall time of each phase: "coefficient", "assembly", "setup" (of the preconditioner), "solve" (of the linear
        systems), and "total".
    """

    u: Any
    response: Any
    newton_iterations: np.ndarray
    iterations: np.ndarray
    newton: NewtonResult
    seconds: dict[str, float]

    def __repr__(self) -> str:
        total = f"{self.seconds['total']:.3g} s" if "total" in self.seconds else "not timed"
        return f"DiffusionResult({self.newton.summary}; response {self.response:.6g}; {total})"

    @property
    def status(self) -> np.ndarray:
        """How each sample ended, shape (n_samples,)."""
        return self.newton.status

    @property
    def converged(self) -> np.ndarray:
        """Whether each sample reached the tolerance, shape (n_samples,)."""
        return self.newton.converged

    def raise_if_failed(self) -> DiffusionResult:
        """This result, or `SolveError` naming the samples that did not converge."""
        self.newton.raise_if_failed()
        return self
