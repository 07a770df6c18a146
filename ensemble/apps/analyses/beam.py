"""The cantilever of the first three analyses: Euler-Bernoulli elements with cubic shape functions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sla

from ensemble._backend import is_array, to_numpy
from ensemble._check import integer, message, require, require_real_numbers, require_unmasked
from ensemble.scalar import Ensemble

__all__ = ["Beam", "Modes", "banded_product", "cantilever", "checked_output", "real_array", "shared_array"]

HALF_WIDTH = 3

STIFFNESS = np.array([[12.0, 6, -12, 6], [6, 4, -6, 2], [-12, -6, 12, -6], [6, 2, -6, 4]])
MASS = np.array([[156.0, 22, 54, -13], [22, 4, 13, -3], [54, 13, 156, -22], [-13, -3, -22, 4]]) / 420.0
"""Of an element of length 1: Przemieniecki (1968), Theory of Matrix Structural Analysis, eqs. 5.116 and 11.26."""


class Modes(NamedTuple):
    """Undamped circular frequencies in rad/s, ascending, mode shapes of unit modal mass, and damping ratios."""

    frequencies: np.ndarray
    shapes: np.ndarray
    ratios: np.ndarray


class Beam(NamedTuple):
    """Matrices in lower banded form: row d holds the entries (i + d, i).

    Unknowns are the deflection and rotation of each node from the clamped end on; length, flexural rigidity and mass
    per length are 1. Damping is ``a M + b K``.
    """

    stiffness: np.ndarray
    mass: np.ndarray
    rayleigh: tuple[float, float]

    @property
    def n_dofs(self) -> int:
        """Unknowns."""
        return int(self.stiffness.shape[1])

    @property
    def tip(self) -> int:
        """The unknown that is the deflection of the free end."""
        return self.n_dofs - 2

    def dense(self) -> np.ndarray:
        """The stiffness as a full matrix."""
        return full(self.stiffness)

    def modes(self) -> Modes:
        """All modes."""
        values, shapes = sla.eigh(full(self.stiffness), full(self.mass))
        frequencies = np.sqrt(values)
        a, b = self.rayleigh
        return Modes(frequencies, shapes, 0.5 * (a / frequencies + b * frequencies))


def cantilever(n_dofs: int, function: str, *, damping: float = 0.02) -> Beam:
    """The beam of ``n_dofs / 2`` equal elements; `damping` is the ratio of the first two modes of a continuous beam."""
    n_dofs = integer(n_dofs, function, "n_dofs", minimum=2)
    require(n_dofs % 2 == 0, function, "n_dofs", "be even: a deflection and a rotation for each node", n_dofs)
    n = n_dofs // 2
    length = 1.0 / n
    scale = np.array([1.0, length, 1.0, length])
    size = np.outer(scale, scale)
    stiffness, mass = assembled(STIFFNESS * size / length**3, n), assembled(MASS * size * length, n)
    a, b = rayleigh(damping)
    return Beam(stiffness, mass, (a, b))


def rayleigh(ratio: float) -> tuple[float, float]:
    """The factors of mass and stiffness for one ratio at the first two frequencies of the continuous beam."""
    first, second = 1.875104068711961**2, 4.694091132974175**2  # roots of cos(z) cosh(z) = -1
    return 2.0 * ratio * first * second / (first + second), 2.0 * ratio / (first + second)


def assembled(element: np.ndarray, n: int) -> np.ndarray:
    """The banded sum of `n` equal elements, the first node clamped."""
    band = np.zeros((HALF_WIDTH + 1, 2 * n + 2))
    for i in range(4):
        for j in range(i + 1):
            band[i - j, j : j + 2 * n : 2] += element[i, j]
    return np.ascontiguousarray(band[:, 2:])


def full(band: np.ndarray) -> np.ndarray:
    """The symmetric matrix of a lower band."""
    n = band.shape[1]
    matrix = np.zeros((n, n))
    for d in range(min(band.shape[0], n)):
        i = np.arange(n - d)
        matrix[i + d, i] = matrix[i, i + d] = band[d, : n - d]
    return matrix


def banded_product(band: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The product of the symmetric banded matrix with `x` of shape (n, ...)."""
    shape = (-1, *[1] * (x.ndim - 1))
    y: np.ndarray = band[0].reshape(shape) * x
    for d in range(1, min(band.shape[0], x.shape[0])):
        entries = band[d, :-d].reshape(shape)
        y[d:] += entries * x[:-d]
        y[:-d] += entries * x[d:]
    return y


def real_array(value: Any, function: str, argument: str) -> Any:
    """Real numbers, or the samples of an Ensemble, as an array of the library that they are in."""
    require_unmasked(value, function, argument)
    values = value.samples if isinstance(value, Ensemble) else value
    values = values if is_array(values) else np.asarray(values)
    require_real_numbers(values.dtype, function, argument)
    return values


def shared_array(value: Any, function: str, argument: str) -> np.ndarray:
    """Real numbers that all samples share, on the host: the axis of samples of an Ensemble would be read as another."""
    if isinstance(value, Ensemble):
        raise TypeError(message(function, argument, "be the same for all samples", "an Ensemble"))
    return np.asarray(to_numpy(real_array(value, function, argument)), np.float64)


def checked_output(output: Any, n: int, function: str) -> np.ndarray | None:
    """The output matrix, shape (n_outputs, n); None for the unit matrix."""
    if output is None:
        return None
    C = shared_array(output, function, "output")
    require(C.ndim == 2 and C.shape[1] == n, function, "output", f"have shape (n_outputs, {n})", f"shape {C.shape}")
    return C
