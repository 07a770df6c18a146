"""Dependence of inputs by a Gaussian copula: correlated normal germs under given distributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ensemble._check import finite, message, one_of, require, require_type
from ensemble.uq.inputs.categorical import Categorical
from ensemble.uq.inputs.hermite import TERMS, HermiteSeries
from ensemble.uq.inputs.univariate import FrozenDistribution
from ensemble.uq.inputs.variable import Variable

__all__ = ["CORRELATION_KINDS", "GaussianCopula"]

CORRELATION_KINDS = ("normal", "pearson", "spearman")

TOLERANCE = 1e-3
"""Error of a correlation near the largest that two distributions allow, where the series of jumps is cut."""

Component = tuple[str, int]


class GaussianCopula:
    """Standard normal germs with given correlations, from independent ones.

    Parameters
    ----------
    correlation : mapping
        Pairs of components, each a name or a pair (name, number), to numbers between -1 and 1.
    kind : {"normal", "pearson", "spearman"}
        Whose correlation the numbers are: of the normal germs, of the values, or of the values' ranks. The last two are
        solved for that of the germs (Nataf 1962), pair by pair.
    variables, germs : mapping
        The inputs and their columns.

    Attributes
    ----------
    columns : ndarray of int
        The germs that are correlated, ascending.
    matrix, root : ndarray, shape (n_columns, n_columns)
        Their correlations, and the lower triangular root of that.
    """

    def __init__(
        self, correlation: Mapping[Any, float], kind: str, variables: Mapping[str, Variable], germs: Mapping[str, slice]
    ) -> None:
        self.kind = one_of(kind, CORRELATION_KINDS, "Inputs", "correlation_kind")
        self.variables = variables
        pairs: dict[tuple[Component, Component], float] = {}
        require_type(correlation, Mapping, "Inputs", "correlation", "be a dict of pairs of inputs to numbers")
        for key, value in correlation.items():
            first, second = self._pair(key)
            repeated = (first, second) in pairs or (second, first) in pairs
            require(not repeated, "Inputs", "correlation", "name each pair once", f"{key!r} again")
            number = finite(value, "Inputs", f"correlation of {key!r}")
            require(abs(number) < 1.0, "Inputs", f"correlation of {key!r}", "lie between -1 and 1", number)
            pairs[first, second] = number
        self.pairs = pairs
        involved = sorted({component for pair in pairs for component in pair}, key=lambda c: germs[c[0]].start + c[1])
        self.columns = np.array([germs[name].start + k for name, k in involved], dtype=np.intp)
        self.matrix = np.eye(len(involved))
        series: dict[Component, HermiteSeries] = {}
        for (first, second), number in pairs.items():
            i, j = involved.index(first), involved.index(second)
            self.matrix[i, j] = self.matrix[j, i] = self._of_germs(first, second, number, series)
        self.root = self._root()

    @property
    def between(self) -> list[tuple[Component, Component]]:
        """The pairs of components of different inputs; the root leaves the germs of each input to it without them."""
        return [(first, second) for first, second in self.pairs if first[0] != second[0]]

    def _pair(self, key: Any) -> tuple[Component, Component]:
        if not (isinstance(key, tuple) and len(key) == 2):
            wanted = "have pairs of inputs as keys, say ('a', 'b') or (('v', 0), 'b')"
            raise TypeError(message("Inputs", "correlation", wanted, repr(key)))
        first, second = (self._component(part) for part in key)
        require(first != second, "Inputs", "correlation", "name two different inputs", repr(key))
        joint = first[0] == second[0] and not self.variables[first[0]].components()
        advice = "Give the joint normal another covariance."
        wanted = "leave the germs of one field or joint normal independent"
        require(not joint, "Inputs", "correlation", wanted, repr(key), advice)
        return first, second

    def _component(self, part: Any) -> Component:
        name, k = part if isinstance(part, tuple) and len(part) == 2 else (part, None)
        known = ", ".join(self.variables)
        require(isinstance(name, str) and name in self.variables, "Inputs", "correlation", f"name {known}", repr(part))
        n_parts = len(self.variables[name].components())
        germs = self.kind == "normal" and not n_parts  # of a field or a joint normal, whose germs have no distributions
        advice = "A vector's component is ('name', number)."
        wanted = "name inputs of one number each, or components of vectors"
        if not n_parts and self.variables[name].n_germs and not germs:
            advice = "Germs of a field or a joint normal, ('name', number), go with correlation_kind='normal'."
        if k is None:
            require(n_parts == 1, "Inputs", "correlation", wanted, repr(part), advice)
            k = 0
        good = isinstance(k, int) and 0 <= k < (self.variables[name].n_germs if germs else n_parts)
        require(good, "Inputs", "correlation", wanted, repr(part), advice)
        return name, k

    def _of_germs(
        self, first: Component, second: Component, number: float, series: dict[Component, HermiteSeries]
    ) -> float:
        """The correlation of two germs for which values or ranks have the correlation `number`."""
        if self.kind == "normal" or number == 0.0:
            return number
        parts = [self.variables[name].components()[k] for name, k in (first, second)]
        smooth = not any(is_category(part) or part.breaks().size for part in parts)
        if self.kind == "spearman" and smooth:
            return float(2.0 * np.sin(np.pi * number / 6.0))
        for component, part in zip((first, second), parts, strict=True):
            if component not in series:
                series[component] = series_of(part, text_of(component), self.kind)
        pair = f"({text_of(first)}, {text_of(second)})"
        return solved(series[first], series[second], number, f"correlation of {pair}")

    def _root(self) -> np.ndarray:
        if not self.pairs:
            return self.matrix
        values, vectors = np.linalg.eigh(self.matrix)
        if values[0] < 1e-12:
            weight = np.abs(vectors[:, 0])
            names = [f"({text_of(a)}, {text_of(b)})" for a, b in self.pairs if self._takes_part(a, b, weight)]
            wanted = "make a positive definite matrix of the germs' correlations"
            seen = f"a smallest eigenvalue of {values[0]:.4g}, by the pairs {', '.join(names)}"
            raise ValueError(message("Inputs", "correlation", wanted, seen, "Take numbers nearer to zero there."))
        root: np.ndarray = np.linalg.cholesky(self.matrix)
        return root

    def _takes_part(self, first: Component, second: Component, weight: np.ndarray) -> bool:
        """Whether both of a pair are in the direction of the smallest eigenvalue."""
        involved = list(dict.fromkeys(c for pair in self.pairs for c in pair))
        order = sorted(involved, key=lambda c: (list(self.variables).index(c[0]), c[1]))
        return bool(min(weight[order.index(first)], weight[order.index(second)]) > 0.1 * weight.max())

    def description(self) -> dict[str, Any]:
        """The kind and the numbers as given."""
        pairs = [[list(pair[0]), list(pair[1]), value] for pair, value in self.pairs.items()]
        return {"kind": self.kind, "pairs": sorted(pairs)}


def is_category(part: Variable) -> bool:
    """Whether the values have no order."""
    return isinstance(part, Categorical)


def text_of(component: Component) -> str:
    """A component as users write it."""
    name, k = component
    return repr(name) if k == 0 else repr(component)


def series_of(part: Variable, name: str, kind: str) -> HermiteSeries:
    """The values of a distribution, or its ranks, as functions of its germ."""
    advice = "With correlation_kind='normal' the number is that of the germs."
    argument = f"{name} in correlation"
    require(not is_category(part), "Inputs", argument, "have values in an order", "a Categorical", advice)
    if kind == "spearman":
        return HermiteSeries(part.mid_rank, part.breaks())
    variance = float(part.frozen.var()) if isinstance(part, FrozenDistribution) else None
    known = variance is None or bool(np.isfinite(variance))
    require(known, "Inputs", argument, "have a finite variance", variance, "Take correlation_kind='spearman'.")
    with np.errstate(all="ignore"):
        series = HermiteSeries(lambda z: part.from_normal(z[None]), part.breaks())
    good = series.std > 0.0 and (variance is None or abs(series.std**2 - variance) <= 1e-4 * variance)
    seen = f"a variance of {variance}, by quadrature {series.std**2:.6g}"
    wanted = "have a variance above zero that quadrature finds"
    require(bool(good), "Inputs", argument, wanted, seen, "Take correlation_kind='spearman'.")
    return series


def solved(f: HermiteSeries, g: HermiteSeries, number: float, argument: str) -> float:
    """The correlation of two germs at which f of one and g of the other have the correlation `number`."""
    from scipy.optimize import brentq

    low, high = f.extreme(g, -1), f.extreme(g, 1)
    text = f"between {low:.4f} and {high:.4f}, all that these two distributions allow"
    require(low < number < high, "Inputs", argument, f"lie {text}", number)
    sign, end = (1, high) if number > 0.0 else (-1, low)
    reached = f.correlation(g, float(sign))
    lost = abs(end - reached)
    rho = sign * 1.0
    if abs(reached) > abs(number):
        rho = float(brentq(excess, 0.0, rho, args=(f, g, number), xtol=1e-14))
    good = abs(rho) < 1.0 and lost * abs(rho) ** TERMS < TOLERANCE
    require(good, "Inputs", argument, f"not lie so near to an end: {text}", number)
    return rho


def excess(rho: float, f: HermiteSeries, g: HermiteSeries, number: float) -> float:
    """By how much the correlation of f and g exceeds `number`; SciPy's wrapper of a closure would refer to itself."""
    return float(f.correlation(g, rho) - number)
