"""Starting guesses from samples of a study that are already solved."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, is_array, to_numpy
from ensemble._check import array_of, integer, one_of, real_array, require, require_type
from ensemble._compile.kept_memory import empty_like
from ensemble._interrupts import held, take
from ensemble._kernels.krylov.basis import basis_add
from ensemble._kernels.krylov.vectors import put_samples, take_samples
from ensemble._kernels.sparse.row_sums import SERIAL, Space
from ensemble._keywords import explains_construction
from ensemble.linalg.operators import numbers_of, samples_of, wrap_like
from ensemble.scalar import Ensemble

LARGEST_WEIGHTS = 4.0
"""Sum of magnitudes above which weights of neighbours extrapolate too far to be trusted."""


@explains_construction("WarmStart")
class WarmStart:
    """Guess the solution of new samples from those of solved neighbours in input space.

    ``add`` stores solutions, ``guess`` returns an ``x0``. A guess depends on the store and on its own sample's inputs
    alone; what it saves depends on how smoothly the solution follows the inputs and how near the neighbours are.

    Parameters
    ----------
    order : {"linear", "nearest"}
        "nearest": the solution of the nearest solved sample. "linear": the weighted mean of up to ``2 (n_inputs + 1)``
        near ones that reproduces every solution linear in the inputs, near ones weighing more; where too few are
        there, or the weights would extrapolate far, the nearest.
    capacity : int, at least 1
        Solutions kept, n values each; when it is full, the oldest is overwritten.
    scale : array, shape (n_inputs,), optional
        Lengths that make the inputs comparable. Default: the standard deviation of each input over the store.
    space : Space, optional
        ``A.space`` of a matrix over ranks, whose solutions these are: all ranks decide alike then. Each stores its
        rows.

    Raises
    ------
    ValueError
        If points and solutions do not fit each other or the store.

    Examples
    --------
    >>> import numpy as np
    >>> start = WarmStart()
    >>> start.add(Ensemble(np.array([[0.0, 1.0, 2.0]])), Ensemble(np.array([[0.0, 1.0, 2.0], [5.0, 7.0, 9.0]])))
    >>> start.guess(np.array([1.5])).round(12)
    array([1.5, 8. ])
    """

    def __init__(self, order: str = "linear", *, capacity: int = 128, scale: Any = None, space: Space = SERIAL) -> None:
        require_type(space, Space, "WarmStart", "space", "be the space of an operator", "Give A.space.")
        self.space = space
        self.order = one_of(order, ("linear", "nearest"), "WarmStart", "order")
        self.capacity = integer(capacity, "WarmStart", "capacity", minimum=1)
        self.scale = None if scale is None else real_array(scale, "WarmStart", "scale", "be real numbers")
        self.points = np.zeros((0, 0))  # (n_inputs, n_stored)
        self._solutions: Any = None
        self._added = 0

    def __repr__(self) -> str:
        return f"WarmStart({self.order!r}, {len(self)} of {self.capacity} solutions)"

    def __len__(self) -> int:
        return self.points.shape[1]

    def __bool__(self) -> bool:
        return True  # an empty store is a store

    def add(self, points: Any, x: Any, converged: Any = None) -> None:
        """Store solved samples.

        Parameters
        ----------
        points : Ensemble or array, shape (n_inputs,)
        x : Ensemble or array, shape (n,)
        converged : array of bool, shape (n_samples,), optional
            Which to keep (`SolveResult.converged`). Samples that are not finite are never kept.

        Notes
        -----
        A call that raises, also KeyboardInterrupt, adds nothing.
        """
        new = self._checked_points(points, "add")
        solutions = samples_of(x if isinstance(x, Ensemble) else numbers_of(x, "WarmStart.add", "x"))
        require(solutions.ndim == 2, "WarmStart.add", "x", "be a vector", f"shape {tuple(solutions.shape[:-1])}")
        count = solutions.shape[1]
        require(new.shape[1] == count, "WarmStart.add", "points", f"have the {count} samples of x", new.shape[1])
        xp = array_namespace(solutions)
        if not xp.isdtype(solutions.dtype, ("real floating", "complex floating")):
            solutions = xp.astype(solutions, xp.float64)
        kept = self._solutions
        if kept is None:
            kept = empty_like(solutions, (solutions.shape[0], self.capacity))
        length = kept.shape[0]
        require(solutions.shape[0] == length, "WarmStart.add", "x", f"have length {length}", solutions.shape[0])
        if converged is not None:
            converged = np.asarray(converged)
            converged = np.full(count, converged) if converged.ndim == 0 else converged
            shape = f"have shape ({count},)"
            require(converged.shape == (count,), "WarmStart.add", "converged", shape, f"shape {converged.shape}")
        pair = kept, solutions
        both = np.result_type(*(str(array.dtype).rpartition(".")[2] for array in pair)).name
        with np.errstate(invalid="ignore"):  # what is not written yet holds any bits
            kept, solutions = (_as(array, both) for array in pair)
        finite = to_numpy(xp.all(xp.isfinite(solutions), axis=0))
        valid = np.isfinite(new).all(axis=0) & ~self.space.any(~finite)
        chosen = np.flatnonzero(valid if converged is None else valid & converged)[-self.capacity :]
        self._put(new[:, chosen], take_samples(solutions, asarray_like(chosen, solutions), None), kept)

    def _put(self, new: np.ndarray, x: Any, kept: Any) -> None:
        """Write solutions into `kept`, which becomes the store: all of it, or nothing where an exception comes."""
        before, added = (self.points, self._solutions, self._added), self._added + new.shape[1]
        places = (self._added + np.arange(new.shape[1])) % self.capacity
        missing = max(0, min(self.capacity, added) - len(self))
        fill = np.full((new.shape[0], missing), np.nan)
        points = np.concatenate([self.points.reshape(new.shape[0], -1), fill], axis=1)
        points[:, places] = new
        at = asarray_like(places, x)
        overwritten = take_samples(kept, at, None) if new.shape[1] > missing else None
        try:
            with held():
                put_samples(x, at, kept)
                take()
                self.points, self._solutions, self._added = points, kept, added
        except BaseException:
            with held():
                if overwritten is not None:
                    put_samples(overwritten, at, kept)
                self.points, self._solutions, self._added = before
            raise

    def guess(self, points: Any) -> Any:
        """Starting guesses at `points` (n_inputs,): an Ensemble or array of shape (n,), None while nothing is stored.

        A sample whose inputs are not finite is guessed to be zero.
        """
        new = self._checked_points(points, "guess")
        if len(self) == 0:
            return None
        neighbours, weights = self.space.agreed(self._weights(new))
        x = empty_like(self._solutions, (self._solutions.shape[0], new.shape[1]))
        x[...] = 0.0
        for rank in range(neighbours.shape[0]):  # in order of distance, so that no other sample decides on rounding
            taken = take_samples(self._solutions, asarray_like(neighbours[rank], x), None)
            weight = asarray_like(weights[rank : rank + 1].astype(x.dtype), x)
            basis_add(weight, taken[None, :, :], x)
        return wrap_like(points, x, True)

    def _checked_points(self, points: Any, function: str) -> np.ndarray:
        """Inputs as float64 on the host, shape (n_inputs, n_samples)."""
        if isinstance(points, Ensemble):
            samples = to_numpy(points.samples)
        else:
            own = to_numpy(points) if is_array(points) else points
            samples = array_of(own, f"WarmStart.{function}", "points", "be a vector of inputs")[..., None]
        shape = tuple(samples.shape[:-1])
        require(samples.ndim == 2, f"WarmStart.{function}", "points", "be a vector of inputs", f"shape {shape}")
        inputs = self.points.shape[0] if len(self) else shape[0]
        require(shape == (inputs,), f"WarmStart.{function}", "points", f"have shape ({inputs},)", f"shape {shape}")
        return real_array(samples, f"WarmStart.{function}", "points", "be real numbers")

    def _weights(self, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Stored neighbours of every new sample, nearest first, and their weights: shape (n_neighbours, n_samples)."""
        n_inputs, n_samples = new.shape
        spread = self.points.std(axis=1) if self.scale is None else self.scale
        spread = np.where(spread > 0.0, spread, 1.0)[:, None]
        stored, new = self.points / spread, new / spread
        count = 1 if self.order == "nearest" else min(2 * (n_inputs + 1), len(self))
        neighbours, weights = np.zeros((count, n_samples), np.int64), np.zeros((count, n_samples))
        for s in np.flatnonzero(np.isfinite(new).all(axis=0)):  # one by one: each as it would be alone
            difference = stored - new[:, s : s + 1]
            distance = np.sqrt(np.sum(difference**2, axis=0))
            near = np.argsort(distance, kind="stable")[:count]
            neighbours[:, s] = near
            weights[:, s] = linear_weights(difference[:, near], distance[near]) if count > n_inputs else _first(count)
        return neighbours, weights


def linear_weights(difference: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Weights w, sum 1, with ``difference @ w = 0``: of those the smallest in the norm that distances weigh."""
    if distance[0] == 0.0:
        return _first(distance.size)
    closeness = distance[0] / distance
    conditions = np.concatenate([np.ones((1, distance.size)), difference / distance[0]]) * closeness
    wanted = np.zeros(conditions.shape[0])
    wanted[0] = 1.0
    weights = closeness * np.linalg.lstsq(conditions, wanted, rcond=1e-10)[0]
    valid = abs(weights.sum() - 1.0) < 1e-6 and np.abs(weights).sum() <= LARGEST_WEIGHTS
    return weights if valid else _first(distance.size)


def _first(count: int) -> np.ndarray:
    weights = np.zeros(count)
    weights[0] = 1.0
    return weights


def _as(array: Any, dtype: str) -> Any:
    """`array` in a data type of its own library."""
    xp = array_namespace(array)
    return xp.astype(array, getattr(xp, dtype), copy=False)
