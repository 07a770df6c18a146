"""The state of a GBEES run at one time: its cells and the probability of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ensemble._typing import Array

__all__ = ["Cells"]


@dataclass(frozen=True)
class Cells:
    """A sparse distribution on a regular grid.

    The cell with multi-index s has its centre at ``z = widths * s`` in the grid's frame, and at ``x = z + origin`` in
    space, or at ``x = rotation @ z + origin`` where the grid is rotated.

    Attributes
    ----------
    indices : array of int64, shape (N, n)
        Multi-indices in lexicographic order.
    probabilities : array, shape (N,)
        Probability in each cell (a mass, not a density); they add up to 1 over all cells that the run stored.
    origin, widths : ndarray, shape (n,)
        Centre of the cell s = 0, and the cells' edge lengths.
    rotation : ndarray, shape (n, n), or None
        Columns are the grid's axes in space.
    time : float
        When the distribution holds.
    periods : tuple of int or None
        Cells after which an axis repeats itself, None for one that does not; empty where none does.
    """

    indices: Array
    probabilities: Array
    origin: np.ndarray
    widths: np.ndarray
    rotation: np.ndarray | None = None
    time: float = 0.0
    periods: tuple[int | None, ...] = ()

    def __repr__(self) -> str:
        count, n = self.indices.shape
        return f"Cells({count:,} cells, n={n}, time={self.time:.6g})"

    def __iter__(self) -> Iterator[Array]:
        """Multi-indices and probabilities: ``indices, probabilities = cells``."""
        return iter((self.indices, self.probabilities))

    def __getitem__(self, place: int) -> Array:
        """The pair as a tuple has it: ``cells[0]`` the multi-indices, ``cells[1]`` the probabilities."""
        return (self.indices, self.probabilities)[place]
