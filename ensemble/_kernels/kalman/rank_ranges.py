"""One series over several processes, each of which holds consecutive ranges of its steps on a device.

The ranges depend on the length of the series alone, and so do the chunks of a range. Each range is reduced to one
element. Once a process has the elements of all ranges it computes the states between them, in their order, and runs
the filter and the information filter over its own: the same numbers whatever the number of processes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.kalman import block_launch, kalman_launch, time_ranges
from ensemble._kernels.kalman.kalman_launch import LARGEST, Pass, empty_on

__all__ = ["RankRanges"]

DEVICES = 8
"""Devices among which the ranges are shared out when chunks of time fill each of them once."""


class RankRanges:
    """The ranges of one process; arrays lie on one device.

    Parameters
    ----------
    arrays : tuple of arrays
        F, Q, H, R, u, d, y of this process's steps, each (1, n_steps or 1, ...).
    prior : tuple of arrays
        Mean and covariance before the first range of all; on other processes anything finite.
    groups : list of (int, int, int)
        First step here, number and length of ranges of one length; the first range of all is a group of its own.
    first, n_ranges : int
        The number of this process's first range, and of all ranges.
    longest : int
        Steps of the longest range of all.
    predict_first : bool
        Whether the prior is one transition before the first step of all.
    smooth : bool
    """

    def __init__(
        self, arrays: tuple[Any, ...], prior: tuple[Any, Any], groups: list[tuple[int, int, int]], first: int,
        n_ranges: int, longest: int, predict_first: bool, smooth: bool,
    ) -> None:  # fmt: skip
        y, nx, ny = arrays[-1], prior[0].shape[-1], arrays[-1].shape[-1]
        self.first, self.n_ranges, self.smooth = first, n_ranges, smooth
        shapes = [(nx,), (nx, nx), (), (nx,), (nx, nx)][: 5 if smooth else 3]
        self.states = tuple(empty_on(y, 1, y.shape[1], *shape) for shape in shapes)
        self.before = empty_on(y, n_ranges, nx), empty_on(y, n_ranges, nx, nx)
        for own, given in zip(self.before, prior, strict=True):
            own[:1] = given
        registers = max(nx, ny) <= LARGEST
        self.size = (y.dtype.name, nx, ny) if registers else None
        packed = nx * (nx + 1) // 2 if registers else nx * nx
        self.information = empty_on(y, n_ranges, nx + packed)
        element = kalman_launch.element_sizes(nx)[0] if registers else block_launch.filter_element_size(nx)
        self.rows = empty_on(y, sum(count for _, count, _ in groups), element)
        chunk = chunk_of(nx, ny, y.dtype.itemsize, longest, n_ranges)
        self.groups: list[tuple[int, int, Any]] = []
        at = first
        for start, count, length in groups:
            part = tuple(ranges_of(a, start, count, length, a is y) for a in arrays)
            out = tuple(ranges_of(a, start, count, length, True) for a in self.states)
            given = tuple(a[at : at + count] for a in self.before)
            predict = predict_first or at > 0
            run = time_ranges.time_range_of(nx, ny)(part, given, predict, nx, min(chunk, length), out)
            self.groups.append((at, count, run))
            at += count

    def reduce(self) -> Any:
        """Queue the reduction of all own ranges to their elements, the rows of the result."""
        for at, count, run in self.groups:
            run.filter(Pass.REDUCE if at else Pass.REDUCE_FIRST)
            run.elements(self.rows[at - self.first : at - self.first + count])
        return self.rows

    def complete(self, elements: Any) -> tuple[tuple[Any, ...], list[Any]]:
        """Queue the filter, and the smoother, from the elements of all ranges.

        Means, covariances, ``log p(y[k] | y[:k])`` and smoothed means and covariances of the own steps, each
        (1, n_steps, ...), and the sums of the third of each own range, an array for each group.
        """
        given = elements, np.int32(self.n_ranges), *self.before, self.information
        if self.size is not None:
            time_ranges.launch_between_ranges(self.size, given)
        else:
            nx = self.before[0].shape[-1]
            block_launch.launcher(self.states[0], nx, nx)("states_between_ranges", 2, *given)
        for at, count, run in self.groups:
            run.filter(Pass.REPLAY)
            if self.smooth:
                run.combine_information(self.information[at : at + count])
        return self.states, [run.sum for _, _, run in self.groups]


def chunk_of(nx: int, ny: int, item: int, longest: int, n_ranges: int) -> int:
    """Steps of a chunk, of which the ranges of one among `DEVICES` devices fill it."""
    steps = max(longest, longest * n_ranges // DEVICES)
    if max(nx, ny) <= LARGEST:
        return min(longest, kalman_launch.chunk_length(1, steps) or longest)
    return min(longest, block_launch.chunk_of(nx, ny, item, 1, steps))


def ranges_of(a: Any, start: int, count: int, length: int, varies: bool) -> Any:
    """Steps of an array (1, n_steps or 1, ...) as (count, length, ...); constants as they are."""
    if a.shape[1] == 1 and not varies:
        return a
    return a[0, start : start + count * length].reshape(count, length, *a.shape[2:])
