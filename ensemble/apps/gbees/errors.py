"""Errors and warnings of a run; a grid that outgrows the memory is a `MemoryError`."""

from __future__ import annotations

__all__ = ["GridError", "GridWarning"]


class GridError(ValueError):
    """The run cannot continue: a drift that is not finite, no probability left, or more cells across than fit a key.

    The grid is then still the one of the last whole step.
    """


class GridWarning(UserWarning):
    """A result that the cells are too coarse for, or the grid too small; the message has the amount."""
