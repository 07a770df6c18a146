"""Smoothed aggregation over ranks: aggregates within domains, and coarse matrices with the bits of one rank.

A coarse row is summed over ascending fine rows, as on one rank. Its rank therefore gets the fine rows that it takes
part in from their owners, and the rows of the prolongator that those couple to. Coarse domains are unions of
consecutive domains, and belong to the rank of the first: coarse levels sit on fewer ranks.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ensemble._backend import asarray_like, backend_of, library_and_device, to_numpy
from ensemble._compile.device import device_of
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.multigrid import galerkin
from ensemble._kernels.multigrid.aggregation import aggregate, coupled_rows, number_by_rows
from ensemble._kernels.sparse.crs import spmv_transpose
from ensemble._kernels.sparse.graph_rows import kept_rows, spans_between, transposed_part
from ensemble._kernels.sparse.product_graphs import entries_between, product_graph
from ensemble._typing import Array
from ensemble.distributed.entry_exchange import joined
from ensemble.distributed.layout import RowLayout
from ensemble.distributed.messages import all_sum, exchanged, exchanged_arrays
from ensemble.distributed.offsets import narrow, offsets_of, places_in
from ensemble.distributed.rank_matrix import RankMatrix, foreign
from ensemble.distributed.row_fetch import RowFetch
from ensemble.distributed.transfer import RankProlongator
from ensemble.distributed.transpose import TransposePlan
from ensemble.linalg import CrsGraph
from ensemble.multigrid.aggregation import node_graph
from ensemble.multigrid.tentative import tentative_prolongator

__all__ = ["RankCoarsening"]

SMALLEST_DOMAIN = 64
"""Rows of a coarse domain, on average, below which pairs of domains are joined: aggregates do not cross domains."""

LARGE_DOMAIN, PARTS = 2 * SMALLEST_DOMAIN, (0.7, 0.5)
"""Parts of a row's couplings in its domain, from which on it is a root before others; the first one in domains of so
many rows only.

At a side of a domain a row of a mesh of bricks has 18 of 27 couplings, at an edge 12, one of a seven-point stencil 6 of
7. Small domains are mostly sides: with the first number there aggregates take up to 64 rows, and 48^3 cells 4 % more
iterations. Where two planes are left over at a side, rows at its edges would begin aggregates that lie across those of
the other planes: with the second number the rows between come before them.
"""


def early_parts(rows: int, domains: int) -> tuple[float, ...]:
    """Which parts of its couplings a row has in its domain to be a root first, second and so on."""
    return PARTS if rows >= LARGE_DOMAIN * domains else PARTS[1:]


class RankCoarsening:
    """The aggregates of a level over ranks, and how many rows the next level has.

    Parameters
    ----------
    A : RankMatrix, square
    B : array, shape (n_local, k)
        The near-nullspace on this rank's rows.
    block_size : int
        Rows of a node; domains begin with a node.
    """

    def __init__(self, A: RankMatrix, B: np.ndarray, block_size: int) -> None:
        self.B, layout = B, A.rows
        member, count, domain = aggregates_within_domains(A, block_size)
        first, last = layout.rank_domains[layout.comm.rank], layout.rank_domains[layout.comm.rank + 1]
        sizes = np.zeros(layout.n_domains, np.int64)
        sizes[first:last] = np.bincount(domain - first, minlength=last - first) * B.shape[1]
        self.sizes = all_sum(layout.comm, sizes)
        self.aggregates, self.count = member, count
        self.first = int(self.sizes[:first].sum())
        self.coarse_rows = int(self.sizes.sum())

    def plan(self, A: RankMatrix) -> tuple[RankPlan, np.ndarray]:
        """The graph work for the matrix `A` of the level, and the near-nullspace of the next on this rank's rows."""
        coarse = A.rows.joined(self.sizes, SMALLEST_DOMAIN)
        T, B = tentative_prolongator(self.aggregates, self.count, self.B)
        rows = self.first + np.arange(B.shape[0])
        return RankPlan(A, T, self.first, coarse), to_owners(coarse, rows, B)


def aggregates_within_domains(A: RankMatrix, block_size: int) -> tuple[np.ndarray, int, np.ndarray]:
    """The aggregate of each local row, -1 for boundary rows; how many there are; the domain of each.

    Aggregates are numbered by their first rows, and so domain by domain. Nodes with most of their couplings in their
    domain are roots first (`early_parts`): a domain of a box then has aggregates of three by three by three nodes from
    its sides on, as a box of its own has behind rows that are eliminated.
    """
    layout, n = A.rows, A.rows.n_local
    bounds = layout.local_domain_offsets
    own = np.repeat(np.arange(bounds.size - 1, dtype=np.int32), np.diff(bounds))
    coupled = coupled_rows(A.graph_arrays, A.values)
    included = coupled.reshape(-1, block_size).any(axis=1)
    begins, ends = spans = spans_between(A.indptr, A.numbers, bounds, layout.first)
    here, couplings, indices = ends - begins, np.diff(A.indptr), A.indices
    early = [
        (here >= part * couplings).reshape(-1, block_size).all(axis=1)
        for part in early_parts(layout.n, layout.n_domains)
    ]
    if block_size > 1:
        graph = CrsGraph.unchecked(*entries_between(A.indptr, A.indices, bounds[:-1][own], bounds[1:][own]), (n, n))
        indptr, indices = node_graph(graph, block_size)
        spans = indptr[:-1], indptr[1:]
    member, count = aggregate(*spans, indices, included, early)
    first = number_by_rows(member, count) * block_size
    if block_size > 1:
        member = np.where(coupled, np.repeat(member, block_size), np.int32(-1))
    return member, count, own[first] + layout.rank_domains[layout.comm.rank]


def to_owners(layout: RowLayout, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Rows of `values`, whose ascending numbers are `rows`, at the ranks that own them, in order."""
    cuts = np.searchsorted(rows, layout.offsets)
    return np.concatenate(exchanged_arrays(layout.comm, [values[a:b] for a, b in itertools.pairwise(cuts)]))


def united_graph(graphs: list[Any], n_rows: int, n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The graph of all entries of some graphs of the same rows and columns."""
    keys = [np.zeros(0, np.int64)]
    for indptr, indices in graphs:
        keys.append(np.repeat(np.arange(n_rows, dtype=np.int64), np.diff(indptr)) * n_columns + indices)
    rows, indices = np.divmod(np.unique(np.concatenate(keys)), max(n_columns, 1))
    return narrow(np.searchsorted(rows, np.arange(n_rows + 1))), indices.astype(np.int32)


class Piece:
    """Some fine rows of A in ascending order, and what a rank's coarse rows take from them.

    Parameters
    ----------
    graph_a : (indptr, indices)
        The rows; columns are rows of `graph_p`.
    graph_p : (indptr, numbers)
        Rows of P with numbers of coarse columns.
    own : array of int or None
        The row of `graph_p` of each row of the piece; None for the first ones in their order.
    coarse : RowLayout
    restriction : (indptr, rows, entries), optional
        The transpose of the rows of P of the piece in the columns of `coarse`; made here if it is not known.
    """

    def __init__(
        self, graph_a: Any, graph_p: Any, own: np.ndarray | None, coarse: RowLayout, restriction: Any = None
    ) -> None:
        self.graph_a, self.indptr_p, self.numbers = graph_a, graph_p[0], graph_p[1]
        self.n_rows = graph_a[0].size - 1
        if restriction is None:
            first = np.arange(self.n_rows) if own is None else own
            own_columns, limits = (coarse.first, coarse.first + coarse.n_local), self.indptr_p
            restriction = transposed_part(limits[first], limits[first + 1], self.numbers, *own_columns)
        self.restriction = restriction
        self._tasks: dict[Any, Any] = {}

    def number_columns(self, columns: np.ndarray) -> None:
        """Number the coarse columns of P and A P by their places in `columns`."""
        self.graph_p = self.indptr_p, places_in(columns, self.numbers)
        self.graph_ap = product_graph(self.graph_a[0], self.graph_a[1], *self.graph_p, columns.size)

    def tasks(self, values: Array, graph_c: Any) -> Any:
        """The tasks of `add_galerkin_values` where `values` are; made once."""
        key = backend_of(values)
        if key not in self._tasks:
            graphs: Any = self.graph_a, self.graph_p, self.graph_ap, self.restriction, graph_c
            if device_of(values) is not None:
                graphs = tuple(tuple(asarray_like(array, values) for array in graph) for graph in graphs)
            self._tasks[key] = galerkin.galerkin_tasks(values, *graphs)
        return self._tasks[key]

    def restricted_graph(self, n_columns: int) -> tuple[np.ndarray, np.ndarray]:
        """The graph of the coarse rows, as far as this piece makes it."""
        return product_graph(self.restriction[0], self.restriction[1], *self.graph_ap, n_columns)


class RankPlan:
    """What one level over ranks needs for the next one besides values.

    Parameters
    ----------
    A : RankMatrix
    T : CrsMatrix, shape (n_local, aggregates of this rank times k)
        The tentative prolongator of this rank's rows.
    first : int
        Number of the first coarse row made of them.
    coarse : RowLayout
        Rows of the next level.
    """

    strong = None

    def __init__(self, A: RankMatrix, T: Any, first: int, coarse: RowLayout) -> None:
        self.coarse, self.T, self.rows = coarse, T, A.rows
        self.coarse_numbers = first + np.arange(T.shape[1])
        self._tentative(A, T, first)
        indptr, indices = product_graph(A.indptr, A.indices, self.graph_t[0], self.graph_t[1], self.used.size)
        self.graph_p = kept_rows(indptr, indices, np.diff(T.graph.indptr) > 0)
        self.numbers = self.used[self.graph_p[1]]
        self.transpose: TransposePlan | None = None
        self.pieces: list[Piece] = []
        self._smoothings: dict[Any, tuple[Any, ...]] = {}

    def _tentative(self, A: RankMatrix, T: Any, first: int) -> None:
        """T on this rank's rows and behind them the ghosts, its columns numbered by their places in `used`."""
        n, k = A.rows.n_local, int(np.diff(T.graph.indptr).max(initial=0))
        k = int(self.rows.space.largest(np.array([float(k)]))[0])
        if not (A.halo.receives or A.halo.sends):
            self.used, self.graph_t = self.coarse_numbers, (T.graph.indptr, T.graph.indices)
            self.tentative = T.values
            return
        whole = np.zeros((n + A.halo.n_ghosts, 1 + k))
        whole[:n, 0] = -1.0
        taken = np.flatnonzero(np.diff(T.graph.indptr))
        if k:
            whole[taken, 0] = first + T.graph.indices[T.graph.indptr[taken]]
            whole[taken, 1:] = T.values[:, 0].reshape(-1, k)
        A.halo.exchange(whole)
        taken = np.flatnonzero(whole[:, 0] >= 0)
        columns = (whole[taken, 0].astype(np.int64)[:, None] + np.arange(k)).reshape(-1)
        outside = (columns < first) | (columns >= first + T.shape[1])
        self.used = np.union1d(first + np.arange(T.shape[1]), columns[outside])
        counts = np.zeros(whole.shape[0], np.int64)
        counts[taken] = k
        self.graph_t = narrow(offsets_of(counts)), places_in(self.used, columns)
        self.tentative = np.ascontiguousarray(whole[taken, 1:]).reshape(-1, 1)

    # --- values
    def coarse_matrix(self, level: Any, damping: float, old: Any, with_energy: bool) -> RankMatrix:
        """Set the prolongator of `level` and return the Galerkin matrix of its values."""
        A = level.A
        with np.errstate(all="ignore"):
            omega = asarray_like((damping / level.lambda_max).astype(A.dtype), A.values)
        kept = level.P
        if kept is not None and (kept.n_samples, kept.dtype) != (A.n_samples, A.dtype):
            kept = None
        graph_t, graph_p, tentative, tasks = self._smoothing(A)
        values = galerkin.smooth_prolongator(
            A.graph_arrays, A.values, level.smoother.dinv, omega, graph_t, tentative, graph_p, tasks,
            None if kept is None else kept.values,
        )  # fmt: skip
        if self.transpose is None:
            P = RankMatrix(self.rows, self.coarse, self.graph_p[0], self.numbers, values)
            self.transpose = TransposePlan(P.rows, P.columns, P.indptr, P.numbers)
            level.P = self._first = RankProlongator.made(P, self.transpose)
            self._find_pieces(A, P)
        else:
            level.P = RankProlongator.made(self._first.with_values(values), self.transpose, self._first)
        coarse = self.galerkin(A, level.P)
        level.energy = self._relative_energy(A, coarse) if with_energy else None
        return coarse

    def _smoothing(self, A: RankMatrix) -> tuple[Any, ...]:
        """Graphs, tentative prolongator and tasks of `smooth_prolongator` where the values of `A` are; made once."""
        key = *library_and_device(A.values), backend_of(A.values), A.dtype
        if key not in self._smoothings:
            graph_t, graph_p = (tuple(asarray_like(a, A.values) for a in g) for g in (self.graph_t, self.graph_p))
            tentative = asarray_like(self.tentative.astype(A.dtype, copy=False), A.values)
            tasks = galerkin.prolongator_tasks(A.values, A.graph_arrays, graph_t, graph_p)
            self._smoothings[key] = graph_t, graph_p, tentative, tasks
        return self._smoothings[key]

    def _find_pieces(self, A: RankMatrix, P: RankMatrix) -> None:
        """Fine rows of this and of other ranks that this rank's coarse rows are made of."""
        comm, layout, coarse = A.rows.comm, A.rows, self.coarse
        assert self.transpose is not None
        self.ghost_rows = RowFetch(layout, P.indptr, P.numbers, A.halo.ghosts)
        indptr_p = narrow(np.concatenate([P.indptr, P.indptr[-1] + self.ghost_rows.indptr[1:]]))
        numbers = np.concatenate([P.numbers, self.ghost_rows.numbers])
        here = Piece((A.indptr, A.indices), (indptr_p, numbers), None, coarse, self.transpose.whole)
        outside = P.numbers[:0] if coarse.n_local == coarse.n else foreign(coarse, P.numbers)
        owner = coarse.owner_of(P.numbers[outside])
        rows = layout.first + np.searchsorted(P.indptr, outside, side="right") - 1
        wanted = [np.unique(rows[owner == r]) for r in range(comm.size)]
        theirs = np.concatenate(exchanged(comm, wanted))
        self.pieces, self.fetches = [], []
        for part, position in ((theirs[theirs < layout.first], 0), (theirs[theirs >= layout.first], 1)):
            fetch_a = RowFetch(layout, A.indptr, A.numbers, part)
            reach = np.union1d(fetch_a.numbers, part)
            fetch_p = RowFetch(layout, P.indptr, P.numbers, reach)
            graph_a = narrow(fetch_a.indptr), places_in(reach, fetch_a.numbers)
            piece = Piece(graph_a, (narrow(fetch_p.indptr), fetch_p.numbers), np.searchsorted(reach, part), coarse)
            self.fetches.append((fetch_a, fetch_p))
            self.pieces.append(piece)
            if position == 0:
                self.pieces.append(here)
        fetched = [self.ghost_rows.numbers, *(fetch_p.numbers for _, fetch_p in self.fetches)]
        columns = np.union1d(self.used, np.concatenate(fetched))
        for piece in self.pieces:
            if piece.n_rows:
                piece.number_columns(columns)
        found = [piece.restricted_graph(columns.size) for piece in self.pieces if piece.n_rows]
        self.graph_c = found[0] if len(found) == 1 else united_graph(found, coarse.n_local, columns.size)
        self.columns = columns

    def galerkin(self, A: RankMatrix, P: RankMatrix) -> RankMatrix:
        """The Galerkin matrix on this rank's coarse rows."""
        n_samples = max(A.n_samples, P.n_samples)
        out = empty_like(A.values, (self.graph_c[1].size, n_samples))
        out[...] = 0.0
        below, above = ((a.values(A.values, A.entries), p.values(P.values)) for a, p in self.fetches)
        own = A.values, joined([P.values, self.ghost_rows.values(P.values)])
        for piece, (a, p) in zip(self.pieces, (below, own, above), strict=True):
            if piece.n_rows:
                graph_a = A.graph_arrays if a is A.values else piece.graph_a
                galerkin.add_galerkin_values(  # type: ignore[no-untyped-call]
                    graph_a, a, piece.graph_p, p, piece.graph_ap, piece.restriction,
                    piece.tasks(a, self.graph_c), self.graph_c, self.columns.size, out,
                )  # fmt: skip
        numbers = self.columns[self.graph_c[1]]
        if getattr(self, "_coarse", None) is None:
            self._coarse = RankMatrix(self.coarse, self.coarse, self.graph_c[0], numbers, out)
        return self._coarse.with_values(out)  # type: ignore[no-any-return]

    def _relative_energy(self, A: RankMatrix, coarse: RankMatrix) -> np.ndarray:
        """As `multigrid.precision.relative_energy`, over the coarse rows of all ranks."""
        squares = asarray_like(self.T.values.astype(A.dtype) ** 2, A.values)
        graph = self.T.graph.transposed_arrays_on(A.values)
        alone = to_numpy(spmv_transpose(*graph, squares, A.diagonal().samples, None))
        alone = to_owners(self.coarse, self.coarse_numbers, alone)
        own = to_numpy(coarse.diagonal().samples)
        with np.errstate(all="ignore"):
            ratio = np.where(alone == 0, np.ones_like(alone), own / alone)
        smallest = np.min(ratio, axis=0, initial=1.0).astype(np.float64)
        return self.coarse.space.smallest(smallest)
