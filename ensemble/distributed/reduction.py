"""Reduction-based multigrid over ranks: rows are split domain by domain, everything else is as on one rank.

Restriction and coarse matrix are made where the fine rows lie, and move to the ranks of the joined coarse domains.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.multigrid.splitting import ALL_ENTRIES, DIAGONAL, OFF_DIAGONAL
from ensemble._typing import Array
from ensemble.distributed.layout import RowLayout
from ensemble.distributed.messages import all_sum
from ensemble.distributed.offsets import offsets_of
from ensemble.distributed.products import RankProduct, Resettlement
from ensemble.distributed.rank_matrix import RankMatrix
from ensemble.distributed.splitting import coarse_rows_by_domains
from ensemble.linalg import CrsGraph
from ensemble.multigrid.reduction import Options, interpolation_weights, reduction_of
from ensemble.multigrid.splitting import SharedStrength, part_of

__all__ = ["RankReduction"]

SMALLEST_DOMAIN = 256
"""Rows of a coarse domain, on average, below which pairs of domains are joined: borders cost iterations.

Measured again by `benchmarks distributed`.
"""


class RankReduction:
    """What the graph and the strong entries of one level over ranks decide; see `Reduction`.

    `home` has the coarse rows of each domain on the rank of the domain, `joined` the rows of the next level.
    """

    def __init__(self, A: RankMatrix, strength: SharedStrength, options: Options) -> None:
        self.options, layout = options, A.rows
        values = strength.finite_samples(A.values)
        graph = CrsGraph.unchecked(A.indptr, A.indices, (layout.n_local, layout.n_local + A.halo.n_ghosts))
        strong = strength.strong(graph, values, OFF_DIAGONAL, options.theta)
        self.coarse = coarse_rows_by_domains(A, strong)
        self._number_coarse(A)
        self.splits = 0 < self.home.n < layout.n
        if not self.splits:
            return
        n, numbers = layout.n_local, self._numbers
        coarse, fine = numbers >= 0, numbers < 0
        near = strength.strong(graph, values, OFF_DIAGONAL, options.theta_restriction)
        self.cf = np.flatnonzero(near & coarse[:n][graph.row_of_entry] & fine[A.indices])
        self.ff = np.flatnonzero(near & fine[:n][graph.row_of_entry] & fine[A.indices])
        self._plan_series(A, graph.row_of_entry)
        self.fine_rows = np.flatnonzero(fine[:n])
        self.fc = part_of(graph, strong, fine[:n], coarse)
        self.f_all = part_of(graph, graph.row_of_entry != graph.indices, fine[:n], np.ones_like(coarse))
        rows = self.fine_rows[self.fc.graph.row_of_entry]
        self._identity_p = Joined(
            rows, numbers[A.indices[self.fc.entries]], self.coarse_rows, numbers[self.coarse_rows], n, A.indptr.dtype
        )
        self._P: RankMatrix | None = None

    def _number_coarse(self, A: RankMatrix) -> None:
        """The layouts of the coarse rows, and the number of each local row and ghost among these, -1 for fine rows."""
        layout = A.rows
        first, last = layout.rank_domains[layout.comm.rank], layout.rank_domains[layout.comm.rank + 1]
        self.coarse_rows = np.flatnonzero(self.coarse)
        sizes = np.zeros(layout.n_domains, np.int64)
        counts = offsets_of(self.coarse)
        sizes[first:last] = np.diff(counts[layout.local_domain_offsets])
        sizes = all_sum(layout.comm, sizes)
        offsets = offsets_of(sizes)
        self.home = RowLayout(layout.comm, offsets, layout.rank_domains)
        self.joined = layout.joined(sizes, SMALLEST_DOMAIN)
        numbers = np.full((layout.n_local + A.halo.n_ghosts, 1), -1, np.int64)
        numbers[self.coarse_rows, 0] = self.home.first + np.arange(self.coarse_rows.size)
        self._numbers = A.halo.exchange(numbers)[:, 0]

    def _plan_series(self, A: RankMatrix, row_of_entry: np.ndarray) -> None:
        """The graphs of A_cf, of A_ff and of the partial sums of the series; columns are rows of the level."""
        layout, dtype = A.rows, A.indptr.dtype
        place = np.cumsum(self.coarse) - 1
        indptr = starts_of(place[row_of_entry[self.cf]], self.home.n_local, dtype)
        last = RankMatrix(self.home, layout, indptr, A.numbers[self.cf], A.values[self.cf])
        rows = row_of_entry[self.ff]
        indptr = starts_of(rows, layout.n_local, dtype)
        self._L = RankMatrix(layout, layout, indptr, A.numbers[self.ff], A.values[self.ff])
        each = np.flatnonzero(~self.coarse)
        near = Joined(rows, A.numbers[self.ff], each, layout.first + each, layout.n_local, dtype)
        pattern = RankMatrix(layout, layout, near.indptr, near.numbers, A.values[:1].repeat(near.numbers.size, axis=0))
        self._series: list[tuple[RankProduct, np.ndarray]] = []
        own = keys_of(last.indptr, last.numbers, layout.n)
        for _ in range(self.options.degree):
            product = RankProduct(last, self._L, pattern)
            places = np.searchsorted(keys_of(product.indptr, product.numbers, layout.n), own)
            self._series.append((product, places))
            values = np.zeros((product.numbers.size, 1), A.dtype)
            last = RankMatrix(self.home, layout, product.indptr, product.numbers, values)
        self._total = last

    def restriction(self, A: RankMatrix, dinv: Array, strength: SharedStrength | None) -> Any:
        """``R = [-A_cf (I + L + ... + L^degree) D_ff^-1, I]`` with ``L = I - D_ff^-1 A_ff``."""
        cf, rows = A.values[self.cf], np.repeat(np.arange(A.rows.n_local), np.diff(self._L.indptr))
        L = -A.values[self.ff] * dinv[rows]
        total = cf
        for product, places in self._series:  # by Horner's rule
            total = product.values(total, L)
            total[places] += cf
        last = self._total
        if strength is not None:
            graph = CrsGraph.unchecked(last.indptr, last.indices, last.local_shape)
            kept = strength.strong(graph, strength.finite_samples(total), ALL_ENTRIES, self.options.drop_restriction)
            self._kept = np.flatnonzero(kept)
            here = self.home.n_local
            self._identity_r = Joined(
                graph.row_of_entry[self._kept], last.numbers[self._kept], np.arange(here),
                A.rows.first + self.coarse_rows, here, A.indptr.dtype,
            )  # fmt: skip
            self._moved_r: Resettlement | None = None
        whole = last.whole(dinv)
        total = -total[self._kept] * whole[last.indices[self._kept]]
        made = self._identity_r
        values = made.values(total)
        if self._moved_r is None:
            self._R = RankMatrix(self.home, A.rows, made.indptr, made.numbers, values)
            self._moved_r = Resettlement(self.home, self.joined, A.rows, made.indptr, made.numbers)
        self._R = self._R.with_values(values)
        return self._moved_r.matrix(values)

    def interpolation(self, A: RankMatrix) -> Any:
        """Direct interpolation from strong coarse neighbours, for each sample by its own values."""
        made = self._identity_p
        values = made.values(interpolation_weights(A, self.f_all, self.fc, self.fine_rows))
        if self._P is None:
            self._P = RankMatrix(A.rows, self.joined, made.indptr, made.numbers, values)
        return self._P.with_values(values)

    def coarse_matrix(self, A: RankMatrix, R: Any, P: Any, strength: SharedStrength | None) -> Any:
        """R A P without the entries that are small beside the diagonal."""
        if strength is not None:
            self._ap = RankProduct(A, P)
            here = A.values[:1].repeat(self._ap.numbers.size, axis=0)
            halo = RankMatrix(A.rows, self.joined, self._ap.indptr, self._ap.numbers, here)
            self._rap = RankProduct(self._R, halo)
        values = self._rap.values(self._R.values, self._ap.values(A.values, P.values))
        if strength is not None:
            indptr, numbers = self._rap.indptr, self._rap.numbers
            shape = (self.home.n_local, self.home.n)
            graph = CrsGraph.unchecked(indptr, (numbers - self.home.first).astype(np.int32), shape)
            kept = strength.strong(graph, strength.finite_samples(values), DIAGONAL, self.options.drop_coarse)
            self._kept_coarse = np.flatnonzero(kept)
            indptr = starts_of(graph.row_of_entry[self._kept_coarse], self.home.n_local, indptr.dtype)
            self._moved_c = Resettlement(self.home, self.joined, self.joined, indptr, numbers[self._kept_coarse])
        return self._moved_c.matrix(values[self._kept_coarse])


class Joined:
    """The graph of given coordinates and those of ones, and the order of their values in it."""

    def __init__(
        self, rows: np.ndarray, numbers: np.ndarray, unit_rows: np.ndarray, unit_numbers: np.ndarray, n_rows: int,
        dtype: Any,
    ) -> None:  # fmt: skip
        rows, numbers = np.concatenate([rows, unit_rows]), np.concatenate([numbers, unit_numbers])
        self._order, self._n_ones = np.lexsort((numbers, rows)), unit_rows.size
        self.indptr, self.numbers = starts_of(rows, n_rows, dtype), numbers[self._order]

    def values(self, values: Array) -> Array:
        """`values` and the ones, in the order of the graph."""
        ones = np.ones((self._n_ones, values.shape[1]), values.dtype)
        joined: np.ndarray = np.concatenate([values, ones])[self._order]
        return joined


def starts_of(rows: np.ndarray, n_rows: int, dtype: Any) -> np.ndarray:
    """Where each row begins among entries whose rows are given, and their number."""
    starts: np.ndarray = offsets_of(np.bincount(rows, minlength=n_rows)).astype(dtype)
    return starts


def keys_of(indptr: np.ndarray, numbers: np.ndarray, n_columns: int) -> np.ndarray:
    """A number for each entry, ascending by rows and then by columns."""
    rows = np.repeat(np.arange(indptr.size - 1, dtype=np.int64), np.diff(indptr))
    keys: np.ndarray = rows * n_columns + numbers
    return keys


@reduction_of.register
def _(A: RankMatrix, strength: SharedStrength, options: Options) -> RankReduction:
    return RankReduction(A, strength, options)
