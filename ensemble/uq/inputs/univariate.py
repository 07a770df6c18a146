"""Distributions of one number: those of SciPy, and objects with an inverse of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from ensemble._check import kind_of, message, require
from ensemble.uq.inputs.variable import Variable, array_digest, inside, normal_of

__all__ = ["FrozenDistribution", "OwnDistribution", "as_univariate"]

KINDS = "be a distribution, a list of distributions, a field, a number or an array"

GRID = (np.arange(33) + 0.5) / 33.0
"""Probabilities at which an inverse is tried before it is used."""

MOST_ATOMS = 4000
"""Values of a discrete distribution that correlations distinguish; one of more values counts as continuous."""


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
        self.location = self.parameters["loc"] if self.discrete else 0.0
        self.unmoved = frozen.dist(**self.parameters | {"loc": 0.0}) if self.discrete else frozen
        self.values = self.atoms() if self.discrete else np.empty(0)
        self.ends = self.cdf(self.values) if self.values.size else np.empty(0)

    def _text(self) -> str:
        return ", ".join(f"{key}={value:g}" for key, value in self.parameters.items())

    def _moved(self, values: np.ndarray) -> np.ndarray:
        # in this order and never fused: SciPy's bits
        result: np.ndarray = values * self.parameters["scale"] + self.parameters["loc"]
        return result

    def cdf(self, x: np.ndarray) -> np.ndarray:
        """The distribution function at `x`."""
        return np.asarray(self.unmoved.cdf(self._unmoved(x)))

    def sf(self, x: np.ndarray) -> np.ndarray:
        """The probability of more than `x`."""
        return np.asarray(self.unmoved.sf(self._unmoved(x)))

    def pmf(self, x: np.ndarray) -> np.ndarray:
        """The probability of exactly `x`, for a discrete distribution."""
        return np.asarray(self.unmoved.pmf(self._unmoved(x)))

    def _unmoved(self, x: np.ndarray) -> np.ndarray:
        """`x` without the location, at the discrete value that rounding misses: (4 + 0.1) - 0.1 is not 4."""
        if self.location == 0.0:
            return x
        moved = np.asarray(x - self.location)
        table = getattr(self.frozen.dist, "xk", None)
        nearest = np.rint(moved)
        if table is not None:
            table = np.sort(np.asarray(table, dtype=np.float64))
            right = np.searchsorted(table[1:], moved)
            nearest = table[right]
            following = table[np.minimum(right + 1, table.size - 1)]
            nearest = np.where(np.abs(following - moved) < np.abs(nearest - moved), following, nearest)
        rounding = 4.0 * np.finfo(np.float64).eps * np.maximum(np.abs(x), abs(self.location))
        return np.where(np.abs(moved - nearest) <= rounding, nearest, moved)

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        if self.law == "uniform":
            return self._moved(u[0])
        if self.law in ("norm", "lognorm"):
            return self.from_normal(ndtri(u))
        if self.values.size:
            return self._looked_up(u[0])
        return np.asarray(self.frozen.ppf(u[0]), dtype=np.float64)

    def _looked_up(self, u: np.ndarray) -> np.ndarray:
        """The first of the discrete values whose probabilities add up to `u`; SciPy's search beyond the table."""
        places = np.searchsorted(self.ends, u)
        beyond = (places == self.values.size) | (u <= self.ends[0])
        result: np.ndarray = self.values[np.minimum(places, self.values.size - 1)]
        if np.any(beyond):
            result[beyond] = self.frozen.ppf(u[beyond])
        return result

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        if self.law == "norm":
            return self._moved(z[0])
        if self.law == "lognorm":
            return self._moved(np.exp(self.parameters["s"] * z[0]))
        if self.discrete or self.law == "uniform":
            return self.from_uniform(inside(ndtr(z)))
        return two_sided(self.frozen.ppf, self.frozen.isf, z[0])

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        """The points of `values`; in the middle of its probabilities for a discrete value."""
        if self.law == "norm":
            return ((values - self.parameters["loc"]) / self.parameters["scale"])[None]
        half = 0.5 * self.pmf(values) if self.discrete else 0.0
        below, above = self.cdf(values) - half, self.sf(values) + half
        z = normal_of(below, above)
        return np.where(half > 0.0, z, np.nan)[None] if self.discrete else z[None]

    def atoms(self) -> np.ndarray:
        """The values of a discrete distribution, less tails of probability 1e-12, ascending."""
        if hasattr(self.frozen.dist, "xk"):
            own = np.sort(np.asarray(self.frozen.dist.xk, dtype=np.float64))
            return own + self.location
        low, high = self.unmoved.ppf(1e-12), self.unmoved.isf(1e-12)
        if high - low > MOST_ATOMS:
            return np.empty(0)
        values: np.ndarray = np.arange(low, high + 1.0) + self.location
        return values

    def breaks(self) -> np.ndarray:
        if not self.discrete:
            return np.empty(0)
        result: np.ndarray = ndtri(self.ends[(self.ends > 0.0) & (self.ends < 1.0)])
        return result

    def mid_rank(self, z: np.ndarray) -> np.ndarray:
        """The distribution function at points of normal space; in the middle of its jump if it is discrete."""
        if not self.discrete:
            return super().mid_rank(z)
        x = self.from_normal(z[None])
        rank: np.ndarray = self.cdf(x) - 0.5 * self.pmf(x)
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
        self.upper = getattr(distribution, "iccdf", None) or getattr(distribution, "isf", None)
        require_inverse(self.inverse, name, repr(distribution))

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        return np.asarray(self.inverse(u[0]), dtype=np.float64)

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        if self.upper is None:
            return self.from_uniform(inside(ndtr(z)))
        return two_sided(self.inverse, self.upper, z[0])

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        """The points of `values`, by halving intervals."""
        low, high = np.full(values.shape, -38.0), np.full(values.shape, 38.0)
        for _ in range(64):
            middle = 0.5 * (low + high)
            below = self.from_normal(middle[None]) < values
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return high[None]

    def description(self) -> dict[str, Any]:
        kind = type(self.distribution)
        name = f"{kind.__module__}.{kind.__qualname__}"
        return {"kind": "own", "distribution": name, "inverse": inverse_text(self.inverse)}


def two_sided(below: Any, above: Any, z: np.ndarray) -> np.ndarray:
    """Values at points of normal space, each tail by its own inverse."""
    tail, upper = np.maximum(ndtr(-np.abs(z)), 5e-324), z > 0.0
    values = np.empty(tail.shape)
    for inverse, chosen in ((above, upper), (below, ~upper)):
        if np.any(chosen):
            values[chosen] = inverse(tail[chosen])
    return values


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
    raise TypeError(message("Inputs", name, KINDS, kind_of(value), advice))


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
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(inverse(GRID))
    except Exception as error:  # whatever an inverse raises, the input is of no use
        raised = f"{seen}, which raised {type(error).__name__}: {error}"
        raise ValueError(message("Inputs", name, "have an inverse that can be computed", raised)) from error
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
