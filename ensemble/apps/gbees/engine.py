"""What every implementation of the GBEES step offers: one face for Array API code, compiled loops and CUDA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

__all__ = ["Engine", "Steps"]


@dataclass(frozen=True)
class Steps:
    """What happened in an `advance`, one entry a step: its length, the cells in it, the mass before normalising."""

    lengths: np.ndarray
    cells: np.ndarray
    masses: np.ndarray


class Engine(Protocol):
    """One grid under way. Made from a `Problem`, multi-indices (N, n) and their probabilities (N,).

    Steps are counted since the start or the last `weigh`; the count decides when to prune.

    Attributes
    ----------
    count : int
        Steps counted; may be set, to go on where another run stopped.
    """

    count: int

    @property
    def n_cells(self) -> int:
        """Cells stored, active or not."""

    def cells(self) -> tuple[Any, Any]:
        """Multi-indices (N, n), int64, in lexicographic order, and probabilities (N,) of every stored cell."""

    def advance(self, time: float, span: float, watch: Callable[[float, int, int], None] | None = None) -> Steps:
        """Steps from `time` on until `span` is over, the last one cut to end exactly there.

        `watch` is called now and then with (elapsed span, cells stored, cell-steps of this call); it may raise to
        interrupt: the grid is then a consistent state of an earlier step of this call.
        """

    def weigh(self, log_weights: Any) -> float:
        """Multiplies probabilities, in the order of `cells`, by ``exp(log_weights)``; normalises, prunes, normalises.

        Gives the logarithm of the mass after weighing: the evidence.
        """
