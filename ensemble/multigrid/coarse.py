"""The coarsest level: its choice, and its dense inverses, one per sample, applied to all samples at once."""

from __future__ import annotations

from typing import Any

from ensemble._backend import array_namespace, asarray_like, contiguous
from ensemble._kernels.multigrid.dense import dense_inverses, dense_product
from ensemble.linalg import BcrsMatrix, CrsMatrix, SymmetricCrsMatrix

LARGEST_COARSEST = 500
"""Rows below which a level may be chosen as the coarsest."""

LARGEST_DENSE = 4000
"""Rows above which a coarsest level that would not coarsen further is smoothed instead of inverted."""

LEVEL_ENTRIES = 1000
"""Fixed cost of one more level (kernel launches), in stored entries of a smoothed level."""

NEGLIGIBLE = 1 / 8
"""Cost of the dense inverse, relative to that of the finer levels, below which further levels gain nothing."""


def dense_cost(rows: int) -> float:
    """Cost of a dense inverse and ten products with it, in stored entries of a smoothed level.

    A stored entry of a smoothed level costs about 100 ns per sample on one CPU thread: its set-up and ten V-cycles. The
    inverse by LAPACK takes 0.15 ns times rows^3, per product 1 ns times rows^2.
    """
    return 1.5e-3 * rows**3 + 0.1 * rows**2


def is_coarsest(entries: list[int], rows: int, coarse_rows: int) -> bool:
    """Whether the last level, of `rows` rows, is better inverted than coarsened to `coarse_rows`.

    `entries` are the stored entries of all levels so far. Neither values nor the number of samples count: a sample has
    the levels of its scalar run.
    """
    if rows >= LARGEST_COARSEST:
        return False
    if not 0 < coarse_rows < rows:
        return True
    further = LEVEL_ENTRIES + entries[-1] + dense_cost(coarse_rows)
    return dense_cost(rows) <= max(further, NEGLIGIBLE * sum(entries[:-1]))


class CoarseSolver:
    """Inverses of the coarsest matrices, shape (n, n, n_samples): a singular sample gets its pseudo-inverse."""

    def __init__(self, A: CrsMatrix | BcrsMatrix | SymmetricCrsMatrix) -> None:
        if not isinstance(A, CrsMatrix):
            A = A.to_crs()
        self.inverse = dense_inverses(*A.graph.coordinates_on(A.values), A.values, A.shape[0], None)

    def apply(self, b: Any, out: Any) -> Any:
        """The coarse solution for a right-hand side of shape (n, n_samples)."""
        return dense_product(self.inverse, b, out)

    def take_samples(self, samples: Any) -> CoarseSolver:
        """The solver of the samples named."""
        if self.inverse.shape[2] == 1:
            return self
        new = object.__new__(CoarseSolver)
        xp = array_namespace(self.inverse)
        new.inverse = contiguous(xp.take(self.inverse, asarray_like(samples, self.inverse), axis=2))
        return new
