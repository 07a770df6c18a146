"""The first grid: a box around the mean, filled with a Gaussian or another density; or the cells that hold samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ensemble._check import require
from ensemble._typing import Array
from ensemble.apps.gbees.engines.grid_memory import MemoryBudget
from ensemble.apps.gbees.frames import cell_of, collected
from ensemble.apps.gbees.run.arguments import checked_call

__all__ = ["EXTENT", "Frame", "filled", "frame_of", "gaussian", "histogram"]

EXTENT = 3.0
"""Half the box's edge in standard deviations, in the public programs."""

FEWEST = 3
"""Least cells of a period: both neighbours of a cell are different cells."""


@dataclass(frozen=True)
class Frame:
    """The frame of the grid: centre of the cell s = 0, widths, axes, and half-widths of the first box in cells."""

    origin: np.ndarray
    widths: np.ndarray
    rotation: np.ndarray | None
    periods: tuple[int | None, ...]
    half: tuple[int, ...]


def frame_of(
    mean: np.ndarray, covariance: np.ndarray, factor: np.ndarray, extent: np.ndarray, rotate: bool,
    periods: Sequence[float | None],
) -> Frame:  # fmt: skip
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
    half = [round(2.0 * float(e) * float(f)) for e, f in zip(extent, factor, strict=True)]
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
    rotated = np.zeros((n, n))
    for k in range(n):
        rotated = rotated + rotation.T[:, k, None] * covariance[k]
    variances = np.zeros(n)
    for k in range(n):
        variances = variances + rotated[:, k] * rotation[k]
    return variances


def gaussian(frame: Frame, covariance: np.ndarray, limit: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Multi-indices (N, n) of every cell of the box, and the Gaussian's values at their centres, adding up to 1.

    Raises
    ------
    MemoryError
        If the box does not fit.
    """
    n, axes = len(frame.half), box(frame, limit)
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
    return every(axes), p / np.sum(p)


def box(frame: Frame, limit: float | None) -> list[np.ndarray]:
    """The indices along each axis of the box.

    Raises
    ------
    MemoryError
        If the box does not fit.
    """
    n_cells = 1
    for half in frame.half:
        n_cells *= 2 * half + 1
    MemoryBudget(8 * (2 * len(frame.half) + 4), limit, np.empty(0)).reserve(n_cells)
    return [np.arange(-half, half + 1) for half in frame.half]


def every(axes: Sequence[np.ndarray]) -> np.ndarray:
    """Multi-indices (N, n) of all cells of a box."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def filled(
    frame: Frame, density: Callable[..., Array], place: Callable[[np.ndarray], tuple[Array, ...]], limit: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Multi-indices (N, n) of the box's cells where ``density(x, xp)`` is above zero, and its values, adding up to 1.

    Raises
    ------
    ValueError
        If the density is negative or not finite somewhere, or zero everywhere.
    MemoryError
        If the box does not fit.
    """
    indices = every(box(frame, limit))
    requirement = f"take {len(frame.half)} scalars x and a namespace, and give a density"
    with np.errstate(all="ignore"):
        values = checked_call(
            lambda: np.asarray(density(place(indices), np), dtype=np.float64), "Gbees", "start", requirement
        )
        p = np.broadcast_to(values, indices.shape[:1])
    valid = bool(np.all(np.isfinite(p)) and np.all(p >= 0.0))
    seen = f"values from {np.min(p):g} to {np.max(p):g} on the first grid"
    require(valid and bool(np.sum(p) > 0.0), "Gbees", "start", "be a density, finite, not negative, not all zero", seen)
    kept = p > 0.0
    return indices[kept], p[kept] / np.sum(p[kept])


def histogram(frame: Frame, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Multi-indices (N, n) of the cells that hold some of the `points` (n, n_points), and their share of them."""
    indices = cell_of(np.ascontiguousarray(points.T), frame.widths, frame.origin, frame.rotation)
    for i, period in enumerate(frame.periods):
        if period is not None:
            low = -(period // 2)
            indices[:, i] = (indices[:, i] - low) % period + low
    indices, counts = collected(indices, np.ones(points.shape[1]))
    return indices, counts / points.shape[1]
