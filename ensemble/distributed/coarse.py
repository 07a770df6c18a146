"""The coarsest level over ranks: every rank has its whole matrix, and solves for all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.kept_memory import empty_like
from ensemble._typing import Array
from ensemble.distributed.coarsening import RankCoarsening
from ensemble.distributed.messages import gathered
from ensemble.distributed.rank_matrix import RankMatrix
from ensemble.multigrid.coarse import CoarseSolver, coarse_solver_of
from ensemble.multigrid.setup import coarsening_of

__all__ = ["RankCoarseSolver"]


class RankCoarseSolver:
    """Direct solver of the coarsest matrices, whose rows all ranks get: one all-gather a solution.

    Parameters
    ----------
    A : RankMatrix, square
    """

    def __init__(self, A: RankMatrix) -> None:
        self.rows, self.n_samples = A.rows, A.n_samples
        self.matrix = A.gathered()
        self.solver = CoarseSolver(self.matrix)

    def apply(self, b: Array, out: Array) -> Array:
        """The coarse solution on this rank's rows for a right-hand side of shape (n_local, n_samples)."""
        if self.rows.comm.size == 1:
            return self.solver.apply(b, out)
        whole = gathered(self.rows.comm, b, self.rows.offsets)
        x = self.solver.apply(whole, empty_like(whole))
        out[...] = x[self.rows.first : self.rows.first + self.rows.n_local]
        return out

    def take_samples(self, samples: Any) -> RankCoarseSolver:
        """The solver of the samples named."""
        if self.n_samples == 1:
            return self
        new = object.__new__(RankCoarseSolver)
        new.rows, new.n_samples, new.matrix = self.rows, np.size(samples), self.matrix.take_samples(samples)
        new.solver = self.solver.take_samples(samples)
        return new

    def amplification(self, A: RankMatrix) -> np.ndarray:
        """As that of `CoarseSolver`, of the matrices that this solver was made of."""
        return self.solver.amplification(self.matrix)


@coarsening_of.register
def _(A: RankMatrix, B: np.ndarray, block_size: int, strength: Any) -> RankCoarsening:
    return RankCoarsening(A, B, block_size)


coarse_solver_of.register(RankMatrix, RankCoarseSolver)
