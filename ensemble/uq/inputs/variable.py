"""`Variable`: one input of a model, and how points of the unit cube or of normal space become its values."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ensemble._check import array_of, message, require
from ensemble.scalar import Ensemble

__all__ = ["Constant", "Variable", "array_digest", "inside", "normal_of"]

LOWEST, HIGHEST = 2.0**-54, 1.0 - 2.0**-53
"""Range of points of the unit cube: inverses of 0 and 1 are infinite for many distributions."""


class Variable:
    """One input: a number, a vector or a field, made from `n_germs` independent coordinates.

    Attributes
    ----------
    n_germs : int
        How many columns of the unit cube, or of standard normal space, it takes; a constant takes none.
    shape : tuple of int
        Shape of one sample's value; for a field, of the coefficients.
    """

    n_germs: int = 1
    shape: tuple[int, ...] = ()

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        """Values ``(*shape, n)`` at the points `u` of the open unit cube, ``(n_germs, n)``."""
        raise NotImplementedError

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        """Values ``(*shape, n)`` at the points `z` of standard normal space, ``(n_germs, n)``."""
        from scipy.special import ndtr

        return self.from_uniform(inside(ndtr(z)))

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        """Points ``(n_germs, n)`` of normal space at which `from_normal` gives `values`; NaN where there is none."""
        raise NotImplementedError

    def description(self) -> dict[str, Any]:
        """What the variable is, in numbers and texts that JSON holds."""
        raise NotImplementedError

    def components(self) -> tuple[Variable, ...]:
        """The distribution of each germ, where one germ is one component of the value."""
        return (self,)

    def breaks(self) -> np.ndarray:
        """Where the value jumps or bends, as points of normal space, if it is one number."""
        return np.empty(0)

    def mid_rank(self, z: np.ndarray) -> np.ndarray:
        """The distribution function at the value of the points `z` of normal space, ``(n,)``, if it is one number."""
        from scipy.special import ndtr

        rank: np.ndarray = ndtr(z)
        return rank

    def lift(self, values: np.ndarray) -> Any:
        """What a model gets for many samples."""
        return Ensemble(values)

    def plain(self, value: np.ndarray) -> Any:
        """What a model of plain numbers gets for one sample, of which `value` has shape `shape`."""
        return value.item() if value.ndim == 0 else value


class Constant(Variable):
    """A number or an array that is the same for every sample."""

    n_germs = 0

    def __init__(self, value: Any, name: str = "value") -> None:
        array = array_of(value, "Inputs", name, "hold numbers or bools").copy()
        seen = f"an array of {array.dtype}"
        if array.dtype.kind not in "biufc":
            raise TypeError(message("Inputs", name, "hold numbers or bools", seen))
        require(array.size > 0, "Inputs", name, "hold one number or more", "an empty array")
        finite = array.dtype.kind not in "fc" or bool(np.all(np.isfinite(array)))
        require(finite, "Inputs", name, "be finite", value if array.ndim == 0 else "an array with NaN or infinity")
        self.value = array
        self.shape = array.shape

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        return self.value[..., None]

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        return self.from_uniform(z)

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        return np.empty((0, values.shape[-1]))

    def lift(self, values: np.ndarray) -> Ensemble:
        return Ensemble(values.copy())  # what a model writes into it must not reach other groups

    def components(self) -> tuple[Variable, ...]:
        return ()

    def description(self) -> dict[str, Any]:
        if self.value.ndim == 0 and self.value.dtype.kind in "biuf":
            return {"kind": "constant", "dtype": str(self.value.dtype), "value": self.value.item()}
        return {
            "kind": "constant", "dtype": str(self.value.dtype), "shape": list(self.shape),
            "digest": array_digest(self.value),
        }  # fmt: skip


def inside(u: np.ndarray) -> np.ndarray:
    """`u` moved off the faces of the unit cube by less than rounding."""
    result: np.ndarray = np.clip(u, LOWEST, HIGHEST)
    return result


def normal_of(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """The point of normal space with the probability `below` it and `above` it, exact in both tails."""
    from scipy.special import ndtri

    lower = below <= above
    with np.errstate(all="ignore"):
        z = np.where(lower, ndtri(below), -ndtri(above))
    result: np.ndarray = np.where(np.isfinite(z), z, np.nan)
    return result


def array_digest(*arrays: np.ndarray) -> str:
    """A name for the values of some arrays."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
