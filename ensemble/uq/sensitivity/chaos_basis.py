"""The basis of a polynomial chaos expansion: products of orthonormal polynomials, one factor per germ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._check import require
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.inputs.orthogonal import Recurrence, orthonormal, recurrence
from ensemble.uq.inputs.univariate import FrozenDistribution

__all__ = ["Basis", "Factor", "multi_indices"]

MOST_TERMS = 100_000


def multi_indices(most: np.ndarray, degree: int, norm: float) -> np.ndarray:
    """Exponents ``(n_terms, n_germs)`` with ``(sum(k**norm))**(1/norm) <= degree``, by total degree [1]_.

    Parameters
    ----------
    most : array of int, shape (n_germs,)
        The highest degree of each germ.
    degree : int
    norm : float in (0, 1]
        1: total degree; less: hyperbolic, fewer terms of interactions.

    References
    ----------
    .. [1] Blatman, Sudret (2011), Journal of Computational Physics 230(6), 2345-2367, section 3.2.
    """
    cost = np.arange(degree + 1.0) ** norm
    budget = degree**norm * (1.0 + 1e-12)
    found, spent = np.zeros((1, 0), dtype=np.int64), np.zeros(1)
    for highest in most:
        steps = []
        for k in range(int(highest) + 1):
            kept = np.flatnonzero(spent + cost[k] <= budget)
            steps.append((np.column_stack([found[kept], np.full(kept.size, k)]), spent[kept] + cost[k]))
        found, spent = (np.concatenate(one) for one in zip(*steps))
        good = len(found) <= MOST_TERMS
        advice = "Take a lower degree or norm."
        require(good, "chaos", "degree", f"give at most {MOST_TERMS} terms", degree, advice)
    order = np.lexsort((*(-found.T[::-1]), found.sum(axis=1)))
    return found[order]


class Basis:
    """Products of polynomials orthonormal with respect to the distribution of each germ.

    Parameters
    ----------
    inputs : Inputs
    degree : int
    norm : float in (0, 1]
    family : {"marginal", "hermite"}
        Polynomials of an input's own values (of the logarithm for lognormal ones), or of its normal germ. Correlated
        inputs and random fields always have those of their independent germs.

    Attributes
    ----------
    indices : ndarray of int, shape (n_terms, n_germs)
        Degrees by term and germ; the first term is the constant.
    needs_germs : bool
        Whether values of the inputs are not enough to evaluate it.
    """

    def __init__(self, inputs: Inputs, degree: int, norm: float, family: str) -> None:
        self.inputs = inputs
        self.factors: list[Factor] = []
        correlated = set(inputs.copula.columns.tolist())
        for name, variable in inputs.variables.items():
            columns = range(*inputs.germs[name].indices(inputs.n_germs))
            parts = variable.components()
            own = family == "marginal" and len(parts) == len(columns) and not correlated & set(columns)
            for k, column in enumerate(columns):
                part = parts[k] if own else None
                if part is None:
                    self.factors.append(Factor("", column, hermite(degree + 1)))
                elif isinstance(part, FrozenDistribution) and part.law == "lognorm":
                    self.factors.append(Factor(name, k, hermite(degree + 1), part.parameters))
                else:
                    self.factors.append(Factor(name, k, recurrence(part, degree + 1)))
        most = np.array([min(factor.recurrence.n - 1, degree) for factor in self.factors])
        self.indices = multi_indices(most, degree, norm)
        self.needs_germs = any(not factor.name for factor in self.factors)

    @property
    def n_terms(self) -> int:
        """How many products there are."""
        return len(self.indices)

    def evaluate(self, samples: Any, germs: np.ndarray | None) -> np.ndarray:
        """All products at all samples, shape (n_terms, n_samples); `germs` ``(n_samples, n_germs)`` if needed."""
        return self._products([factor.values(samples, germs) for factor in self.factors], samples.n_samples)

    def _products(self, values: list[np.ndarray], n: int) -> np.ndarray:
        """Each product is that of an earlier term, without its last germ, and one polynomial."""
        result = np.ones((self.n_terms, n))
        n_germs = self.indices.shape[1]
        last = n_germs - 1 - np.argmax(self.indices[:, ::-1] > 0, axis=1)
        shorter = self.indices.copy()
        shorter[np.arange(self.n_terms), last] = 0
        place = {row.tobytes(): t for t, row in enumerate(self.indices)}
        for t in range(1, self.n_terms):
            i = last[t]
            np.multiply(result[place[shorter[t].tobytes()]], values[i][self.indices[t, i]], out=result[t])
        return result

    def groups(self) -> np.ndarray:
        """Which inputs take part in each term, shape (n_inputs, n_terms), inputs that are not constant."""
        parts = [part for part in self.inputs.germs.values() if part.stop > part.start]
        return np.array([np.any(self.indices[:, part] > 0, axis=1) for part in parts])


@dataclass(frozen=True)
class Factor:
    """The polynomials of one germ: of component k of the input `name`, or of normal germ k where `name` is empty."""

    name: str
    k: int
    recurrence: Recurrence
    lognormal: dict[str, float] | None = None

    def values(self, samples: Any, germs: np.ndarray | None) -> np.ndarray:
        """The polynomials at all samples, shape (n, n_samples)."""
        if not self.name:
            assert germs is not None
            return orthonormal(self.recurrence, np.ascontiguousarray(germs[:, self.k]))
        x = samples[self.name].samples.reshape(-1, samples.n_samples)[self.k].astype(np.float64)
        if self.lognormal is not None:
            loc, scale, shape = (self.lognormal[key] for key in ("loc", "scale", "s"))
            x = np.log((x - loc) / scale) / shape
        return orthonormal(self.recurrence, x)


def hermite(n: int) -> Recurrence:
    """The recurrence of the standard normal distribution."""
    return Recurrence(np.zeros(n), np.concatenate([[1.0], np.arange(1.0, n)]))
