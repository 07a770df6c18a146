"""Pruning of the grid: deletion of cells of small probability without active upwind neighbours."""

from __future__ import annotations

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.gbees.engines.failures import no_cell_left
from ensemble.apps.gbees.engines.grid import Grid
from ensemble.apps.gbees.engines.growth import flow_masks
from ensemble.apps.gbees.problem import Problem

__all__ = ["pruned"]


def pruned(problem: Problem, grid: Grid) -> Grid:
    """The grid of the cells that are kept.

    Raises
    ------
    GridError
        If no cell would be left.
    """
    xp = array_namespace(grid.keys)
    downwind = xp.logical_or(grid.p >= problem.threshold, is_downwind(problem, grid))
    kept, candidates = xp.nonzero(downwind)[0], xp.nonzero(xp.logical_not(downwind))[0]
    if problem.prune == "sequential" and candidates.shape[0]:
        p = xp.take(grid.p, candidates)
        order = xp.argsort(p)
        p = xp.astype(xp.take(p, order), xp.float64, copy=False)
        removed = p < problem.threshold * (1.0 - xp.cumulative_sum(p))  # against the mass that would be left
        n_removed = removed.shape[0] if bool(xp.all(removed)) else int(xp.argmin(xp.astype(removed, xp.int8)))
        kept = xp.sort(xp.concat([kept, xp.take(candidates, order[n_removed:])]))
    if kept.shape[0] == 0:
        raise no_cell_left(problem, grid.size)
    return grid.chosen(kept)


def is_downwind(problem: Problem, grid: Grid) -> Array:
    """Whether each cell is downwind of an active one, over a face, or over an edge past a stored face neighbour."""
    xp = array_namespace(grid.keys)
    none = xp.zeros(1, dtype=xp.bool)
    active = xp.concat([grid.p >= problem.threshold, none])
    given = [
        {step: xp.logical_and(active, xp.concat([mask, none])) for step, mask in sides.items()}
        for sides in flow_masks(problem, grid.velocities)
    ]
    end = xp.full(1, grid.size, dtype=grid.stencil.lower[0].dtype)
    # the neighbour upwind of a flow with this step
    upwind = [
        {1: xp.concat([lower, end]), -1: xp.concat([upper, end])}
        for lower, upper in zip(grid.stencil.lower, grid.stencil.upper)
    ]
    downwind = xp.zeros(grid.size, dtype=xp.bool)
    for i in range(problem.n):
        for step in (1, -1):
            face = upwind[i][step][:-1]
            downwind = xp.logical_or(downwind, xp.take(given[i][step], face))
            for j in range(problem.n):
                for side in (1, -1) if j != i else ():
                    edge = xp.take(upwind[j][side], face)
                    both = xp.logical_and(given[i][step], given[j][side])
                    downwind = xp.logical_or(downwind, xp.take(both, edge))
    return downwind
