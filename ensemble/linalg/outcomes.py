"""How the iterations of a sample end."""

from __future__ import annotations

import enum


class SolveError(RuntimeError):
    """Some samples have no solution; raised by `raise_if_failed` of a result only."""


class Status(enum.Enum):
    """How one sample ended.

    ``converged``: the true residual met the target. ``max_iterations``: it might have, later. ``stagnated``: its norm
    can fall no further in the numbers' type, so that a smaller tolerance is never met. ``stopped``: by the callback.
    ``breakdown``: a number is not finite, or the matrix is not what the method needs.
    """

    converged = "converged"
    max_iterations = "max_iterations"
    stagnated = "stagnated"
    stopped = "stopped"
    breakdown = "breakdown"

    def __repr__(self) -> str:
        return self.value
