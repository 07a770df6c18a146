"""Coarse levels that every rank computes whole on its device: one all-gather instead of exchanges for every product.

An exchange between devices takes as long as a product with some hundred thousand entries. Rows are summed in domain
order wherever they are, so that nothing changes in any bit.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ensemble._backend import asarray_like
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.sparse.crs import spmv_add
from ensemble._kernels.sparse.packed_rows import packed_rows
from ensemble._typing import Array
from ensemble.distributed.layout import RowLayout
from ensemble.distributed.messages import device_messages_for, gathered
from ensemble.distributed.rank_matrix import RankMatrix
from ensemble.distributed.transfer import RankProlongator
from ensemble.linalg import CrsMatrix
from ensemble.multigrid.aggregation_hierarchy import Level, cycle_of
from ensemble.multigrid.cycle import Workspace, v_cycle
from ensemble.multigrid.relaxation import ChebyshevSmoother

__all__ = ["ReplicatedLevels"]

MOST_BYTES = 48 << 20
"""Values of a level that a device reads in the time of an exchange, about 15 us (`benchmarks distributed-device`)."""

MOST_ROWS = 1 << 15
"""Rows of a level that set-up may gather on every rank."""


class ReplicatedLevels:
    """The levels of a hierarchy from one on, held whole by every rank; a `coarse` solver for the levels before.

    Parameters
    ----------
    levels : list of Level
        Their matrices are over ranks.
    coarse : RankCoarseSolver or None
        The solver of the last level.
    ghosts : array of int64
        Rows of other ranks that the prolongator to the level before reads.
    """

    def __init__(self, levels: list[Level], coarse: Any, ghosts: np.ndarray) -> None:
        self.rows = levels[0].A.rows
        self.levels = [whole_level(level) for level in levels]
        self.coarse = coarse and coarse.solver
        self.ghosts = asarray_like(ghosts.astype(np.int32), levels[0].A.values)

    def apply(self, b: Array, out: Array) -> Array:
        """The correction on this rank's rows, and on the ghosts behind `out`, for a right-hand side of these rows."""
        whole = gathered(self.rows.comm, b, self.rows.offsets)
        workspace = Workspace([level.A for level in self.levels], b.shape[1])
        x = v_cycle(self.levels, self.coarse, whole, empty_like(whole), workspace)
        out[...] = x[self.rows.first : self.rows.first + self.rows.n_local]
        if self.ghosts.size:
            packed_rows(x, self.ghosts, behind(out, self.rows, self.ghosts.size)[self.rows.n_local :])
        return out


def behind(x: Array, rows: RowLayout, n_ghosts: int) -> Array:
    """A vector of the rows of this rank with the ghosts that lie behind it."""
    whole = rows.space.space_behind(x, n_ghosts)
    if whole is None:
        raise RuntimeError("a coarse solution without space for rows of other ranks: a fault of this library.")
    return whole


class FilledProlongator:
    """A prolongator of coarse vectors whose ghosts are there: its product sends no message.

    Parameters
    ----------
    P : RankProlongator
    """

    def __init__(self, P: RankProlongator) -> None:
        self.P, self.apply_transpose = P, P.apply_transpose

    def add_product(self, x: Array, out: Array) -> Array:
        """out += P x on bare arrays, `x` as `ReplicatedLevels` leaves it."""
        n_ghosts = self.P.halo.n_ghosts
        return spmv_add(*self.P.arrays, behind(x, self.P.columns, n_ghosts) if n_ghosts else x, out)


class WholeProlongator:
    """A prolongator and its transpose, both stored by rows.

    Parameters
    ----------
    P, restriction : CrsMatrix
    """

    def __init__(self, P: CrsMatrix, restriction: CrsMatrix) -> None:
        self.add_product, self.apply_transpose = P.add_product, restriction.apply


def whole_level(level: Level) -> Level:
    """A level over ranks as one that this rank has whole."""
    A, P, smoother = level.A, level.P, level.smoother
    made = Level(A.gathered(), lambda_max=level.lambda_max)
    if isinstance(P, RankProlongator):
        made.P = WholeProlongator(P.gathered(), P.restriction.gathered())
    if isinstance(smoother, ChebyshevSmoother):
        dinv = gathered(A.rows.comm, smoother.dinv, A.rows.offsets)
        made.smoother = ChebyshevSmoother(made.A, dinv, smoother.host_steps)
    return made


@cycle_of.register
def _(A: RankMatrix, levels: list[Level], coarse: Any) -> tuple[list[Level], Any]:
    if A.rows.comm.size == 1 or device_messages_for(A.rows.comm, A.values) is None:
        return levels, coarse
    for k in range(1, len(levels) - 1):
        each = levels[k].A
        if each.shape[0] <= MOST_ROWS and each.nnz * each.n_samples * each.dtype.itemsize <= MOST_BYTES:
            return with_whole_levels(levels, k, coarse)
    return levels, coarse


def with_whole_levels(levels: list[Level], k: int, coarse: Any) -> tuple[list[Level], ReplicatedLevels]:
    """The cycle whose levels from `k` on, which is above zero, every rank holds whole."""
    above: Any = copy.copy(levels[k - 1])
    ghosts = above.P.halo.ghosts
    above.P = FilledProlongator(above.P)
    return [*levels[: k - 1], above, levels[k]], ReplicatedLevels(levels[k:], coarse, ghosts)
