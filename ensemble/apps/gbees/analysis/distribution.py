"""Moments, density, highest-density regions and random samples of a distribution on a grid of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._typing import Array
from ensemble.apps.gbees.cells import Cells
from ensemble.scalar import Ensemble

__all__ = [
    "Regions",
    "active",
    "circular_mean",
    "covariance",
    "density",
    "highest_density_regions",
    "in_range",
    "mean",
    "positions",
    "sample",
]


@dataclass(frozen=True)
class Regions:
    """The smallest sets of cells that contain given probabilities, each inside the next.

    Attributes
    ----------
    masses : ndarray, shape (k,)
        The given probabilities, ascending.
    levels : ndarray, shape (k,)
        Probability of the least likely cell in each region.
    inside : array of bool, shape (k, N)
        The cells of each region.
    """

    masses: np.ndarray
    levels: np.ndarray
    inside: Array

    @property
    def counts(self) -> np.ndarray:
        """Cells in each region, shape (k,)."""
        return np.asarray(np.count_nonzero(to_numpy(self.inside), axis=1))


def active(cells: Cells, threshold: float) -> Cells:
    """Return the cells whose probability is at least `threshold`.

    Parameters
    ----------
    cells : Cells
    threshold : float

    Returns
    -------
    Cells
    """
    xp = array_namespace(cells.probabilities)
    chosen = xp.nonzero(cells.probabilities >= threshold)[0]
    return replace(
        cells, indices=xp.take(cells.indices, chosen, axis=0), probabilities=xp.take(cells.probabilities, chosen)
    )


def positions(cells: Cells) -> Array:
    """Return the centres of the cells in space.

    Parameters
    ----------
    cells : Cells

    Returns
    -------
    array of float64, shape (N, n)
    """
    xp = array_namespace(cells.indices)
    z = xp.astype(cells.indices, xp.float64) * asarray_like(np.asarray(cells.widths, dtype=np.float64), cells.indices)
    if cells.rotation is not None:
        z = z @ asarray_like(np.ascontiguousarray(np.asarray(cells.rotation, dtype=np.float64).T), cells.indices)
    return z + asarray_like(np.asarray(cells.origin, dtype=np.float64), cells.indices)


def density(cells: Cells) -> Array:
    """Return the probability per volume in each cell.

    Parameters
    ----------
    cells : Cells

    Returns
    -------
    array, shape (N,), unit of 1 / product of the coordinates' units
    """
    return cells.probabilities / float(np.prod(cells.widths))


def mean(cells: Cells) -> np.ndarray:
    """Mean of the distribution, each cell's probability at its centre.

    Of a periodic coordinate it is the circular mean, ``L arg(E exp(2 pi i x / L)) / (2 pi)`` for the period L, inside
    the grid's range of cells; NaN where the distribution has no direction, as where it is uniform.

    Parameters
    ----------
    cells : Cells

    Returns
    -------
    ndarray of float64, shape (n,)

    Raises
    ------
    ValueError
        If there is no cell, or the probabilities do not add up to a finite number above zero.
    """
    return in_space(cells, grid_mean(cells, "mean"))


def covariance(cells: Cells) -> np.ndarray:
    """Covariance of the distribution, each cell's probability at its centre.

    A uniform density inside each cell would add the variance ``widths**2 / 12`` along each axis of the grid. It is
    omitted: the initial grid holds values of a density at the centres, so that the sums over cells are quadratures
    of the moments. Deviations of a periodic coordinate are those from its circular mean, to the nearest image.

    Parameters
    ----------
    cells : Cells

    Returns
    -------
    ndarray of float64, shape (n, n)

    Raises
    ------
    ValueError
        As for `mean`.
    """
    centre = grid_mean(cells, "covariance")
    p, total = weights(cells, "covariance")
    xp = array_namespace(p)
    n = len(cells.widths)
    C = np.empty((n, n))
    # One pair of axes at a time: all products of millions of cells would not fit in memory.
    for i in range(n):
        weighted = p * deviations(cells, i, float(centre[i]))
        for j in range(i + 1):
            product = xp.sum(weighted * deviations(cells, j, float(centre[j])))
            C[i, j] = C[j, i] = float(product) / total * cells.widths[i] * cells.widths[j]
    return C if cells.rotation is None else cells.rotation @ C @ cells.rotation.T


def weights(cells: Cells, function: str) -> tuple[Array, float]:
    """Probabilities in float64 and their sum."""
    xp = array_namespace(cells.probabilities)
    p = xp.astype(cells.probabilities, xp.float64)
    _check.require(p.shape[0] > 0, function, "cells", "hold at least one cell", "none")
    total = float(xp.sum(p))
    _check.require(
        0.0 < total < np.inf, function, "cells", "have probabilities with a finite sum above zero", f"a sum of {total}"
    )
    return p, total


def grid_mean(cells: Cells, function: str) -> np.ndarray:
    """The mean multi-index, shape (n,); circular along periodic axes."""
    p, total = weights(cells, function)
    xp = array_namespace(p)
    sums = [float(xp.sum(p * xp.astype(cells.indices[:, i], xp.float64))) for i in range(len(cells.widths))]
    means = np.array(sums) / total
    for i, count in enumerate(cells.periods):
        if count is not None:
            means[i] = circular_mean(p, xp.astype(cells.indices[:, i], xp.float64), count)
    return means


def circular_mean(p: Array, s: Array, count: int) -> float:
    """The circular mean of places `s` on an axis of `count` cells, from ``-(count // 2) - 1/2`` on; NaN without one."""
    xp = array_namespace(p)
    angle = s * (2.0 * np.pi / count)
    across, along = float(xp.sum(p * xp.sin(angle))), float(xp.sum(p * xp.cos(angle)))
    if np.hypot(across, along) <= 1e-10 * float(xp.sum(p)):
        return float("nan")
    return float(in_range(np.arctan2(across, along) * count / (2.0 * np.pi), count))


def in_range(s: Array, count: int) -> Array:
    """Places on an axis of `count` cells as those of the grid, from ``-(count // 2) - 1/2`` on."""
    first = -(count // 2) - 0.5
    return (s - first) % count + first


def deviations(cells: Cells, i: int, centre: float) -> Array:
    """What the cells are away from `centre` along axis i, in cells; to the nearest image where it is periodic."""
    xp = array_namespace(cells.indices)
    away = xp.astype(cells.indices[:, i], xp.float64) - centre
    count = cells.periods[i] if cells.periods else None
    return away if count is None else (away + 0.5 * count) % count - 0.5 * count


def in_space(cells: Cells, s: np.ndarray) -> np.ndarray:
    """The point in space of a point `s`, shape (n,), in units of cells."""
    z = np.asarray(cells.widths) * s
    return np.asarray((z if cells.rotation is None else np.asarray(cells.rotation) @ z) + np.asarray(cells.origin))


def highest_density_regions(cells: Cells, masses: Sequence[float] = (0.5, 0.95, 0.99)) -> Regions:
    """Return the smallest sets of cells that hold at least the probabilities `masses`.

    Cells are added in descending order of probability until the sum is reached; cells as likely as the last one are
    included.

    Parameters
    ----------
    cells : Cells
    masses : sequence of float in (0, 1], ascending
        Fractions of the total probability of `cells`.

    Returns
    -------
    Regions

    Raises
    ------
    ValueError
        If `masses` are not ascending in (0, 1], or as for `mean`.

    References
    ----------
    .. [1] Hyndman (1996), Computing and graphing highest density regions, The American Statistician 50, 120-126.

    Examples
    --------
    >>> cells = Cells(np.array([[0], [1], [2]]), np.array([0.2, 0.7, 0.1]), np.zeros(1), np.ones(1))
    >>> highest_density_regions(cells, (0.5, 0.8)).levels
    array([0.7, 0.2])
    """
    wanted = _check.real_array(masses, "highest_density_regions", "masses", "be numbers in (0, 1], ascending")
    good = wanted.ndim == 1 and wanted.size > 0 and np.all(wanted > 0.0) and np.all(wanted <= 1.0)
    _check.require(
        bool(good) and bool(np.all(np.diff(wanted) > 0.0)),
        "highest_density_regions",
        "masses",
        "be numbers in (0, 1], ascending",
        np.atleast_1d(masses).tolist(),
    )
    p, _ = weights(cells, "highest_density_regions")
    xp = array_namespace(p)
    levels = density_levels(to_numpy(p), wanted)
    inside = xp.stack([p >= float(level) for level in levels])
    return Regions(wanted, levels, inside)


def density_levels(p: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """The probability of the last cell in descending order that is needed for each of `masses`; `p` of any shape."""
    descending = np.sort(p, axis=None)[::-1]
    held = np.cumsum(descending)
    # Rounding of the sums must not select a cell without probability.
    last = np.searchsorted(held, masses * held[-1] * (1.0 - 4.0 * np.finfo(np.float64).eps))
    return np.asarray(descending[np.minimum(last, np.count_nonzero(descending) - 1)])


def sample(cells: Cells, n: int, *, seed: int) -> Ensemble:
    """Independent random points: a cell by its probability, then a uniform point inside it.

    Parameters
    ----------
    cells : Cells
    n : int
        Number of samples, at least 1.
    seed : int
        Sample i depends on `seed` and i alone, not on `n`.

    Returns
    -------
    Ensemble, shape (n_dimensions,), `n` samples
        In the array library of `cells`.

    Raises
    ------
    ValueError
        As for `mean`, or if a probability is negative.
    """
    n = _check.integer(n, "sample", "n", minimum=1)
    p, _ = weights(cells, "sample")
    xp = array_namespace(p)
    least = float(xp.min(p))
    _check.require(least >= 0.0, "sample", "cells", "have no negative probability", least)
    uniform = _check.random_generator(seed, "sample").random((n, 1 + len(cells.widths)))
    held = xp.cumulative_sum(p)
    chosen = xp.searchsorted(held, asarray_like(uniform[:, 0] * float(held[-1]), p), side="right")
    # Rounding of the product may give the total itself, past the last cell with probability.
    last = int(xp.max(xp.nonzero(p > 0.0)[0]))
    chosen = xp.minimum(chosen, xp.asarray(last, dtype=chosen.dtype))
    inside = asarray_like(uniform[:, 1:] - 0.5, p)
    s = xp.astype(xp.take(cells.indices, chosen, axis=0), xp.float64) + inside
    scattered = replace(cells, indices=s)
    return Ensemble(points_of(scattered))


def points_of(cells: Any) -> Array:
    """Positions with the samples last, contiguous."""
    xp = array_namespace(cells.indices)
    x = positions(cells)
    return xp.stack([x[:, i] for i in range(len(cells.widths))])
