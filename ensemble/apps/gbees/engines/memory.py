"""Room for more cells, asked for before a grid takes it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ensemble._backend import available_bytes

__all__ = ["Room"]


class Room:
    """How many cells fit, each taking `bytes_per_cell` at the peak of a step.

    Parameters
    ----------
    bytes_per_cell : int
    limit : float or None
        Bytes that the whole grid may take; None for what the machine has.
    like : array
        Tells where the memory is.
    """

    def __init__(self, bytes_per_cell: int, limit: float | None, like: Any) -> None:
        self.bytes_per_cell, self.limit, self.like = bytes_per_cell, limit, like
        self.known = 0  # cells that are known to fit: the machine is asked again only beyond them

    def take(self, n_cells: int, stored: int = 0) -> None:
        """Raise MemoryError unless `n_cells` fit, of which `stored` have their memory already."""
        if n_cells <= self.known:
            return
        limit = self.limit
        if limit is None:
            limit = available_bytes(self.like) + stored * self.bytes_per_cell
        if n_cells * self.bytes_per_cell > limit:
            cells = f"{n_cells:,}" if n_cells < 10**18 else f"{Decimal(n_cells):.2e}"  # no float need hold the number
            needed = Decimal(n_cells * self.bytes_per_cell) / 10**9
            raise MemoryError(
                f"Gbees: the grid must fit {limit / 1e9:.3g} GB; got {cells} cells of about {self.bytes_per_cell} "
                f"bytes each at the peak of a step, {needed:.3g} GB. "
                "Raise the threshold, make the cells wider (a smaller factor), or use float32."
            )
        self.known = n_cells + n_cells // 8 if (n_cells + n_cells // 8) * self.bytes_per_cell <= limit else n_cells
