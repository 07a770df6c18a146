"""The scalars of BiCGSTAB on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._kernels.krylov import bicgstab, vectors
from ensemble._kernels.krylov.device_scalars.scalars import DeviceScalars
from ensemble._kernels.sparse.row_sums import partials_of_all
from ensemble._typing import Array

__all__ = ["BicgstabScalars"]

ROWS = 9
"""Numbers per sample of a recurrence, as in bicgstab.cu."""

RHO, SHADOW_NORM, FRESH, HALF = 0, 1, 4, 8
"""Those that an iteration takes over from the one before; the last is above 0 in the middle of an iteration."""


class BicgstabScalars(DeviceScalars):
    """alpha, omega, beta and rho of each sample.

    Parameters
    ----------
    rows : array of float64, shape (9, n_samples)
    eps : float
        Roundoff of the vectors' type.
    """

    module = bicgstab.CUDA

    def __init__(self, *state: Any, rows: np.ndarray, eps: float) -> None:
        super().__init__(*state)
        self.rows, self.eps = self.to_device(rows), np.float64(eps)
        self.moving, self.beta, self.omega, self.renew, self.adopt, self.keep = self.zeros(6)

    def between_iterations(self) -> bool:
        return not np.any(to_numpy(self.rows)[HALF] > 0.0)

    def _decide_on_two(self, kernel: str, partials: Array, *arguments: Any) -> None:
        self.decide(kernel, tuple(partials_of_all(partials)), self.rows, self.eps, *arguments)

    def step(self, shadow: Array, y: Array, v: Array, x: Array, r: Array) -> bool:
        """The first half: x and r along y = M p and v = A y. False: candidates wait until the host verifies them."""
        self._decide_on_two("bicgstab_alpha", bicgstab.dot_and_square_partials(shadow, v), self.moving)
        self.decide("bicgstab_half", vectors.cg_update_partials(self.moving, y, v, x, r), self.rows)
        return False

    def stabilise(self, shadow: Array, z: Array, t: Array, x: Array, r: Array) -> bool:
        """The second half: x and r along z = M r and t = A z, and beta. False: candidates wait."""
        self._decide_on_two("bicgstab_omega", bicgstab.dot_and_square_partials(r, t), self.moving)
        partials = bicgstab.bicgstab_update_partials(self.moving, shadow, z, t, x, r)
        self._decide_on_two("bicgstab_beta", partials, self.beta, self.omega, self.renew, self.keep)
        return False

    def direction(self, r: Array, v: Array, p: Array, shadow: Array) -> None:
        """The next direction, or a new recurrence."""
        bicgstab.bicgstab_direction_keep(
            self.beta, self.omega, self.renew, r, v, p, shadow, self.keep, self.x, self.kept
        )

    def verify_convergence(self, true: Array, r: Array, p: Array, shadow: Array) -> None:
        """Decide on the candidates by the true residual, which replaces r where a sample continues."""
        partials = vectors.dot_partials(true, true)
        self.decide("bicgstab_verify", partials, self.rows, self.adopt, self.renew, self.keep)
        self.copy(self.adopt, true, r)
        self.copy(self.renew, true, p)
        self.copy(self.renew, true, shadow)
        self.copy(self.keep, self.x, self.kept)
