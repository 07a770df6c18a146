"""How one series is cut into ranges of time, and which ranks have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._check import integer, require
from ensemble._typing import Communicator

__all__ = ["N_RANGES", "TimeCuts", "time_cuts", "time_range"]

N_RANGES = 64
"""Ranges of time unless the caller has another number: ranks of any power of two up to it have equally many."""

UNIT = 4
"""Ranges of long series begin at multiples of so many steps, which devices read at once."""


@dataclass(frozen=True)
class TimeCuts:
    """Ranges of time of one series, the same for any number of ranks.

    Range k has the steps from ``steps[k]`` to ``steps[k + 1]``, rank r the ranges from ``ranks[r]`` to
    ``ranks[r + 1]``.
    """

    steps: np.ndarray
    ranks: np.ndarray

    @property
    def n_ranges(self) -> int:
        """The number of ranges."""
        return self.steps.size - 1

    @property
    def longest(self) -> int:
        """The steps of the longest range."""
        return int(np.diff(self.steps).max())

    def of_rank(self, rank: int) -> slice:
        """The steps of a rank."""
        return slice(*(int(self.steps[k]) for k in self.ranks[rank : rank + 2]))

    def groups(self, rank: int) -> list[tuple[int, int, int]]:
        """First step, counted from the rank's, number and length of its ranges of one length.

        The first range of all is a group of its own.
        """
        first, last = (int(k) for k in self.ranks[rank : rank + 2])
        lengths, found = np.diff(self.steps), list[Any]()
        for k in range(first, last):
            if found and k > 1 and found[-1][2] == lengths[k]:
                start, count, length = found[-1]
                found[-1] = start, count + 1, length
            else:
                found.append((int(self.steps[k] - self.steps[first]), 1, int(lengths[k])))
        return found


def time_cuts(n_steps: int, size: int, n_ranges: int, function: str) -> TimeCuts:
    """The ranges of a series of `n_steps`, and those of `size` ranks."""
    n = min(n_ranges, n_steps)
    advice = f"Pass n_ranges={size} or more, the same on all ranks." if n == n_ranges else "Use fewer ranks."
    require(size <= n, function, "comm", f"have no more ranks than there are ranges of time, {n}", f"{size}", advice)
    unit = UNIT if n_steps >= 4 * UNIT * n else 1
    whole, rest = divmod(n_steps // unit, n)
    lengths = unit * (whole + (np.arange(n) < rest))
    lengths[-1] += n_steps % unit
    return TimeCuts(np.concatenate([[0], np.cumsum(lengths)]), n * np.arange(size + 1) // size)


def time_range(n_steps: int, comm: Communicator, *, n_ranges: int = N_RANGES) -> slice:
    """Return which steps of a series a rank has in ``kalman_filter(..., comm=comm)`` and the smoothers.

    A series is cut into ranges of time whose number and lengths depend on its length alone, and each rank has
    consecutive ranges: so results have the same bits on any number of ranks.

    Parameters
    ----------
    n_steps : int
        The length of the whole series.
    comm : communicator of mpi4py, `distributed.devices` or `distributed.serial()`
    n_ranges : int
        At least the number of ranks. Results depend on it.

    Returns
    -------
    slice

    Raises
    ------
    TypeError, ValueError
        If `n_steps` or `n_ranges` is no positive integer, or there are more ranks than ranges or steps.

    Examples
    --------
    >>> from ensemble import distributed
    >>> time_range(1000, distributed.serial())
    slice(0, 1000, None)
    """
    from ensemble.distributed.agreement import require_communicator

    require_communicator(comm, "time_range")
    n_steps = integer(n_steps, "time_range", "n_steps", minimum=1)
    n_ranges = integer(n_ranges, "time_range", "n_ranges", minimum=1)
    return time_cuts(n_steps, comm.size, n_ranges, "time_range").of_rank(comm.rank)
