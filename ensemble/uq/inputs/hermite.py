"""Correlations of functions of two correlated normal numbers, by their Hermite series."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["HermiteSeries", "normal_rule", "panel_edges"]

TERMS = 1000
"""Terms of a series: the remainder at a jump falls with the square root of their number, times ``rho**TERMS``."""

REACH = 12.0
"""Limit of integrals: a standard normal number is beyond it with probability 4e-33."""

PANELS_PER_UNIT = 8
NODES = 8


class HermiteSeries:
    """A function of a standard normal number as a series in normalised Hermite polynomials.

    For standard normal z1, z2 of correlation rho, ``E[h_m(z1) h_n(z2)] = rho**n`` if m = n, else 0 (Mehler 1866), so
    that the covariance of f(z1) and g(z2) is the sum over n >= 1 of ``a_n b_n rho**n``. The coefficients are integrals
    by Gauss-Legendre rules between the places where the function jumps.

    Attributes
    ----------
    mean, std : float
    coefficients : ndarray, shape (TERMS,)
        From n = 1, of the function less its mean and divided by its standard deviation.
    """

    def __init__(self, function: Callable[[np.ndarray], np.ndarray], breaks: np.ndarray) -> None:
        self.edges = panel_edges(breaks)
        self.function = function
        self.mean, self.std = 0.0, 1.0
        nodes, weights = normal_rule(self.edges)
        values = self(nodes)
        self.mean = float(values @ weights)
        self.std = float(np.sqrt((values - self.mean) ** 2 @ weights))
        self.coefficients = hermite_coefficients(nodes, self(nodes) * weights)

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """The function less its mean, divided by its standard deviation; its mean where it is not finite."""
        values = np.asarray(self.function(z), dtype=np.float64)
        return np.where(np.isfinite(values), values - self.mean, 0.0) / self.std

    def extreme(self, other: HermiteSeries, sign: int) -> float:
        """The correlation of f(z) and g(sign z): no dependence has a larger (smaller) one, as f and g never fall."""
        nodes, weights = normal_rule(np.union1d(self.edges, sign * other.edges))
        return float((self(nodes) * other(sign * nodes)) @ weights)

    def correlation(self, other: HermiteSeries, rho: float) -> float:
        """The correlation of f(z1) and g(z2) where z1 and z2 have the correlation `rho`."""
        products = np.concatenate([[0.0], self.coefficients * other.coefficients])
        return float(np.polynomial.polynomial.polyval(rho, products))


def panel_edges(breaks: np.ndarray) -> np.ndarray:
    """Ends of panels over all of normal space that counts, the places where a function jumps among them."""
    regular = np.linspace(-REACH, REACH, int(2 * REACH * PANELS_PER_UNIT) + 1)
    return np.union1d(regular, breaks[np.abs(breaks) < REACH])


def normal_rule(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of integrals against the normal density, panel by panel."""
    x, w = np.polynomial.legendre.leggauss(NODES)
    half = 0.5 * np.diff(edges)[:, None]
    nodes = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * x).ravel()
    return nodes, (half * w).ravel() * np.exp(-0.5 * nodes**2) / np.sqrt(2.0 * np.pi)


def hermite_coefficients(nodes: np.ndarray, weighted: np.ndarray) -> np.ndarray:
    """The sums of `weighted` times the normalised Hermite polynomials of degree 1 to TERMS."""
    # h_n(z) exp(-z^2/4) stays small for all n, and the other half of the density is in the weights
    before, now = np.zeros_like(nodes), np.exp(-0.25 * nodes**2)
    weighted = weighted / now
    coefficients = np.empty(TERMS)
    for n in range(1, TERMS + 1):
        before, now = now, (nodes * now - np.sqrt(n - 1.0) * before) / np.sqrt(n)
        coefficients[n - 1] = now @ weighted
    return coefficients
