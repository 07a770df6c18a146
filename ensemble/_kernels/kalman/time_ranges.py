"""One series over several devices: each holds a range of its steps, and only what a range says as a whole travels.

Every device sums up its range; the states between ranges follow from these sums, from the first to the last, and what
later ranges say of them from the last to the first; then every device runs its filter, and the filter that runs back,
over its range. A state and its information are all that goes from device to device: 34 numbers for four states.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ensemble._compile.streams import copy_between_devices, on_device_of
from ensemble._kernels.kalman import block_launch
from ensemble._kernels.kalman.launch import (
    LARGEST,
    THREADS,
    Problem,
    chunk_length,
    flags_of,
    function,
    room,
    room_of,
    sizes,
    wide_room,
)

__all__ = ["filter_ranges", "two_filter_ranges"]


class _Range:
    """The launches of one range, on its device; `prior` None where an earlier range gives it."""

    def __init__(self, arrays: tuple[Any, ...], prior: Any, predict_first: bool, nx: int, chunk: int | None) -> None:
        *parts, y = arrays
        self.y, self.size, n_steps = y, (y.dtype.name, nx, y.shape[-1]), y.shape[1]
        self.prior = (room(y, 1, nx), room(y, 1, nx, nx)) if prior is None else prior
        chunk = chunk or chunk_length(1, n_steps) or n_steps
        self.problem = Problem(tuple(parts), y, self.prior, predict_first, chunk, n_steps)
        self.n_blocks, element = self.problem.n_blocks, sizes(nx)[0]
        self.totals, self.flags = room(y, self.n_blocks, element), flags_of(y, self.n_blocks + 1)
        self.partials, self.sum = wide_room(y, self.n_blocks), wide_room(y, 1)
        self.own, self.local = (room(y, element, self.n_blocks * THREADS) for _ in range(2))
        self.said, self.end = room(y, nx + nx * (nx + 1) // 2), (room(y, 1, nx), room(y, 1, nx, nx))
        self.states = tuple(room(y, 1, n_steps, *shape) for shape in ((nx,), (nx, nx), (), (nx,), (nx, nx)))

    def launch(self, name: str, *arguments: Any, alone: bool = False) -> None:
        """Queue a kernel over all blocks, or one with a single block."""
        shared = 0 if alone else room_of(*self.size, name)
        function(*self.size, name)((1 if alone else self.n_blocks, 1), (THREADS,), arguments, shared_mem=shared)

    def filter(self, which: int) -> None:
        """Sum up (1; 3 where the state before the range is known), or run the filter from that state (2)."""
        given = (
            self.flags,
            self.totals,
            self.own,
            self.local,
            np.int32(which),
            *self.states[:3],
            self.partials,
            self.sum,
        )
        self.launch("filter_chunks", *self.problem.arguments, *given)

    def give_state(self, later: _Range) -> None:
        """The state behind this range to the one after it."""
        given = (self.totals, np.int32(self.n_blocks), *self.prior, *self.end)
        self.launch("state_behind", *given, alone=True)
        for end, start in zip(self.end, later.prior, strict=True):
            copy_between_devices(end, start)

    def give_information(self, behind: Any, earlier: _Range) -> None:
        """What this range and those behind it say of the state before it to the range there."""
        out = room(self.y, self.said.shape[0])
        self.launch("said_before", self.totals, np.int32(self.n_blocks), behind, out, alone=True)
        copy_between_devices(out, earlier.said)

    def combine_information(self, behind: Any) -> None:
        """Run back over the range."""
        mean, covariance, _, *smooth = self.states
        given = (self.totals, self.own, behind, mean, covariance, *smooth)
        self.launch("combine_chunks", *self.problem.arguments, *given)


def _summed(ranges: list[tuple[Any, ...]], m0: Any, P0: Any, predict_first: bool, chunk: int | None) -> list[Any]:
    """All ranges summed up, and the states between them where they are needed."""
    nx = m0.shape[-1]
    of_range: Any = _Range if max(nx, ranges[0][-1].shape[-1]) <= LARGEST else block_launch.Range
    pieces: list[Any] = []
    for k, arrays in enumerate(ranges):
        with on_device_of(arrays[-1]):
            prior = (m0, P0) if k == 0 else None
            pieces.append(of_range(arrays, prior, predict_first or k > 0, nx, chunk))
            pieces[-1].filter(1 if k else 3)
    for piece, later in itertools.pairwise(pieces):
        with on_device_of(piece.y):
            piece.give_state(later)
    return pieces


def filter_ranges(
    ranges: list[tuple[Any, ...]], m0: Any, P0: Any, predict_first: bool, chunk: int | None = None
) -> list[tuple[Any, ...]]:
    """Filtered means, covariances, ``log p(y[k] | y[:k])`` and their sum of each range, as `two_filter_ranges`."""
    pieces = _summed(ranges, m0, P0, predict_first, chunk)
    results = []
    for piece in pieces:
        with on_device_of(piece.y):
            piece.filter(2)
            results.append((*piece.states[:3], piece.sum))
    return results


def two_filter_ranges(
    ranges: list[tuple[Any, ...]], m0: Any, P0: Any, predict_first: bool, chunk: int | None = None
) -> list[tuple[Any, ...]]:
    """Filtered means, covariances, ``log p(y[k] | y[:k])`` and their sum, smoothed means and covariances of each range.

    `ranges` are F, Q, H, R, u, d, y of consecutive intervals of one series, each (1, n_steps or 1, ...) on a device of
    its own; `m0`, `P0` lie with the first.
    """
    pieces = _summed(ranges, m0, P0, predict_first, chunk)
    behind: list[Any] = [piece.said for piece in pieces[:-1]] + [np.uint64(0)]
    for k in range(len(pieces) - 1, 0, -1):
        with on_device_of(pieces[k].y):
            pieces[k].give_information(behind[k], pieces[k - 1])
    results = []
    for piece, said in zip(pieces, behind, strict=True):
        with on_device_of(piece.y):
            piece.filter(2)
            piece.combine_information(said)
            results.append((*piece.states[:3], piece.sum, *piece.states[3:]))
    return results
