"""Products and smoothing steps of a symmetric matrix over ranks that stores one of two entries across the diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.kept_memory import empty_like
from ensemble._compile.numba import thread_count
from ensemble._kernels.multigrid import domain_triangles
from ensemble._kernels.sparse import crs
from ensemble._kernels.sparse.row_passes import Passes
from ensemble._kernels.sparse.row_sums import in_space
from ensemble._typing import Array
from ensemble.distributed.domain_triangles import DomainTriangles
from ensemble.distributed.rank_matrix import RankMatrix
from ensemble.distributed.transfer import RankProlongator
from ensemble.scalar import Ensemble

__all__ = ["UpperProducts"]

kernels: Any = domain_triangles  # without annotations


class UpperProducts(RankMatrix):
    """The rows of a symmetric matrix that a rank holds; `values` has those of the entries that are stored.

    Attributes
    ----------
    triangles : DomainTriangles
        Which entries are stored, and where.
    """

    has_fused_steps = True
    stores_upper = True

    @property
    def triangles(self) -> DomainTriangles:
        """Which entries are stored, and where; made once for all matrices on the graph."""
        if "triangles" not in self._plans:
            self._plans["triangles"] = DomainTriangles(self.rows, self.indptr, self.numbers, self.indices)
        found: DomainTriangles = self._plans["triangles"]
        return found

    @property
    def arrays(self) -> tuple[Any, ...]:
        """(places, values): what the kernels of `domain_triangles` begin with."""
        return self.triangles.places, self.values

    @property
    def graph_arrays(self) -> tuple[Any, ...]:
        """(indptr, indices, entries), for kernels that read whole rows."""
        return self.indptr, self.indices, self.triangles.entries

    @property
    def entries(self) -> np.ndarray:
        """For each entry of the graph the place of its value."""
        return self.triangles.entries

    def replay_parts(self) -> tuple[Any, ...]:
        return self.halo, *self.triangles.places, self.values

    def diagonal(self) -> Ensemble:
        """The entries of the main diagonal in this rank's rows."""
        return Ensemble(crs.diagonal(self.triangles.places[1], self.values, None), self.sample_set)

    def passes_from(self, least: int) -> Passes | None:
        """Which domains are computed while ghost rows travel, where they have `least` rows at least; else None."""
        if not self.halo.receives:
            return None
        offsets = self.rows.local_domain_offsets
        entries = np.flatnonzero(self.indices >= self.columns.n_local)
        rows = np.searchsorted(self.indptr, entries, side="right") - 1
        waits = np.zeros(offsets.size - 1, bool)
        waits[np.searchsorted(offsets, rows, side="right") - 1] = True
        passes = Passes(offsets, waits)
        return passes if passes.n_early >= least else None

    # --- products
    def apply(self, x: Array, out: Array = None) -> Array:
        """A x on bare arrays, shape (n_local, n_samples)."""
        with self.arriving(x) as whole:
            return kernels.domain_spmv(*self.arrays, whole, out)

    def apply_dot(self, x: Array, out: Array = None) -> tuple[Array, Array]:
        """A x, and the inner product of x with it over the rows of all ranks."""
        with in_space(self.space), self.arriving(x) as whole:
            y, inner = kernels.domain_spmv_dot(*self.arrays, whole, out)
        return y, inner

    def residual(self, x: Array, b: Array, out: Array = None) -> Array:
        """b - A x on bare arrays."""
        with self.arriving(x) as whole:
            return kernels.domain_residual(*self.arrays, whole, b, out)

    def restricted_residual(
        self,
        x: np.ndarray,
        b: np.ndarray,
        P: RankProlongator,
        r: np.ndarray | None = None,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """P^T (b - A x) on bare arrays; in one pass if it needs no rows of others, else `r` may hold the residual."""
        found: np.ndarray
        alone = isinstance(P, RankProlongator) and not P.receives
        if alone and not self.halo.receives and thread_count() == 1 and P.n_samples == self.n_samples == x.shape[1]:
            out = empty_like(x, (P.local_shape[1], x.shape[1])) if out is None else out
            found = kernels.domain_restricted_residual(*self.arrays, x, b, (P.indptr, P.indices), P.values, out)
        else:
            found = P.apply_transpose(self.residual(x, b, r), out)
        return found

    def add_product(self, x: Array, out: Array) -> Array:
        """out += A x on bare arrays."""
        out += self.apply(x)
        return out

    # --- one step of a smoother, or of the power method
    def chebyshev_first(self, dinv: Array, b: Array, x: Array, c: Array, w: Array, out: Array) -> Any:
        """w = c * dinv * (b - A x), and x + w to `out`."""
        with self.arriving(x) as whole:
            return kernels.domain_chebyshev_first(*self.arrays, dinv, b, whole, c, w, out)

    def chebyshev_step(self, dinv: Array, b: Array, x: Array, a: Array, c: Array, w: Array, out: Array) -> Any:
        """w = a * w + c * dinv * (b - A x), and x + w to `out`."""
        with self.arriving(x) as whole:
            return kernels.domain_chebyshev_step(*self.arrays, dinv, b, whole, a, c, w, out)

    def chebyshev_last(self, dinv: Array, b: Array, x: Array, a: Array, c: Array, w: Array, out: Array) -> Any:
        """x + a * w + c * dinv * (b - A x) to `out`."""
        with self.arriving(x) as whole:
            return kernels.domain_chebyshev_last(*self.arrays, dinv, b, whole, a, c, w, out)

    def chebyshev_finish(
        self, leave: Array, dinv: Array, b: Array, x: Array, a: Array, c: Array, w: Array, r: Array, out: Array
    ) -> Any:
        """leave * (x + a * w + c * dinv * (b - A x)) to `out` in the type of r, and its inner product with r."""
        with in_space(self.space), self.arriving(x) as whole:
            return kernels.domain_finish(leave, *self.arrays, dinv, b, whole, a, c, w, r, out)

    def power_step(self, dinv: Array, q: Array, scale: Array, out: Array) -> tuple[Array, Array, Array]:
        """One step of the power method for D^-1 A, with its quotient and square over the rows of all ranks."""
        with in_space(self.space), self.arriving(q) as whole:
            found: tuple[Array, Array, Array] = kernels.domain_power_step(*self.arrays, dinv, whole, scale, out)
        return found
