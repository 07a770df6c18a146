"""The random diffusion problem with a stored matrix per sample, as `newton` calls it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._typing import Array
from ensemble.apps.fem.discretization import Discretization
from ensemble.apps.fem.solves.timed_system import LinearSolver, TimedSystem
from ensemble.multigrid import Hierarchy
from ensemble.scalar import Ensemble

__all__ = ["StoredSystem", "Workspace"]


class Workspace:
    """The large arrays of one solve, and the hierarchies by data type, whose graph part serves every later matrix."""

    def __init__(self) -> None:
        self.kappa: Array = None
        self.values: Array = None
        self.hierarchies: dict[Any, Hierarchy] = {}


class StoredSystem(TimedSystem):
    """Residuals and Jacobians of the samples `parameters`, each Jacobian stored."""

    def __init__(
        self,
        discretization: Discretization,
        parameters: np.ndarray,
        workspace: Workspace,
        linear_solver: LinearSolver,
    ) -> None:
        super().__init__(linear_solver, discretization.reference_array, discretization.space)
        self.discretization, self.workspace = discretization, workspace
        self.n_residuals = 0
        with self.phase("coefficient"):
            workspace.kappa = discretization.coefficient(parameters, workspace.kappa)

    def reference(self, u: Array) -> np.ndarray:
        """Residual norms at `u`, which tolerances refer to from now on."""
        with self.phase("assembly"):
            return self.refer_to(self.discretization.residual(self.workspace.kappa, u))

    def residual(self, u: Ensemble) -> Ensemble:
        """The residual; the first call assembles its Jacobian in the same pass."""
        self.n_residuals += 1
        with self.phase("assembly"):
            if self.n_residuals == 1:
                return Ensemble(self._assemble(u.samples))
            return Ensemble(self.discretization.residual(self.workspace.kappa, u.samples))

    def jacobian(self, u: Ensemble) -> Any:
        """The matrices at the `u` of the last residual."""
        with self.phase("assembly"):
            if self.n_residuals > 1:
                self._assemble(u.samples)
        symmetric = self.discretization.keeps_upper(u.samples.shape[1])
        return self.discretization.matrix(self.workspace.values, symmetric)

    def _assemble(self, u: Array) -> Array:
        """The residual; the Jacobian's values go to the workspace."""
        work, symmetric = self.workspace, self.discretization.keeps_upper(u.shape[1])
        work.values, residual = self.discretization.jacobian_and_residual(work.kappa, u, work.values, symmetric)
        return residual
