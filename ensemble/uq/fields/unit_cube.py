"""Karhunen–Loève expansion of the exponential covariance on the unit cube, in closed form."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ensemble import _check
from ensemble._keywords import explains_construction

__all__ = ["KarhunenLoeve", "exponential_covariance"]

MODE_ORDERS = ("lexicographic", "trilinos")

CORRELATION_LENGTHS = (1e-12, 1e12)
"""Range in which the roots below are found: outside, one end of their interval is a root to rounding."""

# The cube's symmetry makes eigenvalues of permuted products equal, and the result depends on which of them is kept:
# Trilinos sorts with an unstable sort, whose outcome is known for the two published configurations only.
TRILINOS_MODES = {
    (3, 0.25): ((0, 0, 0), (1, 0, 0), (0, 1, 0)),
    (5, 1.0): ((0, 0, 0), (1, 0, 0), (0, 0, 1), (0, 1, 0), (0, 0, 2)),
}


@explains_construction("KarhunenLoeve")
@dataclass(frozen=True, eq=False)
class KarhunenLoeve:
    """Eigenpairs of a covariance on [0, 1]^d that is a product over the axes, largest eigenvalue first.

    These are numbers and functions, made by `exponential_covariance`. A random input of a study, with mean, deviation
    and distribution, is `ensemble.uq.fields.KarhunenLoeve`, which takes this object as its `expansion`.

    A random field with this covariance, mean ``mu`` and standard deviation ``sigma`` is, with uncorrelated ``y_m`` of
    mean 0 and variance 1, ``mu + sigma * sum over m of sqrt(eigenvalues[m]) * modes_at(x)[:, m] * y_m``.

    Attributes
    ----------
    eigenvalues : ndarray, shape (n_terms,), dimensionless
        Descending.
    indices : ndarray of int, shape (n_terms, d)
        Which one-dimensional mode each term takes along each axis.
    frequencies : ndarray, shape (n_one_dimensional,), radians
        The frequency of each one-dimensional mode; even numbers are cosines about the middle, odd ones sines.
    """

    eigenvalues: np.ndarray
    indices: np.ndarray
    frequencies: np.ndarray

    @property
    def n_terms(self) -> int:
        """How many terms the expansion keeps."""
        return self.eigenvalues.size

    @property
    def dimension(self) -> int:
        """The dimension d of the cube."""
        return int(self.indices.shape[1])

    def modes_at(self, points: np.ndarray) -> np.ndarray:
        """Evaluate the modes, each of unit L2 norm over the cube.

        Parameters
        ----------
        points : array_like, shape (n_points, d), dimensionless
            Points of the cube [0, 1]^d.

        Returns
        -------
        ndarray, shape (n_points, n_terms)

        Raises
        ------
        ValueError
            If `points` does not have d columns, or lies outside of the cube by more than 1e-9.
        TypeError
            If `points` are not real numbers.
        """
        _check.require_unmasked(points, "modes_at", "points")
        points = _check.array_of(points, "modes_at", "points", f"have one row per point and {self.dimension} columns")
        if points.dtype.kind not in "biuf":
            raise TypeError(_check.message("modes_at", "points", "be real numbers", f"dtype {points.dtype}"))
        good = points.ndim == 2 and points.shape[1] == self.dimension
        _check.require(
            good, "modes_at", "points", f"have one row per point and {self.dimension} columns", f"shape {points.shape}"
        )
        inside = ((points >= -1e-9) & (points <= 1.0 + 1e-9)).all(axis=1)
        seen = f"{np.sum(~inside)} of {inside.size} outside it"
        advice = "A field on another box is uq.fields.KarhunenLoeve.exponential(domain, ...)."
        _check.require(bool(inside.all()), "modes_at", "points", "lie in the unit cube", seen, advice)
        points = points.astype(np.float64, copy=False)
        modes = self.modes_along(0, points[:, 0])
        for axis in range(1, self.dimension):
            modes *= self.modes_along(axis, points[:, axis])
        return modes

    def modes_along(self, axis: int, x: np.ndarray) -> np.ndarray:
        """The factor of each mode that belongs to one axis, at the coordinates `x`: shape (x.size, n_terms)."""
        return one_dimensional_modes(self.frequencies, x)[:, self.indices[:, axis]]


def exponential_covariance(
    n_terms: int, correlation_length: float, *, dimension: int = 3, mode_order: str = "lexicographic"
) -> KarhunenLoeve:
    """Expand the covariance ``exp(-sum over axes of |x_k - x'_k| / L)`` on the unit cube.

    In one dimension the eigenvalue is ``2 L / (1 + L^2 w^2)`` for the roots w of ``1 = L w tan(w/2)``, with the
    eigenfunction ``cos(w (x - 1/2))``, and of ``L w = -tan(w/2)``, with ``sin(w (x - 1/2))``; the two kinds
    alternate [1]_. In d dimensions eigenpairs are products of one-dimensional ones.

    Parameters
    ----------
    n_terms : int, at least 1
        How many terms to keep: those of the largest eigenvalues.
    correlation_length : float, from 1e-12 to 1e12, dimensionless
        The length L in units of the cube's edge.
    dimension : int, at least 1
    mode_order : {"lexicographic", "trilinos"}
        Which of several equal eigenvalues comes first. "lexicographic": the first axis' index runs fastest.
        "trilinos": the order of the published benchmark [2]_, known for ``(n_terms, correlation_length)`` equal to
        ``(3, 0.25)`` and ``(5, 1.0)`` in three dimensions.

    Returns
    -------
    KarhunenLoeve

    Raises
    ------
    ValueError
        If an argument is out of range, or `mode_order` is "trilinos" where that order is not known.

    References
    ----------
    .. [1] Ghanem, Spanos (1991), Stochastic Finite Elements: A Spectral Approach, section 2.3.3.
    .. [2] Phipps, D'Elia, Edwards, Hoemmen, Hu, Rajamanickam (2017), SIAM J. Sci. Comput. 39, C162-C193, section 4.

    Examples
    --------
    >>> expansion = exponential_covariance(2, 1.0, dimension=1)
    >>> expansion.eigenvalues.round(4).tolist()
    [0.7388, 0.138]
    """
    name = "exponential_covariance"
    n_terms = _check.integer(n_terms, name, "n_terms", minimum=1)
    length = _check.positive(correlation_length, name, "correlation_length")
    low, high = CORRELATION_LENGTHS
    good = low <= length <= high
    _check.require(good, name, "correlation_length", f"lie between {low:g} and {high:g}, edges of the cube", length)
    dimension = _check.integer(dimension, name, "dimension", minimum=1)
    _check.one_of(mode_order, MODE_ORDERS, name, "mode_order")
    frequencies = np.array([frequency(k, length) for k in range(n_terms)])
    along_one_axis = 2.0 * length / (1.0 + (length * frequencies) ** 2)
    if mode_order == "trilinos":
        indices = trilinos_indices(n_terms, length, dimension)
    else:
        indices = largest_products([along_one_axis] * dimension, n_terms)
    eigenvalues = np.array([product_of([along_one_axis] * dimension, index) for index in indices])
    return KarhunenLoeve(eigenvalues, np.array(indices, dtype=np.intp), frequencies)


def frequency(k: int, length: float) -> float:
    """The k-th root w, found in u = w/2 between multiples of pi/2, where the equations without tan have one root."""
    from scipy.optimize import brentq  # here, because it takes a third of a second to import

    slope = 2.0 * length
    low, high = k * np.pi / 2, (k + 1) * np.pi / 2
    equation = even_equation if k % 2 == 0 else odd_equation  # no closure: SciPy's wrapper of it refers to itself
    return 2.0 * float(brentq(equation, low, high, args=(slope,), xtol=1e-15, rtol=1e-15))


def even_equation(u: float, slope: float) -> float:
    """Zero where ``1 = slope u tan(u)``."""
    return float(np.cos(u) - slope * u * np.sin(u))


def odd_equation(u: float, slope: float) -> float:
    """Zero where ``slope u = -tan(u)``."""
    return float(slope * u * np.cos(u) + np.sin(u))


def one_dimensional_modes(frequencies: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The modes of [0, 1] at `x`, one column each, of unit L2 norm."""
    wave = np.outer(x - 0.5, frequencies)
    half = np.sin(frequencies) / (2.0 * frequencies)
    even = np.arange(frequencies.size) % 2 == 0
    norms = np.sqrt(np.where(even, 0.5 + half, 0.5 - half))
    modes: np.ndarray = np.where(even, np.cos(wave), np.sin(wave)) / norms
    return modes


def product_of(along: Sequence[np.ndarray], index: tuple[int, ...]) -> float:
    """The product of one eigenvalue of each axis, the largest first, so that permutations tie to the last bit."""
    product = 1.0
    for factor in sorted((float(values[k]) for values, k in zip(along, index, strict=True)), reverse=True):
        product *= factor
    return product


def largest_products(along: Sequence[np.ndarray], n_terms: int) -> list[tuple[int, ...]]:
    """The `n_terms` index tuples of largest product, ties with the first index running fastest.

    The eigenvalues `along` each axis descend.
    """

    found = list(candidates(len(along), n_terms))
    return sorted(found, key=lambda index: -product_of(along, index))[:n_terms]


def candidates(axes: int, budget: int) -> Iterable[tuple[int, ...]]:
    """The index tuples (i, j, ...) after no more than `budget` others (i' <= i, j' <= j, ...), themselves included."""
    if axes == 0:
        return [()]
    return itertools.chain.from_iterable(
        ((*rest, i) for rest in candidates(axes - 1, budget // (i + 1))) for i in range(budget)
    )


def trilinos_indices(n_terms: int, length: float, dimension: int) -> list[tuple[int, ...]]:
    """The recorded order of the benchmark's modes."""
    known = TRILINOS_MODES if dimension == 3 else {}
    cases = ", ".join(f"n_terms={terms} with correlation_length={value}" for terms, value in TRILINOS_MODES)
    _check.require(
        (n_terms, length) in known,
        "exponential_covariance",
        "mode_order",
        f"be 'lexicographic' unless the order is recorded ({cases}, in 3 dimensions)",
        f"'trilinos' with n_terms={n_terms}, correlation_length={length:g}, dimension={dimension}",
        "Use mode_order='lexicographic'.",
    )
    return list(known[n_terms, length])
