"""Known unknowns of systems over ranks: which entries of a rank's rows become zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import require
from ensemble.distributed.agreement import agreement
from ensemble.linalg.dirichlet import NAME, Elimination

__all__ = ["RankElimination"]


class RankElimination(Elimination):
    """Which entries of the rows of this rank become zero, for known unknowns `rows`, its own.

    Those of other ranks that its rows couple to come in one exchange.
    """

    def __init__(self, A: Any, rows: np.ndarray, symmetric: bool) -> None:
        n = A.local_shape[0]
        known = np.zeros((n + A.halo.n_ghosts, 1), np.uint8)
        known[rows] = 1
        fixed = A.halo.exchange(known)[:, 0].astype(bool)
        row = np.repeat(np.arange(n), np.diff(A.indptr))
        diagonal = A.diagonal_places()[rows]
        with agreement(A.rows.comm):
            missing = rows[diagonal < 0]
            seen = f"none in row {missing[0] if missing.size else 0}"
            require(not missing.size, NAME, "A", "have a diagonal entry in the graph for each of the rows", seen)
        stored = A.triangles.stored if A.stores_upper else None
        self._keep(n, rows, fixed[row] | (fixed[A.indices] & symmetric), diagonal, stored)
