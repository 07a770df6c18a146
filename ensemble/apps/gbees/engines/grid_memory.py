"""The memory budget of a grid, checked before the grid grows."""

from __future__ import annotations

from decimal import Decimal

from ensemble._backend import available_bytes
from ensemble._typing import Array

__all__ = ["MemoryBudget"]

NEGLIGIBLE = 1 << 20
"""Bytes up to which free memory is not read, which takes as long as a small grid's first cells
(`benchmarks gbees`)."""


class MemoryBudget:
    """The number of cells that fit, at `bytes_per_cell` each at the peak of a step.

    Parameters
    ----------
    bytes_per_cell : int
    limit : float or None
        Bytes of the whole grid; None for the free memory of the machine.
    like : array
        An array in the memory that is meant: the host's or a device's.
    """

    def __init__(self, bytes_per_cell: int, limit: float | None, like: Array) -> None:
        self.bytes_per_cell, self.limit, self.like = bytes_per_cell, limit, like
        self.known = 0  # cells that fit: free memory is read again only beyond them

    def reserve(self, n_cells: int, stored: int = 0) -> None:
        """Raise MemoryError unless `n_cells` fit, of which `stored` have their memory already."""
        if n_cells <= self.known:
            return
        limit = self.limit
        if limit is None and n_cells * self.bytes_per_cell <= NEGLIGIBLE:
            return
        if limit is None:
            limit = available_bytes(self.like) + stored * self.bytes_per_cell
        if n_cells * self.bytes_per_cell > limit:
            cells = f"{n_cells:,}" if n_cells < 10**18 else f"{Decimal(n_cells):.2e}"  # may overflow a float
            needed = Decimal(n_cells * self.bytes_per_cell) / 10**9
            raise MemoryError(
                f"Gbees: the grid must fit {limit / 1e9:.3g} GB; got {cells} cells of about {self.bytes_per_cell} "
                f"bytes each at the peak of a step, {needed:.3g} GB. "
                "Raise the threshold, make the cells wider (a smaller factor), or use float32."
            )
        self.known = n_cells + n_cells // 8 if (n_cells + n_cells // 8) * self.bytes_per_cell <= limit else n_cells
