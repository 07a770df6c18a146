"""Gauss rules in one variable, and Smolyak's sums of their products."""

from __future__ import annotations

import itertools
import math

import numpy as np

from ensemble._check import require

__all__ = ["HIGHEST_ORDER", "Rule", "hermite_rule", "laguerre_rule", "legendre_rule", "smolyak"]

Rule = tuple[np.ndarray, np.ndarray]
"""Nodes, ascending, and weights that add up to 1."""

HIGHEST_ORDER = 150
"""Up to which nodes and weights are right to rounding."""

MOST_SPARSE = 50_000_000
"""Coordinates of the points of all the tensor products that a sparse grid adds up."""

MOST_PRODUCTS = 500_000
"""Tensor products that a sparse grid adds up."""


def hermite_rule(order: int) -> Rule:
    """Gauss-Hermite nodes of the standard normal distribution."""
    z, w = np.polynomial.hermite_e.hermegauss(order)
    return z, w / w.sum()


def legendre_rule(order: int) -> Rule:
    """Gauss-Legendre nodes of the uniform distribution from -1 to 1."""
    x, w = np.polynomial.legendre.leggauss(order)
    return x, 0.5 * w


def laguerre_rule(order: int) -> Rule:
    """Gauss-Laguerre nodes of the standard exponential distribution."""
    x, w = np.polynomial.laguerre.laggauss(order)
    return x, w / w.sum()


def smolyak(rules: list[list[Rule]], level: int, function: str) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of the combination of tensor products of `rules`, by variable and level, for `function`."""
    dimension = len(rules)
    if dimension == 0:
        return np.zeros((1, 0)), np.ones(1)
    products = math.comb(level + dimension, dimension)
    wanted = f"need at most {MOST_PRODUCTS} tensor products"
    require(products <= MOST_PRODUCTS, function, "level", wanted, products, "Take a lower one.")
    numbered = [numbered_nodes(levels) for levels in rules]
    indices = [index for total in range(level + 1) for index in compositions(total, dimension)]
    kept = [index for index in indices if level - sum(index) < dimension]
    size = sum(math.prod(rules[k][j][0].size for k, j in enumerate(index)) for index in kept)
    wanted = f"need at most {MOST_SPARSE} coordinates"
    require(size * dimension <= MOST_SPARSE, function, "level", wanted, size * dimension, "Take a lower one.")
    places = np.empty((size, dimension), dtype=np.int32)
    weights = np.empty(size)
    first = 0
    for index in kept:
        gap = level - sum(index)
        factor = (-1.0) ** gap * math.comb(dimension - 1, gap)
        last = first + math.prod(rules[k][j][0].size for k, j in enumerate(index))
        rest, shares = np.arange(last - first), np.full(last - first, factor)
        for k, j in enumerate(index):
            rest, digits = np.divmod(rest, rules[k][j][0].size)
            places[first:last, k] = numbered[k][1][j][digits]
            shares *= rules[k][j][1][digits]
        weights[first:last] = shares
        first = last
    return merged(places, weights, [nodes for nodes, _ in numbered])


def merged(places: np.ndarray, weights: np.ndarray, nodes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Each point once, with the sum of its weights; without those whose weights cancel."""
    unique, inverse = np.unique(places, axis=0, return_inverse=True)
    total = np.bincount(inverse.ravel(), weights, minlength=unique.shape[0])
    size = np.bincount(inverse.ravel(), np.abs(weights), minlength=unique.shape[0])
    kept = np.abs(total) > 1e-13 * size
    points = np.stack([values[unique[kept, k]] for k, values in enumerate(nodes)], axis=1)
    return points, total[kept]


def numbered_nodes(levels: list[Rule]) -> tuple[np.ndarray, list[np.ndarray]]:
    """All nodes of the rules of one variable, ascending, and their numbers in each rule; nodes within 1e-12 are one."""
    every = np.sort(np.concatenate([z for z, _ in levels]))
    new = np.concatenate([[True], np.diff(every) > 1e-12 * np.maximum(1.0, np.abs(every[1:]))])
    nodes = every[new]
    return nodes, [np.abs(nodes[:, None] - z).argmin(axis=0) for z, _ in levels]


def compositions(total: int, parts: int) -> list[tuple[int, ...]]:
    """All ways to write `total` as a sum of `parts` integers from 0."""
    bars = itertools.combinations(range(total + parts - 1), parts - 1)
    return [tuple(b - a - 1 for a, b in itertools.pairwise((-1, *bar, total + parts - 1))) for bar in bars]
