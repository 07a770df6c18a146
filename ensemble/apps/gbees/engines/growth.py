"""Growth of the grid: insertion of the missing downwind neighbours of active cells."""

from __future__ import annotations

from collections.abc import Callable

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.gbees.engines.grid import Grid, face_velocities
from ensemble.apps.gbees.engines.keys import find, merged_columns
from ensemble.apps.gbees.problem import Problem
from ensemble.apps.gbees.tables import with_tables

__all__ = ["flow_masks", "grown"]


def flow_masks(problem: Problem, velocities: tuple[Array, ...]) -> list[dict[int, Array]]:
    """Per dimension, a mask by step (1 or -1): whether probability flows from a cell to that side.

    The velocity through the cell's upper face decides for both sides. Diffusion flows to both.
    """
    given = []
    for i, v in enumerate(velocities):
        spread = problem.diffusion is not None and float(problem.diffusion[i]) > 0.0
        given.append({1: (v > 0) | spread, -1: (v < 0) | spread})
    return given


def grown(problem: Problem, grid: Grid, time: float, reserve: Callable[[int], None]) -> Grid:
    """The grid with all downwind neighbours of active cells; `reserve` is called with the new size before."""
    xp = array_namespace(grid.keys)
    is_grown = xp.zeros_like(grid.is_grown) if problem.time_varying else grid.is_grown
    growing = xp.logical_and(grid.p >= problem.threshold, xp.logical_not(is_grown))
    if not bool(xp.any(growing)):
        return grid
    new = missing_targets(problem, grid, growing)
    if problem.bounds is not None and new.shape[0]:
        new = new[within(problem, [grid.packing.column(new, i) for i in range(problem.n)])]
    is_grown = xp.logical_or(is_grown, growing)
    if new.shape[0] == 0:
        return grid.changed(is_grown=is_grown)
    reserve(grid.size + int(new.shape[0]))
    columns = [grid.packing.column(new, i) for i in range(problem.n)]
    velocities = face_velocities(problem, columns, time, grid.p.dtype)
    packing, keys = grid.packing, grid.keys
    if not packing.fits(columns):
        packing = merged_columns(grid.columns, columns, packing.periods)
        keys, new = packing.pack(grid.columns), packing.pack(columns)
    keys = xp.concat([keys, new])
    order = xp.argsort(keys)

    def joined(old: Array, added: Array) -> Array:
        return xp.take(xp.concat([old, added]), order)

    return Grid(
        packing,
        xp.take(keys, order),
        joined(grid.p, xp.zeros(new.shape[0], dtype=grid.p.dtype)),
        tuple(joined(old, added) for old, added in zip(grid.velocities, velocities)),
        joined(is_grown, xp.zeros(new.shape[0], dtype=xp.bool)),
    )


def missing_targets(problem: Problem, grid: Grid, growing: Array) -> Array:
    """Keys, each once, of the missing downwind neighbours of the `growing` cells."""
    xp = array_namespace(grid.keys)
    keys = grid.keys[growing]
    given = flow_masks(problem, tuple(v[growing] for v in grid.velocities))
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


def within(problem: Problem, columns: list[Array]) -> Array:
    """Whether `bounds` of cells lies in its range over the first grid."""
    assert problem.bounds is not None
    xp = array_namespace(columns[0])
    z = [xp.astype(s, xp.float64) * float(width) for s, width in zip(columns, problem.widths)]
    J = problem.bounds(problem.position(z), with_tables(xp))
    low, high = problem.bounds_range
    return xp.logical_and(low <= J, high >= J)
