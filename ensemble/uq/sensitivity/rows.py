"""Samplers of rows: the consecutive samples from which one term of a sensitivity index is made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ensemble._check import message, require
from ensemble.uq.samplers.choice import settled_sampler
from ensemble.uq.samplers.sampler import Sampler

__all__ = ["PermutedRows", "PickFreezeRows", "Rows", "rows_of_batches"]

RANDOM_REPLICATES = 8
"""Rows of independent points are dealt into so many replicates, whose spread gives intervals."""


class Rows(Sampler):
    """Sample ``k * n_parts + j`` is part j of row k, which is made of point k of another sampler.

    Row k belongs to replicate ``k % n_replicates``; a longer study has the rows of a shorter one, and further ones.
    """

    n_parts: int
    n_columns: int

    def __init__(self, sampler: Any, n_rows: int, n_columns: int, function: str) -> None:
        stand_in = SimpleNamespace(n_germs=n_columns, names=(), germs={}, variables={})
        if not isinstance(sampler, str) and not getattr(sampler, "extendable", True):
            advice = "Take 'sobol', 'halton' or 'monte_carlo'."
            raise ValueError(message(function, "sampler", "give points without end", repr(sampler), advice))
        self.sampler = settled_sampler(sampler, stand_in, n_rows, function)[0]  # type: ignore[arg-type]
        self.n_columns = n_columns
        random = self.sampler.name == "monte_carlo"
        self.n_replicates = RANDOM_REPLICATES if random else self.sampler.n_replicates

    def row_points(self, rows: np.ndarray, seed: int) -> np.ndarray:
        """The points of the other sampler for some rows."""
        points: np.ndarray = self.sampler.points(rows, self.n_columns, seed)
        return points

    def points(self, ids: Any, n_germs: int, seed: int) -> np.ndarray:
        """Points of the samples numbered `ids`: shape (len(ids), n_germs)."""
        rows, parts = np.divmod(np.asarray(ids, dtype=np.int64), self.n_parts)
        unique, place = np.unique(rows, return_inverse=True)
        return self._parts(self.row_points(unique, seed), place, parts)

    def _parts(self, points: np.ndarray, place: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Part ``parts[k]`` of the row with point ``points[place[k]]``, for every k."""
        raise NotImplementedError

    def description(self) -> dict[str, Any]:
        """The name, and what the sampler of the rows is."""
        return {"name": self.name, "rows": self.sampler.description(), "parts": self.n_parts}


class PickFreezeRows(Rows):
    """Rows ``A, B, AB_1, ..., AB_D``: two points of the cube, and A with the columns of input i taken from B."""

    name = "pick_freeze"

    def __init__(self, sampler: Any, n_rows: int, germs: list[slice], n_germs: int, function: str) -> None:
        self.germs = germs
        self.n_germs = n_germs
        self.n_parts = len(germs) + 2
        super().__init__(sampler, n_rows, 2 * n_germs, function)
        self.space = self.sampler.space

    def _parts(self, points: np.ndarray, place: np.ndarray, parts: np.ndarray) -> np.ndarray:
        n = self.n_germs
        result: np.ndarray = points[place, :n]
        swapped = np.zeros((self.n_parts, n), dtype=bool)
        swapped[1] = True
        for i, columns in enumerate(self.germs):
            swapped[2 + i, columns] = True
        return np.where(swapped[parts], points[place, n:], result)


class PermutedRows(Rows):
    """Rows of Shapley effects: from one point to another, input after input in the order of a random permutation.

    In part j the first j inputs of the permutation have their values of the last part; the others are drawn again, given
    those. With ``z = L w`` for the germs in the order of the permutation, L the Cholesky factor of their correlation and
    w independent, that is w with its first entries of one point and the further ones of another.
    """

    name = "permuted"
    space = "normal"

    def __init__(
        self, sampler: Any, n_rows: int, germs: list[slice], correlation: np.ndarray | None, n_germs: int, function: str
    ) -> None:
        self.germs = germs
        self.n_germs = n_germs
        self.correlation = correlation
        self.n_parts = len(germs) + 1
        super().__init__(sampler, n_rows, 2 * n_germs + len(germs), function)
        require(self.sampler.space == "uniform", function, "sampler", "give points of the unit cube", repr(sampler))

    def orders(self, points: np.ndarray) -> np.ndarray:
        """The permutation of the inputs in each row: the order of the last columns of its point."""
        return np.argsort(points[:, 2 * self.n_germs :], axis=1, kind="stable")

    def order_of_rows(self, n_rows: int, seed: int) -> np.ndarray:
        """The permutations of the first rows, ``(n_rows, n_inputs)``."""
        return self.orders(self.row_points(np.arange(n_rows), seed))

    def _parts(self, points: np.ndarray, place: np.ndarray, parts: np.ndarray) -> np.ndarray:
        from scipy.special import ndtri

        from ensemble.uq.inputs.variable import inside

        n = self.n_germs
        last, first = ndtri(inside(points[:, :n])), ndtri(inside(points[:, n : 2 * n]))
        orders = self.orders(points)
        result = np.empty((len(place), n))
        for order in np.unique(orders, axis=0):
            germs = np.concatenate([np.arange(n)[self.germs[i]] for i in order])
            steps = np.repeat(np.arange(len(order)), [np.arange(n)[self.germs[i]].size for i in order])
            chosen = np.flatnonzero(np.all(orders[place] == order, axis=1))
            at = place[chosen]
            w = np.where(steps < parts[chosen, None], last[at][:, germs], first[at][:, germs])
            result[np.ix_(chosen, germs)] = self._dependent(w, germs)
        return self._independent(result)

    def _dependent(self, w: np.ndarray, germs: np.ndarray) -> np.ndarray:
        """Germs in the order `germs` with their correlation, from independent ones."""
        if self.correlation is None:
            return w
        from ensemble.uq.inputs.vector import triangular_product

        root = np.linalg.cholesky(self.correlation[np.ix_(germs, germs)])
        return triangular_product(root, np.ascontiguousarray(w.T)).T

    def _independent(self, z: np.ndarray) -> np.ndarray:
        """The independent germs from which `Inputs` makes the correlated ones `z`."""
        if self.correlation is None:
            return z
        root = np.linalg.cholesky(self.correlation)
        result = np.empty_like(z)
        for i in range(self.n_germs):
            rest = z[:, i].copy()
            for k in np.flatnonzero(root[i, :i]):
                rest -= root[i, k] * result[:, k]
            result[:, i] = rest / root[i, i]
        return result

    def description(self) -> dict[str, Any]:
        """The name, the sampler of the rows, and the order of the inputs."""
        return super().description() | {"inputs": [[part.start, part.stop] for part in self.germs]}


def rows_of_batches(n_rows: int, n_parts: int, ensemble_size: Any) -> Any:
    """`ensemble_size` as a whole number of rows where it is a number: groups then end with rows."""
    if isinstance(ensemble_size, str):
        return ensemble_size
    return max(1, round(ensemble_size / n_parts)) * n_parts
