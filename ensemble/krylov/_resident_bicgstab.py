"""BiCGSTAB that stays on a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._kernels.resident_bicgstab import FRESH, HALF, RHO, ROWS, SHADOW_NORM, BicgstabScalars
from ensemble.krylov._resident import ResidentSolve


class ResidentBicgstab(ResidentSolve):
    """A sample that claims to have converged stands still until it is judged, in the middle of an iteration, too."""

    scalars: BicgstabScalars

    def __init__(self, run: Any, max_iterations: int, compact: bool) -> None:
        super().__init__(run, max_iterations, compact)
        run.begin(run.active, run.latest**2)

    def _begin(self, book: tuple[Any, ...]) -> None:
        run = self.run
        rows = np.zeros((ROWS, run.x.shape[1]))
        rows[RHO], rows[SHADOW_NORM], rows[FRESH] = run.rho, run.shadow_norm, run.fresh
        self.scalars = BicgstabScalars(*book, rows=rows, eps=run.eps)

    def _iteration(self) -> None:
        run = self.run
        y = run.precondition(run.p, run.y)
        run.A.apply(y, run.v)
        self.scalars.step(run.shadow, y, run.v, run.x, run.r)
        z = run.precondition(run.r, run.y)
        run.A.apply(z, run.t)
        self.scalars.stabilise(run.shadow, z, run.t, run.x, run.r, run.v, run.p)

    def _prove(self) -> None:
        run = self.run
        self.scalars.prove(run.residual(run.t), run.r, run.p, run.shadow)

    def _ready_to_narrow(self) -> bool:
        """Not while a sample stands in the middle of an iteration."""
        self._prove()
        return not np.any(to_numpy(self.scalars.recurrence)[HALF])

    def _keep(self) -> None:
        rows = np.array(to_numpy(self.scalars.recurrence))
        self.run.rho, self.run.shadow_norm, self.run.fresh = rows[RHO], rows[SHADOW_NORM], rows[FRESH] != 0.0
