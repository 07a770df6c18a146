"""The first grid: a box of three standard deviations around the mean, filled with a Gaussian."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ensemble._check import require
from ensemble.apps.gbees.memory import Room

__all__ = ["Frame", "frame_of", "gaussian"]

DEVIATIONS = 3
"""Half the box's edge in standard deviations."""

FEWEST = 3
"""Cells of a period: both neighbours of a cell are others."""


@dataclass(frozen=True)
class Frame:
    """Where the cells lie: centre of the cell s = 0, widths, axes, and half-widths of the first box in cells."""

    origin: np.ndarray
    widths: np.ndarray
    rotation: np.ndarray | None
    periods: tuple[int | None, ...]
    half: tuple[int, ...]


def frame_of(
    mean: np.ndarray, covariance: np.ndarray, factor: np.ndarray, rotate: bool, periods: Sequence[float | None]
) -> Frame:
    """Cells of ``1 / (2 factor)`` standard deviations; where there is a period, of the nearest width that divides it.

    Raises
    ------
    ValueError
        If `covariance` is not positive definite.
    """
    eigenvalues, vectors = np.linalg.eigh(covariance, UPLO="U")  # signs of the axes as the public program has them
    require(
        bool(eigenvalues[0] > eigenvalues[-1] * 1e-14),
        "Gbees",
        "covariance",
        "be positive definite",
        f"a smallest eigenvalue of {eigenvalues[0]:.3g} (largest {eigenvalues[-1]:.3g})",
    )
    variances, rotation = np.diag(covariance), None
    if rotate:
        rotation, variances = vectors, along(vectors, covariance)
    widths = np.sqrt(variances) / (2.0 * factor)
    half = [round(2 * DEVIATIONS * float(f)) for f in factor]
    counts: list[int | None] = []
    for i, period in enumerate(periods):
        if period is None:
            counts.append(None)
            continue
        count = round(period / float(widths[i]))
        require(
            count >= FEWEST, "Gbees", "periods", f"hold {FEWEST} cells, to half a cell",
            f"{period:g} for coordinate {i}, whose cells are {widths[i]:.3g} wide",
            "Make the cells narrower (a larger factor), or leave the period out.",
        )  # fmt: skip
        widths[i], half[i] = period / count, min(half[i], (count - 1) // 2)
        counts.append(count)
    return Frame(mean, widths, rotation, tuple(counts), tuple(half))


def along(rotation: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Variances along the columns of `rotation`, added up one after another as the public program does."""
    n = len(covariance)
    turned = np.zeros((n, n))
    for k in range(n):
        turned = turned + rotation.T[:, k, None] * covariance[k]
    variances = np.zeros(n)
    for k in range(n):
        variances = variances + turned[:, k] * rotation[k]
    return variances


def gaussian(frame: Frame, covariance: np.ndarray, limit: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Multi-indices (N, n) of every cell of the box, and the Gaussian's values at their centres, adding up to 1.

    Raises
    ------
    MemoryError
        If the box does not fit.
    """
    n = len(frame.half)
    n_cells = 1
    for half in frame.half:
        n_cells *= 2 * half + 1
    Room(8 * (2 * n + 4), limit, np.empty(0)).take(n_cells)
    axes = [np.arange(-half, half + 1) for half in frame.half]
    z = [axis.reshape(-1, *(1,) * (n - 1 - i)) * width for i, (axis, width) in enumerate(zip(axes, frame.widths))]
    if frame.rotation is not None:
        covariance = frame.rotation.T @ covariance @ frame.rotation
    precision = np.linalg.inv(covariance)
    exponent = np.zeros([axis.size for axis in axes])
    for i in range(n):
        exponent += precision[i, i] * z[i] * z[i]
        for j in range(i + 1, n):
            if precision[i, j] != 0.0 and frame.rotation is None:  # along its own axes it is diagonal, but for rounding
                exponent += 2.0 * precision[i, j] * z[i] * z[j]
    p = np.exp(-0.5 * exponent).reshape(-1)
    indices = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, n)
    return indices, p / np.sum(p)
