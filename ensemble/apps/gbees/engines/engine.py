"""The protocol of the implementations of the GBEES step: Array API code, compiled loops, CUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ensemble._typing import Array

__all__ = ["Engine", "Steps"]


@dataclass(frozen=True)
class Steps:
    """The steps of an `advance`, one entry per step.

    Attributes
    ----------
    lengths : ndarray of float64
    cells : ndarray of int64
        Cells stored in the step.
    masses : ndarray of float64
        Probability after the step, before it is normalised.
    clipped : ndarray of float64
        Probability added by setting negative values to zero.
    """

    lengths: np.ndarray
    cells: np.ndarray
    masses: np.ndarray
    clipped: np.ndarray

    @property
    def losses(self) -> np.ndarray:
        """Probability that left the grid in each step."""
        return np.asarray(1.0 - (self.masses - self.clipped))

    def __repr__(self) -> str:
        if not len(self):
            return "Steps(none)"
        (short, long), (few, many) = ((np.min(a), np.max(a)) for a in (self.lengths, self.cells))
        count = "1 step" if len(self) == 1 else f"{len(self):,} steps"
        return f"Steps({count}, {short:.4g} to {long:.4g} long, {few:,} to {many:,} cells)"

    @classmethod
    def of(cls, taken: Sequence[tuple[float, int, float, float]]) -> Steps:
        """Steps given one by one: length, cells, mass, mass added by clipping."""
        kinds = np.float64, np.int64, np.float64, np.float64
        columns = zip(*taken) if taken else ((),) * 4
        return cls(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))

    def then(self, later: Steps) -> Steps:
        """These steps and `later` ones."""
        pairs = zip(vars(self).values(), vars(later).values(), strict=True)
        return Steps(*(np.concatenate(pair) for pair in pairs))

    def __len__(self) -> int:
        return len(self.lengths)


class Engine(Protocol):
    """The grid of one run.

    Steps are counted since the start or the last `reweight`; the count decides when to prune.

    Parameters
    ----------
    problem : Problem
        Drift and bounds are traced by compiled engines; parameters of the drift are arguments of the compiled code.
    indices : array of int64, shape (N, n)
        Each cell once, in any order.
    probabilities : array, shape (N,)
        In the array library of the engine.
    time : float
        Time of the velocities of the first cells, where the drift varies in time.

    Raises
    ------
    GridError
        If the drift is not finite in a cell, or the keys of the cells take more than 63 bits.
    MemoryError
        If the cells exceed the memory.

    Attributes
    ----------
    count : int
        Steps counted; set to continue another run.
    taken : Steps
        The completed steps of the latest `advance`, also when the call ended by an exception.
    report_each_step : bool
        Whether `callback` is called after every step, as far as the engine can; may be set.
    velocity_time : float
        Time of the velocities in use: a drift that varies in time grows the grid by those of the previous step.
    """

    count: int
    taken: Steps
    report_each_step: bool
    velocity_time: float

    @property
    def n_cells(self) -> int:
        """Cells stored, active or not."""

    def cells(self) -> tuple[Array, Array]:
        """Multi-indices (N, n), int64, in lexicographic order, and probabilities (N,) of every stored cell."""

    def advance(
        self, time: float, span: float, callback: Callable[[float, int, int], None] | None = None, elapsed: float = 0.0
    ) -> Steps:
        """Steps from `time` + `elapsed` to `time` + `span`, the last one cut to end exactly there.

        An interrupted call is continued, to the bit, by one with the same `time` and `span` and the `elapsed` reached.

        `callback` is called at intervals with (elapsed span, cells stored, cell-steps of this call). It may raise to
        interrupt; the grid is then that of a complete step of this call.
        """

    def reweight(self, log_weights: Array) -> float:
        """Multiply probabilities, in the order of `cells`, by ``exp(log_weights)``; normalise, prune, normalise.

        Returns the logarithm of the mass before normalising: the evidence.
        """
