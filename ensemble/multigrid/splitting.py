"""What reduction-based multigrid decides once for all samples: strong entries, coarse rows, and parts of a graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ensemble._backend import to_numpy
from ensemble._kernels.multigrid import splitting as kernels
from ensemble._kernels.sparse.complex_numbers import is_complex, magnitudes
from ensemble._kernels.sparse.row_sums import space_in_force
from ensemble._typing import Array
from ensemble.linalg import CrsGraph

STRENGTHS = ("largest", "mean", "graph")


@dataclass
class SharedStrength:
    """Which entries of a shared graph are strong, from the values of all finite samples.

    `strength` is "largest" (an entry is strong if it is in some sample), "mean" (by the mean of its relative sizes) or
    "graph" (every stored entry is strong).
    """

    strength: str
    finite: np.ndarray = field(default_factory=lambda: np.ones(0, bool))

    def finite_samples(self, values: Array) -> np.ndarray:
        """Return `values` of the finite samples, on the host, of complex numbers their magnitudes.

        A sample that was not finite on a level above does not count.
        """
        here = magnitudes(to_numpy(values)) if is_complex(values) else to_numpy(values)
        if self.strength == "graph":
            return here
        finite = ~space_in_force().any(~np.isfinite(here).all(axis=0))
        self.finite = finite & self.finite if self.finite.size else finite
        return here if self.finite.all() else here[:, self.finite]

    def strong(self, graph: CrsGraph, values: np.ndarray, measure: int, threshold: float) -> np.ndarray:
        """True for the entries of at least `threshold` times the `measure` of their row, shape (nnz,).

        `values` are from `finite_samples`; without a finite sample every entry is strong.
        """
        if self.strength == "graph" or values.shape[1] == 0:
            if measure == kernels.OFF_DIAGONAL:
                off_diagonal: np.ndarray = graph.row_of_entry != graph.indices
                return off_diagonal
            return np.ones(graph.nnz, bool)
        mean = self.strength == "mean"
        strong: np.ndarray = kernels.strong_entries(graph.indptr, graph.indices, values, measure, threshold, mean)
        return strong


@dataclass
class Part:
    """A part of a graph: its own graph, and the place of each of its entries in the whole."""

    graph: CrsGraph
    entries: np.ndarray


def part_of(graph: CrsGraph, kept: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> Part:
    """The entries `kept` in the marked `rows` and `columns`, these renumbered; all masks."""
    row, column = graph.row_of_entry, graph.indices
    entries = np.flatnonzero(kept & rows[row] & columns[column])
    number = np.cumsum(rows) - 1, np.cumsum(columns) - 1
    shape = int(rows.sum()), int(columns.sum())
    return Part(sorted_graph(number[0][row[entries]], number[1][column[entries]], shape, graph), entries)


def sorted_graph(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int], like: CrsGraph) -> CrsGraph:
    """A graph from coordinates that ascend by rows, then columns."""
    indptr = np.zeros(shape[0] + 1, like.indptr.dtype)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=indptr[1:])
    return CrsGraph.unchecked(indptr, columns.astype(like.indices.dtype), shape)


def places_in(whole: CrsGraph, part: CrsGraph) -> np.ndarray:
    """The place of each entry of `part` in `whole`, which holds them all."""
    places: np.ndarray = np.searchsorted(whole.keys, part.keys)
    return places


def coarse_rows(graph: CrsGraph, strong: np.ndarray) -> np.ndarray:
    """True for the coarse rows of the splitting by strong entries, shape (n,)."""
    chosen = graph.subgraph(strong)
    coarse: np.ndarray = kernels.split_rows(  # type: ignore[no-untyped-call]
        chosen.indptr, chosen.indices, *chosen.transposed[:2]
    )
    return coarse
