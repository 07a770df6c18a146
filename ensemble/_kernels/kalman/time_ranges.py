"""One series over several devices, each of which holds a range of its steps.

Every device reduces its range to one element. The states between ranges follow from these elements, from the first
range to the last, and the information of later observations from the last to the first; then every device runs its
filter and its information filter over its range. Only a state and its information are copied between devices: 34
numbers for four states.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ensemble._compile.streams import copy_between_devices, on_device_of
from ensemble._kernels.kalman import block_launch
from ensemble._kernels.kalman.kalman_launch import (
    LARGEST,
    NULL,
    THREADS,
    ModelArguments,
    Pass,
    chunk_length,
    element_sizes,
    empty_float64_on,
    empty_on,
    function,
    shared_bytes,
    zero_flags_on,
)

__all__ = ["filter_ranges", "launch_between_ranges", "time_range_of", "two_filter_ranges"]


class _ThreadTimeRange:
    """The launches of one range, on its device; `prior` is None where an earlier range sends it.

    Several ranges of equally many steps are the series of `arrays`. `states` are arrays for the results; with
    three of them there is no smoother.
    """

    def __init__(
        self, arrays: tuple[Any, ...], prior: Any, predict_first: bool, nx: int, chunk: int | None, states: Any = None
    ) -> None:
        *parts, y = arrays
        self.y, self.size, (n, n_steps, _) = y, (y.dtype.name, nx, y.shape[-1]), y.shape
        self.n_ranges = n
        self.prior = (empty_on(y, n, nx), empty_on(y, n, nx, nx)) if prior is None else prior
        chunk = chunk or chunk_length(1, n_steps) or n_steps
        self.model = ModelArguments(tuple(parts), y, self.prior, predict_first, chunk, n_steps)
        self.n_blocks, element = self.model.n_blocks, element_sizes(nx)[0]
        blocks = n * self.n_blocks
        self.totals, self.flags = empty_on(y, blocks, element), zero_flags_on(y, blocks + n)
        self.partials, self.sum = empty_float64_on(y, blocks), empty_float64_on(y, n)
        self.chunk_elements, self.chunk_prefixes = (empty_on(y, n, element, self.n_blocks * THREADS) for _ in range(2))
        self.information, self.end = (
            empty_on(y, nx + nx * (nx + 1) // 2),
            (empty_on(y, 1, nx), empty_on(y, 1, nx, nx)),
        )
        shapes = (nx,), (nx, nx), (), (nx,), (nx, nx)
        self.states = states or tuple(empty_on(y, n, n_steps, *shape) for shape in shapes)

    def launch(self, name: str, *arguments: Any, grid: tuple[int, ...] | None = None, alone: bool = False) -> None:
        """Queue a kernel over all blocks of all ranges, or over those of `grid`, without shared memory if `alone`."""
        shared = 0 if alone else shared_bytes(*self.size, name)
        grid = grid or (1 if alone else self.n_ranges * self.n_blocks, 1)
        function(*self.size, name)(grid, (THREADS,), arguments, shared_mem=shared)

    def filter(self, which: Pass) -> None:
        """Reduce the range to one element, or run the filter from the state before it, see `Pass`."""
        given = (
            self.flags,
            self.totals,
            self.chunk_elements,
            self.chunk_prefixes,
            np.int32(which),
            *self.states[:3],
            self.partials,
            self.sum,
        )
        self.launch("filter_chunks", *self.model.arguments, *given)

    def send_state(self, later: _ThreadTimeRange) -> None:
        """Send the state after this range to the next one."""
        given = (self.totals, np.int32(self.n_blocks), *self.prior, *self.end)
        self.launch("state_after_range", *given, alone=True)
        for end, start in zip(self.end, later.prior, strict=True):
            copy_between_devices(end, start)

    def send_information(self, later: Any, earlier: _ThreadTimeRange) -> None:
        """Send the information of this range and all later ones on the state before it to the range before."""
        out = empty_on(self.y, self.information.shape[0])
        self.launch("information_before_range", self.totals, np.int32(self.n_blocks), later, out, alone=True)
        copy_between_devices(out, earlier.information)

    def elements(self, out: Any) -> None:
        """Write the element of each range into a row of `out`."""
        given = self.totals, np.int32(self.n_blocks), out
        self.launch("range_elements", *given, grid=(self.n_ranges, 1), alone=True)

    def combine_information(self, later: Any) -> None:
        """Smoothed states of each range, from its last step to its first."""
        mean, covariance, _, *smooth = self.states
        given = (self.totals, self.chunk_elements, later, mean, covariance, *smooth)
        self.launch("combine_chunks", *self.model.arguments, *given, grid=(self.n_blocks, self.n_ranges))


def time_range_of(nx: int, ny: int) -> Any:
    """The class that launches kernels for a size."""
    return _ThreadTimeRange if max(nx, ny) <= LARGEST else block_launch.BlockTimeRange


def launch_between_ranges(size: tuple[str, int, int], arguments: tuple[Any, ...]) -> None:
    """Queue the kernel of the states between ranges, for a type, nx and ny."""
    function(*size, "states_between_ranges")((2,), (THREADS,), arguments)


def _reduced_ranges(
    ranges: list[tuple[Any, ...]], m0: Any, P0: Any, predict_first: bool, chunk: int | None
) -> list[Any]:
    """All ranges, reduced to their elements, and the states between them."""
    nx = m0.shape[-1]
    of_range = time_range_of(nx, ranges[0][-1].shape[-1])
    time_ranges: list[Any] = []
    for k, arrays in enumerate(ranges):
        with on_device_of(arrays[-1]):
            prior = (m0, P0) if k == 0 else None
            time_ranges.append(of_range(arrays, prior, predict_first or k > 0, nx, chunk))
            time_ranges[-1].filter(Pass.REDUCE if k else Pass.REDUCE_FIRST)
    for time_range, later in itertools.pairwise(time_ranges):
        with on_device_of(time_range.y):
            time_range.send_state(later)
    return time_ranges


def filter_ranges(
    ranges: list[tuple[Any, ...]], m0: Any, P0: Any, predict_first: bool, chunk: int | None = None
) -> list[tuple[Any, ...]]:
    """Filtered means, covariances, ``log p(y[k] | y[:k])`` and their sum of each range, as `two_filter_ranges`."""
    time_ranges = _reduced_ranges(ranges, m0, P0, predict_first, chunk)
    results = []
    for time_range in time_ranges:
        with on_device_of(time_range.y):
            time_range.filter(Pass.REPLAY)
            results.append((*time_range.states[:3], time_range.sum))
    return results


def two_filter_ranges(
    ranges: list[tuple[Any, ...]], m0: Any, P0: Any, predict_first: bool, chunk: int | None = None
) -> list[tuple[Any, ...]]:
    """Filtered means, covariances, ``log p(y[k] | y[:k])`` and their sum, smoothed means and covariances of each range.

    `ranges` are F, Q, H, R, u, d, y of consecutive intervals of one series, each (1, n_steps or 1, ...) on a device of
    its own; `m0`, `P0` lie with the first.
    """
    time_ranges = _reduced_ranges(ranges, m0, P0, predict_first, chunk)
    later: list[Any] = [time_range.information for time_range in time_ranges[:-1]] + [NULL]
    for k in range(len(time_ranges) - 1, 0, -1):
        with on_device_of(time_ranges[k].y):
            time_ranges[k].send_information(later[k], time_ranges[k - 1])
    results = []
    for time_range, information in zip(time_ranges, later, strict=True):
        with on_device_of(time_range.y):
            time_range.filter(Pass.REPLAY)
            time_range.combine_information(information)
            results.append((*time_range.states[:3], time_range.sum, *time_range.states[3:]))
    return results
