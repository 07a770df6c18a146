"""Samplers of rows: the consecutive samples from which one term of a sensitivity index is made."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import ndtri

from ensemble._check import message, require
from ensemble._typing import Ids
from ensemble.uq.inputs.variable import inside
from ensemble.uq.inputs.vector import rows_product
from ensemble.uq.samplers.choice import resolved_sampler
from ensemble.uq.samplers.sampler import Sampler

__all__ = ["MorrisRows", "PermutedRows", "PickFreezeRows", "Rows"]

RANDOM_REPLICATES = 8
"""Rows of independent points are dealt into so many replicates, whose spread gives intervals."""


class Rows(Sampler):
    """Sample ``k * n_parts + j`` is part j of row k, which is made of point k of another sampler.

    Row k belongs to replicate ``k % n_replicates``; a longer study has the rows of a shorter one, and further ones.
    """

    n_parts: int = 1

    def __init__(self, sampler: Any, n_columns: int, function: str) -> None:
        self.sampler = sampler
        self.n_columns = n_columns
        self.function = function

    def for_inputs(self, inputs: Any, n: int | None) -> Rows:
        """These rows, with the sampler of their points for `n` samples."""
        if not isinstance(self.sampler, str) and not getattr(self.sampler, "extendable", True):
            advice = "Take 'sobol', 'halton' or 'monte_carlo'."
            raise ValueError(message(self.function, "sampler", "give points without end", repr(self.sampler), advice))
        stand_in: Any = SimpleNamespace(n_germs=self.n_columns)
        resolved = copy.copy(self)
        n_rows = None if n is None else n // self.n_parts
        resolved.sampler = resolved_sampler(self.sampler, stand_in, n_rows, self.function)[0]
        wanted = "give points of the unit cube"
        require(resolved.sampler.space == "uniform", self.function, "sampler", wanted, repr(self.sampler))
        random = resolved.sampler.name == "monte_carlo"
        resolved.n_replicates = RANDOM_REPLICATES if random else resolved.sampler.n_replicates
        return resolved

    def row_points(self, rows: np.ndarray, seed: int) -> np.ndarray:
        """The points of the other sampler for some rows."""
        points: np.ndarray = self.sampler.points(rows, self.n_columns, seed)
        return points

    def points(self, ids: Ids, n_germs: int, seed: int) -> np.ndarray:
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
    """Rows ``A, B, AB_1, ..., AB_D``: two points of the cube, and A with the columns of input i taken from B.

    With `pairs`, ``BA_1, ..., BA_D`` follow: B with the columns of input i taken from A.
    """

    name = "pick_freeze"

    def __init__(self, sampler: Any, germs: list[slice], n_germs: int, function: str, pairs: bool = False) -> None:
        super().__init__(sampler, 2 * n_germs, function)
        self.germs = germs
        self.n_germs = n_germs
        self.n_parts = (1 + pairs) * len(germs) + 2

    def _parts(self, points: np.ndarray, place: np.ndarray, parts: np.ndarray) -> np.ndarray:
        n = self.n_germs
        result: np.ndarray = points[place, :n]
        swapped = np.zeros((self.n_parts, n), dtype=bool)
        swapped[1] = True
        for i, columns in enumerate(self.germs):
            swapped[2 + i, columns] = True
        swapped[2 + len(self.germs) :] = ~swapped[2 : self.n_parts - len(self.germs)]
        return np.where(swapped[parts], points[place, n:], result)


class PermutedRows(Rows):
    """Rows of Shapley effects: from one point to another, input after input in the order of a random permutation.

    In part j the first j inputs of the permutation have their values of the last part; the others are drawn again,
    given those. With ``z = L w`` for the germs in the order of the permutation, L the Cholesky factor of their
    correlation and w independent, that is w with its first entries of one point and the further ones of another.
    """

    name = "permuted"
    space = "normal"

    def __init__(self, sampler: Any, germs: list[slice], copula: Any, n_germs: int, function: str) -> None:
        super().__init__(sampler, 2 * n_germs + len(germs), function)
        self.germs = germs
        self.n_germs = n_germs
        self.copula = copula
        self.n_parts = len(germs) + 1

    def orders(self, points: np.ndarray) -> np.ndarray:
        """The permutation of the inputs in each row: the order of the last columns of its point."""
        return np.argsort(points[:, 2 * self.n_germs :], axis=1, kind="stable")

    def _parts(self, points: np.ndarray, place: np.ndarray, parts: np.ndarray) -> np.ndarray:
        n = self.n_germs
        last, first = ndtri(inside(points[:, :n])), ndtri(inside(points[:, n : 2 * n]))
        orders, kind = np.unique(self.orders(points), axis=0, return_inverse=True)
        kind = kind.reshape(-1)[place]
        columns = [np.arange(n)[part] for part in self.germs]
        result = np.zeros((len(place), n))
        for k, order in enumerate(orders):
            chosen = np.flatnonzero(kind == k)
            germs = np.concatenate([columns[i] for i in order])
            steps = np.repeat(np.arange(len(order)), [columns[i].size for i in order])
            at = place[chosen]
            w = np.where(steps < parts[chosen, None], last[at][:, germs], first[at][:, germs])
            self._correlate(w, germs)
            result[np.ix_(chosen, germs)] = w
        self._make_independent(result)
        return result

    def _correlate(self, w: np.ndarray, germs: np.ndarray) -> None:
        """Give the germs in the order `germs` their correlation, from independent ones."""
        places = np.flatnonzero(np.isin(germs, self.copula.columns))
        if places.size:
            order = np.searchsorted(self.copula.columns, germs[places])
            root = np.linalg.cholesky(self.copula.matrix[np.ix_(order, order)])
            w[:, places] = rows_product(root, np.ascontiguousarray(w[:, places].T)).T

    def _make_independent(self, z: np.ndarray) -> None:
        """Replace correlated germs by the independent ones from which `Inputs` makes them."""
        columns, root = self.copula.columns, self.copula.root
        for i, column in enumerate(columns):
            for k in range(i):
                z[:, column] -= root[i, k] * z[:, columns[k]]
            z[:, column] /= root[i, i]

    def description(self) -> dict[str, Any]:
        """The name, the sampler of the rows, and the order of the inputs."""
        return super().description() | {"inputs": [[part.start, part.stop] for part in self.germs]}


class MorrisRows(Rows):
    """Rows of elementary effects: a path through the unit cube, along which one input after the other is moved.

    The path starts at a level ``(k + 1/2) / n_levels`` of each germ. Every germ moves by half the cube, up or down,
    whichever stays inside: all levels are equally frequent at both ends. Part j is the point after j inputs, in the
    order of a random permutation.
    """

    name = "morris"

    def __init__(self, sampler: Any, germs: list[slice], n_germs: int, n_levels: int, function: str) -> None:
        super().__init__(sampler, n_germs + len(germs), function)
        self.germs = germs
        self.n_germs = n_germs
        self.n_levels = n_levels
        self.n_parts = len(germs) + 1

    def orders(self, points: np.ndarray) -> np.ndarray:
        """The permutation of the inputs in each row: the order of the last columns of its point."""
        return np.argsort(points[:, self.n_germs :], axis=1, kind="stable")

    def signs(self, points: np.ndarray) -> np.ndarray:
        """The direction in which each input moves: that of its first germ, 1 up and -1 down."""
        return np.where(points[:, [part.start for part in self.germs]] < 0.5, 1.0, -1.0)

    def _parts(self, points: np.ndarray, place: np.ndarray, parts: np.ndarray) -> np.ndarray:
        start = (np.floor(points[:, : self.n_germs] * self.n_levels) + 0.5) / self.n_levels
        end = np.where(start < 0.5, start + 0.5, start - 0.5)
        step = np.argsort(self.orders(points), axis=1)  # the part before which an input moves
        widths = [part.stop - part.start for part in self.germs]
        moved = np.zeros((len(place), self.n_germs), dtype=bool)
        columns = np.concatenate([np.arange(self.n_germs)[part] for part in self.germs])
        moved[:, columns] = np.repeat(step[place] < parts[:, None], widths, axis=1)
        result: np.ndarray = np.where(moved, end[place], start[place])
        return result

    def description(self) -> dict[str, Any]:
        """The name, the sampler of the rows, the levels and the inputs."""
        inputs = [[part.start, part.stop] for part in self.germs]
        return super().description() | {"levels": self.n_levels, "inputs": inputs}
