"""The scalars of BiCGSTAB on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.krylov import bicgstab, vectors
from ensemble._kernels.krylov.device_scalars.scalars import Scalars

__all__ = ["BicgstabScalars"]

ROWS = 9
"""Numbers a sample of a recurrence, as in bicgstab.cu."""

RHO, SHADOW_NORM, FRESH, HALF = 0, 1, 4, 8
"""Which of them outlast an iteration; the last is above 0 where a sample stands in the middle of one."""


class BicgstabScalars(Scalars):
    """What BiCGSTAB knows of each sample.

    Parameters
    ----------
    rows : array of float64, shape (9, n_samples)
    eps : float
        Roundoff of the vectors' type.
    """

    family = bicgstab.CUDA

    def __init__(self, *book: Any, rows: Any, eps: float) -> None:
        super().__init__(*book)
        self.recurrence, self.eps = self.rows(rows), np.float64(eps)
        self.moving, self.beta, self.omega, self.renew, self.adopt, self.keep = self.zeros(6)

    def _decide_on_two(self, kernel: str, partials: Any, *arguments: Any) -> None:
        self.decide(kernel, tuple(partials), self.recurrence, self.eps, *arguments)

    def step(self, shadow: Any, y: Any, v: Any, x: Any, r: Any) -> None:
        """The first half: x and r along y = M p and v = A y; the norms are judged."""
        self._decide_on_two("bicgstab_alpha", bicgstab.dot_and_square_partials(shadow, v), self.moving)
        self.decide("bicgstab_half", vectors.cg_update_partials(self.moving, y, v, x, r), self.recurrence)

    def stabilise(self, shadow: Any, z: Any, t: Any, x: Any, r: Any, v: Any, p: Any) -> None:
        """The second half: x and r along z = M r and t = A z; the norms are judged, the next direction is made."""
        self._decide_on_two("bicgstab_omega", bicgstab.dot_and_square_partials(r, t), self.moving)
        partials = bicgstab.bicgstab_update_partials(self.moving, shadow, z, t, x, r)
        self._decide_on_two("bicgstab_beta", partials, self.beta, self.omega, self.renew, self.keep)
        bicgstab.bicgstab_turn(self.beta, self.omega, self.renew, r, v, p, shadow, self.keep, x, self.kept)

    def verify_convergence(self, true: Any, r: Any, p: Any, shadow: Any) -> None:
        """Judge claims by the true residual, which replaces r where a sample has to go on."""
        partials = vectors.dot_partials(true, true)
        self.decide("bicgstab_prove", partials, self.recurrence, self.adopt, self.renew, self.keep)
        self.copy(self.adopt, true, r)
        self.copy(self.renew, true, p)
        self.copy(self.renew, true, shadow)
        self.copy(self.keep, self.x, self.kept)
