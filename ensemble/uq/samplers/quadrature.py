"""Tensor products of Gauss rules, and sparse grids."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ensemble._check import integer, one_of, require
from ensemble._kernels.quadrature.rules import HIGHEST_ORDER, smolyak
from ensemble._keywords import explains_construction
from ensemble._typing import Ids
from ensemble.uq.samplers.rules import RULES, Rule, gauss_rule, germ_distributions
from ensemble.uq.samplers.sampler import Sampler, checked_ids

if TYPE_CHECKING:
    from ensemble.uq.inputs.variable import Variable
from ensemble.uq.samplers.sampled_inputs import SampledInputs

__all__ = ["Gauss", "SparseGrid"]

T = TypeVar("T")

MOST_POINTS = 2**40
"""Points of a tensor product, at most; they are made when they are drawn."""


@explains_construction("Gauss")
class Gauss(Sampler):
    """The tensor product of Gauss rules, one for each germ: exact for polynomials, for few inputs and smooth models.

    Parameters
    ----------
    order : int, from 1 to 150, or mapping of input names to such
        Nodes along each germ: the mean of a polynomial is exact up to degree ``2 order - 1`` in each value.

    Notes
    -----
    The rule follows the distribution: Hermite for normal and lognormal inputs, Legendre for uniform ones, and for all
    others (Laguerre for gamma, Jacobi for beta, ...) that of the distribution's own orthogonal polynomials [1]_.
    Discrete inputs have all their values, whatever the order. Correlated inputs have Hermite nodes in their independent
    germs; distributions whose moments of degree ``2 order`` are infinite, too.

    References
    ----------
    .. [1] Golub, Welsch (1969), Mathematics of Computation 23(106), 221-230.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> x = en.Inputs(a=stats.norm(), b=stats.gamma(2.0)).samples(sampler=en.uq.Gauss(3))
    >>> x.n_samples, round(float(x.weights @ (x.a**4 * x.b**2).samples), 12)
    (9, 18.0)
    """

    name = "gauss"
    space = "normal"
    extendable = False
    is_quadrature = True

    def __init__(self, order: int | Mapping[str, int]) -> None:
        self.order = dict(order) if isinstance(order, Mapping) else checked_order(order)
        self.rules: list[Rule] | None = None

    def for_inputs(self, inputs: SampledInputs, n: int | None) -> Sampler:
        """The sampler with the rules of these inputs."""
        orders = dict.fromkeys(inputs.names, self.order) if isinstance(self.order, int) else self.order
        for name in orders:
            known = ", ".join(inputs.names)
            require(name in inputs.names, "Gauss", "names in order", f"be among {known}", repr(name))
        rules = []
        for name, part in distributions_of(inputs):
            require(name in orders, "Gauss", "order", "have a number for each input", f"none for {name!r}")
            rules.append(gauss_rule(part, checked_order(orders[name])))
        resolved = Gauss(self.order)
        resolved.rules = rules
        count = resolved.count()
        wanted = f"have at most {MOST_POINTS} points"
        require(count is not None and count <= MOST_POINTS, "Gauss", "order", wanted, count, "Use SparseGrid(level).")
        return resolved

    def count(self) -> int | None:
        """The product of the nodes along each germ; None before the inputs are known."""
        return None if self.rules is None else math.prod(z.size for z, _ in self.rules)

    def points(self, ids: Ids, n_germs: int, seed: int) -> np.ndarray:
        """Points of normal space of the samples numbered `ids`; the first germ runs fastest."""
        rules = made_for_inputs(self.rules, "Gauss.points")
        places = checked_ids(ids, "Gauss.points", self.count())
        result = np.empty((places.size, n_germs))
        for k, (z, _) in enumerate(rules):
            places, digits = np.divmod(places, z.size)
            result[:, k] = z[digits]
        return result

    def weights(self, ids: Ids) -> np.ndarray:
        """The products of the rules' weights; all add up to 1."""
        rules = made_for_inputs(self.rules, "Gauss.weights")
        places = checked_ids(ids, "Gauss.weights", self.count())
        result = np.ones(places.size)
        for _, w in rules:
            places, digits = np.divmod(places, w.size)
            result *= w[digits]
        return result

    def description(self) -> dict[str, Any]:
        """The name and the order."""
        return {"name": self.name, "order": self.order}


@explains_construction("SparseGrid")
class SparseGrid(Sampler):
    """Smolyak's sparse grid [1]_: sums and differences of small tensor products, for more inputs than `Gauss`.

    Parameters
    ----------
    level : int, at least 0
        0 is one point.
    rule : {"gauss", "fejer"}
        "gauss": ``level + 1`` nodes, as of `Gauss`; the grid is exact for polynomials of total degree
        ``2 level + 1``. "fejer": ``2**(level + 1) - 1`` nodes in the probability, those of one level among those of
        the next, so that fewer points belong to each germ's finest rule; for uniform inputs.

    Notes
    -----
    Weights add up to 1; some are negative, so that the mean of a positive output may be negative, and weighted samples
    have no quantiles. Points that several products share are one point with the sum of the weights; points of weight
    zero are left out. Points are in the order of their coordinates, the last germ fastest.

    References
    ----------
    .. [1] Gerstner, Griebel (1998), Numerical Algorithms 18, 209-232.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> x = en.Inputs(v=en.uq.Vector(stats.uniform(-1.0, 2.0), 10)).samples(sampler=en.uq.SparseGrid(2))
    >>> x.n_samples, bool(np.any(x.weights < 0.0)), round(float(x.weights @ (x.v[0] ** 2 * x.v[7] ** 2).samples), 12)
    (221, True, 0.111111111111)
    """

    name = "sparse_grid"
    space = "normal"
    extendable = False
    is_quadrature = True

    def __init__(self, level: int, *, rule: str = "gauss") -> None:
        self.level = integer(level, "SparseGrid", "level", minimum=0)
        self.rule = one_of(rule, RULES, "SparseGrid", "rule")
        self._grid: tuple[np.ndarray, np.ndarray] | None = None

    def for_inputs(self, inputs: SampledInputs, n: int | None) -> Sampler:
        """The sampler with the grid of these inputs."""
        require(self.level < HIGHEST_ORDER, "SparseGrid", "level", f"be below {HIGHEST_ORDER}", self.level)
        known: dict[int, list[Rule]] = {}
        rules = []
        for _, part in distributions_of(inputs):
            if id(part) not in known:
                known[id(part)] = [RULES[self.rule](part, level) for level in range(self.level + 1)]
            rules.append(known[id(part)])
        resolved = SparseGrid(self.level, rule=self.rule)
        resolved._grid = smolyak(rules, self.level, "SparseGrid")
        return resolved

    def count(self) -> int | None:
        """The number of points; None before the inputs are known."""
        return None if self._grid is None else self._grid[1].size

    def points(self, ids: Ids, n_germs: int, seed: int) -> np.ndarray:
        grid = made_for_inputs(self._grid, "SparseGrid.points")
        points: np.ndarray = grid[0][checked_ids(ids, "SparseGrid.points", self.count())]
        return points

    def weights(self, ids: Ids) -> np.ndarray:
        """What each point counts in a mean; some are negative, all add up to 1."""
        grid = made_for_inputs(self._grid, "SparseGrid.weights")
        weights: np.ndarray = grid[1][checked_ids(ids, "SparseGrid.weights", self.count())]
        return weights

    def description(self) -> dict[str, Any]:
        """The name, the level and the rule."""
        return {"name": self.name, "level": self.level, "rule": self.rule}


def made_for_inputs(value: T | None, method: str) -> T:
    """The rules or the grid that `for_inputs` made."""
    require(value is not None, method, "inputs", "be given to for_inputs first", "none", "Inputs.samples does so.")
    assert value is not None
    return value


def checked_order(order: Any) -> int:
    """A number of nodes."""
    number = integer(order, "Gauss", "order", minimum=1)
    require(number <= HIGHEST_ORDER, "Gauss", "order", f"be at most {HIGHEST_ORDER}", number)
    return number


def distributions_of(inputs: SampledInputs) -> list[tuple[str, Variable | None]]:
    """The input and the distribution of each germ; None for correlated germs, which are normal."""
    found: list[tuple[str, Variable | None]] = []
    for name, variable in inputs.variables.items():
        found += [(name, part) for part in germ_distributions(variable)]
    for column in inputs.copula.columns:
        found[column] = found[column][0], None
    return found
