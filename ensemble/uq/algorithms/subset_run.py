"""One run of subset simulation: levels, chains of conditional samples, and the first sample that each descends from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtri

from ensemble.uq.algorithms.evaluations import SMALLEST, normal_points, random_generator

__all__ = ["N_FAMILIES", "SubsetRun", "run_levels"]

TARGET_ACCEPTANCE = 0.41
FIRST_SCALE = 0.6
N_FAMILIES = 20
"""Parts of the first level: more make the estimated variance less uncertain, and the actual one larger."""
GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


@dataclass
class SubsetRun:
    """What one run found; `distances` are at most zero in the event."""

    thresholds: list[float] = field(default_factory=list)
    fractions: list[float] = field(default_factory=list)
    acceptance: list[float] = field(default_factory=list)
    z: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    distances: np.ndarray = field(default_factory=lambda: np.empty(0))
    families: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def probability(self) -> float:
        """The product of the levels' fractions."""
        return float(np.prod(self.fractions))

    @property
    def variance(self) -> float:
        """The variance of `probability`, from the contributions of the families, which are independent.

        These are Z_i = probability * n * f_i with f_i the share of family i in the event, so that the relative variance
        of their mean is sum f_i^2 - 1 / n, times n / (n - 1). The first level alone has independent samples.
        """
        inside, size = self.distances <= 0.0, self.distances.size
        if not inside.any():
            return float("nan")
        if len(self.fractions) == 1:
            return self.probability * (1.0 - self.probability) / (size - 1)
        n = min(N_FAMILIES, size)
        shares = np.bincount(self.families[inside]) / np.count_nonzero(inside)
        return self.probability**2 * (float((shares**2).sum()) - 1.0 / n) * n / (n - 1)


def run_levels(
    distance: Callable[[np.ndarray], np.ndarray], n_germs: int, n: int, n_steps: int, max_levels: int, seed: int,
    number: int,
) -> SubsetRun:  # fmt: skip
    """Levels until the event holds 1 / (2 `n_steps`) of a level's samples.

    Run `number` has random numbers of its own.
    """
    run, scale = SubsetRun(), FIRST_SCALE
    generator = random_generator(seed, number, 1)
    run.z = normal_points(seed, number, 0, n, n_germs)
    run.distances, run.families = distance(run.z), np.arange(n) * min(N_FAMILIES, n) // n
    n_seeds = n // n_steps
    while True:
        order = np.argsort(run.distances, kind="stable")
        middle = 0.5 * (run.distances[order[n_seeds - 1]] + run.distances[order[n_seeds]])
        highest = run.distances[order[-1]]
        lower = run.distances[run.distances < highest]
        if middle >= highest and lower.size:  # equal values, which would be a level of all samples
            middle = lower.max()
        # Of equal values a next level would have all: another attempt at the event, repeated until one succeeds.
        is_flat = lower.size == 0
        enough = 2 * np.count_nonzero(run.distances <= 0.0) >= n_seeds  # another level costs more than it gains
        last = enough or is_flat or not middle > 0.0 or len(run.fractions) == max_levels - 1
        threshold = 0.0 if last else float(middle)
        inside = np.flatnonzero(run.distances <= threshold)
        run.thresholds.append(threshold)
        run.fractions.append(inside.size / n)
        if last:
            return run
        seeds = inside if inside.size == n_seeds else generator.choice(inside, n_seeds, replace=inside.size < n_seeds)
        scale = _next_level(run, distance, seeds, threshold, scale, generator)


def _next_level(
    run: SubsetRun, distance: Callable[[np.ndarray], np.ndarray], seeds: np.ndarray, threshold: float, scale: float,
    generator: np.random.Generator,
) -> float:  # fmt: skip
    """Replace the samples by chains from `seeds` that stay below `threshold`; returns the adapted scale.

    Adaptive conditional sampling: a move keeps the standard normal distribution, ``rho z + sigma xi`` with
    ``rho^2 + sigma^2 = 1`` per coordinate, sigma in proportion to the spread of the seeds (Papaioannou et al. 2015,
    section 4.3). All chains make a move at once, one ensemble; the scale adapts to the mean acceptance after each.
    Along the mean of the seeds the noise is stratified over the chains of a family.
    """
    z, distances, n_steps = run.z[:, seeds], run.distances[seeds], run.distances.size // seeds.size
    spread, centre, families = z.std(axis=1, keepdims=True), z.mean(axis=1, keepdims=True), run.families[seeds]
    same = (z == z[:, :1]).all(axis=1, keepdims=True)
    spread = np.where(same, 1.0, spread)  # copies of one seed: no move of their spread would ever leave it
    states, found, accepted = [z], [distances], 0.0
    for k in range(1, n_steps):
        sigma = np.minimum(scale * spread, 1.0)
        noise = _stratified_noise(sigma * centre, distances, families, generator)
        proposal = np.sqrt(1.0 - sigma * sigma) * z + sigma * noise
        proposed = distance(proposal)
        accept = proposed <= threshold
        z, distances = np.where(accept, proposal, z), np.where(accept, proposed, distances)
        states.append(z)
        found.append(distances)
        accepted += accept.mean() / (n_steps - 1)
        scale *= np.exp((accept.mean() - TARGET_ACCEPTANCE) / np.sqrt(k))
    run.z, run.distances = np.concatenate(states, axis=1), np.concatenate(found)
    run.families = np.tile(families, n_steps)
    run.acceptance.append(float(accepted))
    return float(scale)


def _stratified_noise(
    direction: np.ndarray, distances: np.ndarray, families: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Standard normals, one column per chain; along `direction` a lattice over the chains of a family by distance.

    Randomized quasi-Monte Carlo over an array of chains (L'Ecuyer, Lecot, Tuffin 2008, Operations Research 56): the
    chain of rank i has the quantile ``(i GOLDEN + shift) mod 1``, with one random shift per family. Each chain alone
    has independent noise, and families are independent.
    """
    noise = generator.standard_normal((len(direction), distances.size))
    norm = np.linalg.norm(direction)
    if not norm > 0.0:
        return noise
    axis, order = direction / norm, np.lexsort((distances, families))
    quantiles = np.empty(distances.size)
    quantiles[order] = np.arange(distances.size) * GOLDEN + generator.random(N_FAMILIES)[families[order]]
    noise += axis * (ndtri(np.maximum(quantiles % 1.0, SMALLEST)) - (axis * noise).sum(axis=0))
    return noise
