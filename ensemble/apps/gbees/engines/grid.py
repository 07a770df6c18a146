"""The grid of the Array API engine: sorted keys with probabilities and velocities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ensemble._backend import array_namespace, to_numpy
from ensemble._typing import Array
from ensemble.apps.gbees.engines.failures import drift_not_finite
from ensemble.apps.gbees.engines.keys import Packing, find
from ensemble.apps.gbees.problem import Problem

__all__ = ["Grid", "Stencil", "face_velocities"]


@dataclass(frozen=True)
class Stencil:
    """Positions of the neighbours of N cells; N, one past the last cell, for a missing one.

    Attributes
    ----------
    lower, upper : tuple of n arrays (N,)
        The neighbours below and above along each dimension.
    """

    lower: tuple[Array, ...]
    upper: tuple[Array, ...]

    @classmethod
    def of(cls, packing: Packing, keys: Array) -> Stencil:
        """The neighbours of every cell."""
        n = range(len(packing.bits))
        return cls(
            tuple(find(keys, packing.neighbour(keys, i, -1)) for i in n),
            tuple(find(keys, packing.neighbour(keys, i, 1)) for i in n),
        )


@dataclass(frozen=True)
class Grid:
    """N cells in the order of their keys.

    Attributes
    ----------
    packing : Packing
    keys : array of int64, shape (N,)
    p : array, shape (N,)
    velocities : tuple of n arrays (N,)
        Component i of the drift at the centre of the upper face i.
    is_grown : array of bool, shape (N,)
        Whether all downwind neighbours are stored or out of bounds.
    """

    packing: Packing
    keys: Array
    p: Array
    velocities: tuple[Array, ...]
    is_grown: Array

    @property
    def size(self) -> int:
        """Number of cells stored."""
        return int(self.keys.shape[0])

    @cached_property
    def stencil(self) -> Stencil:
        """Positions of all neighbours, computed once per set of cells."""
        return Stencil.of(self.packing, self.keys)

    @cached_property
    def columns(self) -> list[Array]:
        """The multi-indices, one array (N,) a dimension."""
        return [self.packing.column(self.keys, i) for i in range(len(self.packing.bits))]

    def changed(self, **parts: Any) -> Grid:
        """The same cells with other probabilities, velocities or marks; the stencil is kept."""
        grid = replace(self, **parts)
        for name in ("stencil", "columns"):
            if name in self.__dict__:
                grid.__dict__[name] = self.__dict__[name]
        return grid

    def chosen(self, at: Array) -> Grid:
        """The cells at positions `at`, in ascending order; none of them is marked as grown."""
        xp = array_namespace(self.keys)
        return Grid(
            self.packing,
            xp.take(self.keys, at),
            xp.take(self.p, at),
            tuple(xp.take(v, at) for v in self.velocities),
            xp.zeros(at.shape[0], dtype=xp.bool),
        )


def face_velocities(problem: Problem, columns: list[Array], time: float, dtype: Any) -> tuple[Array, ...]:
    """Component i of the drift at the centre of the upper face i of every cell, in the precision `dtype`.

    Positions and drift are computed in float64 in any case: the sign of a velocity decides which cells are kept.

    Raises
    ------
    GridError
        If the drift is not finite somewhere.
    """
    xp = array_namespace(columns[0])
    z = [xp.astype(s, xp.float64) * float(width) for s, width in zip(columns, problem.widths)]
    velocities = []
    for i, width in enumerate(problem.widths):
        face = [*z[:i], z[i] + float(width) / 2.0, *z[i + 1 :]]
        v = problem.velocity(face, time, xp)[i]
        v = xp.broadcast_to(xp.astype(xp.asarray(v), xp.float64), z[i].shape)
        if not bool(xp.all(xp.isfinite(v))):
            first = int(xp.argmin(xp.astype(xp.isfinite(v), xp.int8)))
            z = [float(to_numpy(part)[first]) for part in face]
            raise drift_not_finite(problem, z, float(v[first]), i, time)
        velocities.append(xp.astype(v, dtype, copy=False))
    return tuple(velocities)
