"""Solutions of samples that take the same pivots, from units to the last correction, tile by tile.

What `equilibration`, `flat_tiles`, `pivot_sequences`, `krylov/backward_error` and the refinement of `direct` do one
after another for all samples is done here for a tile while it is in the cache, with the same sums in the same order.

Bytes that must move, float64: ``8 S (nnz + 2 n)``. A tile takes ``64 (nnz + n_values + 8 n)`` bytes of cache.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.kept_memory import workspace
from ensemble._compile.lanes.arithmetic import any_lane
from ensemble._compile.lanes.types import load, select, splat, store, zeros
from ensemble._compile.numba import ROW_BLOCK, compiled, prange, thread_count
from ensemble._compile.work_sharing import ALL_THREADS, ONE_THREAD
from ensemble._kernels.direct.equilibration import print_of
from ensemble._kernels.direct.forms.flat import LU, factor_solve_one, solve_one
from ensemble._kernels.direct.forms.flat_tiles import SMALL
from ensemble._kernels.direct.pivot_sequences import THRESHOLD, other_pivots
from ensemble._kernels.direct.tile_stages import (
    either,
    judged,
    norm_of,
    other_than_zero,
    read_entries,
    read_rows,
    size_in_units,
    small_pivots,
    unit_columns,
)

__all__ = ["Limits", "Pivots", "Solved", "solved_at_once"]

WIDTHS = (16, 8, 1)
"""Samples of a tile: the least that holds all, or the first of these; with 32 a tile outgrows the cache."""

(ERROR, ENTRIES, NORM, NORM_B, STEPS, LEFT, OTHER, DOUBTFUL, PRINTS, BROKEN) = range(10)
HISTORY = 10
"""Rows of what is found per sample."""


class Limits(NamedTuple):
    """When a solution is refined: the numbers that `krylov/_direct_solution.py` compares with."""

    tolerance: float
    """Backward error above which a solution is refined or left to others."""
    floor: float
    """Backward error that refinement does not reduce."""
    uneven: float
    """Backward error by entries over that by rows from which on refinement reduces it."""
    least_uneven: float
    """Backward error by entries from which on it does."""
    low: float
    high: float
    """Norms between which squares stay in the range of numbers."""
    moved: float
    """Last correction over the solution from which on its digits are tried."""
    large: float
    """Residual over the norm of b from which on they may be."""
    cancelled: float
    """Reciprocal pivot, in the units of its row and column, from which on they are."""
    steps: int
    """Refinements at most."""

    @property
    def numbers(self) -> np.ndarray:
        """All but `steps`, in their order."""
        return _numbers_of(self)


@functools.cache
def _numbers_of(limits: Limits) -> np.ndarray:
    return np.array(limits[:9])


class Pivots(NamedTuple):
    """An elimination with its pivots, on the entries that are not zero."""

    indptr: np.ndarray
    indices: np.ndarray
    places: np.ndarray
    """Where the matrix has these entries."""
    dropped: np.ndarray
    """Where it has those that are zero."""
    program: np.ndarray
    """The list of `flat.flat_list`, whose sources are numbers of these entries."""
    diagonal: np.ndarray
    upper_starts: np.ndarray
    columns: np.ndarray
    marks: np.ndarray
    """As in `pivot_sequences.follows`."""
    pivots: np.ndarray
    """The column of each step."""
    rows: np.ndarray
    """The row of each step."""
    n_values: int


class Solved:
    """What was found for each sample: `rows`, of shape (HISTORY + steps + 1, n_chosen), and parts of it."""

    __slots__ = ("rows",)

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    @property
    def is_plain(self) -> bool:
        """Whether no sample is left, other or doubtful, and all norms are numbers."""
        return not self.rows[LEFT : DOUBTFUL + 1].any() and math.isfinite(self.rows[NORM].max())

    @property
    def left(self) -> np.ndarray:
        """True for a sample that takes other pivots, has other zeros, or whose backward error stays too large."""
        return self.rows[LEFT] != 0.0

    @property
    def other(self) -> np.ndarray:
        """True for a sample that takes other pivots, has other zeros or is not finite."""
        return self.rows[OTHER] != 0.0

    @property
    def doubtful(self) -> np.ndarray:
        """True for a sample whose digits are to be tried: its last correction or residual is large, or a pivot small.

        Where samples are left, this means nothing for them.
        """
        return self.rows[DOUBTFUL] != 0.0

    @property
    def steps(self) -> np.ndarray:
        """Refinements of each sample."""
        return self.rows[STEPS].astype(np.int64)

    @property
    def norms(self) -> np.ndarray:
        """Norms of residuals after each refinement, shape (steps + 1, n_chosen)."""
        return self.rows[HISTORY:]

    error = property(lambda self: self.rows[ERROR])
    entries = property(lambda self: self.rows[ENTRIES])
    norm = property(lambda self: self.rows[NORM])
    norm_b = property(lambda self: self.rows[NORM_B])
    prints = property(lambda self: self.rows[PRINTS])


@functools.cache
def _solutions(width: int) -> Any:
    """Longer than 60 lines: one compiled loop, from equilibration to the last refinement of a tile."""

    @compiled
    def loop(
        values, b, b_samples, x, samples, outs, n_chosen, rtol, found, work, indptr, indices, places, dropped, program,
        diagonal, upper_starts, columns, marks, pivots, rows, n_values, n_samples, limits, most_steps, n_tiles, n_runs,
    ):  # fmt: skip
        for run in prange(n_runs):
            w, nothing, n, lanes = np.int64(width), zeros(values, width), indptr.size - 1, n_tiles * width
            one, tolerance, floor, uneven, least = (
                splat(1.0, values, nothing),
                limits[0],
                limits[1],
                limits[2],
                limits[3],
            )
            low, high = limits[4], limits[5]
            kept = np.int64(places.size)
            own = np.int64(run) * ((kept + n_values + 8 * n) * w)
            factors = own + kept * w
            right = factors + n_values * w
            free = right + n * w
            units, y, start = free + n * w, free + 2 * n * w, free + 3 * n * w
            for tile in range(np.int64(run) * n_tiles // n_runs, (np.int64(run) + 1) * n_tiles // n_runs):
                first = tile * w
                new, old, r, r_old = start, start + n * w, start + 2 * n * w, start + 3 * n * w
                end = first + w - 1  # samples rise, and the last may stand again to fill a tile
                together = samples[end] - samples[first] == w - 1 and (w == 1 or samples[end] > samples[end - 1])
                read_rows(b, n, b_samples, samples, first, together, work, right, nothing, width)
                mark, sum_of_bits = read_entries(
                    values, places, indptr, indices, n_samples, samples, first, together, work, own, free, y, nothing,
                    width,
                )  # fmt: skip
                unit_columns(indptr, indices, work, own, units, free, y, nothing, width)
                others = other_than_zero(values, dropped, n_samples, samples, first, together, work, y, nothing, width)
                other = select(mark == nothing, others, one)
                store(found, PRINTS * lanes + first, print_of(sum_of_bits))
                factor_solve_one(
                    work, own, w, work, factors, work, y, found, BROKEN * lanes + first, program, False, work, right, w,
                    False, work, new, w, work, y, nothing,
                )  # fmt: skip
                broken = load(found, BROKEN * lanes + first, nothing)
                other = select(broken == nothing, other, one)
                bad = other_pivots(
                    work, factors, w, diagonal, upper_starts, columns, marks, pivots, work, units, w, THRESHOLD, nothing
                )  # fmt: skip
                other = select(bad == nothing, other, one)
                store(found, OTHER * lanes + first, other)
                error, entries, norm, steps = nothing, nothing, nothing, nothing
                whole, last, active, by_norm = nothing, nothing, select(other == nothing, one, nothing), nothing
                norm_b, length = nothing, nothing
                for i in range(0, n, ROW_BLOCK):
                    part = nothing
                    for k in range(i, min(i + ROW_BLOCK, n)):
                        value = load(work, right + k * w, nothing)
                        part = part + value * value
                    norm_b = norm_b + part
                norm_b = norm_of(work, right, n, norm_b, low, high, nothing, width)
                store(found, NORM_B * lanes + first, norm_b)
                target = load(rtol, first, nothing) * norm_b
                for step in range(most_steps + 1):
                    if any_lane(active > nothing):
                        if step > 0:
                            solve_one(
                                work, factors, w, program, work, r, w, False, work, new, w, work[y : y + n * w], LU,
                                nothing,
                            )  # fmt: skip
                        length = size_in_units(work, new, units, n, nothing, width)
                        if step > 0:
                            for i in range(n):
                                value = load(work, new + i * w, nothing) + load(work, old + i * w, nothing)
                                store(work, new + i * w, value)
                        more, finest, squares = judged(
                            indptr, indices, work, own, new, right, r_old, nothing, width
                        )  # fmt: skip
                        latest = norm_of(work, r_old, n, squares, low, high, nothing, width)
                        if step == 0:
                            better, halved = one, one
                            error, entries, norm, whole, last = more, finest, latest, length, length
                        else:
                            last = select(active > nothing, length, last)
                            steps = steps + active
                            limit = select(error > tolerance, error, splat(tolerance, values, nothing))
                            finer = select(finest < entries, select(more <= limit, one, nothing), nothing)
                            better = select(by_norm > nothing, select(latest < norm, one, nothing), finer)
                            better = select(more - more == nothing, better * active, nothing)
                            halved = select(finest <= 0.5 * entries, one, nothing)
                            halved = select(by_norm > nothing, select(latest <= 0.5 * norm, one, nothing), halved)
                            norm = select(better > nothing, latest, norm)
                            error = select(better > nothing, more, error)
                            entries = select(better > nothing, finest, entries)
                        if any_lane(better == nothing):
                            for i in range(n):
                                value = load(work, new + i * w, nothing)
                                value = select(better > nothing, value, load(work, old + i * w, nothing))
                                store(work, old + i * w, value)
                                value = load(work, r_old + i * w, nothing)
                                value = select(better > nothing, value, load(work, r + i * w, nothing))
                                store(work, r + i * w, value)
                        else:
                            new, old, r, r_old = old, new, r_old, r
                        large = select(norm > target, select(error > floor, one, nothing), nothing)
                        by_norm = select(error > tolerance, one, large)
                        wide = select(entries > uneven * error, select(entries > least, one, nothing), nothing)
                        wide = select(steps == nothing, one, wide)
                        wanted = either(by_norm > nothing, wide > nothing, one, nothing)
                        wanted = select(error - error == nothing, wanted, nothing)
                        active = better * halved * wanted * select(other == nothing, one, nothing)
                    store(found, (HISTORY + step) * lanes + first, norm)
                store(found, ERROR * lanes + first, error)
                store(found, ENTRIES * lanes + first, entries)
                store(found, NORM * lanes + first, norm)
                store(found, STEPS * lanes + first, steps)
                moved = select(last <= limits[6] * whole, nothing, one)
                doubt = select(norm > limits[7] * norm_b, one, nothing)
                small = small_pivots(
                    work, free, units, factors, diagonal, rows, pivots, limits[8], nothing, width
                )  # fmt: skip
                if any_lane(doubt > nothing):  # one more correction is less work than three trials of the digits are
                    solve_one(
                        work, factors, w, program, work, r, w, False, work, new, w, work[y : y + n * w], LU, nothing
                    )  # fmt: skip
                    length = size_in_units(work, new, units, n, nothing, width)
                    doubt = select(length <= limits[6] * whole, nothing, doubt)
                doubt = either(moved > nothing, doubt > nothing, one, nothing)
                doubt = select(small > nothing, one, doubt)
                doubt = select(error - error == nothing, select(other == nothing, doubt, nothing), nothing)
                store(found, DOUBTFUL * lanes + first, doubt)
                left = select(error <= tolerance, select(entries <= tolerance, other, one), one)
                store(found, LEFT * lanes + first, left)
                if outs[end] - outs[first] == w - 1 and (w == 1 or outs[end] > outs[end - 1]):
                    for i in range(n):
                        place = i * n_chosen + outs[first]
                        value = load(work, old + i * w, nothing)
                        store(x, place, select(left > nothing, load(x, place, nothing), value))
                else:
                    for lane in range(width):
                        if found[LEFT * lanes + first + lane] == 0.0:
                            for i in range(n):
                                x[i * n_chosen + outs[first + lane]] = work[old + i * w + lane]

    return loop


def solved_at_once(
    values: np.ndarray, b: np.ndarray, samples: np.ndarray, rtol: Any, pivots: Pivots, limits: Limits, x: np.ndarray,
    outs: np.ndarray,
) -> Solved:  # fmt: skip
    """Solve ``A x = b`` with refinement for the samples that take the pivots given.

    Parameters
    ----------
    values : array of float64, shape (nnz, n_samples)
    b : array of float64, shape (n, n_samples), or (n,) for all samples
    samples : array of int64, shape (n_chosen,)
        The samples to be solved.
    rtol : float, or array of shape (n_samples,)
        Residual over the norm of b above which a solution is refined.
    x : array of float64, shape (n, any number)
        Takes the solutions of the samples that are not left, in columns `outs`, shape (n_chosen,).
    """
    count, n_samples, n = samples.size, values.shape[1], pivots.diagonal.size
    width = 1 if count == 1 else min((each for each in WIDTHS if each >= count), default=WIDTHS[0])
    n_tiles = -(-count // width)
    lanes = n_tiles * width
    if lanes > count:  # the last sample again
        samples = np.append(samples, np.repeat(samples[-1:], lanes - count))
        outs = np.append(outs, np.repeat(outs[-1:], lanes - count))
    own_rtol = np.empty(lanes)
    own_rtol[:] = rtol if isinstance(rtol, float) or np.ndim(rtol) == 0 else np.asarray(rtol)[samples]
    found = np.empty((HISTORY + limits.steps + 1, lanes))
    size = (pivots.places.size + pivots.n_values + 8 * n) * width
    small = size * n_tiles <= SMALL
    n_runs = 1 if small else min(n_tiles, thread_count())
    with workspace((n_runs * size,), np.float64) as work:
        _solutions(width)(
            values.reshape(-1), b.reshape(-1), n_samples if b.ndim > 1 else 0, x.reshape(-1), samples, outs, x.shape[1],
            own_rtol, found.reshape(-1), work, *pivots, n_samples, limits.numbers, limits.steps, n_tiles, n_runs,
            threads=ONE_THREAD if small else ALL_THREADS,
        )  # fmt: skip
    return Solved(found[:, :count] if lanes > count else found)
