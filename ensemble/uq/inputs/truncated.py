"""`Truncated`: a distribution between two bounds; `empirical`: observed numbers as a distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr

from ensemble._check import finite, kind_of, message, real_array, require
from ensemble._keywords import explains_calls, explains_construction
from ensemble.uq.inputs.univariate import FrozenDistribution
from ensemble.uq.inputs.variable import Variable, normal_of

__all__ = ["Truncated", "empirical"]


@explains_construction("Truncated")
class Truncated(Variable):
    """A continuous distribution of one number, given that the number lies between two bounds.

    Parameters
    ----------
    distribution : frozen continuous distribution of `scipy.stats`
    low, high : float, in the unit of the input
        The bounds; minus infinity and infinity are none. ``low < high``, with a probability above zero between them.

    Raises
    ------
    TypeError
        If it is no frozen continuous distribution.
    ValueError
        If the bounds are in the wrong order, or nothing lies between them.

    Notes
    -----
    The inverse is that of the distribution at ``F(low) + u (F(high) - F(low))``, above its median from the other end:
    both tails are exact, and no value lies outside the bounds.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> load = en.uq.Truncated(stats.norm(1.0, 0.2), 0.8, 1.1)
    >>> x = en.Inputs(load=load).samples(64, seed=3)
    >>> bool(x.load.samples.min() >= 0.8), bool(x.load.samples.max() <= 1.1)
    (True, True)
    """

    discrete = False

    def __init__(self, distribution: Any, low: float = -np.inf, high: float = np.inf) -> None:
        if not (hasattr(distribution, "dist") and hasattr(distribution, "ppf")):
            requirement = "be a frozen continuous distribution of scipy.stats"
            raise TypeError(message("Truncated", "distribution", requirement, kind_of(distribution)))
        self.part = FrozenDistribution(distribution, "distribution")
        if self.part.discrete:
            advice = "Leave out its values: stats.rv_discrete(values=(values, probabilities))."
            seen = f"{distribution.dist.name}, which is discrete"
            raise TypeError(message("Truncated", "distribution", "be continuous", seen, advice))
        self.low, self.high = (
            float(end) if end in (-np.inf, np.inf) else finite(end, "Truncated", name)
            for end, name in ((low, "low"), (high, "high"))
        )
        require(self.low < self.high, "Truncated", "low", "be below high", f"{low} and {high}")
        ends = np.array([self.low, self.high])
        below, above = self.part.cdf(ends), self.part.sf(ends)
        self._below, self._above = float(below[0]), float(above[1])
        self._mass = float(below[1] - below[0] if below[0] <= 0.5 else above[0] - above[1])
        seen = f"{self.low:g} to {self.high:g}, with a probability of {self._mass:.3g}"
        require(self._mass > 0.0, "Truncated", "low and high", "have values of the distribution between them", seen)

    def __repr__(self) -> str:
        return f"Truncated({self.part.frozen.dist.name}, {self.low:g}, {self.high:g})"

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        return self._at(u[0], 1.0 - u[0])

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        return self._at(ndtr(z[0]), ndtr(-z[0]))

    def _at(self, u: np.ndarray, rest: np.ndarray) -> np.ndarray:
        """Values with the probability `u` of smaller ones, and `rest` of larger ones."""
        below, above = self._below + u * self._mass, self._above + rest * self._mass
        lower = below <= above
        values = np.empty(u.shape)
        values[lower] = self.part.frozen.ppf(below[lower])
        values[~lower] = self.part.frozen.isf(above[~lower])
        return np.clip(values, self.low, self.high)

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        f, s = self.part.cdf(values), self.part.sf(values)
        ends = np.array([self.low, self.high])
        below = np.where(f <= 0.5, f - self._below, float(self.part.sf(ends)[0]) - s)
        above = np.where(s <= 0.5, s - self._above, float(self.part.cdf(ends)[1]) - f)
        inside = (values >= self.low) & (values <= self.high)
        z = normal_of(np.maximum(below, 0.0) / self._mass, np.maximum(above, 0.0) / self._mass)
        return np.where(inside, z, np.nan)[None]

    def pdf(self, x: np.ndarray) -> np.ndarray:
        """The density at `x`."""
        inside = (x >= self.low) & (x <= self.high)
        return np.where(inside, self.part.frozen.pdf(x) / self._mass, 0.0)

    def description(self) -> dict[str, Any]:
        """The distribution and the bounds; a bound that is infinite is None."""
        ends = {name: end if np.isfinite(end) else None for name, end in (("low", self.low), ("high", self.high))}
        return {"kind": "truncated", "of": self.part.description(), **ends}


@explains_calls("empirical")
def empirical(data: Any) -> Any:
    """Make a distribution of observed numbers: each has the same probability, equal ones together.

    Parameters
    ----------
    data : array_like, shape (n,)
        Finite numbers, in the unit of the input.

    Returns
    -------
    frozen discrete distribution of `scipy.stats`

    Raises
    ------
    TypeError, ValueError
        If they are no finite numbers, or there is none.

    Examples
    --------
    >>> import ensemble as en
    >>> x = en.Inputs(load=en.uq.empirical([3.0, 1.0, 1.0, 2.5])).samples(64, seed=3)
    >>> sorted(set(x.load.samples.tolist()))
    [1.0, 2.5, 3.0]
    """
    from scipy import stats

    values = real_array(data, "empirical", "data", "be a vector of numbers")
    require(
        values.ndim == 1 and values.size > 0, "empirical", "data", "be a vector of numbers", f"shape {values.shape}"
    )
    good = int(np.count_nonzero(np.isfinite(values)))
    require(good == values.size, "empirical", "data", "be finite", f"{values.size - good} that are not")
    distinct, counts = np.unique(values.astype(np.float64), return_counts=True)
    return stats.rv_discrete(values=(distinct, counts / values.size))()
