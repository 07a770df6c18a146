"""What every implementation of the GBEES step offers: one face for Array API code, compiled loops and CUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

__all__ = ["Engine", "Steps"]


@dataclass(frozen=True)
class Steps:
    """What happened in an `advance`, one entry per step.

    Attributes
    ----------
    lengths : ndarray of float64
    cells : ndarray of int64
        Cells stored in the step.
    masses : ndarray of float64
        Probability after the step, before it is normalised.
    clipped : ndarray of float64
        What of it is there because negative values were set to zero.
    """

    lengths: np.ndarray
    cells: np.ndarray
    masses: np.ndarray
    clipped: np.ndarray

    @property
    def losses(self) -> np.ndarray:
        """Probability that left over the grid's rim in each step."""
        return 1.0 - (self.masses - self.clipped)

    def __repr__(self) -> str:
        if not len(self):
            return "Steps(none)"
        (short, long), (few, many) = ((np.min(a), np.max(a)) for a in (self.lengths, self.cells))
        count = "1 step" if len(self) == 1 else f"{len(self):,} steps"
        return f"Steps({count}, {short:.4g} to {long:.4g} long, {few:,} to {many:,} cells)"

    @classmethod
    def of(cls, taken: Sequence[tuple[float, int, float, float]]) -> Steps:
        """Steps given one by one: length, cells, mass, and what clipping added."""
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
    """One grid under way. Made from a `Problem`, multi-indices (N, n) and their probabilities (N,).

    Steps are counted since the start or the last `reweight`; the count decides when to prune.

    Attributes
    ----------
    count : int
        Steps counted; may be set, to go on where another run stopped.
    taken : Steps
        The steps of the latest `advance` that the grid has gone through, also when the call ended by an exception.
    report_each_step : bool
        Whether `watch` is to be called after every step; to be set. Engines that cannot do so call it when they can.
    velocity_time : float
        When the velocities in use were taken: a drift that varies in time grows the grid by those of the step before.
    """

    count: int
    taken: Steps
    report_each_step: bool
    velocity_time: float

    @property
    def n_cells(self) -> int:
        """Cells stored, active or not."""

    def cells(self) -> tuple[Any, Any]:
        """Multi-indices (N, n), int64, in lexicographic order, and probabilities (N,) of every stored cell."""

    def advance(
        self, time: float, span: float, watch: Callable[[float, int, int], None] | None = None, elapsed: float = 0.0
    ) -> Steps:
        """Steps from `time` on until `span` is over, the last one cut to end exactly there.

        A call that was cut short is continued, to the bit, by one with the same `time` and `span`, and what had
        `elapsed` then.

        `watch` is called now and then with (elapsed span, cells stored, cell-steps of this call); it may raise to
        interrupt: the grid is then a consistent state of an earlier step of this call.
        """

    def reweight(self, log_weights: Any) -> float:
        """Multiplies probabilities, in the order of `cells`, by ``exp(log_weights)``; normalises, prunes, normalises.

        Gives the logarithm of the mass after weighing: the evidence.
        """
