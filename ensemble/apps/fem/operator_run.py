"""One solve of the linear random diffusion problem without a stored matrix a sample."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._kernels.affine import affine_values
from ensemble.apps.fem.diffusion_operator import DiffusionOperator
from ensemble.krylov import SolveResult, cg
from ensemble.linalg import AffineMatrix, CrsMatrix
from ensemble.multigrid import Hierarchy, ScaledHierarchy, smoothed_aggregation
from ensemble.scalar import Ensemble

__all__ = ["OperatorRun", "Phases", "mean_hierarchy", "require_operator"]

OPERATORS = ("stored", "affine", "matrix-free")
HIERARCHIES = ("own", "mean")


class Phases:
    """The clock of a solve's phases."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("coefficient", "assembly", "setup", "solve"), 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of the block."""
        start = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - start


def require_operator(operator: str, hierarchy: str | None, source: float) -> str:
    """The hierarchy meant, or an error if the choices do not go together."""
    name = "RandomDiffusion.solve"
    _check.one_of(operator, OPERATORS, name, "operator")
    if operator == "stored":
        return _check.one_of("own" if hierarchy is None else hierarchy, HIERARCHIES, name, "hierarchy")
    advice = "Use operator='stored'."
    _check.require(
        source == 0.0, name, "operator", "be 'stored' where there is a source, whose matrix depends on u",
        f"{operator!r} with source = {source:g}", advice,
    )  # fmt: skip
    _check.require(
        hierarchy in (None, "mean"), name, "hierarchy", f"be 'mean' for operator={operator!r}",
        f"{hierarchy!r}", advice,
    )  # fmt: skip
    return "mean"


def mean_hierarchy(problem: Any, dtype: np.dtype) -> Hierarchy:
    """The hierarchy of the mean diffusivity, built once for each precision."""
    kept = problem._mean_hierarchies
    if dtype not in kept:
        mean = CrsMatrix(problem.graph, problem._discrete.mean_values)
        kept[dtype] = smoothed_aggregation(mean, dtype=dtype)
    return kept[dtype]


class OperatorRun(Phases):
    """The functions that `newton` calls: one step, because the problem is linear."""

    def __init__(
        self, problem: Any, operator: str, parameters: np.ndarray, hierarchy_dtype: Any, options: dict[str, Any]
    ) -> None:
        super().__init__()
        self.problem, self.options = problem, options
        self.hierarchy_dtype = np.dtype(parameters.dtype if hierarchy_dtype is None else hierarchy_dtype)
        discrete = problem._discrete
        if operator == "affine":
            with self.phase("assembly"):
                values, residual = discrete.affine_terms
                self.A: Any = AffineMatrix(problem.graph, values, Ensemble(parameters)).astype(parameters.dtype)
                self.first_residual = affine_values(residual.astype(parameters.dtype, copy=False), parameters, None)
        else:
            with self.phase("coefficient"):
                self.A = DiffusionOperator(discrete, problem.graph, discrete.coefficient(parameters))
            with self.phase("assembly"):
                guess = discrete.initial_guess(*parameters.shape[1:], parameters.dtype)
                self.first_residual = discrete.residual(self.A.kappa, guess)
        self.b: Any = None

    def residual(self, u: Ensemble) -> Ensemble:
        """A u - b, b being what makes the residual of the initial guess right."""
        with self.phase("assembly"):
            if self.b is None:
                self.b = self.A.apply(u.samples)
                np.subtract(self.b, self.first_residual, out=self.b)
                return Ensemble(self.first_residual)
            r = self.A.residual(u.samples, self.b)
            return Ensemble(np.negative(r, out=r))

    def jacobian(self, u: Ensemble) -> Any:
        """The operator itself."""
        return self.A

    def solve(self, A: Any, r: Ensemble, *active: Any) -> SolveResult:
        """One linear solve."""
        with self.phase("setup"):
            preconditioner = ScaledHierarchy.of(A, mean_hierarchy(self.problem, self.hierarchy_dtype))
        with self.phase("solve"):
            return cg(A, r, M=preconditioner, **self.options)
