"""Bayes' rule for measurements sharper than a cell: the likelihood is integrated over each cell.

The integrand is the density of `reconstruction` times the Gaussian likelihood. Along one axis of each box, the one that
the measurement changes most along, it is integrated over the part of the box where the likelihood is not negligible;
along the others by Gauss's rule, in boxes that are halved until the likelihood is smooth across them. For linear ``h``
the axes that are integrated over are as many as the measurement has independent components: along the others the sum
over centres of what is left, smooth on the grid, is as good.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ensemble._backend import array_namespace, asarray_like, to_numpy
from ensemble._typing import Array, Namespace
from ensemble.apps.gbees.analysis.distribution import circular_mean, in_range
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.problem import Problem
from ensemble.apps.gbees.run.measurement import Noise, frame_points
from ensemble.apps.gbees.run.reconstruction import Shapes, neighbours, shapes
from ensemble.apps.gbees.run.sharpness import Residuals, residuals_of

__all__ = ["IntegratedLikelihood", "integrate_likelihood"]

NEGLIGIBLE = 45.0
"""Differences of logarithms from which on terms are left out; rounding of the sum is 36."""

REACH = 7.5
"""Deviations on either side of a measured value, along a line, that are integrated over."""

NODES = 28
"""Nodes of Gauss's rule along that line: errors of 1e-11."""

BOXES = 1 << 21
"""Most parts of cells that are integrated over."""

CHUNK = 1 << 18
"""Nodes evaluated at a time."""


@dataclass(frozen=True)
class IntegratedLikelihood:
    """The likelihood integrated over cells, and the posterior's moments.

    Attributes
    ----------
    log_weights : array (N,)
        Logarithms of the likelihood of each cell, but for the peak of the noise's density.
    mean, covariance : ndarray (n,), (n, n)
        Mean and covariance of the posterior in the grid's frame, within cells too.
    """

    log_weights: Array
    mean: np.ndarray
    covariance: np.ndarray


def integrate_likelihood(
    problem: Problem, indices: Array, p: Array, h: Callable[..., Array], y: np.ndarray, noise: Noise, axes: list[int]
) -> IntegratedLikelihood:
    """Integrate over the cells along `axes`, of which there is at least one.

    Raises
    ------
    GridError
        If the noise is too sharp to be integrated over, `h` is not finite, or the likelihood is zero in all cells.
    """
    xp = array_namespace(indices)
    at = residuals_of(problem, h, y, noise)
    places = neighbours(problem, indices, axes)
    density = shapes(p, places)
    p = xp.astype(p, xp.float64)
    total = float(xp.sum(p * density.means()))
    with np.errstate(all="ignore"):
        near = cells_within_reach(problem, at, indices, p, axes)
    cells = CellQuadrature(
        problem, at, axes, to_numpy(xp.take(indices, near, axis=0)).astype(np.float64),
        np.log(to_numpy(xp.take(p, near))), density.take(near).converted(to_numpy),
    )  # fmt: skip
    with np.errstate(all="ignore"):
        moments = cells.integrated()
        mean, covariance = cells.summed(moments)
        values = np.log(moments.mass) + moments.scale - np.log(total)
    position = xp.cumulative_sum(xp.astype(is_among(near, indices.shape[0], xp), xp.int64)) - 1
    inside = is_among(near, indices.shape[0], xp)
    spread = xp.take(asarray_like(values, p), xp.maximum(position, xp.zeros_like(position)))
    log_weights = xp.where(inside, spread, xp.full_like(spread, -np.inf))
    return IntegratedLikelihood(as_values(p, log_weights, places, len(axes)), mean, covariance)


def is_among(positions: Array, n: int, xp: Namespace) -> Array:
    """Which of the numbers below n are among the ascending `positions`."""
    every = xp.arange(n, dtype=positions.dtype, device=positions.device)
    at = xp.minimum(xp.searchsorted(positions, every), xp.full_like(every, positions.shape[0] - 1))
    return xp.take(positions, at) == every


def cells_within_reach(problem: Problem, at: Residuals, indices: Array, p: Array, axes: list[int]) -> Array:
    """Positions of the cells where the likelihood may not be negligible."""
    xp = array_namespace(indices)
    z = frame_points(problem, indices)
    r, J, bends = differences(at, z, [float(problem.widths[i]) / 2.0 for i in axes], axes, xp)
    worst = 0.5 * norm(r, xp) ** 2
    best = 0.5 * xp.clip(norm(r, xp) - sum(norm(column, xp) for column in J) - sum(bends.values()), min=0.0) ** 2
    log_p = xp.log(xp.where(p > 0, p, xp.ones_like(p)))
    least = xp.where(p > 0, log_p - worst, xp.full_like(p, -np.inf))
    least = xp.where(xp.isnan(least), xp.full_like(p, -np.inf), least)
    left_out = log_p - best < xp.max(least) - NEGLIGIBLE  # false for NaN, for which the integration raises
    return xp.nonzero(xp.logical_and(p > 0, xp.logical_not(left_out)))[0]


def norm(parts: Sequence[Array], xp: Namespace) -> Array:
    """The length of a vector whose components are arrays."""
    return xp.sqrt(sum((part * part for part in parts[1:]), parts[0] * parts[0]))


def differences(
    at: Residuals, z: Sequence[Array], halves: Sequence[Array], axes: Sequence[int], xp: Namespace
) -> tuple[list[Array], list[list[Array]], dict[tuple[int, int], Array]]:
    """Residuals at the centres `z` of boxes, their first and their second differences.

    First differences are central, to the upper face; second differences are lengths, by pairs of axes.
    """

    def stepped(*steps: tuple[int, int]) -> list[Array]:
        point = list(z)
        for k, side in steps:
            point[axes[k]] = point[axes[k]] + side * halves[k]
        return at(point, xp)

    here, n = stepped(), range(len(axes))
    above, below = [stepped((k, 1)) for k in n], [stepped((k, -1)) for k in n]
    J = [[0.5 * (a - b) for a, b in zip(above[k], below[k], strict=True)] for k in n]
    bends = {}
    for k in n:
        bend = [a + b - 2.0 * r for a, b, r in zip(above[k], below[k], here, strict=True)]
        bends[k, k] = 0.5 * norm(bend, xp)
        for i in range(k):
            both = zip(stepped((i, 1), (k, 1)), above[i], above[k], here, strict=True)
            bends[i, k] = norm([corner - a - b + r for corner, a, b, r in both], xp)
    return here, J, bends


@dataclass
class Moments:
    """Integrals over each of K cells along k axes, times ``exp(-scale)``; offsets are in cells."""

    mass: np.ndarray
    first: np.ndarray
    second: np.ndarray
    scale: float


class CellQuadrature:
    """The cells to integrate over, in NumPy arrays.

    Parameters
    ----------
    problem : Problem
    at : callable
    axes : list of int
    indices : ndarray (K, n)
    log_p : ndarray (K,)
    density : Shapes
    """

    def __init__(
        self, problem: Problem, at: Residuals, axes: list[int], indices: np.ndarray, log_p: np.ndarray, density: Shapes
    ) -> None:
        self.problem, self.at, self.axes = problem, at, axes
        self.indices, self.log_p, self.density = indices, log_p, density
        rule = 3 if len(axes) < 4 else 2
        self.outer = np.polynomial.legendre.leggauss(rule)
        self.smooth = 1.0 if rule == 3 else 0.5

    def points(self, cell: np.ndarray, xi: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Points in the grid's frame: offsets `xi` from the centres of cells."""
        s = [self.indices[cell, i] for i in range(self.problem.n)]
        for i, offset in zip(self.axes, xi, strict=True):
            s[i] = s[i] + offset
        return [part * float(width) for part, width in zip(s, self.problem.widths, strict=True)]

    def integrated(self) -> Moments:
        """Mass, first and second moments of density times likelihood over each cell, over the density at its centre."""
        K, k = self.indices.shape[0], len(self.axes)
        leaves = list(self.boxes())
        scale = max(float(np.max(leaf.highest)) for leaf in leaves)
        moments = Moments(np.zeros(K), np.zeros((k, K)), np.zeros((k, k, K)), scale)
        for leaf in leaves:
            per_box = NODES * len(self.outer[0]) ** (k - 1)
            for begin in range(0, len(leaf.cell), max(1, CHUNK // per_box)):
                self.add(leaf.some(slice(begin, begin + max(1, CHUNK // per_box))), moments)
        return moments

    def boxes(self) -> Iterator[BoxBatch]:
        """Boxes across which the likelihood is smooth but for one axis; those where it is negligible are left out."""
        k, K = len(self.axes), self.indices.shape[0]
        cell, centre, half = np.arange(K), np.zeros((k, K)), np.full((k, K), 0.5)
        floor = -np.inf
        while cell.size:
            widths = self.problem.widths[self.axes]
            r, J, bends = differences(
                self.at, self.points(cell, list(centre)), [h * w for h, w in zip(half, widths, strict=True)],
                self.axes, np,
            )  # fmt: skip
            bend, residual, slopes = (
                np.asarray(sum(bends.values())),
                np.stack(r),
                np.stack([np.stack(column) for column in J]),
            )
            if np.isnan(bend).any():
                raise GridError(
                    "Gbees.update: h must be a finite number all over the cells that it is integrated over; got NaN or "
                    "infinity. Use likelihood='point', or make the function finite there."
                )
            lengths = np.sqrt(np.sum(slopes**2, axis=1))
            distance = np.sqrt(np.sum(residual**2, axis=0))
            highest = -0.5 * np.clip(distance - lengths.sum(axis=0) - bend, 0.0, None) ** 2
            floor = max(floor, float(np.max(self.log_p[cell] - 0.5 * distance**2)))
            inner = np.argmax(lengths, axis=0)
            along = np.take_along_axis(slopes, inner[None, None], axis=0)[0]
            length = np.take_along_axis(lengths, inner[None], axis=0)[0]
            along = along / np.where(length > 0.0, length, 1.0)
            across = slopes - along * np.sum(slopes * along, axis=1)[:, None]
            sharp = np.sqrt(np.sum(across**2, axis=1))
            bent = np.stack([np.asarray(sum(b for pair, b in bends.items() if i in pair)) for i in range(k)])
            need = np.where(bend > 0.5, bent, np.where(sharp > self.smooth, sharp, 0.0))
            kept = self.log_p[cell] + highest >= floor - NEGLIGIBLE
            whole = kept & (np.max(need, axis=0) == 0.0)
            if whole.any():
                yield BoxBatch(cell[whole], centre[:, whole], half[:, whole], residual[:, whole], slopes[:, :, whole],
                            inner[whole], bend[whole], highest[whole])  # fmt: skip
            split = kept & ~whole
            cell, centre, half, need = cell[split], centre[:, split], half[:, split], need[:, split]
            if cell.size > BOXES:
                raise GridError(
                    "Gbees.update: R must be wide enough to be integrated over the cells that it points to; got one "
                    f"that takes more than {BOXES:,} parts of cells. Make the cells smaller, or use likelihood='point'."
                )
            widest = np.argmax(need, axis=0)
            splits = np.arange(k)[:, None] == widest
            half = np.where(splits, 0.5 * half, half)
            centre = np.concatenate([np.where(splits, centre + side * half, centre) for side in (-1, 1)], axis=1)
            cell, half = np.concatenate([cell, cell]), np.concatenate([half, half], axis=1)

    def add(self, boxes: BoxBatch, moments: Moments) -> None:
        """Integrate over boxes and add to the moments of their cells."""
        k, count = len(self.axes), len(boxes.cell)
        nodes, weights = self.outer
        inner_nodes, inner_weights = np.polynomial.legendre.leggauss(NODES)
        inner = np.arange(k)[:, None] == boxes.inner
        volume = np.prod(2.0 * boxes.half, axis=0)
        slope = np.take_along_axis(boxes.slopes, boxes.inner[None, None], axis=0)[0]
        steepness = np.sum(slope**2, axis=0)
        sums = [np.zeros(count) for _ in range(1 + k + k * (k + 1) // 2)]
        pairs = list(itertools.combinations_with_replacement(range(k), 2))
        for at in itertools.product(range(len(nodes)), repeat=k - 1):
            # offsets in half-boxes along all axes but the inner one, in their order
            place = np.zeros((k, count))
            place[~inner] = np.repeat(nodes[list(at)], count) if k > 1 else 0.0
            order = np.cumsum(~inner, axis=0) - 1
            if k > 1:
                place = np.where(inner, 0.0, nodes[list(at)][np.maximum(order, 0)])
            share = volume * float(np.prod(weights[list(at)])) / 2.0**k
            middle = np.stack(self.at(self.points(boxes.cell, list(boxes.centre + place * boxes.half)), np))
            low, high = window(middle, slope, steepness, boxes.bend)
            reach = 0.5 * (high - low)
            for node, weight in zip(inner_nodes, inner_weights, strict=True):
                along = low + (1.0 + node) * reach
                xi = boxes.centre + np.where(inner, along, place) * boxes.half
                r = self.at(self.points(boxes.cell, list(xi)), np)
                log_density = log_density_in_boxes(self.density, boxes.cell, xi)
                value = (
                    share * reach * weight * np.exp(log_density - 0.5 * sum(part * part for part in r) - moments.scale)
                )
                sums[0] += value
                for i in range(k):
                    sums[1 + i] += value * xi[i]
                for number, (i, j) in enumerate(pairs):
                    sums[1 + k + number] += value * (xi[i] * xi[j])
        totals = [np.bincount(boxes.cell, part, minlength=moments.mass.size) for part in sums]
        moments.mass += totals[0]
        for i in range(k):
            moments.first[i] += totals[1 + i]
        for number, (i, j) in enumerate(pairs):
            moments.second[i, j] += totals[1 + k + number]
            if i != j:
                moments.second[j, i] += totals[1 + k + number]

    def summed(self, moments: Moments) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance in the grid's frame."""
        p = np.exp(self.log_p - np.max(self.log_p))
        mass, first, second = p * moments.mass, p * moments.first, p * moments.second
        whole = float(np.sum(mass))
        if not whole > 0.0:
            raise GridError(
                "Gbees.update: y must be possible somewhere on the grid; got a likelihood of zero in all cells. "
                "Check y, or give it a larger R."
            )
        n, widths = self.problem.n, np.asarray(self.problem.widths, dtype=np.float64)
        indices = self.indices
        for i, count in enumerate(self.problem.periods):
            if count is not None:  # each cell's image nearest to the circular mean
                middle = circular_mean(mass, indices[:, i], count)
                indices = indices.copy()
                indices[:, i] = middle + (indices[:, i] - middle + 0.5 * count) % count - 0.5 * count
        centre = (indices.T @ mass) / whole
        away = indices - centre
        shift = np.zeros(n)
        shift[self.axes] = first.sum(axis=1) / whole
        C = (away * mass[:, None]).T @ away / whole
        mixed = np.zeros((n, n))
        mixed[:, self.axes] = away.T @ first.T / whole
        C += mixed + mixed.T
        C[np.ix_(self.axes, self.axes)] += second.sum(axis=2) / whole
        C -= np.outer(shift, shift)
        mean = centre + shift
        for i, count in enumerate(self.problem.periods):
            mean[i] = mean[i] if count is None else in_range(mean[i], count)
        return mean * widths, C * np.outer(widths, widths)


@dataclass(frozen=True)
class BoxBatch:
    """B boxes inside cells, along k axes: cells, centres and half-widths in cells, residuals at the centres."""

    cell: np.ndarray
    centre: np.ndarray
    half: np.ndarray
    residual: np.ndarray
    slopes: np.ndarray
    inner: np.ndarray
    bend: np.ndarray
    highest: np.ndarray

    def some(self, at: slice) -> BoxBatch:
        """The boxes in a slice."""
        return BoxBatch(*(part[..., at] for part in self.__dict__.values()))


def log_density_in_boxes(density: Shapes, cell: np.ndarray, xi: np.ndarray) -> np.ndarray:
    """Log density over the one at the centre, at offsets `xi` (k, B) of cells."""
    return np.asarray(density.take(cell).log_density(list(xi)))


def window(
    middle: np.ndarray, slope: np.ndarray, steepness: np.ndarray, bend: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The part of the line from -1 to 1 on which ``|middle + slope t|`` is least, to `REACH` deviations around."""
    flat = steepness < 1e-30
    nearest = -np.sum(middle * slope, axis=0) / np.where(flat, 1.0, steepness)
    inside = np.clip(np.where(flat, 0.0, nearest), -1.0, 1.0)
    beyond = np.abs(nearest - inside) * np.where(flat, 0.0, steepness)
    reach = (REACH + bend) / np.sqrt(np.where(flat, 1e-30, steepness))
    reach = np.where(beyond > 0.0, np.minimum(reach, NEGLIGIBLE / np.where(beyond > 0.0, beyond, 1.0)), reach)
    return np.clip(inside - reach, -1.0, 1.0), np.clip(inside + reach, -1.0, 1.0)


def as_values(p: Array, log_weights: Array, places: dict[tuple[int, ...], Array], k: int) -> Array:
    """Log weights for values at centres, from log weights for masses of cells.

    Masses of cells, placed at their centres, have ``width**2 / 12`` more variance than the density. Every cell
    gives a twenty-fourth of the difference to each larger neighbour, at most half of its mass in all.
    """
    xp = array_namespace(p)
    top = xp.max(log_weights)
    if not bool(xp.isfinite(top)):
        return log_weights
    q = p * xp.exp(log_weights - top)
    held = xp.concat([q, xp.zeros_like(q[:1])])
    known = xp.concat([p, xp.zeros_like(p[:1])])
    change = xp.zeros_like(q)
    for i in range(k):
        up = tuple(int(a == i) for a in range(k))
        for offset in (up, tuple(-a for a in up)):
            there = xp.take(held, places[offset])
            there = xp.where(xp.take(known, places[offset]) > 0, there, q)
            most = xp.minimum(q, there) / (4.0 * k)
            change = change - xp.clip((there - q) / 24.0, -most, most)
    q = q + change
    return xp.where(
        q > 0,
        xp.log(xp.where(q > 0, q, xp.ones_like(q)) / xp.where(p > 0, p, xp.ones_like(p))) + top,
        xp.full_like(q, -np.inf),
    )
