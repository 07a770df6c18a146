"""Distributions of one number: those of SciPy, and objects with an inverse of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from ensemble._check import message, require
from ensemble.uq.inputs.variable import Variable, array_digest, inside

__all__ = ["FrozenDistribution", "OwnDistribution", "as_univariate"]

KINDS = "be a distribution, a list of distributions, a field, a number or an array"

GRID = (np.arange(33) + 0.5) / 33.0
"""Where an inverse is tried before it is used."""

MOST_ATOMS = 4000
"""Values of a discrete distribution that are told apart in correlations; one of more is as good as continuous."""


class FrozenDistribution(Variable):
    """A frozen continuous or discrete distribution of `scipy.stats`.

    Values are float64, as SciPy's are, for discrete distributions too. Above the median, points of normal space go
    through ``isf``, so that upper tails are as exact as lower ones.
    """

    def __init__(self, frozen: Any, name: str) -> None:
        from scipy import stats

        self.frozen: Any = frozen
        self.discrete = isinstance(frozen.dist, stats.rv_discrete)
        self.parameters = named_parameters(frozen, self.discrete, name)
        self.law: str = frozen.dist.name if is_of_scipy(frozen.dist) else ""
        require_inverse(frozen.ppf, name, f"{frozen.dist.name}({self._text()})")

    def _text(self) -> str:
        return ", ".join(f"{key}={value:g}" for key, value in self.parameters.items())

    def _moved(self, values: np.ndarray) -> np.ndarray:
        # in this order and never fused: SciPy's bits
        result: np.ndarray = values * self.parameters["scale"] + self.parameters["loc"]
        return result

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        if self.law == "uniform":
            return self._moved(u[0])
        if self.law in ("norm", "lognorm"):
            return self.from_normal(ndtri(u))
        return np.asarray(self.frozen.ppf(u[0]), dtype=np.float64)

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        if self.law == "norm":
            return self._moved(z[0])
        if self.law == "lognorm":
            return self._moved(np.exp(self.parameters["s"] * z[0]))
        if self.discrete or self.law == "uniform":
            return self.from_uniform(inside(ndtr(z)))
        tail, upper = np.maximum(ndtr(-np.abs(z[0])), 5e-324), z[0] > 0.0
        values = np.empty(tail.shape)
        values[upper] = self.frozen.isf(tail[upper])
        values[~upper] = self.frozen.ppf(tail[~upper])
        return values

    def atoms(self) -> np.ndarray:
        """The values of a discrete distribution, less tails of probability 1e-12, ascending."""
        if hasattr(self.frozen.dist, "xk"):
            own = np.sort(np.asarray(self.frozen.dist.xk, dtype=np.float64))
            return own + self.parameters["loc"]
        low, high = self.frozen.ppf(1e-12), self.frozen.isf(1e-12)
        if high - low > MOST_ATOMS:
            return np.empty(0)
        values: np.ndarray = np.arange(low, high + 1.0)
        return values

    def breaks(self) -> np.ndarray:
        """Where the value jumps, as points of normal space."""
        if not self.discrete:
            return np.empty(0)
        ends = self.frozen.cdf(self.atoms())
        result: np.ndarray = ndtri(ends[(ends > 0.0) & (ends < 1.0)])
        return result

    def mid_rank(self, z: np.ndarray) -> np.ndarray:
        """The distribution function at points of normal space; in the middle of its jump if it is discrete."""
        if not self.discrete:
            return super().mid_rank(z)
        x = self.from_normal(z[None])
        rank: np.ndarray = self.frozen.cdf(x) - 0.5 * self.frozen.pmf(x)
        return rank

    def description(self) -> dict[str, Any]:
        text: dict[str, Any] = {"kind": "scipy", "distribution": self.frozen.dist.name, "parameters": self.parameters}
        if hasattr(self.frozen.dist, "xk"):
            text["digest"] = array_digest(np.asarray(self.frozen.dist.xk), np.asarray(self.frozen.dist.pk))
        elif not self.law:
            text["inverse"] = inverse_text(self.frozen.ppf)
        return text


class OwnDistribution(Variable):
    """An object of the user's, or one of SciPy's newer distributions, by its inverse distribution function."""

    discrete = False

    def __init__(self, distribution: Any, name: str) -> None:
        self.distribution = distribution
        self.inverse = distribution.icdf if hasattr(distribution, "icdf") else distribution.ppf
        require_inverse(self.inverse, name, repr(distribution))

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        return np.asarray(self.inverse(u[0]), dtype=np.float64)

    def description(self) -> dict[str, Any]:
        kind = type(self.distribution)
        name = f"{kind.__module__}.{kind.__qualname__}"
        return {"kind": "own", "distribution": name, "inverse": inverse_text(self.inverse)}


def is_of_scipy(distribution: Any) -> bool:
    """Whether its name and parameters say all about it."""
    from scipy import stats

    return type(distribution) is type(getattr(stats, str(distribution.name), None))


def as_univariate(value: Any, name: str) -> Variable:
    """The variable of one number that `value` describes; errors call it `name`."""
    if isinstance(value, Variable):
        single = value.n_germs == 1 and value.shape == ()
        require(single, "Inputs", name, "be the distribution of one number", repr(value))
        return value
    if hasattr(value, "dist") and hasattr(value, "ppf"):
        return FrozenDistribution(value, name)
    if hasattr(value, "shapes") and hasattr(value, "rvs") and callable(value):
        advice = f"Freeze it with its parameters ({value.shapes}, loc, scale), as in stats.{value.name}(...)."
        require(not value.shapes, "Inputs", name, "be a frozen distribution", f"stats.{value.name}", advice)
        return FrozenDistribution(value(), name)
    if callable(getattr(value, "icdf", None)) or callable(getattr(value, "ppf", None)):
        return OwnDistribution(value, name)
    advice = "An object of your own needs a method ppf(u)."
    raise TypeError(message("Inputs", name, KINDS, f"a {type(value).__name__}", advice))


def named_parameters(frozen: Any, discrete: bool, name: str) -> dict[str, float]:
    """The parameters of a frozen distribution, all of them, each by its name."""
    shapes = [s.strip() for s in frozen.dist.shapes.split(",")] if frozen.dist.shapes else []
    keys = [*shapes, "loc"] if discrete else [*shapes, "loc", "scale"]
    given = {"loc": 0.0} if discrete else {"loc": 0.0, "scale": 1.0}
    given |= dict(zip(keys, frozen.args, strict=False)) | frozen.kwds
    parameters = {}
    for key in keys:
        value = np.asarray(given[key])
        advice = "Give a list of distributions for a vector."
        require(value.ndim == 0, "Inputs", name, f"have one number for {key}", f"shape {value.shape}", advice)
        parameters[key] = float(value)
    return parameters


def require_inverse(inverse: Any, name: str, seen: str) -> None:
    """Raise unless the inverse gives one finite number for each of some probabilities, none below the one before."""
    with np.errstate(all="ignore"):
        values = np.asarray(inverse(GRID))
    if values.shape != GRID.shape or values.dtype.kind not in "biuf":
        advice = "Its inverse takes an array of probabilities and gives as many numbers."
        raise TypeError(message("Inputs", name, "be the distribution of one real number", seen, advice))
    advice = "Its parameters may lie outside their range."
    finite = bool(np.all(np.isfinite(values)))
    require(finite, "Inputs", name, "have finite values between its tails", seen, advice)
    rising = bool(np.all(np.diff(values) >= 0.0))
    require(rising, "Inputs", name, "have an inverse that never falls", seen)


def inverse_text(inverse: Any) -> list[str]:
    """The inverse at some probabilities, to ten digits."""
    return [f"{value:.10g}" for value in np.asarray(inverse(GRID), dtype=np.float64)]
