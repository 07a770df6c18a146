"""Conjugate gradients that stay on a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._kernels.krylov.device_scalars.scalars import CgScalars
from ensemble.krylov._device import ResidentSolve


class ResidentCg(ResidentSolve):
    """Conjugate gradients; what comes before an iteration's residual has converged is not spent on it."""

    scalars: CgScalars
    fresh = True

    def _begin(self, book: tuple[Any, ...]) -> None:
        last = np.zeros((2, self.run.x.shape[1])) if self.fresh else self.run.last
        self.scalars = CgScalars(*book, last=last)
        if self.fresh:
            self._iteration(fresh=True)
            self.fresh = False

    def _iteration(self, fresh: bool = False) -> None:
        """From a residual to the next one."""
        run = self.run
        q = run.q if run.flexible else run.z
        z = run.precondition(run.r, run.z)
        self.scalars.direct(run.r, z, run.q if run.flexible else None, run.p, fresh)
        _, pq = run.A.apply_dot_partials(run.p, q)
        self.scalars.step(run.p, q, run.x, run.r, pq)

    def _prove(self) -> None:
        self.run.residual(self.run.z)
        self.scalars.verify_convergence(self.run.z, self.run.r)

    def _hand_back(self, narrow: bool) -> None:
        self.scalars.keep_last(self.run.p)
        super()._hand_back(narrow)

    def _keep(self) -> None:
        self.run.last, self.run.values = np.array(to_numpy(self.scalars.last)), ("last",)
