"""The logarithm of a measurement's likelihood at the centres of cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ensemble._backend import array_namespace, is_array
from ensemble._check import message, require
from ensemble._typing import Array, Namespace
from ensemble.apps.gbees.problem import Problem
from ensemble.apps.gbees.run.arguments import checked_call
from ensemble.apps.gbees.tables import with_tables

__all__ = ["Noise", "centres", "frame_points", "log_likelihoods", "noise_of", "whitened_residuals"]


class Noise:
    """Gaussian noise of a measurement: its inverse Cholesky factor, and the logarithm of its density's peak."""

    def __init__(self, covariance: np.ndarray) -> None:
        factor = np.linalg.cholesky(covariance)
        self.whitening = np.linalg.inv(factor)
        self.log_peak = -float(np.sum(np.log(np.diag(factor)))) - 0.5 * len(covariance) * float(np.log(2.0 * np.pi))


def noise_of(R: np.ndarray, m: int, function: str) -> Noise:
    """The noise of `m` numbers, given as one variance, m variances or a covariance matrix.

    Raises
    ------
    ValueError
        If the shape does not fit, or the matrix is not positive definite.
    """
    R = np.asarray(R, dtype=np.float64)
    fits = R.shape in ((), (m,), (m, m))
    require(fits, function, "R", f"be a number or have shape ({m},) or ({m}, {m})", f"shape {R.shape}")
    if R.ndim < 2:
        R = np.diag(np.broadcast_to(R, (m,)))
    valid = bool(np.all(np.isfinite(R))) and bool(np.allclose(R, R.T, rtol=1e-12, atol=0.0))
    smallest = float(np.linalg.eigvalsh(R)[0]) if valid else float("nan")
    seen = f"a smallest eigenvalue of {smallest:.3g}" if valid else "entries that are not finite or not symmetric"
    require(smallest > 0.0, function, "R", "be a covariance matrix, positive definite", seen)
    return Noise(R)


def centres(problem: Problem, indices: Array) -> tuple[Array, ...]:
    """Centres of the cells in space, n arrays (N,)."""
    return problem.position(frame_points(problem, indices))


def frame_points(problem: Problem, indices: Array) -> list[Array]:
    """Centres of the cells in the grid's frame, n arrays (N,)."""
    xp = array_namespace(indices)
    return [xp.astype(indices[:, i], xp.float64) * float(problem.widths[i]) for i in range(problem.n)]


def whitened_residuals(
    problem: Problem, z: Sequence[Array], h: Callable[..., Array], y: np.ndarray, noise: Noise, xp: Namespace
) -> list[Array]:
    """``h(x) - y`` in deviations of the noise, one array (N,) for each of `y`, at points `z` of the grid's frame.

    Raises
    ------
    ValueError
        If `h` does not give one number for each of `y`.
    """
    requirement = f"take {problem.n} scalars x and a namespace, and give {len(y)}"
    values = checked_call(lambda: h(problem.position(z), with_tables(xp)), "Gbees.update", "h", requirement)
    values = (values,) if is_array(values) or isinstance(values, int | float) else tuple(values)
    if len(values) != len(y):
        seen = f"{len(values)} for {len(y)} measured"
        raise ValueError(message("Gbees.update", "h", "give one number for each of y", seen))
    residuals = [value - float(measured) for value, measured in zip(values, y)]
    found = []
    for row in range(len(y)):
        white = xp.zeros(z[0].shape, dtype=xp.float64)
        for column in range(row + 1):
            weight = float(noise.whitening[row, column])
            if weight != 0.0:
                white = white + weight * residuals[column]
        found.append(white)
    return found


def log_likelihoods(problem: Problem, indices: Array, h: Callable[..., Array], y: np.ndarray, noise: Noise) -> Array:
    """``-(h(x) - y)' R^-1 (h(x) - y) / 2`` at each cell's centre; without the peak of the noise's density.

    Raises
    ------
    ValueError
        If `h` does not give one number for each of `y`.
    """
    xp = array_namespace(indices)
    total = xp.zeros(indices.shape[0], dtype=xp.float64)
    for white in whitened_residuals(problem, frame_points(problem, indices), h, y, noise, xp):
        total = total + white * white
    return -0.5 * total
