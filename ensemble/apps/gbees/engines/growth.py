"""Growing the grid: every cell that probability may flow into in the next step has to be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ensemble._backend import array_namespace
from ensemble.apps.gbees.engines.grid import Grid, face_velocities
from ensemble.apps.gbees.engines.keys import find, merged_columns
from ensemble.apps.gbees.problem import Problem
from ensemble.apps.gbees.tables import with_tables

__all__ = ["flows", "grown"]


def flows(problem: Problem, velocities: tuple[Any, ...]) -> list[dict[int, Any]]:
    """For each dimension, step (1 or -1) to a mask: whether a cell gives probability to that side.

    The cell's own upper face decides for both sides. Diffusion gives to both.
    """
    given = []
    for i, v in enumerate(velocities):
        spread = problem.diffusion is not None and float(problem.diffusion[i]) > 0.0
        given.append({1: (v > 0) | spread, -1: (v < 0) | spread})
    return given


def grown(problem: Problem, grid: Grid, time: float, room: Callable[[int], None]) -> Grid:
    """The grid with all face and edge neighbours that active cells flow into; `room` is asked before it grows."""
    xp = array_namespace(grid.keys)
    settled = xp.zeros_like(grid.settled) if problem.time_varying else grid.settled
    growing = xp.logical_and(grid.p >= problem.threshold, xp.logical_not(settled))
    if not bool(xp.any(growing)):
        return grid
    new = missing_targets(problem, grid, growing)
    if problem.bounds is not None and new.shape[0]:
        new = new[within(problem, [grid.packing.column(new, i) for i in range(problem.n)])]
    settled = xp.logical_or(settled, growing)
    if new.shape[0] == 0:
        return grid.changed(settled=settled)
    room(grid.size + int(new.shape[0]))
    columns = [grid.packing.column(new, i) for i in range(problem.n)]
    velocities = face_velocities(problem, columns, time, grid.p.dtype)
    packing, keys = grid.packing, grid.keys
    if not packing.fits(columns):
        packing = merged_columns(grid.columns, columns, packing.periods)
        keys, new = packing.pack(grid.columns), packing.pack(columns)
    keys = xp.concat([keys, new])
    order = xp.argsort(keys)

    def joined(old: Any, added: Any) -> Any:
        return xp.take(xp.concat([old, added]), order)

    return Grid(
        packing,
        xp.take(keys, order),
        joined(grid.p, xp.zeros(new.shape[0], dtype=grid.p.dtype)),
        tuple(joined(old, added) for old, added in zip(grid.velocities, velocities)),
        joined(settled, xp.zeros(new.shape[0], dtype=xp.bool)),
    )


def missing_targets(problem: Problem, grid: Grid, growing: Any) -> Any:
    """Keys, each once, of the cells that the `growing` ones flow into and that are not there."""
    xp = array_namespace(grid.keys)
    keys = grid.keys[growing]
    given = flows(problem, tuple(v[growing] for v in grid.velocities))
    targets = []
    for i in range(problem.n):
        for step in (1, -1):
            over = given[i][step]
            face = grid.packing.neighbour(keys, i, step)
            targets.append(face[over])
            for j in range(i + 1, problem.n):
                for side in (1, -1):
                    edge = grid.packing.neighbour(face, j, side)
                    targets.append(edge[xp.logical_and(over, given[j][side])])
    wanted = xp.unique_values(xp.concat(targets))
    return wanted[find(grid.keys, wanted) == grid.size] if wanted.shape[0] else wanted


def within(problem: Problem, columns: list[Any]) -> Any:
    """Whether cells lie in the range of `bounds` that the first grid had."""
    assert problem.bounds is not None
    xp = array_namespace(columns[0])
    z = [xp.astype(s, xp.float64) * float(width) for s, width in zip(columns, problem.widths)]
    J = problem.bounds(problem.position(z), with_tables(xp))
    low, high = problem.bounds_range
    return xp.logical_and(low <= J, high >= J)
