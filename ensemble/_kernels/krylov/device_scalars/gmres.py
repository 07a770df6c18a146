"""The scalars of GMRES on the device: Givens rotations, triangles and right-hand sides of every sample's cycle.

A counter in device memory holds the length of the basis, so that one CUDA graph serves all lengths.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import asarray_like
from ensemble._compile import cuda
from ensemble._kernels.krylov import basis
from ensemble._kernels.krylov.device_scalars.scalars import DeviceScalars
from ensemble._kernels.krylov.vectors import dot_partials
from ensemble._typing import Array

__all__ = ["GmresScalars", "initial_rows"]


def initial_rows(restart: int, norm: np.ndarray) -> np.ndarray:
    """A cycle without columns, as in basis.cu, from the residual norms: shape (n_rows, n_samples)."""
    triangle, rotations, column = restart * restart, 2 * restart, restart + 1  # R; cosines, sines; the newest column
    rows = np.zeros((triangle + rotations + (restart + 1) + column + 5, norm.size))
    rows[triangle + rotations] = norm  # g[0]
    rows[-5] = norm
    return rows


class GmresScalars(DeviceScalars):
    """Rotations, triangle, right-hand side and columns of each sample's cycle.

    Parameters
    ----------
    rows : array of float64, shape (n_rows, n_samples)
        As of `initial_rows`.
    restart, columns : int
        Columns that a cycle may have, and those that this one has.
    eps : float
        Roundoff of the vectors' type.
    places : tuple of three arrays, shape (n, n_samples)
        The newest basis vector v, and where M v and A M v go.
    """

    module = basis.CUDA

    def __init__(
        self, *state: Any, rows: np.ndarray, restart: int, columns: int, eps: float, places: tuple[Array, Array, Array]
    ) -> None:
        super().__init__(*state)
        self.restart, self.eps, self.places = restart, np.float64(eps), places
        self.rows = self.to_device(rows)
        self.made = asarray_like(np.array([columns, columns, 0], np.int32), self.like)
        self.y = self.zeros(restart + 1)
        self.alpha, self.chosen = self.zeros(2)

    @property
    def _cycle(self) -> tuple[Any, ...]:
        return self.rows, np.int32(self.restart), self.made

    def _chunked(self, kernel: str, *arguments: Array, n_sums: int = 1) -> Array:
        n_rows, n_samples = self.like.shape
        vectors = [a for a in arguments if a.dtype == self.like.dtype]
        layout = cuda.layout_of(n_samples, *vectors)
        given = (*arguments, self.made)
        return cuda.chunked(self.module, kernel, n_rows, given, layout, False, n_samples, n_sums, True)

    def _per_row(self, kernel: str, *arguments: Array) -> None:
        layout = cuda.layout_of(self.n_samples, *arguments)
        self.module.rows(kernel, self.like.shape[0], self.n_samples, (*arguments, self.made), layout)

    # --- one step of Arnoldi's process
    def arnoldi_vectors(self) -> tuple[Array, Array, Array]:
        """The newest basis vector v, and where M v and A M v go: the same for every length of the basis."""
        return self.places

    def keep(self, z: Array, Z: Array) -> None:
        """Z[j] = z."""
        self._per_row("keep", z, Z)

    def expand(self, V: Array, w: Array, u: Array) -> None:
        """Basis vector j + 1 from w = A M V[j], in V and in u, column j of R, counts and norms."""
        for second in ("false", "true"):
            n_sums = self.restart + (2 if second == "false" else 1)
            partials = self._chunked(f"arnoldi_dots<{second}>", V, w, n_sums=n_sums)
            self.decide(f"gmres_dots<{second}>", partials, self.y, *self._cycle, n_sums=n_sums)
            partials = self._chunked(f"arnoldi_add<{second}>", self.y, V, w)
            if second == "false":
                self.decide("gmres_left", partials, *self._cycle)
        self.decide("gmres_rotate", partials, self.eps, self.alpha, *self._cycle)
        self._per_row("append", self.alpha, w, V, u)

    # --- the solution of a cycle
    def solve(self, ended: bool) -> bool:
        """y from R y = g for the samples whose x is to be updated; True."""
        self.decide(cuda.instance("gmres_solve", ended), None, self.y, self.chosen, *self._cycle)
        return True

    def add_basis(self, basis_vectors: Array, out: Array) -> None:
        """out += the sum of the cycle's vectors times y."""
        self._chunked("cycle_sum<false>", self.y, basis_vectors, out)

    def combine_basis(self, basis_vectors: Array, out: Array) -> None:
        """out = the sum of the cycle's vectors times y."""
        self._chunked("cycle_sum<true>", self.y, basis_vectors, out)

    def add(self, z: Array, x: Array) -> None:
        """x += z for the chosen samples."""
        basis.basis_add_partials(self.chosen[None, :], z[None, :, :], x)

    def verify_convergence(self, true: Array, ended: bool) -> None:
        """Decide on the chosen samples by their true residuals; at the end of a cycle those that continue restart."""
        kernel = cuda.instance("gmres_verify", ended)
        self.decide(kernel, dot_partials(true, true), self.alpha, self.chosen, *self._cycle)
        self.copy(self.chosen, self.x, self.kept)

    def begin_cycle(self, V: Array, r: Array, u: Array) -> None:
        """The first basis vector of a cycle, in V and in u."""
        self._per_row("append", self.alpha, r, V, u)
