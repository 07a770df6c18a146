"""Vectors: several distributions under one name, independent or jointly normal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from ensemble._check import require
from ensemble.uq.inputs.variable import Variable, array_digest

__all__ = ["JointNormal", "VectorVariable", "triangular_product"]


class VectorVariable(Variable):
    """Independent components, each with its own distribution of one number."""

    def __init__(self, parts: Sequence[Variable], name: str = "vector") -> None:
        require(len(parts) > 0, "Inputs", name, "have one component or more", "none")
        for part in parts:
            single = part.n_germs == 1 and part.shape == ()
            require(single, "Inputs", name, "have components of one number each", type(part).__name__)
        self.parts = tuple(parts)
        self.n_germs = len(parts)
        self.shape = (len(parts),)

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        return np.stack([part.from_uniform(u[k : k + 1]) for k, part in enumerate(self.parts)])

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        return np.stack([part.from_normal(z[k : k + 1]) for k, part in enumerate(self.parts)])

    def components(self) -> tuple[Variable, ...]:
        return self.parts

    def description(self) -> dict[str, Any]:
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
        return triangular_product(self.root, z) + self.mean[:, None]

    def components(self) -> tuple[Variable, ...]:
        return ()

    def description(self) -> dict[str, Any]:
        return {"kind": "multivariate_normal", "digest": array_digest(self.mean, self.covariance)}


def triangular_product(matrix: np.ndarray, z: np.ndarray) -> np.ndarray:
    """``matrix @ z``, summed column by column: the bits of a sample do not depend on how many there are."""
    result = np.zeros((matrix.shape[0], z.shape[1]))
    for i, row in enumerate(matrix):
        for k in np.flatnonzero(row):
            result[i] += row[k] * z[k]
    return result
