"""Grids and distributions written down by hand, for tests against exact solutions."""

import numpy as np

from ensemble._backend import to_numpy
from ensemble.apps.gbees.problem import Drift, Problem


def boxed(drift, origin, widths, half, density, *, threshold=1e-12, **options):
    """Problem, indices and probabilities of ``density(x)`` on the box of `half` cells each way."""
    origin, widths = np.asarray(origin, float), np.asarray(widths, float)
    axes = [np.arange(-h, h + 1) for h in np.broadcast_to(half, origin.shape)]
    indices = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(origin))
    p = density(indices * widths + origin)
    drift = drift if isinstance(drift, Drift) else Drift(drift)
    return Problem(drift, origin, widths, threshold, **options), indices, p / p.sum()


def normal(mean, covariance):
    """The density of a Gaussian, up to a factor."""
    precision = np.linalg.inv(covariance)

    def density(x):
        r = x - np.asarray(mean)
        return np.exp(-0.5 * np.einsum("ki,ij,kj->k", r, precision, r))

    return density


def table(engine):
    """Probability by multi-index."""
    indices, p = (to_numpy(part) for part in engine.cells())
    return {tuple(s): float(q) for s, q in zip(indices.tolist(), p, strict=True)}


def moments(engine, problem):
    """Mean and covariance, in the grid's frame shifted to the origin."""
    indices, p = (to_numpy(part) for part in engine.cells())
    x = indices * problem.widths + problem.origin
    mean = p @ x
    return mean, (p[:, None] * (x - mean)).T @ (x - mean)


def error_from(engine, problem, density):
    """L1 distance to ``density(x)`` taken at the stored cells and scaled to add up to 1."""
    indices, p = (to_numpy(part) for part in engine.cells())
    exact = density(indices * problem.widths + problem.origin)
    return float(np.abs(p - exact / exact.sum()).sum())
