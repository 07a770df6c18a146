"""One step of corner transport upwind with limited slopes, in gather form."""

from __future__ import annotations

import itertools

from ensemble._backend import array_namespace
from ensemble._kernels.gbees.limiters import LIMITERS
from ensemble._typing import Array
from ensemble.apps.gbees.engines.grid import Grid
from ensemble.apps.gbees.mixing import Mixing
from ensemble.apps.gbees.problem import Problem

__all__ = ["advected", "rates"]


def rates(problem: Problem, grid: Grid) -> Array:
    """Largest share of each cell that leaves it in unit time: steps up to one over the maximum are stable."""
    total: Array = None
    for i, (v, width) in enumerate(zip(grid.velocities, problem.widths)):
        part = abs(v) / float(width)
        if problem.diffusion is not None:
            part = part + float(problem.diffusion[i]) / float(width) ** 2
        total = part if total is None else total + part
    return total if problem.mixing is None else total + problem.mixing.rate


def advected(problem: Problem, grid: Grid, dt: float) -> Array:
    """Probabilities after a step of length `dt`, neither clipped nor normalised.

    A missing neighbour (position N in the stencil) holds nothing; probability may leave the grid over an upper face
    with no neighbour, never over a lower one.
    """
    xp = array_namespace(grid.keys)
    nothing = xp.zeros(1, dtype=grid.p.dtype)

    def widened(values: Array) -> Array:
        return xp.concat([values, nothing])

    transverse = transverse_corrections(problem, grid, dt)
    total = transverse[0]
    for part in transverse[1:]:
        total = total + part
    p, padded = grid.p, widened(grid.p)
    if problem.time_order == 2:
        total = total + (0.5 * dt) * (p * divergence(problem, grid))
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
            flux = flux - (0.5 * float(problem.face_diffusion[j]) / width) * d
        result = result - (dt / width) * (flux - xp.take(widened(flux), lower))
    return result if problem.mixing is None else result + 0.5 * dt * over_edges(problem.mixing, grid)


def over_edges(mixing: Mixing, grid: Grid) -> Array:
    """Twice the exchange in unit time with the neighbours over edges that are reached over a stored face neighbour."""
    xp = array_namespace(grid.keys)
    held = xp.concat([grid.p, xp.zeros(1, dtype=grid.p.dtype)])
    end = xp.full(1, grid.size, dtype=grid.stencil.lower[0].dtype)
    total = xp.zeros_like(grid.p)
    for i, j in itertools.combinations(range(len(grid.stencil.lower)), 2):
        for share, sides in ((mixing.corners[i, j], (1, -1)), (mixing.corners[j, i], (-1, 1))):
            for at_i, at_j in ((grid.stencil.upper[i], sides[0]), (grid.stencil.lower[i], sides[1])):
                beside = (grid.stencil.upper if at_j > 0 else grid.stencil.lower)[j]
                corner = xp.take(xp.concat([beside, end]), at_i)
                other = xp.take(xp.concat([at_i, end]), beside)
                corner = xp.where(corner < grid.size, corner, other)
                change = xp.take(held, corner) - grid.p
                total = total + float(share) * xp.where(corner < grid.size, change, xp.zeros_like(change))
    return total


def divergence(problem: Problem, grid: Grid) -> Array:
    """Divergence of the drift from the face velocities of each cell; along an axis without a lower neighbour, 0."""
    xp = array_namespace(grid.keys)
    total = xp.zeros_like(grid.p)
    for v, width, lower in zip(grid.velocities, problem.widths, grid.stencil.lower):
        below = xp.take(xp.concat([v, xp.zeros(1, dtype=v.dtype)]), lower)
        total = total + xp.where(lower < grid.size, v - below, xp.zeros_like(v)) / float(width)
    return total


def transverse_corrections(problem: Problem, grid: Grid, dt: float) -> list[Array]:
    """Half a step of upwind advection along each dimension, which corrects the fluxes along the others."""
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
