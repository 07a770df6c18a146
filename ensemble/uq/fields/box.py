"""Eigenpairs of the exponential covariance on a box, in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import finite, integer, message, positive, require
from ensemble.uq.fields.unit_cube import (
    CORRELATION_LENGTHS,
    frequency,
    largest_products,
    one_dimensional_modes,
    product_of,
)

__all__ = ["BoxExpansion", "box_expansion"]

MOST_TERMS = 20_000
"""Terms of an expansion, at most: its products of one-dimensional modes are sorted in a list."""


class BoxExpansion:
    """Eigenpairs of ``exp(-sum over axes of |x_k - x'_k| / L_k)`` on a box, largest eigenvalue first.

    Attributes
    ----------
    eigenvalues : ndarray, shape (n_terms,)
    indices : ndarray of int, shape (n_terms, d)
        Which one-dimensional mode each term takes along each axis.
    total : float
        The sum of all eigenvalues, kept or not: the volume of the box.
    """

    def __init__(self, domain: np.ndarray, lengths: np.ndarray, n_terms: int) -> None:
        self.lower, self.widths, self.lengths = domain[:, 0], domain[:, 1] - domain[:, 0], lengths
        relative = lengths / self.widths
        self.frequencies = [np.array([frequency(k, float(length)) for k in range(n_terms)]) for length in relative]
        along = [2.0 * r / (1.0 + (r * w) ** 2) for r, w in zip(relative, self.frequencies, strict=True)]
        indices = largest_products(along, n_terms)
        self.indices = np.array(indices, dtype=np.intp)
        self.total = float(np.prod(self.widths))
        self.eigenvalues = self.total * np.array([product_of(along, index) for index in indices])
        self.nodes = None

    @property
    def dimension(self) -> int:
        """The number of axes."""
        return int(self.widths.size)

    def modes_at(self, points: np.ndarray) -> np.ndarray:
        """The modes, each of unit L2 norm over the box, at points ``(n, d)``: shape (n, n_terms)."""
        places = (points - self.lower) / self.widths
        good = bool(np.all((places >= -1e-9) & (places <= 1.0 + 1e-9)))
        require(good, "KarhunenLoeve", "points", "lie in the domain", "some outside it")
        modes = np.full((points.shape[0], self.eigenvalues.size), 1.0 / np.sqrt(self.total))
        for axis, frequencies in enumerate(self.frequencies):
            used = int(self.indices[:, axis].max()) + 1
            modes *= one_dimensional_modes(frequencies[:used], places[:, axis])[:, self.indices[:, axis]]
        return modes

    def description(self) -> dict[str, Any]:
        """The box, the lengths and the number of terms."""
        return {
            "covariance": "exponential", "lower": self.lower.tolist(), "widths": self.widths.tolist(),
            "lengths": self.lengths.tolist(), "terms": self.eigenvalues.size,
        }  # fmt: skip


def box_expansion(domain: Any, length: Any, n_terms: int | None, energy: float | None) -> BoxExpansion:
    """The expansion of `n_terms`, or of as few as have the share `energy` of the variance."""
    name = "KarhunenLoeve.exponential"
    box = checked_domain(domain, name)
    lengths = np.broadcast_to(np.asarray(length, dtype=np.float64), (box.shape[0],)).copy()
    for value, width in zip(lengths, box[:, 1] - box[:, 0], strict=True):
        low, high = (bound * float(width) for bound in CORRELATION_LENGTHS)
        number = positive(value, name, "length")
        require(low <= number <= high, name, "length", f"lie between {low:g} and {high:g}", number)
    if energy is None:
        return BoxExpansion(box, lengths, integer(n_terms, name, "n_terms", minimum=1))
    count = 16
    while True:
        expansion = BoxExpansion(box, lengths, count)
        reached = np.cumsum(expansion.eigenvalues) / expansion.total
        if reached[-1] >= energy:
            return BoxExpansion(box, lengths, int(np.searchsorted(reached, energy)) + 1)
        advice = "Take less energy or a larger length."
        wanted = f"be a share that {MOST_TERMS} terms reach"
        seen = f"{energy}, where {count} terms have {reached[-1]:.4f}"
        require(count < MOST_TERMS, name, "energy", wanted, seen, advice)
        count = min(2 * count, MOST_TERMS)


def checked_domain(domain: Any, name: str) -> np.ndarray:
    """The ends of each axis, shape (d, 2)."""
    try:
        box = np.array([[finite(end, name, "domain") for end in ends] for ends in domain])
    except (TypeError, ValueError):
        wanted = "have a pair of numbers for each axis, say [(0, 1), (0, 2)]"
        raise TypeError(message(name, "domain", wanted, repr(domain))) from None
    good = box.ndim == 2 and box.shape[1] == 2 and bool(np.all(box[:, 1] > box[:, 0]))
    require(good, name, "domain", "have a lower and a higher end for each axis", repr(domain))
    return box
