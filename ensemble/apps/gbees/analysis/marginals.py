"""Marginal distributions on dense grids with coordinates, for plots and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ensemble import _check
from ensemble._backend import to_numpy
from ensemble.apps.gbees.analysis.distribution import density_levels
from ensemble.apps.gbees.cells import Cells
from ensemble.apps.gbees.frames import checked_axes, project

__all__ = ["Marginal", "marginal"]

MOST_CELLS = 2**28
"""Largest number of cells of a dense grid: 2 GiB of float64."""


@dataclass(frozen=True)
class Marginal:
    """The distribution of some coordinates on a dense grid: the smallest box that holds all cells.

    Attributes
    ----------
    probabilities : ndarray of float64, shape (count of each axis, ...)
        Probability in each cell, zero where there is none.
    coordinates : tuple of ndarray
        Cell centres along each axis.
    widths : ndarray, shape (k,)
        Edge lengths of the cells.
    axes : tuple of int
        The coordinates' numbers.
    time : float
    """

    probabilities: np.ndarray
    coordinates: tuple[np.ndarray, ...]
    widths: np.ndarray
    axes: tuple[int, ...]
    time: float

    def __repr__(self) -> str:
        ends = ", ".join(f"{x[0]:.4g} to {x[-1]:.4g}" for x in self.coordinates)
        return f"Marginal(axes={self.axes}, shape={self.probabilities.shape}, {ends}, time={self.time:.6g})"

    @property
    def density(self) -> np.ndarray:
        """Probability per length, area or volume."""
        return self.probabilities / float(np.prod(self.widths))

    def levels(self, masses: Sequence[float]) -> np.ndarray:
        """Densities at the boundaries of the highest-density regions of the probabilities `masses`, each in (0, 1]."""
        wanted = _check.real_array(masses, "levels", "masses", "be numbers in (0, 1]")
        good = bool(wanted.size) and bool(np.all((wanted > 0.0) & (wanted <= 1.0)))
        _check.require(good, "levels", "masses", "be numbers in (0, 1]", np.atleast_1d(masses).tolist())
        return density_levels(self.probabilities, wanted) / float(np.prod(self.widths))


def marginal(cells: Cells, axes: int | Sequence[int]) -> Marginal:
    """Return the distribution of the coordinates `axes`, all others summed over.

    Parameters
    ----------
    cells : Cells
    axes : int or sequence of int
        In a rotated grid they are the grid's axes, not those of space; see `transferred` for the latter.

    Returns
    -------
    Marginal

    Raises
    ------
    ValueError
        If `axes` are empty, repeated or out of range, there is no cell, or the dense grid would need more than 2**28.

    Examples
    --------
    >>> indices, p = np.array([[0, 0], [0, 1], [2, 1]]), np.array([0.25, 0.25, 0.5])
    >>> cells = Cells(indices, p, np.zeros(2), np.array([1.0, 0.1]))
    >>> marginal(cells, 0).probabilities, marginal(cells, 0).coordinates[0]
    (array([0.5, 0. , 0.5]), array([0., 1., 2.]))
    """
    chosen = checked_axes([axes] if isinstance(axes, int) else axes, len(cells.widths), "marginal")
    _check.require(cells.indices.shape[0] > 0, "marginal", "cells", "hold at least one cell", "none")
    kept = project(cells, chosen)
    s, p = to_numpy(kept.indices), to_numpy(kept.probabilities)
    lowest = s.min(axis=0)
    shape = tuple((s.max(axis=0) - lowest + 1).tolist())
    size = float(np.prod([float(count) for count in shape]))
    _check.require(
        size <= MOST_CELLS, "marginal", "axes", f"give a dense grid of at most {MOST_CELLS} cells",
        " x ".join(str(count) for count in shape), "Use project, which stays sparse, or fewer axes.",
    )  # fmt: skip
    dense = np.zeros(shape)
    dense[tuple((s - lowest).T)] = p
    # The same order of operations as in `positions`.
    coordinates = tuple(
        (low + np.arange(count)) * width + origin
        for low, count, width, origin in zip(lowest, shape, kept.widths, kept.origin)
    )
    return Marginal(dense, coordinates, np.asarray(kept.widths), tuple(chosen), cells.time)
