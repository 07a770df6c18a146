"""One solve of the random diffusion problem with a stored matrix per sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble.apps.fem.operator_run import Phases, Precision, mean_hierarchy
from ensemble.krylov import SolveResult
from ensemble.linalg import CrsMatrix, SymmetricCrsMatrix
from ensemble.multigrid import Hierarchy, ScaledHierarchy, smoothed_aggregation
from ensemble.scalar import Ensemble

__all__ = ["StoredRun", "Workspace"]


class Workspace:
    """The large buffers of one solve, and the hierarchies, whose graph part serves every later matrix."""

    def __init__(self) -> None:
        self.kappa: Any = None
        self.values: Any = None
        self.hierarchies: dict[Precision, Hierarchy] = {}


class StoredRun(Phases):
    """The functions that `newton` calls, with a stored matrix per sample."""

    def __init__(
        self,
        problem: Any,
        work: Workspace,
        parameters: np.ndarray,
        hierarchy: str,
        precision: Precision,
        solver: Any,
        options: dict[str, Any],
    ) -> None:
        super().__init__(problem._discrete.reference_array)
        self.problem, self.work, self.hierarchy = problem, work, hierarchy
        self.solver, self.options = solver, options
        self.precision = precision
        self.residuals = 0
        self.symmetric = problem._discrete.halves
        with self.phase("coefficient"):
            work.kappa = problem._discrete.coefficient(parameters, work.kappa)

    def reference(self, u: Any) -> np.ndarray:
        """Residual norms at `u`, which tolerances refer to from now on."""
        with self.phase("assembly"):
            return self.refer_to(self.problem._discrete.residual(self.work.kappa, u))

    def residual(self, u: Ensemble) -> Ensemble:
        self.residuals += 1
        with self.phase("assembly"):
            if self.residuals == 1:  # at the start: its Jacobian is sure to be wanted, and comes in the same pass
                return Ensemble(self._both(u.samples))
            return Ensemble(self.problem._discrete.residual(self.work.kappa, u.samples))

    def jacobian(self, u: Ensemble) -> CrsMatrix | SymmetricCrsMatrix:
        with self.phase("assembly"):
            if self.residuals > 1:
                self._both(u.samples)
        kind = SymmetricCrsMatrix if self.symmetric else CrsMatrix
        return kind(self.problem.graph, self.work.values)

    def _both(self, u: np.ndarray) -> np.ndarray:
        work = self.work
        discrete = self.problem._discrete
        work.values, residual = discrete.jacobian_and_residual(work.kappa, u, work.values, self.symmetric)
        return residual

    def _preconditioner(self, A: CrsMatrix | SymmetricCrsMatrix) -> Any:
        if self.hierarchy == "mean":
            return ScaledHierarchy.of(A, mean_hierarchy(self.problem, self.precision))
        kept = self.work.hierarchies
        if self.precision in kept:
            return kept[self.precision].update(A)
        kept[self.precision] = smoothed_aggregation(A, dtype=self.precision)
        return kept[self.precision]

    def solve(self, A: CrsMatrix | SymmetricCrsMatrix, r: Ensemble, *active: Any) -> SolveResult:
        with self.phase("setup"):
            preconditioner = self._preconditioner(A)
        with self.phase("solve"):
            return self.solver(A, r, M=preconditioner, **self.options)
