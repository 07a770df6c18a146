"""The linear random diffusion problem without a stored matrix per sample, as `newton` calls it."""

from __future__ import annotations

import numpy as np

from ensemble._backend import asarray_like
from ensemble._kernels.sparse.affine import affine_values
from ensemble._typing import Array
from ensemble.apps.fem.diffusion_operator import DiffusionOperator
from ensemble.apps.fem.discretization import Discretization
from ensemble.apps.fem.solves.timed_system import LinearSolver, TimedSystem
from ensemble.linalg import AffineMatrix
from ensemble.scalar import Ensemble

__all__ = ["OperatorSystem"]


class OperatorSystem(TimedSystem):
    """Residuals of the samples `parameters`, and one operator as their Jacobian: the problem is linear."""

    def __init__(
        self,
        discretization: Discretization,
        parameters: np.ndarray,
        operator: str,
        linear_solver: LinearSolver,
    ) -> None:
        """`operator` is "affine" or "matrix-free"."""
        super().__init__(linear_solver, discretization.reference_array)
        self.discretization = discretization
        self.A: AffineMatrix | DiffusionOperator
        if operator == "affine":
            with self.phase("assembly"):
                values, residual = discretization.affine_terms
                values = values.astype(parameters.dtype, copy=False)
                y = asarray_like(parameters, values)
                self.A = AffineMatrix(discretization.graph, values, Ensemble(y))
                self.first_residual = affine_values(residual.astype(parameters.dtype, copy=False), y, None)
        else:
            with self.phase("coefficient"):
                self.A = DiffusionOperator(discretization, discretization.coefficient(parameters))
            with self.phase("assembly"):
                guess = discretization.initial_guess(parameters.shape[1], parameters.dtype)
                self.first_residual = discretization.residual(self.A.kappa, guess)
        self.b: Array = None

    def reference(self, u: Array) -> np.ndarray:
        """Residual norms at the usual start, which tolerances refer to from now on."""
        return self.refer_to(self.first_residual)

    def residual(self, u: Ensemble) -> Ensemble:
        """Compute A u - b; b is A times the initial guess minus its residual, which comes from the assembly."""
        with self.phase("assembly"):
            if self.b is None:
                guess = self.discretization.initial_guess(u.n_samples, u.dtype)
                self.b = self.A.apply(guess) - self.first_residual
            return Ensemble(-self.A.residual(u.samples, self.b))

    def jacobian(self, u: Ensemble) -> AffineMatrix | DiffusionOperator:
        """The operator itself."""
        return self.A
