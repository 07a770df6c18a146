"""What the systems of `newton` share: the linear solve, its tolerances, and the wall time of each phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._backend import synchronize, to_numpy
from ensemble._kernels.krylov.vectors import dot
from ensemble._kernels.sparse.row_sums import SERIAL, Space, in_space
from ensemble._typing import Array
from ensemble.krylov import SolveResult
from ensemble.scalar import Ensemble

__all__ = ["LinearSolver", "TimedSystem"]


@dataclass
class LinearSolver:
    """A Krylov method, the function that makes its preconditioner from a matrix, and its options."""

    method: Callable[..., SolveResult]
    preconditioner: Callable[[Any], Any]
    options: dict[str, Any]


class TimedSystem:
    """Base of the systems that `newton` solves; subclasses give ``residual(u)`` and ``jacobian(u)``."""

    def __init__(self, linear_solver: LinearSolver, reference_array: Array, space: Space = SERIAL) -> None:
        """`reference_array` lies on the device whose work is timed; `space` is that of residuals."""
        self.linear_solver, self.reference_array, self.space = linear_solver, reference_array, space
        self.seconds = dict.fromkeys(("coefficient", "assembly", "setup", "solve"), 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        start = time.perf_counter()
        yield
        synchronize(self.reference_array)
        self.seconds[name] += time.perf_counter() - start

    def refer_to(self, residual: Array) -> np.ndarray:
        """The norms of `residual`, which the linear solver's tolerance refers to from now on."""
        with in_space(self.space):
            norms = np.sqrt(to_numpy(dot(residual, residual, None)).astype(np.float64))
        options = self.linear_solver.options
        options["atol"] = options["rtol"] * norms
        return norms

    def solve(self, A: Any, r: Ensemble, *active: Any) -> SolveResult:
        """Solve ``A x = r``."""
        with self.phase("setup"):
            preconditioner = self.linear_solver.preconditioner(A)
        with self.phase("solve"):
            return self.linear_solver.method(A, r, M=preconditioner, **self.linear_solver.options)
