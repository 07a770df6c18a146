"""The change of a measurement across cells relative to its noise, and the axes along which it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ensemble._backend import array_namespace
from ensemble._typing import Array, Namespace
from ensemble.apps.gbees.problem import Problem
from ensemble.apps.gbees.run.measurement import Noise, frame_points, whitened_residuals

__all__ = ["Residuals", "Sharpness", "residuals_of", "sharpness"]

Residuals = Callable[[Sequence[Array], Namespace], list[Array]]
"""Whitened residuals of a measurement, m arrays (N,), at n arrays (N,) of points in the grid's frame."""

RESOLVED = 0.25
"""Change of the measurement across a cell, in deviations, up to which a sum over centres is exact to rounding."""


@dataclass(frozen=True)
class Sharpness:
    """The change of a measurement across a cell.

    Attributes
    ----------
    changes : ndarray (n,)
        Along each axis, in deviations of the noise: root mean square over cells weighted by the likelihood.
    jacobian : ndarray (m, n) or None
        The whitened change across a cell along each axis, where the measurement is linear; None where it is not.
    """

    changes: np.ndarray
    jacobian: np.ndarray | None

    @property
    def is_sharp(self) -> bool:
        """Whether the noise's deviation is smaller than what a cell's width changes the measurement by."""
        return bool(np.max(self.changes) > 1.0 + 1e-9)

    def axes(self) -> list[int]:
        """The axes to integrate along."""
        if self.jacobian is None:
            return [i for i, change in enumerate(self.changes) if change > RESOLVED]
        chosen: list[int] = []
        left = self.jacobian.copy()
        while len(chosen) < len(left):
            sizes = np.linalg.norm(left, axis=0)
            i = int(np.argmax(sizes))
            if sizes[i] <= RESOLVED:
                break
            chosen.append(i)
            left -= np.outer(left[:, i], left[:, i] @ left) / sizes[i] ** 2
        return sorted(chosen)


def residuals_of(problem: Problem, h: Callable[..., Array], y: np.ndarray, noise: Noise) -> Residuals:
    """The whitened residuals as a function of points in the grid's frame and a namespace."""
    return lambda z, xp: whitened_residuals(problem, z, h, y, noise, xp)


def sharpness(
    problem: Problem, indices: Array, p: Array, h: Callable[..., Array], y: np.ndarray, noise: Noise
) -> Sharpness:
    """The sharpness of a measurement, by central differences across the cells."""
    xp = array_namespace(indices)
    at, z = residuals_of(problem, h, y, noise), frame_points(problem, indices)
    with np.errstate(all="ignore"):
        here = at(z, xp)
        size = sum(float(xp.max(xp.where(xp.isfinite(r), xp.abs(r), xp.zeros_like(r)))) for r in here)
        squares, columns, linear = [], [], True
        for i in range(problem.n):
            half = float(problem.widths[i]) / 2.0
            above, below = (at([*z[:i], z[i] + step, *z[i + 1 :]], xp) for step in (half, -half))
            change = [a - b for a, b in zip(above, below, strict=True)]
            square = sum((c * c for c in change[1:]), change[0] * change[0])
            squares.append(xp.where(xp.isfinite(square), square, xp.zeros_like(square)))
            columns.append([float(c[0]) for c in change])
            largest = float(xp.max(squares[-1])) ** 0.5
            allowed = 1e-9 * size + 1e-7 * largest
            for c, r, a, b in zip(change, here, above, below, strict=True):
                bend = xp.maximum(xp.abs(c - c[0]), xp.abs(a + b - 2.0 * r))
                linear = linear and bool(xp.max(bend) <= allowed)
        total = sum(squares[1:], squares[0])
        distance = sum((r * r for r in here[1:]), here[0] * here[0])
        closeness = -0.5 * distance / (1.0 + total)
        known = xp.logical_and(xp.isfinite(closeness), p > 0)
        low = xp.full_like(closeness, -np.inf)
        top = xp.max(xp.where(known, closeness, low))
        weights = xp.where(known, xp.astype(p, xp.float64) * xp.exp(closeness - top), xp.zeros_like(closeness))
        all_of_them = float(xp.sum(weights))
        if not all_of_them > 0.0:
            return Sharpness(np.zeros(problem.n), None)
        changes = np.array([float(xp.sum(weights * square)) / all_of_them for square in squares]) ** 0.5
    return Sharpness(changes, np.array(columns).T if linear else None)
