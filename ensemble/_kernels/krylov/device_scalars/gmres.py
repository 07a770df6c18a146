"""The scalars of GMRES on the device: Givens rotations, triangles and right-hand sides of every sample's cycle.

A counter in device memory tells every kernel how long the basis is, so that one recorded iteration serves all lengths.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import asarray_like
from ensemble._compile import cuda
from ensemble._kernels.krylov import basis
from ensemble._kernels.krylov import vectors as krylov
from ensemble._kernels.krylov.device_scalars.scalars import Scalars

__all__ = ["GmresScalars", "cycle_rows"]


def cycle_rows(R: Any, cosines: Any, sines: Any, g: Any, begun: Any, length: Any) -> Any:
    """The numbers of a cycle as the kernels of basis.cu have them, shape (n_rows, n_samples)."""
    restart, _, n_samples = R.shape
    scratch = np.zeros((restart + 1, n_samples))  # the newest column of R
    single = np.zeros((5, n_samples))
    single[0], single[3] = begun, length
    return np.concatenate([R.reshape(-1, n_samples), cosines, sines, g, scratch, single])


class GmresScalars(Scalars):
    """What GMRES knows of each sample.

    Parameters
    ----------
    rows : array of float64, shape (n_rows, n_samples)
        As `cycle_rows` has them.
    restart, made : int
        Columns that a cycle may have, and those that this one has.
    eps : float
        Roundoff of the vectors' type.
    """

    family = basis.CUDA

    def __init__(self, *book: Any, rows: Any, restart: int, made: int, eps: float) -> None:
        super().__init__(*book)
        self.restart, self.eps = restart, np.float64(eps)
        self.cycle = self.rows(rows)
        self.made = asarray_like(np.array([made, made, 0], np.int32), self.like)
        self.h = self.zeros(restart + 1)
        self.alpha, self.chosen = self.zeros(2)

    @property
    def _cycle(self) -> tuple[Any, ...]:
        return self.cycle, np.int32(self.restart), self.made

    def _chunked(self, kernel: str, *arguments: Any, n_sums: int = 1) -> Any:
        n_rows, n_samples = self.like.shape
        vectors = [a for a in arguments if a.dtype == self.like.dtype]
        layout = cuda.layout_of(n_samples, *vectors)
        given = (*arguments, self.made)
        return cuda.chunked(self.family, kernel, n_rows, given, layout, False, n_samples, n_sums, True)

    def _rows(self, kernel: str, *arguments: Any) -> None:
        layout = cuda.layout_of(self.n_samples, *arguments)
        self.family.rows(kernel, self.like.shape[0], self.n_samples, (*arguments, self.made), layout)

    def keep(self, z: Any, Z: Any) -> None:
        """Z[j] = z."""
        self._rows("keep", z, Z)

    def expand(self, V: Any, w: Any, u: Any) -> None:
        """Basis vector j + 1 from w = A M V[j], in V and in u, and column j of R; the norms are judged."""
        for second in ("false", "true"):
            n_sums = self.restart + (2 if second == "false" else 1)
            partials = self._chunked(f"arnoldi_dots<{second}>", V, w, n_sums=n_sums)
            self.decide(f"gmres_dots<{second}>", partials, self.h, *self._cycle, n_sums=n_sums)
            partials = self._chunked(f"arnoldi_add<{second}>", self.h, V, w)
            if second == "false":
                self.decide("gmres_left", partials, *self._cycle)
        self.decide("gmres_rotate", partials, self.eps, self.alpha, *self._cycle)
        self._rows("append", self.alpha, w, V, u)

    def solve(self, ended: str) -> None:
        """Coefficients of the cycle's solution, in `h`, for the samples that settle."""
        self.decide(f"gmres_solve<{ended}>", None, self.h, self.chosen, *self._cycle)

    def solution(self, basis_vectors: Any, out: Any, anew: str) -> None:
        """out = (or +=) the sum of the cycle's vectors times their coefficients."""
        self._chunked(f"cycle_sum<{anew}>", self.h, basis_vectors, out)

    def add(self, z: Any, x: Any) -> None:
        """x += z for the samples that settle."""
        basis.basis_add_partials(self.chosen[None, :], z[None, :, :], x)

    def settle(self, r: Any, ended: str) -> None:
        """Judge the samples that settle by the true residual r; at the end of a cycle those that go on begin anew."""
        self.decide(f"gmres_settle<{ended}>", krylov.dot_partials(r, r), self.alpha, self.chosen, *self._cycle)
        self.copy(self.chosen, self.x, self.kept)

    def open(self, V: Any, r: Any, u: Any) -> None:
        """The first basis vector of a cycle, in V and in u."""
        self._rows("append", self.alpha, r, V, u)
