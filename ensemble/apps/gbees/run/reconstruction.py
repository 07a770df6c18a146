"""The density inside cells, log-quadratic, from the probabilities of neighbours: exact for Gaussians."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.gbees.engines.keys import Packing, find
from ensemble.apps.gbees.problem import Problem

__all__ = ["Shapes", "neighbours", "shapes"]

STEEPEST = 4.0
"""Limit of differences of log density between neighbours: cells do not resolve steeper fronts."""


@dataclass(frozen=True)
class Shapes:
    """Log density in each of N cells over the one at its centre: ``b . xi - xi' K xi / 2``.

    xi is the offset from the centre in cells, from -1/2 to 1/2, along the k requested axes; constant along
    the others.

    Attributes
    ----------
    slopes : list of k arrays (N,)
    curvatures : dict from (i, j), i <= j < k, to array (N,)
    """

    slopes: list[Array]
    curvatures: dict[tuple[int, int], Array]

    def take(self, at: Array) -> Shapes:
        """The shapes of the cells at positions `at`."""
        take = array_namespace(at).take
        return Shapes([take(b, at) for b in self.slopes], {ij: take(K, at) for ij, K in self.curvatures.items()})

    def converted(self, to: Callable[[Array], Array]) -> Shapes:
        """Return a copy with `to` applied to every array."""
        return Shapes([to(b) for b in self.slopes], {ij: to(K) for ij, K in self.curvatures.items()})

    def log_density(self, xi: Sequence[Array]) -> Array:
        """At offsets `xi`, k numbers or arrays."""
        total: Array = 0.0
        for b, offset in zip(self.slopes, xi, strict=True):
            total = total + b * offset
        for (i, j), K in self.curvatures.items():
            total = total - (0.5 if i == j else 1.0) * K * (xi[i] * xi[j])
        return total

    def means(self) -> Array:
        """The mean of the density over each cell, over the one at its centre, (N,)."""
        k = len(self.slopes)
        nodes, weights = np.polynomial.legendre.leggauss(3 if k < 4 else 2)
        xp = array_namespace(self.slopes[0])
        total: Array = 0.0
        for at in itertools.product(range(len(nodes)), repeat=k):
            share = float(np.prod(weights[list(at)])) / 2.0**k
            total = total + share * xp.exp(self.log_density([float(nodes[a]) / 2.0 for a in at]))
        return total


def neighbours(problem: Problem, indices: Array, axes: Sequence[int]) -> dict[tuple[int, ...], Array]:
    """Positions of the neighbours along `axes`, N for missing ones, by their offset along each of `axes`.

    Faces only, and edges between two of them. `indices` are in lexicographic order.
    """
    n = problem.n
    columns = [indices[:, i] for i in range(n)]
    packing = Packing.of(columns, problem.periods)
    keys = packing.pack(columns)
    found = {}
    for offset in itertools.product((-1, 0, 1), repeat=len(axes)):
        if 0 < sum(map(abs, offset)) <= 2:
            wanted = keys
            for i, step in zip(axes, offset, strict=True):
                wanted = packing.neighbour(wanted, i, step) if step else wanted
            found[offset] = find(keys, wanted)
    return found


def shapes(p: Array, places: dict[tuple[int, ...], Array]) -> Shapes:
    """The density inside each cell.

    Probabilities are taken for values of the density at centres, as the first grid holds them. Where a neighbour along
    an axis holds nothing, the density is constant along it.

    Parameters
    ----------
    p : array, shape (N,)
    places : dict
        As from `neighbours`, along the axes wanted.
    """
    xp = array_namespace(p)
    p = xp.astype(p, xp.float64, copy=False)
    held = xp.concat([p, xp.zeros_like(p[:1])])
    here = xp.log(xp.where(p > 0, p, xp.ones_like(p)))
    k = len(next(iter(places)))
    axes = [tuple(int(a == i) for a in range(k)) for i in range(k)]

    def difference(offset: tuple[int, ...]) -> tuple[Array, Array]:
        most = STEEPEST * sum(map(abs, offset))
        there = xp.take(held, places[offset])
        known = xp.logical_and(there > 0, p > 0)
        up = xp.log(xp.where(known, there, xp.ones_like(there))) - xp.where(known, here, xp.zeros_like(here))
        return xp.clip(up, -most, most), known

    slopes, curvatures = [], {}
    for i, up in enumerate(axes):
        (above, one), (below, other) = difference(up), difference(tuple(-a for a in up))
        both = xp.astype(xp.logical_and(one, other), xp.float64)
        slopes.append(0.5 * both * (above - below))
        curvatures[i, i] = -both * (above + below)
    for i, j in itertools.combinations(range(k), 2):
        mixed, whole = xp.zeros_like(p), p > 0
        for side, other in itertools.product((1, -1), repeat=2):
            corner, known = difference(tuple(side * a + other * b for a, b in zip(axes[i], axes[j], strict=True)))
            mixed, whole = mixed - 0.25 * side * other * corner, xp.logical_and(whole, known)
        curvatures[i, j] = xp.where(whole, mixed, xp.zeros_like(mixed))
    return Shapes(slopes, curvatures)
