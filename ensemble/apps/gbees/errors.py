"""How a run says that it cannot go on; a grid that outgrows the memory is a `MemoryError`."""

from __future__ import annotations

__all__ = ["GridError"]


class GridError(ValueError):
    """The grid cannot go on: a drift that is not finite, no probability left, or more cells across than fit a key.

    The grid is then still the one of the last whole step.
    """
