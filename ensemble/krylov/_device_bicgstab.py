"""BiCGSTAB that stays on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._compile.streams import CudaGraph
from ensemble._kernels.krylov.device_scalars.bicgstab import FRESH, HALF, RHO, ROWS, SHADOW_NORM, BicgstabScalars
from ensemble.krylov._device import ResidentSolve


class ResidentBicgstab(ResidentSolve):
    """Half an iteration is queued at a time: many a solve ends in the middle of one.

    A sample that claims to have converged stands still until it is judged, wherever that is.
    """

    scalars: BicgstabScalars
    parts = 2

    def __init__(self, run: Any, max_iterations: int, compact: bool) -> None:
        super().__init__(run, max_iterations, compact)
        run.begin(run.active, run.latest**2)

    def _begin(self, book: tuple[Any, ...]) -> None:
        run = self.run
        rows = np.zeros((ROWS, run.x.shape[1]))
        rows[RHO], rows[SHADOW_NORM], rows[FRESH] = run.rho, run.shadow_norm, run.fresh
        self.scalars = BicgstabScalars(*book, rows=rows, eps=run.eps)

    def _record(self, recorded: Callable[[Callable[[], None]], CudaGraph]) -> None:
        self.halves, self.middle = (recorded(self._first_half), recorded(self._second_half)), False

    def _play_ahead(self) -> None:
        for _ in range(self.ahead):
            self._play_half()

    def _play_half(self) -> None:
        self.halves[self.middle]()
        self.middle = not self.middle

    def _first_half(self) -> None:
        run = self.run
        y = run.precondition(run.p, run.y)
        run.A.apply(y, run.v)
        self.scalars.step(run.shadow, y, run.v, run.x, run.r)

    def _second_half(self) -> None:
        run = self.run
        z = run.precondition(run.r, run.y)
        run.A.apply(z, run.t)
        self.scalars.stabilise(run.shadow, z, run.t, run.x, run.r, run.v, run.p)

    def _prove(self) -> None:
        run = self.run
        self.scalars.verify_convergence(run.residual(run.t), run.r, run.p, run.shadow)

    def _ready_to_narrow(self) -> bool:
        """Between iterations only, of all samples."""
        if self.middle:
            self._play_half()
        return super()._ready_to_narrow() and not np.any(to_numpy(self.scalars.recurrence)[HALF] > 0.0)

    def _keep(self) -> None:
        rows = np.array(to_numpy(self.scalars.recurrence))
        self.run.rho, self.run.shadow_norm, self.run.fresh = rows[RHO], rows[SHADOW_NORM], rows[FRESH] != 0.0
