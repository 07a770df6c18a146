"""Vectors: several distributions under one name, independent or jointly normal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from ensemble._check import integer, require
from ensemble._keywords import explains_construction
from ensemble.uq.inputs.univariate import as_univariate
from ensemble.uq.inputs.variable import Variable, array_digest

__all__ = ["JointNormal", "Vector", "rows_product"]


@explains_construction("Vector")
class Vector(Variable):
    """Several independent numbers under one name.

    Parameters
    ----------
    distributions : distribution, or sequence of distributions
        Distributions of one number each.
    size : int, at least 1, optional
        How many numbers, where they all have one distribution.

    Raises
    ------
    ValueError, TypeError
        If there is no component, or one is no distribution of one number, or `size` does not fit.

    Notes
    -----
    Component k of an input ``v`` is called ``("v", k)`` in correlations.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> x = en.Inputs(v=en.uq.Vector(stats.norm(), 3), w=[stats.norm(), stats.expon()]).samples(16, seed=9)
    >>> x.v.shape, x.w.shape, x.v.n_samples
    ((3,), (2,), 16)
    """

    def __init__(self, distributions: Any, size: int | None = None, *, _name: str = "Vector") -> None:
        several = isinstance(distributions, list | tuple)
        if several:
            given: Sequence[Any] = distributions
            good = size is None or size == len(given)
            require(good, "Inputs", f"size of {_name}", "be left out or the number of distributions", size)
            parts = [as_univariate(value, f"{_name}[{k}]") for k, value in enumerate(given)]
        else:
            count = integer(size, "Inputs", f"size of {_name}", minimum=1)
            parts = [as_univariate(distributions, _name)] * count
        require(bool(parts), "Inputs", _name, "have one component or more", "none")
        self.parts = tuple(parts)
        self.alike = all(part is parts[0] for part in parts)
        self.n_germs = len(parts)
        self.shape = (len(parts),)

    def __repr__(self) -> str:
        return f"Vector({self.n_germs} components)"

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        """Values of the components, one after the other."""
        if self.alike:
            return self.parts[0].from_uniform(u.reshape(1, -1)).reshape(u.shape)
        return np.stack([part.from_uniform(u[k : k + 1]) for k, part in enumerate(self.parts)])

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        if self.alike:
            return self.parts[0].from_normal(z.reshape(1, -1)).reshape(z.shape)
        return np.stack([part.from_normal(z[k : k + 1]) for k, part in enumerate(self.parts)])

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        return np.concatenate([part.to_normal(row) for part, row in zip(self.parts, values, strict=True)])

    def components(self) -> tuple[Variable, ...]:
        return self.parts

    def description(self) -> dict[str, Any]:
        """The components; one of them and their number where they are alike."""
        if self.alike:
            return {"kind": "vector", "component": self.parts[0].description(), "size": self.n_germs}
        return {"kind": "vector", "components": [part.description() for part in self.parts]}


class JointNormal(Variable):
    """A frozen `scipy.stats.multivariate_normal`: mean + L z, with the lower triangular root L of the covariance.

    Where the covariance is singular, its symmetric root is taken in place of L.
    """

    def __init__(self, frozen: Any, name: str) -> None:
        mean, covariance = np.atleast_1d(frozen.mean), np.atleast_2d(frozen.cov)
        finite = bool(np.all(np.isfinite(mean)) and np.all(np.isfinite(covariance)))
        require(finite, "Inputs", name, "have a finite mean and covariance", "NaN or infinity")
        self.mean = mean.astype(np.float64)
        self.covariance = covariance.astype(np.float64)
        self.n_germs = mean.size
        self.shape = (mean.size,)
        try:
            self.root = np.linalg.cholesky(self.covariance)
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(self.covariance)
            self.root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        return self.from_normal(ndtri(u))

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        return rows_product(self.root, z) + self.mean[:, None]

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        z: np.ndarray = np.linalg.lstsq(self.root, values - self.mean[:, None], rcond=None)[0]
        return z

    def components(self) -> tuple[Variable, ...]:
        return ()

    def description(self) -> dict[str, Any]:
        return {"kind": "multivariate_normal", "digest": array_digest(self.mean, self.covariance)}


def rows_product(matrix: np.ndarray, z: np.ndarray) -> np.ndarray:
    """``matrix @ z``, summed column by column: the bits of a sample do not depend on how many there are."""
    result = np.zeros((matrix.shape[0], z.shape[1]))
    for i, row in enumerate(matrix):
        for k in np.flatnonzero(row):
            result[i] += row[k] * z[k]
    return result
