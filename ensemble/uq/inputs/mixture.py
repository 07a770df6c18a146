"""`Mixture`: a number drawn from one of several distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from ensemble._check import finite, kind_of, message, real_array, require
from ensemble._keywords import explains_construction
from ensemble.uq.inputs.univariate import FrozenDistribution
from ensemble.uq.inputs.variable import Variable, normal_of

__all__ = ["Mixture"]


@explains_construction("Mixture")
class Mixture(Variable):
    """A number that has one of several distributions, each with a probability: continuous, discrete, or both.

    Parameters
    ----------
    parts : sequence
        Frozen distributions of `scipy.stats`, continuous or discrete; a number is one value of that probability.
    weights : array_like, shape (n_parts,)
        The probability of each part: above zero; they add up to 1.

    Raises
    ------
    ValueError, TypeError
        If a part is neither distribution nor number, or the weights do not fit.

    Notes
    -----
    The value at u is the smallest float64 x at which the mixture's distribution function, ``sum of w_k F_k(x)``,
    reaches u: one germ, a function that never falls, and exact values where there are jumps. It is found between the
    smallest and the largest value of the parts by halving the interval of numbers, at most 64 times.

    Examples
    --------
    Rain: none on six days of ten.

    >>> from scipy import stats
    >>> import ensemble as en
    >>> rain = en.uq.Mixture([0.0, stats.expon(scale=5.0)], [0.6, 0.4])
    >>> en.Inputs(rain=rain).from_uniform([[0.3], [0.6], [0.8]]).rain.samples.round(3)
    array([0.   , 0.   , 3.466])
    """

    def __init__(self, parts: Sequence[Any], weights: Any) -> None:
        self.parts = [part_of(part, k) for k, part in enumerate(parts)]
        require(bool(self.parts), "Mixture", "parts", "name one distribution or more", "none")
        wanted = f"be {len(self.parts)} numbers above zero that add up to 1"
        shares = real_array(weights, "Mixture", "weights", wanted)
        good = shares.shape == (len(self.parts),) and bool(np.all(shares > 0.0)) and abs(shares.sum() - 1.0) <= 1e-9
        require(good, "Mixture", "weights", wanted, shares.tolist())
        self.weights = shares / shares.sum()

    def __repr__(self) -> str:
        return f"Mixture({len(self.parts)} parts, {self.weights.tolist()})"

    def cdf(self, x: np.ndarray) -> np.ndarray:
        """The distribution function at `x`."""
        return self._sum("cdf", x)

    def sf(self, x: np.ndarray) -> np.ndarray:
        """The probability of more than `x`."""
        return self._sum("sf", x)

    def atoms(self) -> np.ndarray:
        """The values of discrete parts that have a probability of 1e-12 or more, ascending."""
        found = [part.atoms() for part in self.parts if part.discrete]
        values: np.ndarray = np.unique(np.concatenate([np.empty(0), *found]))
        return values

    def mass(self, x: np.ndarray) -> np.ndarray:
        """The probability of exactly `x`."""
        total = np.zeros(np.shape(x))
        for weight, part in zip(self.weights, self.parts, strict=True):
            if part.discrete:
                total += weight * part.pmf(x)
        return total

    def _sum(self, function: str, x: np.ndarray) -> np.ndarray:
        total = np.zeros(np.shape(x))
        for weight, part in zip(self.weights, self.parts, strict=True):
            total += weight * getattr(part, function)(x)
        return total

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        """The smallest numbers at which the distribution function reaches `u`."""
        return self._between([part.from_uniform(u) for part in self.parts], lambda x, k: self.cdf(x) >= u[0][k])

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        """The smallest numbers at which the distribution function reaches that of `z`; upper tails are exact."""
        ends = [part.from_normal(z) for part in self.parts]
        tail, upper = ndtr(-np.abs(z[0])), z[0] > 0.0

        def reached(x: np.ndarray, k: np.ndarray) -> np.ndarray:
            there: np.ndarray = np.where(upper[k], self.sf(x) <= tail[k], self.cdf(x) >= tail[k])
            return there

        return self._between(ends, reached)

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        """The points of `values`; in the middle of its probabilities for a value at a jump."""
        half = 0.5 * self.mass(values)
        return normal_of(self.cdf(values) - half, self.sf(values) + half)[None]

    def _between(self, ends: list[np.ndarray], reached: Any) -> np.ndarray:
        """The smallest numbers between those of the parts where `reached` holds."""
        low, high = ordered_integers(np.min(ends, axis=0)), ordered_integers(np.max(ends, axis=0))
        low -= 1
        active = np.flatnonzero(high - 1 > low)
        while active.size:
            middle = low[active] // 2 + high[active] // 2 + (low[active] & high[active] & 1)
            done = reached(floats_of(middle), active)
            high[active[done]] = middle[done]
            low[active[~done]] = middle[~done]
            active = active[high[active] - 1 > low[active]]
        return floats_of(high)

    def breaks(self) -> np.ndarray:
        atoms = self.atoms()
        below = self.cdf(atoms) - self.mass(atoms)
        ends = np.unique(np.concatenate([below, self.cdf(atoms)]))
        result: np.ndarray = ndtri(ends[(ends > 0.0) & (ends < 1.0)])
        return result

    def mid_rank(self, z: np.ndarray) -> np.ndarray:
        """The distribution function in the middle of its jump, at points of normal space."""
        x = self.from_normal(z[None])
        mass = self.mass(x)
        rank: np.ndarray = np.where(mass > 0.0, self.cdf(x) - 0.5 * mass, ndtr(z))
        return rank

    def description(self) -> dict[str, Any]:
        """The parts and their weights."""
        return {
            "kind": "mixture", "parts": [part.description() for part in self.parts], "weights": self.weights.tolist(),
        }  # fmt: skip


def part_of(part: Any, k: int) -> FrozenDistribution:
    """A part of a mixture; a number is a distribution of one value."""
    name = f"parts[{k}]"
    if isinstance(part, int | float | np.number):
        from scipy import stats

        value = finite(part, "Mixture", name)
        return FrozenDistribution(stats.rv_discrete(values=([value], [1.0]))(), name)
    if not (hasattr(part, "dist") and hasattr(part, "ppf")):
        seen = kind_of(part)
        raise TypeError(message("Mixture", name, "be a frozen distribution of scipy.stats or a number", seen))
    return FrozenDistribution(part, name)


def ordered_integers(x: np.ndarray) -> np.ndarray:
    """Integers in the order of the float64 numbers `x`, neighbours next to each other; both zeros are 0."""
    bits = np.ascontiguousarray(x, dtype=np.float64).view(np.int64)
    result: np.ndarray = np.where(bits < 0, np.int64(-(2**63)) - bits, bits)
    return result


def floats_of(integers: np.ndarray) -> np.ndarray:
    """The inverse of `ordered_integers`."""
    bits = np.where(integers < 0, np.int64(-(2**63)) - integers, integers)
    return np.ascontiguousarray(bits).view(np.float64)
