"""Which entries of a rank's rows a symmetric matrix over ranks stores: between domains all, inside them half."""

from __future__ import annotations

import numpy as np

from ensemble.distributed.layout import RowLayout
from ensemble.linalg import CrsGraph

__all__ = ["DomainTriangles"]


class DomainTriangles:
    """Where a symmetric matrix over ranks keeps its values: those of a row are consecutive, columns ascend.

    Parameters
    ----------
    layout : RowLayout
        Layout of rows and columns.
    indptr, numbers : arrays
        The graph of this rank's rows, columns in domain order; inside each domain symmetric, with all of the diagonal.
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
        low, high = offsets[:-1][domain], offsets[1:][domain]
        earlier = columns < np.repeat(low, lengths)
        inside = ~earlier & (columns < np.repeat(high, lengths))
        above = inside & (columns >= rows)
        self.stored = ~inside | above
        number = _before(self.stored, kind)
        starts = number[indptr]
        own = starts[:-1] + _counts(earlier, indptr, kind)
        later = own + _counts(above, indptr, kind)
        within = CrsGraph.unchecked(_before(inside, kind)[indptr], columns[inside].astype(np.int32), (n, n))
        _, mirrored, reach = within.upper
        self.entries = number[:-1].copy()
        self.entries[inside] = number[:-1][above][mirrored]
        coupled = np.flatnonzero(own > starts[:-1])
        first_coupled = np.searchsorted(coupled, offsets)
        columns = indices[self.stored]
        self.places = (
            starts, own, later, columns, offsets, layout.space.first_blocks, coupled, first_coupled, reach
        )  # fmt: skip


def _before(flags: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """How many of the flags before each place are set, and before the end."""
    number = np.zeros(flags.size + 1, dtype)
    np.cumsum(flags, out=number[1:])
    return number


def _counts(flags: np.ndarray, indptr: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """How many of the flags of the entries of each row are set."""
    return np.diff(_before(flags, dtype)[indptr])
