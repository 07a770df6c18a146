"""GMRES that stays on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._compile.memory import empty_like
from ensemble._compile.streams import CudaGraph
from ensemble._kernels.krylov.device_scalars.gmres import GmresScalars, cycle_rows
from ensemble._kernels.krylov.device_scalars.scalars import CLAIMED, RUNNING, SETTLED
from ensemble.krylov._device import ResidentSolve


class ResidentGmres(ResidentSolve):
    """All samples' cycles begin together; one that stops early waits for the end of the cycle, or for narrowing.

    Operators read and write fixed vectors, `u` and `w`, so that an iteration is the same launches whatever the length
    of the basis.
    """

    scalars: GmresScalars

    def __init__(self, run: Any, max_iterations: int, compact: bool) -> None:
        super().__init__(run, max_iterations, compact)
        with np.errstate(all="ignore"):
            run.open()
        run.cycle = cycle_rows(run.R, run.cosines, run.sines, run.g, run.begun, run.length)
        run.values, run.scratch = ("cycle", "settled"), ("u", "w")
        run.w = empty_like(run.u)
        self.made = 0

    def _begin(self, book: tuple[Any, ...]) -> None:
        run = self.run
        status, *rest = book
        status = np.where(run.active & run.settled, SETTLED, status)
        cycle = {"rows": run.cycle, "restart": run.restart, "made": self.made, "eps": run.eps}
        self.scalars = GmresScalars(status, *rest, **cycle)
        run.u[...] = run.V[self.made, :, :]

    def _record(self, recorded: Callable[[Callable[[], None]], CudaGraph]) -> None:
        super()._record(recorded)
        self.turn = recorded(self._turn)

    # --- what is queued
    def _iteration(self) -> None:
        run = self.run
        z = run.precondition(run.u, run.r)  # r is free within a cycle
        if run.flexible:
            self.scalars.keep(z, run.Z)
        run.A.apply(z, run.w)
        self.scalars.expand(run.V, run.w, run.u)

    def _turn(self) -> None:
        """The end of a cycle, and the beginning of the next."""
        self._settle("true")
        self.scalars.open(self.run.V, self.run.r, self.run.u)

    def _settle(self, ended: str) -> None:
        """Bring x up to date and judge by true residuals: at the end of a cycle all samples, else those that wait."""
        run, scalars = self.run, self.scalars
        scalars.solve(ended)
        if run.flexible:
            scalars.solution(run.Z, run.x, "false")
        else:
            scalars.solution(run.V, run.w, "true")
            scalars.add(run.precondition(run.w, run.r), run.x)
        scalars.settle(run.residual(run.r), ended)

    # --- where the host looks
    def _play_ahead(self) -> None:
        for _ in range(min(self.ahead, self.run.restart - self.made)):
            self.play()
            self.made += 1

    def _judged(self) -> Any:
        if self.made < self.run.restart:
            seen = self.scalars.fetch_status()
            if np.any(seen[0] == RUNNING) or not np.any(seen[0] >= CLAIMED):
                return seen
        self.turn()
        self.made = 0
        return self.scalars.fetch_status()

    def _ready_to_narrow(self) -> bool:
        """Settle the samples that wait, also in mid-cycle."""
        self._settle("false")
        return bool(np.any(self.scalars.fetch_status()[0] == RUNNING))

    def _keep(self) -> None:
        run = self.run
        run.cycle = np.array(to_numpy(self.scalars.cycle))
        run.settled = self.scalars.fetch_status()[0] == SETTLED

    def _hand_back(self, narrow: bool) -> None:
        super()._hand_back(narrow)
        if narrow:
            self.run.narrow_basis(self.made)
