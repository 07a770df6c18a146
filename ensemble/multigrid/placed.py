"""Hierarchies that are set up on the host, with their levels on a device."""

from __future__ import annotations

import functools
from typing import Any

from ensemble._backend import asarray_like
from ensemble._compile.memory import empty_like
from ensemble._typing import Array
from ensemble.multigrid.aggregation_hierarchy import AggregationHierarchy, Level

__all__ = ["PlacedHierarchy"]


class PlacedHierarchy(AggregationHierarchy):
    """A hierarchy whose graphs and values are made on the host, and whose V-cycles run on a device.

    Made by `smoothed_aggregation` of matrices over ranks on devices. The levels are kept in both places.

    Parameters
    ----------
    host : AggregationHierarchy
        Its matrices have a method ``to(like)``, and those it is updated with `on_host`.
    like : array
        An array of the library and device that the levels are to have.
    """

    def __init__(self, host: AggregationHierarchy, like: Array) -> None:
        self.host, self.like = host, empty_like(like, (0,))
        self._place()

    def _place(self) -> None:
        host, like = self.host, self.like
        levels = [placed_level(level, like) for level in host.levels]
        coarse: Any = host.coarse
        super().__init__(levels, coarse and coarse.to(like), host.smoother, host.damping, host.precision)
        self._cycle = cycle_of(levels[0].A, host.levels, levels, self.coarse, like)
        if host.double is not None:
            self.double = PlacedHierarchy(host.double[0], like), host.double[1]

    @property
    def cycle(self) -> tuple[list[Level], Any]:
        return self._cycle

    def update(self, A: Any) -> PlacedHierarchy:
        """As `Hierarchy.update`, on the host; the levels are copied again."""
        self.replays.clear()
        self.host.update(getattr(A, "on_host", A))
        self._place()
        return self


def placed_level(level: Level, like: Array) -> Level:
    """A copy of a level in the library and on the device of `like`."""
    P: Any = level.P
    placed = Level(level.A.to(like), level.plan, None if P is None else P.to(like), level.lambda_max)
    smoother: Any = level.smoother
    if smoother is not None:
        placed.smoother = type(smoother)(placed.A, asarray_like(smoother.dinv, like), smoother.host_steps)
    return placed


@functools.singledispatch
def cycle_of(A: Any, host: list[Level], levels: list[Level], coarse: Any, like: Array) -> tuple[list[Level], Any]:
    """The levels of a V-cycle and the solver of its last one, from levels on the host and on the device of `like`.

    Matrices over several processes register their own.
    """
    return levels, coarse
