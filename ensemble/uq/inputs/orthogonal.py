"""Orthogonal polynomials of the distribution of one number: the coefficients of their recurrence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._check import message
from ensemble.uq.inputs.univariate import FrozenDistribution
from ensemble.uq.inputs.variable import Variable

__all__ = ["Recurrence", "orthonormal", "recurrence"]

REACH = 37.0
"""Limit of the standard normal coordinate: beyond it the density is 0 in float64."""

FAR = 30.0
"""Standard normal coordinate beyond which a moment must have no contribution."""

TOLERANCE = 1e-14
"""Error of the moments on an interval, relative to the whole, below which it is not halved."""

MOST_INTERVALS = 4096
"""Intervals that are halved at the same time, at most: each jump takes one."""

MOST_HALVINGS = 54
"""Halvings after which a kink or a jump is located to rounding."""


class Recurrence:
    """``x p_k = sqrt(beta[k+1]) p_(k+1) + alpha[k] p_k + sqrt(beta[k]) p_(k-1)`` for orthonormal ``p_k`` [1]_.

    Attributes
    ----------
    alpha, beta : ndarray, shape (n,)
        For ``p_0`` to ``p_(n-1)``; ``beta[0]`` is 1. A distribution of K values has no more than K polynomials.

    References
    ----------
    .. [1] Gautschi (2004), Orthogonal Polynomials: Computation and Approximation, section 1.3.
    """

    def __init__(self, alpha: np.ndarray, beta: np.ndarray) -> None:
        self.alpha = alpha
        self.beta = beta

    @property
    def n(self) -> int:
        """How many polynomials there are."""
        return int(self.alpha.size)


def recurrence(variable: Variable, n: int) -> Recurrence:
    """The recurrence of the first `n` polynomials orthogonal with respect to the distribution of `variable`.

    Closed forms for normal, uniform, exponential, gamma and beta distributions (Gautschi 2004, table 1.1); otherwise
    the Stieltjes procedure on a discretisation that is refined where the inverse distribution function has kinks or
    jumps (ibid., section 2.2).
    """
    if not isinstance(variable, FrozenDistribution) or variable.law not in CLOSED_FORMS:
        return discretised(variable, n)
    law, parameters = CLOSED_FORMS[variable.law], variable.parameters
    alpha, beta = law(parameters, np.arange(n, dtype=np.float64))
    loc, scale = parameters.get("loc", 0.0), parameters.get("scale", 1.0)
    beta = scale**2 * beta
    beta[0] = 1.0
    return Recurrence(loc + scale * alpha, beta)


def _hermite(parameters: dict[str, float], k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros_like(k), k


def _legendre(parameters: dict[str, float], k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.full_like(k, 0.5), k**2 / (4.0 * (4.0 * k**2 - 1.0))


def _laguerre(parameters: dict[str, float], k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a = parameters.get("a", 1.0)
    return 2.0 * k + a, k * (k + a - 1.0)


def _jacobi(parameters: dict[str, float], k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """On [0, 1] with density proportional to ``x^(a-1) (1-x)^(b-1)``."""
    a, b = parameters["a"], parameters["b"]
    s = 2.0 * k + a + b
    with np.errstate(invalid="ignore", divide="ignore"):
        alpha = 0.5 + 0.5 * (a - b) * (a + b - 2.0) / ((s - 2.0) * s)
        beta = k * (k + a - 1.0) * (k + b - 1.0) * (k + a + b - 2.0) / ((s - 2.0) ** 2 * (s - 1.0) * (s - 3.0))
    alpha[0] = a / (a + b)
    if k.size > 1:
        beta[1] = a * b / ((a + b) ** 2 * (a + b + 1.0))
    return alpha, beta


CLOSED_FORMS: dict[str, Callable[[dict[str, float], np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "norm": _hermite,
    "uniform": _legendre,
    "expon": _laguerre,
    "gamma": _laguerre,
    "beta": _jacobi,
}


def discretised(variable: Variable, n: int) -> Recurrence:
    """The recurrence of a distribution given by its inverse alone."""
    values, weights, far = _discretisation(variable)
    _require_moments(values, weights, far, n)
    values, place = np.unique(values, return_inverse=True)
    weights = np.bincount(place, weights)
    weights = weights / weights.sum()
    centre = float(weights @ values)
    spread = float(np.sqrt(weights @ (values - centre) ** 2))
    if spread == 0.0:
        return Recurrence(np.array([centre]), np.ones(1))
    alpha, beta = _stieltjes((values - centre) / spread, weights, min(n, values.size))
    beta[1:] *= spread**2
    return Recurrence(centre + spread * alpha, beta)


def _stieltjes(x: np.ndarray, weights: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Lanczos' form on points with weights, orthogonalised against all earlier polynomials."""
    alpha, beta = np.zeros(n), np.ones(n)
    basis = np.zeros((n, x.size))
    root = np.sqrt(weights)
    basis[0] = root
    for k in range(n):
        following = x * basis[k]
        alpha[k] = following @ basis[k]
        for _ in range(2):
            following = following - basis[: k + 1].T @ (basis[: k + 1] @ following)
        norm = float(np.sqrt(following @ following))
        if k + 1 < n:
            if norm < 1e-10:  # as many values as polynomials so far
                return alpha[: k + 1], beta[: k + 1]
            beta[k + 1] = norm**2
            basis[k + 1] = following / norm
    return alpha, beta


def _require_moments(values: np.ndarray, weights: np.ndarray, far: np.ndarray, n: int) -> None:
    """Raise where the moment of the highest order gets more than rounding from the far ends of the tails."""
    order = 2 * (n - 1)
    size = np.abs(values)
    good = bool(np.all(np.isfinite(values)))
    if good and size.max() > 0.0:
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            parts = np.log(weights) + order * np.log(size)
            good = bool(np.sum(np.exp(parts[far] - parts.max())) <= 1e-12)
    if not good:
        seen = f"one whose moment of order {order} cannot be computed"
        advice = "Take basis='hermite', polynomials of the normal coordinate."
        raise ValueError(message("recurrence", "the distribution", "have finite moments", seen, advice))


def _discretisation(variable: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, their probabilities, and which lie far out in a tail of infinite length."""
    probabilities = getattr(variable, "probabilities", None)
    if probabilities is not None:  # categories, by their places
        return np.arange(float(len(probabilities))), np.asarray(probabilities), np.zeros(len(probabilities), dtype=bool)
    if not (isinstance(variable, FrozenDistribution) and variable.discrete):
        return _refined(variable)
    values, weights = _all_values(variable)
    return values[weights > 0.0], weights[weights > 0.0], np.zeros(int(np.sum(weights > 0.0)), dtype=bool)


def _all_values(variable: FrozenDistribution) -> tuple[np.ndarray, np.ndarray]:
    """The values of a discrete distribution that count, and their probabilities."""
    if hasattr(variable.frozen.dist, "xk"):
        values = variable.atoms()
        return values, variable.pmf(values)
    first, last = _ends(variable.unmoved, -1), _ends(variable.unmoved, 1)
    if last - first > 10**6:
        seen = f"a discrete one with {last - first} values"
        advice = "Take basis='hermite', polynomials of the normal coordinate."
        raise ValueError(message("recurrence", "the distribution", "have at most 1000000 values", seen, advice))
    values = np.arange(first, last + 1.0)
    return values + variable.location, variable.unmoved.pmf(values)


def _ends(frozen: Any, sign: int) -> int:
    """The last value in one direction of which the probability counts."""
    end = frozen.support()[0 if sign < 0 else 1]
    if np.isfinite(end):
        return int(end)
    middle, step = int(frozen.median()), 1
    while frozen.pmf(middle + sign * step) > 1e-60 and step < 2**21:
        step *= 2
    return middle + sign * step


def _refined(variable: Variable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gauss-Legendre points on intervals of the normal coordinate, which are halved until the first moments agree."""
    grid = np.linspace(-REACH, REACH, 75)
    edges = np.stack([grid[:-1], grid[1:]])
    with np.errstate(over="ignore", invalid="ignore"):
        moments = _on_intervals(variable, edges)[1]
        whole = np.nansum(np.abs(moments), axis=1, keepdims=True)
        kept = []
        for depth in range(MOST_HALVINGS + 1):
            middle = edges.mean(axis=0)
            low, high = np.stack([edges[0], middle]), np.stack([middle, edges[1]])
            parts = _on_intervals(variable, low), _on_intervals(variable, high)
            error = np.abs(parts[0][1] + parts[1][1] - moments)
            # values that are not finite do not become so by halving
            converged = ~np.any(error > TOLERANCE * whole, axis=0) | (depth == MOST_HALVINGS)
            kept += [points[:, converged].reshape(3, -1) for points, _ in parts]
            edges = np.concatenate([low[:, ~converged], high[:, ~converged]], axis=1)
            if edges.shape[1] == 0 or edges.shape[1] > MOST_INTERVALS:
                break
            moments = np.concatenate([part[1][:, ~converged] for part in parts], axis=1)
    if edges.shape[1] > MOST_INTERVALS:
        seen = f"one with more than {MOST_INTERVALS} kinks or jumps"
        advice = "Take basis='hermite', polynomials of the normal coordinate."
        raise ValueError(message("recurrence", "the distribution", "have a smooth inverse", seen, advice))
    values, masses, z = np.concatenate(kept, axis=1)
    positive = masses > 0.0
    return values[positive], masses[positive], np.abs(z[positive]) > FAR


def _on_intervals(variable: Variable, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values, weights and coordinates ``(3, n_intervals, 16)`` of intervals, and their moments ``(3, n_intervals)``."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = 0.5 * (edges[1] - edges[0])
    z = 0.5 * (edges[1] + edges[0])[:, None] + half[:, None] * nodes
    w = half[:, None] * weights * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    x = variable.from_normal(z.reshape(1, -1)).reshape(z.shape).astype(np.float64)
    return np.stack([x, w, z]), np.stack([w.sum(1), (w * x).sum(1), (w * x**2).sum(1)])


def orthonormal(coefficients: Recurrence, x: np.ndarray) -> np.ndarray:
    """The orthonormal polynomials at the points `x` ``(n_points,)``: shape (n, n_points)."""
    alpha, root = coefficients.alpha, np.sqrt(coefficients.beta)
    result = np.ones((coefficients.n, x.size))
    for k in range(coefficients.n - 1):
        np.multiply(x - alpha[k], result[k], out=result[k + 1])
        if k:
            result[k + 1] -= root[k] * result[k - 1]
        result[k + 1] /= root[k + 1]
    return result
