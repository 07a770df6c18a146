"""The scalars of conjugate gradients on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._kernels.krylov import vectors
from ensemble._kernels.krylov.device_scalars.scalars import DeviceScalars
from ensemble._typing import Array

__all__ = ["CgScalars"]


class CgScalars(DeviceScalars):
    """alpha, beta and r . z of each sample.

    Parameters
    ----------
    rows : array, shape (2, n_samples)
        The inner product r . z of the last direction, and the last step length.
    """

    module = vectors.CUDA

    def __init__(self, *state: Any, rows: np.ndarray) -> None:
        super().__init__(*state)
        self.rows = self.to_device(np.asarray(rows, self.like.dtype))
        self.rz, self.last_alpha = self.rows[0], self.rows[1]
        self.alpha, self.beta, self.change, self.adopt, self.keep = self.zeros(5)

    # --- inner products
    def apply_dot(self, A: Any, p: Array, q: Array) -> Array:
        """q = A p; returns the partial sums of p . q."""
        return A.apply_dot_partials(p, q)[1]

    def precondition_dot(self, state: Any, r: Array, z: Array) -> tuple[Array, tuple[Array, Array]]:
        """(M r, the factors of r . M r), the vector in `z`: all partial sums share one buffer."""
        z = state.precondition(r, z, self.numbers[: self.n_samples])  # the latest norms
        return z, (r, z)

    # --- one iteration
    def direction(self, z: Array, rz: tuple[Array, Array], q: Array | None, p: Array) -> bool:
        """beta from r . z, and the next direction; True. `q`, where given, is the last A p (flexible)."""
        if q is not None:
            self.decide("cg_change", vectors.dot_partials(z, q), self.last_alpha, self.change)
        self.decide("cg_beta", vectors.dot_partials(*rz), self.rz, None if q is None else self.change, self.beta)
        vectors.cg_direction_keep(self.beta, z, p, self.keep, self.last_alpha, self.x, self.kept)
        return True

    def step(self, p: Array, q: Array, x: Array, r: Array, pq: Array) -> bool:
        """alpha from p . q, the new x and r, counts and norms. False: candidates wait until the host verifies them."""
        self.decide("cg_alpha", pq, self.rz, self.alpha, self.last_alpha, self.keep)
        self.decide("cg_norm", vectors.cg_update_partials(self.alpha, p, q, x, r), self.keep)
        return False

    def verify_convergence(self, true: Array, r: Array) -> None:
        """Decide on the candidates by the true residual, which replaces r where a sample continues."""
        keep = self.change  # in no use between iterations
        self.decide("cg_verify", vectors.dot_partials(true, true), self.rz, self.adopt, keep)
        self.copy(self.adopt, true, r)
        self.copy(keep, self.x, self.kept)

    def keep_previous(self, p: Array) -> None:
        """Keep the iterates that a next direction would keep: queued after the last iteration."""
        chosen = np.array(to_numpy(self.keep)) != 0
        if chosen.any():
            self.copy(self.keep, self.x - self.last_alpha * p, self.kept)
