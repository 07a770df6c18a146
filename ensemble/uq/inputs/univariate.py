"""Distributions of one number: those of SciPy, and objects with an inverse of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from ensemble._check import message, require
from ensemble.uq.inputs.variable import Variable, inside

__all__ = ["FrozenDistribution", "OwnDistribution"]

GRID = (np.arange(33) + 0.5) / 33.0
"""Where an inverse is tried before it is used."""


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

    def description(self) -> dict[str, Any]:
        text: dict[str, Any] = {"kind": "scipy", "distribution": self.frozen.dist.name, "parameters": self.parameters}
        if not self.law:
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
