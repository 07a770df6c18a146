"""Prolongators over ranks, with their transposes stored by rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import asarray_like
from ensemble._kernels.krylov import vectors
from ensemble._typing import Array
from ensemble.distributed.rank_matrix import RankMatrix
from ensemble.distributed.transpose import TransposePlan

__all__ = ["RankProlongator"]


class RankProlongator(RankMatrix):
    """A prolongator over ranks: products with it, and with its transpose, which is stored by rows.

    Attributes
    ----------
    restriction : RankMatrix
        The transpose.
    """

    restriction: RankMatrix

    @classmethod
    def made(cls, P: RankMatrix, plan: TransposePlan, old: RankProlongator | None = None) -> RankProlongator:
        """`P` with its transpose by `plan`; halos of `old`, on the same graph, serve again."""
        new = cls(P.rows, P.columns, P.indptr, P.numbers, P.values, P.halo, P.indices)
        values = plan.values(P.values)
        if old is None:
            new.restriction = RankMatrix(P.columns, P.rows, plan.indptr, plan.numbers, values)
        else:
            new.restriction = old.restriction.with_values(values)
        return new

    def apply_transpose(self, x: Array, out: Array = None) -> Array:
        """P^T x on bare arrays, each coarse row summed over ascending fine rows."""
        return self.restriction.apply(x, out)

    def replay_parts(self) -> tuple[Any, ...]:
        return *super().replay_parts(), *self.restriction.replay_parts()

    def astype(self, dtype: Any) -> Any:
        """The same prolongator with values of another type; itself where that is its type."""
        if dtype == self.dtype:
            return self
        new = type(self)(self.rows, self.columns, self.indptr, self.numbers, self.values.astype(dtype), self.halo,
                         self.indices)  # fmt: skip
        new.restriction = self.restriction.astype(dtype)
        return new

    def take_samples(self, samples: Any) -> Any:
        """The prolongator of the samples named."""
        if self.n_samples == 1:
            return self
        samples = np.asarray(samples)
        part = vectors.take_samples(self.values, asarray_like(samples, self.values), None)
        new = type(self)(self.rows, self.columns, self.indptr, self.numbers, part, self.halo, self.indices)
        new._copies, new.restriction = self._copies, self.restriction.take_samples(samples)
        return new
