"""Distributions on grids whose moments, marginals and distances are known."""

import numpy as np

from ensemble.apps.gbees.cells import Cells


def gaussian_cells(mean, covariance, widths, *, origin=None, reach=8.0, rotation=None, time=0.0, xp=np):
    """A Gaussian at the centres of all cells within `reach` standard deviations of its mean along each axis."""
    mean, C, widths = (np.asarray(part, dtype=float) for part in (mean, covariance, widths))
    origin = mean if origin is None else np.asarray(origin, dtype=float)
    turn = np.eye(len(mean)) if rotation is None else rotation
    centre = turn.T @ (mean - origin)
    deviations = np.sqrt(np.diag(turn.T @ C @ turn))
    axes = [
        np.arange(int(np.floor((c - reach * d) / w)), int(np.ceil((c + reach * d) / w)) + 1)
        for c, d, w in zip(centre, deviations, widths, strict=True)
    ]
    s = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(mean))
    away = (s * widths) @ turn.T + origin - mean
    p = np.exp(-0.5 * np.sum(away @ np.linalg.inv(C) * away, axis=1))
    return Cells(xp.asarray(s), xp.asarray(p / p.sum()), origin, widths, rotation, time)


def turn(angle):
    """A rotation of the plane."""
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def random_cells(rng, n, count, reach=4, origin=None):
    """Cells here and there with random probabilities."""
    s = np.unique(rng.integers(-reach, reach + 1, (count, n)), axis=0)
    p = rng.random(len(s)) ** 3
    return Cells(s, p / p.sum(), np.zeros(n) if origin is None else origin, np.linspace(0.5, 1.5, n))
