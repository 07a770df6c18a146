"""One step of corner transport upwind with limited slopes, gathered cell by cell."""

from __future__ import annotations

from typing import Any

from ensemble._backend import array_namespace
from ensemble.apps.gbees.grid import Grid
from ensemble.apps.gbees.limiters import LIMITERS
from ensemble.apps.gbees.problem import Problem

__all__ = ["advected", "rates"]


def rates(problem: Problem, grid: Grid) -> Any:
    """Share of each cell that may leave it in unit time: the step is stable up to one over the largest."""
    total = None
    for i, (v, width) in enumerate(zip(grid.velocities, problem.widths)):
        part = abs(v) / float(width)
        if problem.diffusion is not None:
            part = part + float(problem.diffusion[i]) / float(width) ** 2
        total = part if total is None else total + part
    return total


def advected(problem: Problem, grid: Grid, dt: float) -> Any:
    """Probabilities after a step of length `dt`, neither clipped nor normalised.

    A missing neighbour (position N in the stencil) holds nothing; probability may leave the grid over an upper face
    with no neighbour, never over a lower one.
    """
    xp = array_namespace(grid.keys)
    nothing = xp.zeros(1, dtype=grid.p.dtype)

    def widened(values: Any) -> Any:
        return xp.concat([values, nothing])

    transverse = transverse_corrections(problem, grid, dt)
    total = transverse[0]
    for part in transverse[1:]:
        total = total + part
    p, padded = grid.p, widened(grid.p)
    result = p
    limited = LIMITERS[problem.limiter]
    for j in range(problem.n):
        v, width = grid.velocities[j], float(problem.widths[j])
        lower, upper = grid.stencil.lower[j], grid.stencil.upper[j]
        there = upper < grid.size
        above = xp.take(padded, upper)
        d = xp.where(there, above - p, xp.zeros_like(p))
        second = xp.take(widened(above), upper)
        a = xp.where(v > 0, p - xp.take(padded, lower), second - above)
        donor = p - (total - transverse[j])
        flux = xp.clip(v, min=0.0) * donor + xp.clip(v, max=0.0) * xp.take(widened(donor), upper)
        speed = xp.abs(v)
        flux = flux + 0.5 * speed * (1.0 - speed * (dt / width)) * limited(a, d, xp)
        if problem.diffusion is not None:
            flux = flux - (0.5 * float(problem.diffusion[j]) / width) * d
        result = result - (dt / width) * (flux - xp.take(widened(flux), lower))
    return result


def transverse_corrections(problem: Problem, grid: Grid, dt: float) -> list[Any]:
    """Half a step of upwind advection along each dimension: what fluxes through the other faces are taken after."""
    xp = array_namespace(grid.keys)
    nothing = xp.zeros(1, dtype=grid.p.dtype)
    p, padded = grid.p, xp.concat([grid.p, nothing])
    parts = []
    for v, width, lower, upper in zip(grid.velocities, problem.widths, grid.stencil.lower, grid.stencil.upper):
        from_below = xp.take(xp.concat([xp.clip(v, min=0.0), nothing]), lower)
        from_above = xp.where(upper < grid.size, xp.clip(v, max=0.0), xp.zeros_like(v))
        change = from_below * (p - xp.take(padded, lower)) + from_above * (xp.take(padded, upper) - p)
        parts.append((dt / (2.0 * float(width))) * change)
    return parts
