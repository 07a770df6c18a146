"""One level of reduction-based multigrid: restriction, interpolation and coarse matrix for all samples.

With rows and columns in the order fine (f), coarse (c), the ideal restriction ``[-A_cf A_ff^-1, I]`` leaves the coarse
equations without fine unknowns; its inverse is approximated by a Neumann series.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._backend import array_namespace
from ensemble._kernels.multigrid.galerkin import product_values
from ensemble._kernels.multigrid.measures import reciprocal
from ensemble._kernels.multigrid.splitting import ALL_ENTRIES, DIAGONAL, OFF_DIAGONAL
from ensemble._kernels.sparse.complex_numbers import is_complex, quotients, times
from ensemble._kernels.sparse.crs import spmv
from ensemble._typing import Array
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.multigrid.splitting import Part, SharedStrength, coarse_rows, part_of, places_in, sorted_graph


@dataclass(frozen=True)
class Options:
    """Thresholds of the set-up: relative sizes of the entries that are kept, see `approximate_ideal_restriction`."""

    theta: float
    degree: int
    theta_restriction: float
    drop_restriction: float
    drop_coarse: float


class Reduction:
    """What the graph and the strong entries of one level decide, for all samples and all later values.

    Methods that take a `SharedStrength` drop the entries that are weak by it; without one, those dropped before.
    """

    def __init__(self, A: CrsMatrix, strength: SharedStrength, options: Options) -> None:
        values, graph = strength.finite_samples(A.values), A.graph
        self.options = options
        strong = strength.strong(graph, values, OFF_DIAGONAL, options.theta)
        self.coarse = coarse_rows(graph, strong)
        fine, everywhere = ~self.coarse, np.ones_like(self.coarse)
        self.fine_rows, self.coarse_rows = np.flatnonzero(fine), np.flatnonzero(self.coarse)
        self.splits = 0 < self.coarse_rows.size < self.coarse.size
        if not self.splits:
            return
        # restriction: entries of A_cf and A_ff, and the graphs of the partial sums of the series
        near = strength.strong(graph, values, OFF_DIAGONAL, options.theta_restriction)
        self.cf = part_of(graph, near, self.coarse, fine)
        self.ff = part_of(graph, near, fine, fine)
        self.sums: list[Part] = []
        last, each = self.cf.graph, np.arange(self.fine_rows.size)
        next_to = joined(
            self.ff.graph.row_of_entry, self.ff.graph.indices, each, each, self.ff.graph.shape, graph
        ).graph
        for _ in range(options.degree):
            last = last.product(next_to)
            self.sums.append(Part(last, places_in(last, self.cf.graph)))
        self.kept_restriction: Part | None = None
        # interpolation
        self.fc = part_of(graph, strong, fine, self.coarse)
        self.f_all = part_of(graph, graph.row_of_entry != graph.indices, fine, everywhere)
        n, n_coarse = self.coarse.size, self.coarse_rows.size
        rows, numbers = self.fine_rows[self.fc.graph.row_of_entry], np.arange(n_coarse)
        self.P = joined(rows, self.fc.graph.indices, self.coarse_rows, numbers, (n, n_coarse), graph)
        self.AP = graph.product(self.P.graph)
        self.kept_coarse: Part | None = None

    def restriction(self, A: CrsMatrix, dinv: Array, strength: SharedStrength | None) -> CrsMatrix:
        """``R = [-A_cf (I + L + ... + L^degree) D_ff^-1, I]`` with ``L = I - D_ff^-1 A_ff``."""
        cf, ff = taken(A, self.cf), taken(A, self.ff)
        L = times(-ff, rows_of(dinv, self.ff.graph, "rows of A_ff", self.fine_rows[self.ff.graph.row_of_entry]))
        total, graph = cf, self.cf.graph
        for part in self.sums:  # by Horner's rule
            places = part.graph.array_on(cf, "entries of A_cf", part.entries)
            total = product(graph, total, self.ff.graph, L, part.graph)
            total[places] += cf
            graph = part.graph
        if strength is not None:
            kept = strength.strong(graph, strength.finite_samples(total), ALL_ENTRIES, self.options.drop_restriction)
            self.kept_restriction = Part(graph.subgraph(kept), np.flatnonzero(kept))
            here = self.kept_restriction.graph
            self.R = joined(here.row_of_entry, self.fine_rows[here.indices], np.arange(here.shape[0]),
                            self.coarse_rows, (here.shape[0], A.shape[0]), here)  # fmt: skip
            self.RAP = self.R.graph.product(self.AP)
        total = times(-total, rows_of(dinv, graph, "columns of the sum", self.fine_rows[graph.indices]))
        assert self.kept_restriction is not None
        places = graph.array_on(total, "kept", self.kept_restriction.entries)
        return with_identity(self.R, array_namespace(total).take(total, places, axis=0))

    def interpolation(self, A: CrsMatrix) -> CrsMatrix:
        """Direct interpolation from strong coarse neighbours, for each sample by its own values."""
        return with_identity(self.P, interpolation_weights(A, self.f_all, self.fc, self.fine_rows))

    def coarse_matrix(self, A: CrsMatrix, R: CrsMatrix, P: CrsMatrix, strength: SharedStrength | None) -> CrsMatrix:
        """R A P without the entries that are small beside the diagonal."""
        values = product(A.graph, A.values, P.graph, P.values, self.AP)
        values = product(R.graph, R.values, self.AP, values, self.RAP)
        if strength is not None:
            kept = strength.strong(self.RAP, strength.finite_samples(values), DIAGONAL, self.options.drop_coarse)
            self.kept_coarse = Part(self.RAP.subgraph(kept), np.flatnonzero(kept))
        assert self.kept_coarse is not None
        if self.kept_coarse.graph.nnz == self.RAP.nnz:
            return CrsMatrix(self.RAP, values)
        return CrsMatrix(self.kept_coarse.graph, taken(CrsMatrix(self.RAP, values), self.kept_coarse))


@functools.singledispatch
def reduction_of(A: Any, strength: SharedStrength, options: Options) -> Any:
    """The `Reduction` of a level; matrices over several processes register their own."""
    return Reduction(A, strength, options)


def interpolation_weights(A: Any, off_diagonal: Part, strong_entries: Part, fine_rows: np.ndarray) -> Array:
    """Weights of the interpolation in the fine rows, from all their off-diagonal entries and those in coarse columns.

    A fine row i with the strong coarse columns C takes ``w_ij = -alpha_i a_ij / a_ii`` for negative entries, where
    alpha_i is the sum of all negative entries of the row over the sum of those in C; the same for positive
    entries, which count with the diagonal where C has none (Stueben 2001, section A.7.2.1). A complex entry has the
    sign of the real part of ``a_ij / a_ii``, so that no sum of entries of one sign cancels.
    """
    xp, f_all, fc = array_namespace(A.values), taken(A, off_diagonal), taken(A, strong_entries)
    diagonal = A.diagonal().samples
    diagonal = xp.take(diagonal, off_diagonal.graph.array_on(diagonal, "fine rows", fine_rows), axis=0)
    towards = [signs_of(part.graph, values, diagonal) for part, values in ((off_diagonal, f_all), (strong_entries, fc))]
    ratios = []
    for sign in (-1.0, 1.0):
        everywhere, strong = (
            row_sums(graph, xp.where(sign * signs > 0, values, xp.zeros_like(values)))
            for graph, values, signs in (
                (off_diagonal.graph, f_all, towards[0]), (strong_entries.graph, fc, towards[1]),
            )
        )  # fmt: skip
        none = strong == 0
        ratio = quotients(everywhere, xp.where(none, xp.ones_like(strong), strong))
        ratios.append(xp.where(none, xp.zeros_like(strong), ratio))
    lumped = xp.where(none, everywhere, xp.zeros_like(everywhere))  # positive entries alone
    inverse = reciprocal(diagonal + lumped)
    rows = strong_entries.graph.array_on(fc, "rows of A_fc", strong_entries.graph.row_of_entry.astype(np.intp))
    negative, positive = (xp.take(times(ratio, inverse), rows, axis=0) for ratio in ratios)
    weights: Array = times(-fc, xp.where(towards[1] < 0, negative, positive))
    return weights


def signs_of(graph: CrsGraph, values: Array, diagonal: Array) -> Array:
    """Numbers with the signs of entries: the entries, of complex ones the real parts of ``a_ij conj(a_ii)``."""
    if not is_complex(values):
        return values
    own = rows_of(diagonal, graph, "rows of entries", graph.row_of_entry.astype(np.intp))
    return values.real * own.real + values.imag * own.imag


def product(graph_a: CrsGraph, a: Array, graph_b: CrsGraph, b: Array, graph: CrsGraph) -> Any:
    """Values of the product for every sample, on a graph that holds all its entries."""
    return product_values(graph_a.arrays_on(a), a, graph_b.arrays_on(b), b, graph.arrays_on(a), None)


def joined(
    rows: np.ndarray, columns: np.ndarray, unit_rows: np.ndarray, unit_columns: np.ndarray,
    shape: tuple[int, int], like: CrsGraph,
) -> Part:  # fmt: skip
    """The graph of given coordinates and those of an identity, and the order of their values in it."""
    rows, columns = np.concatenate([rows, unit_rows]), np.concatenate([columns, unit_columns])
    order = np.lexsort((columns, rows))
    return Part(sorted_graph(rows[order], columns[order], shape, like), order)


def with_identity(part: Part, values: Array) -> CrsMatrix:
    """The matrix of `values` and the ones of the identity, on a graph that `joined` made."""
    xp = array_namespace(values)
    n_ones = part.entries.size - values.shape[0]
    ones = xp.ones((n_ones, values.shape[1]), dtype=values.dtype)
    order = part.graph.array_on(values, "order", part.entries)
    return CrsMatrix(part.graph, xp.take(xp.concat([values, ones]), order, axis=0))


def taken(A: CrsMatrix, part: Part) -> Array:
    """The values of `A` in a part of its graph."""
    places = part.graph.array_on(A.values, "entries", part.entries)
    return array_namespace(A.values).take(A.values, places, axis=0)


def rows_of(vector: Array, graph: CrsGraph, what: str, rows: np.ndarray) -> Array:
    """Row ``rows[k]`` of `vector` for each entry k of `graph`."""
    return array_namespace(vector).take(vector, graph.array_on(vector, what, rows), axis=0)


def row_sums(graph: CrsGraph, values: Array) -> Array:
    """The sum of each row for every sample, shape (n_rows, n_samples)."""
    ones = array_namespace(values).ones((graph.shape[1], values.shape[1]), dtype=values.dtype)
    return spmv(*graph.arrays_on(values), values, ones, None)
