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
    receives : bool
        Whether this rank gets rows of others, for products with the prolongator or with its transpose.
    """

    _plan: TransposePlan
    _restriction: RankMatrix | None = None

    @classmethod
    def made(cls, P: RankMatrix, plan: TransposePlan, old: RankProlongator | None = None) -> RankProlongator:
        """`P` with its transpose by `plan`; halos of `old`, on the same graph, serve again."""
        new = cls(P.rows, P.columns, P.indptr, P.numbers, P.values, P.halo, P.indices)
        new._plan, known = plan, None if old is None else old._restriction
        if known is not None:
            new._restriction = known.with_values(plan.values(P.values))
        elif P.rows.comm.size > 1 or not isinstance(P.values, np.ndarray):
            new._restriction = new.restriction  # by messages, or memory that a recorded solve must not take
        return new

    @property
    def restriction(self) -> RankMatrix:
        """The transpose: on one rank made at its first use, for residuals may be restricted as they are made."""
        if self._restriction is None:
            plan = self._plan
            values = plan.values(self.values)
            self._restriction = RankMatrix(self.columns, self.rows, plan.indptr, plan.numbers, values)
        return self._restriction

    @property
    def receives(self) -> bool:
        return self.rows.comm.size > 1 and bool(self.halo.receives or self.restriction.halo.receives)

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
        new._plan, new._restriction = self._plan, self._restriction and self._restriction.astype(dtype)
        return new

    def take_samples(self, samples: Any) -> Any:
        """The prolongator of the samples named."""
        if self.n_samples == 1:
            return self
        samples = np.asarray(samples)
        part = vectors.take_samples(self.values, asarray_like(samples, self.values), None)
        new = type(self)(self.rows, self.columns, self.indptr, self.numbers, part, self.halo, self.indices)
        new._copies, new._plan = self._copies, self._plan
        new._restriction = self._restriction and self._restriction.take_samples(samples)
        return new
