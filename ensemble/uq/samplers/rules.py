"""Quadrature rules of one input's distribution, as points of normal space."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

from ensemble._check import require
from ensemble._kernels.quadrature.rules import Rule, hermite_rule, legendre_rule
from ensemble.uq.inputs.categorical import Categorical
from ensemble.uq.inputs.mixture import Mixture
from ensemble.uq.inputs.orthogonal import recurrence
from ensemble.uq.inputs.univariate import FrozenDistribution
from ensemble.uq.inputs.variable import Variable

__all__ = ["Rule", "fejer_rule", "gauss_rule", "germ_distributions"]

MOST_VALUES = 1000
"""Values of a discrete distribution in a quadrature, at most."""

HERMITE_LAWS = ("norm", "lognorm")


def germ_distributions(variable: Variable) -> tuple[Variable | None, ...]:
    """The distribution of the number that each germ makes; None for a normal germ of several."""
    parts = variable.components()
    if len(parts) == variable.n_germs:
        return tuple(parts)
    coefficients = getattr(variable, "coefficients", None)
    return tuple(coefficients.components()) if coefficients is not None else (None,) * variable.n_germs


def gauss_rule(distribution: Variable | None, order: int) -> Rule:
    """The rule of `order` nodes that is exact for polynomials of the value up to degree ``2 order - 1``.

    Normal germs, lognormal values and values without enough moments have Gauss-Hermite nodes, exact for polynomials of
    the germ. Discrete distributions have all their values, whatever the order. Mixtures with jumps have each value of
    positive probability, and Gauss-Legendre nodes in the probability between.
    """
    frozen = distribution if isinstance(distribution, FrozenDistribution) else None
    if distribution is None or (frozen and frozen.law in HERMITE_LAWS):
        return hermite_rule(order)
    if isinstance(distribution, Categorical) or (frozen and frozen.discrete):
        return discrete_rule(distribution)
    if frozen and frozen.law == "uniform":
        x, w = legendre_rule(order)
        return normal_point(0.5 * (1.0 + x)), w
    if isinstance(distribution, Mixture) and distribution.breaks().size:
        return jump_rule(distribution, order)
    return orthogonal_rule(distribution, order)


def normal_point(u: np.ndarray) -> np.ndarray:
    """The point of normal space of probabilities, symmetric about one half to the last bit."""
    upper = u > 0.5
    z: np.ndarray = ndtri(np.where(upper, 1.0 - u, u))
    return np.where(upper, -z, z)


def discrete_rule(distribution: Variable) -> Rule:
    """All values of a discrete distribution, each in the middle of its probabilities."""
    if isinstance(distribution, Categorical):
        masses = distribution.probabilities[distribution.probabilities > 0.0]
    else:
        assert isinstance(distribution, FrozenDistribution)
        atoms = distribution.atoms()
        seen = f"{distribution.frozen.dist.name} of {atoms.size or 'too many'} values"
        good = 0 < atoms.size <= MOST_VALUES
        wanted = f"have discrete inputs of at most {MOST_VALUES} values"
        require(good, "Gauss", "inputs", wanted, seen, "Use sampler='sobol'.")
        masses = distribution.pmf(atoms)
        masses = masses[masses > 0.0] / masses.sum()
    ends = np.cumsum(masses)
    return normal_point(np.clip(ends - 0.5 * masses, 0.0, 1.0)), masses


def jump_rule(distribution: Mixture, order: int) -> Rule:
    """One node for each value of positive probability, `order` nodes in each interval of probabilities between."""
    ends = np.concatenate([[0.0], ndtr(distribution.breaks()), [1.0]])
    x, w = legendre_rule(order)
    nodes, weights = [], []
    for low, high in itertools.pairwise(ends):
        middle = np.array([0.5 * (low + high)])
        value = distribution.from_normal(normal_point(middle)[None])
        if distribution.mass(value)[0] >= (1.0 - 1e-6) * (high - low):
            nodes.append(middle)
            weights.append(np.array([high - low]))
        else:
            nodes.append(middle + 0.5 * (high - low) * x)
            weights.append((high - low) * w)
    return normal_point(np.concatenate(nodes)), np.concatenate(weights)


def orthogonal_rule(distribution: Variable, order: int) -> Rule:
    """The Gauss rule of any distribution: the eigenvalues of its Jacobi matrix (Golub and Welsch 1969)."""
    try:
        found = recurrence(distribution, order + 1)
    except ValueError:
        return hermite_rule(order)  # too heavy tails: moments of this order are infinite, or are not seen
    off = np.sqrt(found.beta[1:order])
    nodes, vectors = np.linalg.eigh(np.diag(found.alpha[:order]) + np.diag(off, 1) + np.diag(off, -1))
    weights = vectors[0] ** 2
    return germs_of(distribution, nodes), weights / weights.sum()


def germs_of(distribution: Variable, values: np.ndarray) -> np.ndarray:
    """The points of normal space at which a distribution without jumps has some values, by halving intervals."""
    low, high = np.full(values.size, -38.0), np.full(values.size, 38.0)
    for _ in range(64):
        middle = 0.5 * (low + high)
        below = distribution.from_normal(middle[None]) < values
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    middle_of: np.ndarray = 0.5 * (low + high)
    return middle_of


def fejer_rule(distribution: Variable | None, level: int) -> Rule:
    """Fejér's second rule of ``2**(level + 1) - 1`` nodes in the probability: each level has those of the one before.

    Discrete distributions have all their values.
    """
    if isinstance(distribution, Categorical):
        return discrete_rule(distribution)
    if isinstance(distribution, FrozenDistribution) and distribution.discrete:
        return discrete_rule(distribution)
    n = 2 ** (level + 1)
    k = np.arange(1, n)
    odd = 2 * np.arange(1, n // 2 + 1) - 1
    angles = np.pi * k / n
    weights = 2.0 / n * np.sin(angles) * (np.sin(np.outer(angles, odd)) / odd).sum(axis=1)
    # nodes as the sine of an angle about zero, so that those of two levels are the same to the last bit
    places = 0.5 - 0.5 * np.sin(np.pi * (n - 2 * k) / (2 * n))
    return normal_point(places), weights / weights.sum()


RULES: dict[str, Callable[[Variable | None, int], Rule]] = {
    "gauss": lambda distribution, level: gauss_rule(distribution, level + 1),
    "fejer": fejer_rule,
}
"""One-dimensional rules of a sparse grid by its level, from 0."""
