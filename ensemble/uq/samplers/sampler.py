"""`Sampler`: which points of the unit cube, or of normal space, a study takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import array_of, integer, require
from ensemble._typing import Ids
from ensemble.uq.samplers.sampled_inputs import SampledInputs

__all__ = ["Sampler", "checked_ids", "spread"]


class Sampler:
    """Points by their number: the point of sample i depends on i, the seed and the number of columns alone.

    Derive from it, or give an object with the same attributes, for points of your own making.

    Attributes
    ----------
    name : str
    space : {"uniform", "normal"}
        Whether `points` gives points of the open unit cube, or of standard normal space.
    n_replicates : int
        Sample i belongs to the independent replicate ``i % n_replicates``.
    extendable : bool
        Whether a study of these points can be continued with more of them.
    is_quadrature : bool
        Whether weighted sums over all points are integrals, without sampling error.
    """

    name: str = ""
    space: str = "uniform"
    n_replicates: int = 1
    extendable: bool = True
    is_quadrature: bool = False

    def for_inputs(self, inputs: SampledInputs, n: int | None) -> Sampler:
        """The sampler with the values that depend on the inputs or on the number of samples."""
        return self

    def points(self, ids: Ids, n_germs: int, seed: int) -> np.ndarray:
        """Points of the samples numbered `ids`, in any order: shape (len(ids), n_germs)."""
        raise NotImplementedError

    def weights(self, ids: Ids) -> np.ndarray | None:
        """What the samples numbered `ids` count in a mean; None where all count the same."""
        return None

    def count(self) -> int | None:
        """How many points there are; None where there is no end."""
        return None

    def description(self) -> dict[str, Any]:
        """What the sampler is, in numbers and texts that JSON holds."""
        return {"name": self.name}

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self.description().items() if key != "name")
        return f"{type(self).__name__}({options})"


def checked_ids(ids: Ids, function: str, count: int | None = None) -> np.ndarray:
    """`ids` as a vector of int64, each from 0, and below `count` where there is an end."""
    numbers = array_of(ids, function, "ids", "be a vector of integers")
    good = numbers.ndim == 1 and (numbers.dtype.kind in "iu" or numbers.size == 0)
    require(good, function, "ids", "be a vector of integers", f"{numbers.dtype} of shape {numbers.shape}")
    if numbers.size:
        low, high = int(numbers.min()), int(numbers.max())
        wanted = "be zero or above" if count is None else f"be from 0 to {count - 1}"
        require(low >= 0 and (count is None or high < count), function, "ids", wanted, f"{low} to {high}")
    return numbers.astype(np.int64)


def checked_seed(seed: Any, function: str) -> int:
    """`seed` as an integer from 0."""
    return integer(seed, function, "seed", minimum=0)


def spread(ids: np.ndarray, draw: Any, n_columns: int) -> np.ndarray:
    """Rows for `ids` in any order, from ``draw(first, count)`` that gives rows of consecutive numbers."""
    result = np.empty((ids.size, n_columns))
    if ids.size == 0 or n_columns == 0:
        return result
    if np.all(np.diff(ids) == 1):
        rows: np.ndarray = draw(int(ids[0]), ids.size)
        return rows
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 2) > 1)
    for first, last in zip(starts, [*starts[1:], ids.size], strict=True):
        low, high = int(ordered[first]), int(ordered[last - 1])
        result[order[first:last]] = draw(low, high - low + 1)[ordered[first:last] - low]
    return result
