"""Which entries of a rank's rows a symmetric matrix over ranks stores: of two across the diagonal one."""

from __future__ import annotations

import numpy as np

from ensemble._kernels.multigrid.domain_triangles import places_of_waiting
from ensemble.distributed.layout import RowLayout
from ensemble.linalg import CrsGraph

__all__ = ["DomainTriangles"]


class DomainTriangles:
    """Where a symmetric matrix over ranks keeps its values: those of a row are consecutive, columns ascend.

    Of two entries across the diagonal, both in rows of this rank, one is stored. Rows that couple to earlier rows of
    other ranks store all their entries to earlier domains, since a row is summed in the order of its columns. So do
    those that couple to earlier domains of which some read ghost rows and they do not, or the other way round: such
    domains may be computed after others.

    Parameters
    ----------
    layout : RowLayout
        Layout of rows and columns.
    indptr, numbers : arrays
        The graph of this rank's rows, columns in domain order; symmetric, with all of the diagonal.
    indices : array
        The columns among the rows of this rank and, behind them, its ghosts.

    Attributes
    ----------
    stored : array of bool, shape (nnz_local,)
        Which entries have a value of their own.
    entries : array, shape (nnz_local,)
        For each entry the place of its value.
    places : tuple
        What kernels on such matrices take (`ensemble._kernels.multigrid.domain_triangles`).
    """

    def __init__(self, layout: RowLayout, indptr: np.ndarray, numbers: np.ndarray, indices: np.ndarray) -> None:
        n, offsets, kind = layout.n_local, layout.local_domain_offsets, indptr.dtype
        lengths, columns = np.diff(indptr), numbers - layout.first
        rows = np.repeat(np.arange(n), lengths)
        domain = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
        low, high = np.repeat(offsets[:-1][domain], lengths), np.repeat(offsets[1:][domain], lengths)
        earlier, later = columns < low, columns >= high
        inside = ~earlier & ~later
        summed = _rows_with_sums(domain, rows, columns, earlier, n)
        spared = earlier & summed[rows]
        mutual = inside | spared
        added = later & (columns < n)  # transposes that are added to sums
        added[added] = summed[columns[added]]
        mutual |= added
        self.stored = ~spared & ~(inside & (columns < rows))
        number = _before(self.stored, kind)
        starts = number[indptr]
        own = starts[:-1] + _counts(earlier & self.stored, indptr, kind)
        first_later = own + _counts(inside & self.stored, indptr, kind)
        both = CrsGraph.unchecked(_before(mutual, kind)[indptr], columns[mutual].astype(np.int32), (n, n))
        self.entries = number[:-1].copy()
        self.entries[mutual] = number[:-1][mutual & self.stored][both.upper.entries]
        reach = int((columns - rows)[inside].max(initial=0))
        coupled = np.flatnonzero(_counts(earlier, indptr, kind))
        before = _before(spared, kind)[indptr][np.append(coupled, n)]
        targets = np.where(added, np.int32(0), np.int32(-1))[later]
        sums_of, stored_columns = np.where(summed, np.int32(0), np.int32(-1)), indices[self.stored]
        taken, free = np.full((2, n), -1, np.int32)
        n_waiting = places_of_waiting(first_later, starts[1:], stored_columns, sums_of, taken, targets, free)
        self.places = (
            starts, own, first_later, stored_columns, offsets, layout.space.first_blocks, coupled,
            np.searchsorted(coupled, offsets), before, columns[spared].astype(np.int32), self.entries[spared],
            sums_of[coupled], targets, _before(later, kind)[indptr[offsets]], int(n_waiting), reach,
        )  # fmt: skip


def _rows_with_sums(
    domain: np.ndarray, rows: np.ndarray, columns: np.ndarray, earlier: np.ndarray, n: int
) -> np.ndarray:
    """Rows whose entries to earlier domains need not be stored: those domains are of this rank and wait as they do."""
    waits = np.zeros(domain[-1] + 1 if n else 0, bool)
    waits[domain[rows[(columns < 0) | (columns >= n)]]] = True
    summed = np.zeros(n, bool)
    summed[rows[earlier]] = True
    unlike = earlier & (columns < 0)
    own = earlier & (columns >= 0)
    unlike[own] = waits[domain[columns[own]]] != waits[domain[rows[own]]]
    summed[rows[unlike]] = False
    return summed


def _before(flags: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """How many of the flags before each place are set, and before the end."""
    number = np.zeros(flags.size + 1, dtype)
    np.cumsum(flags, out=number[1:])
    return number


def _counts(flags: np.ndarray, indptr: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """How many of the flags of the entries of each row are set."""
    return np.diff(_before(flags, dtype)[indptr])
