"""One solve of the linear random diffusion problem without a stored matrix per sample."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from ensemble import _check
from ensemble._backend import asarray_like, synchronize, to_numpy
from ensemble._kernels.krylov.vectors import dot
from ensemble._kernels.sparse.affine import affine_values
from ensemble.apps.fem.diffusion_operator import DiffusionOperator
from ensemble.krylov import SolveResult
from ensemble.linalg import AffineMatrix, CrsMatrix
from ensemble.multigrid import AffineHierarchy, Hierarchy, ScaledHierarchy, smoothed_aggregation
from ensemble.scalar import Ensemble

__all__ = ["OperatorRun", "Phases", "Precision", "mean_hierarchy", "require_operator"]

Precision: TypeAlias = np.dtype | None
"""Type in which a hierarchy computes; None: chosen by `smoothed_aggregation`."""

OPERATORS = ("stored", "affine", "matrix-free")
HIERARCHIES = ("own", "mean")


class Phases:
    """The clock of a solve's phases, and the tolerances of its linear solver."""

    options: dict[str, Any]

    def __init__(self, reference_array: Any) -> None:
        self.reference_array = reference_array
        self.seconds = dict.fromkeys(("coefficient", "assembly", "setup", "solve"), 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of the block."""
        start = time.perf_counter()
        yield
        synchronize(self.reference_array)
        self.seconds[name] += time.perf_counter() - start

    def refer_to(self, residual: Any) -> np.ndarray:
        """The norms of `residual`, which the linear solver's tolerance refers to from now on."""
        squares = to_numpy(dot(residual, residual, None)).astype(np.float64)
        self.options["atol"] = self.options["rtol"] * np.sqrt(squares)
        return np.sqrt(squares)


def require_operator(operator: str, hierarchy: str | None, discrete: Any) -> str:
    """The hierarchy meant, or an error if the choices do not go together."""
    name = "RandomDiffusion.solve"
    _check.one_of(operator, OPERATORS, name, "operator")
    if operator == "stored":
        return _check.one_of("own" if hierarchy is None else hierarchy, HIERARCHIES, name, "hierarchy")
    source, advice = discrete.source, "Use operator='stored'."
    _check.require(
        source == 0.0, name, "operator", "be 'stored' where there is a source, whose matrix depends on u",
        f"{operator!r} with source = {source:g}", advice,
    )  # fmt: skip
    _check.require(
        not discrete.drifts, name, "operator", "be 'stored' where there is advection", f"{operator!r}", advice
    )
    if operator == "affine":
        _check.require(
            not discrete.lognormal, name, "operator", "be 'stored' or 'matrix-free' for a lognormal coefficient",
            "'affine'", "Its matrix is not affine in y.",
        )  # fmt: skip
        return _check.one_of("mean" if hierarchy is None else hierarchy, HIERARCHIES, name, "hierarchy")
    _check.require(
        hierarchy in (None, "mean"), name, "hierarchy", "be 'mean' for operator='matrix-free'", f"{hierarchy!r}", advice
    )
    return "mean"


def mean_hierarchy(problem: Any, precision: Precision) -> Hierarchy:
    """The hierarchy of the mean diffusivity, built once for each precision."""
    kept = problem._mean_hierarchies
    if precision not in kept:
        mean = CrsMatrix(problem.graph, problem._discrete.mean_values)
        kept[precision] = smoothed_aggregation(mean, dtype=precision)
    return kept[precision]


def own_hierarchy(problem: Any, A: AffineMatrix, precision: Precision) -> AffineHierarchy:
    """The affine hierarchy, its terms made once for each precision, for the samples of `A`."""
    kept = problem._affine_hierarchies
    if precision not in kept:
        whole = AffineMatrix(A.graph, problem._discrete.affine_terms[0], Ensemble(A.coefficients))
        kept[precision] = smoothed_aggregation(whole, dtype=precision)
    return kept[precision].update(A)


class OperatorRun(Phases):
    """The functions that `newton` calls: one step, because the problem is linear."""

    def __init__(
        self,
        problem: Any,
        operator: str,
        parameters: np.ndarray,
        hierarchy: str,
        precision: Precision,
        solver: Any,
        options: dict[str, Any],
    ) -> None:
        super().__init__(problem._discrete.reference_array)
        self.problem, self.hierarchy, self.solver, self.options = problem, hierarchy, solver, options
        self.precision = precision
        discrete = problem._discrete
        if operator == "affine":
            with self.phase("assembly"):
                values, residual = discrete.affine_terms
                values = values.astype(parameters.dtype, copy=False)
                y = asarray_like(parameters, values)
                self.A: Any = AffineMatrix(problem.graph, values, Ensemble(y))
                self.first_residual = affine_values(residual.astype(parameters.dtype, copy=False), y, None)
        else:
            with self.phase("coefficient"):
                self.A = DiffusionOperator(discrete, problem.graph, discrete.coefficient(parameters))
            with self.phase("assembly"):
                guess = discrete.initial_guess(*parameters.shape[1:], parameters.dtype)
                self.first_residual = discrete.residual(self.A.kappa, guess)
        self.b: Any = None

    def reference(self, u: Any) -> np.ndarray:
        """Residual norms at the usual start, which tolerances refer to from now on."""
        return self.refer_to(self.first_residual)

    def residual(self, u: Ensemble) -> Ensemble:
        """A u - b, b being what makes the residual of the initial guess right."""
        with self.phase("assembly"):
            if self.b is None:
                guess = self.problem._discrete.initial_guess(*u.samples.shape[1:], u.dtype)
                self.b = self.A.apply(guess) - self.first_residual
            return Ensemble(-self.A.residual(u.samples, self.b))

    def jacobian(self, u: Ensemble) -> Any:
        """The operator itself."""
        return self.A

    def solve(self, A: Any, r: Ensemble, *active: Any) -> SolveResult:
        """One linear solve."""
        with self.phase("setup"):
            if self.hierarchy == "mean":
                preconditioner: Any = ScaledHierarchy.of(A, mean_hierarchy(self.problem, self.precision))
            else:
                preconditioner = own_hierarchy(self.problem, A, self.precision)
        with self.phase("solve"):
            return self.solver(A, r, M=preconditioner, **self.options)
