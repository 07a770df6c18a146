"""Solutions of samples that take the same pivots, from units to the last correction, tile by tile.

What `equilibration`, `flat_tiles`, `pivot_sequences`, `krylov/backward_error` and the refinement of `direct` do one
after another for all samples is done here for a tile while it is in the cache, with the same sums in the same order.

Bytes that must move, float64: ``8 S (nnz + 2 n)``. A tile takes ``64 (nnz + n_values + 8 n)`` bytes of cache.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.kept_memory import Workspace
from ensemble._compile.lanes.arithmetic import any_lane
from ensemble._compile.lanes.types import load, select, splat, store, zeros
from ensemble._compile.numba import ROW_BLOCK, compiled, prange, thread_count
from ensemble._compile.work_sharing import ALL_THREADS, ONE_THREAD
from ensemble._kernels.direct.equilibration import print_of
from ensemble._kernels.direct.forms.flat import LU, factor_solve_one, solve_one
from ensemble._kernels.direct.forms.flat_tiles import SMALL
from ensemble._kernels.direct.pivot_sequences import THRESHOLD, other_pivots
from ensemble._kernels.direct.tile_stages import (
    corrected,
    either,
    follow_each_other,
    judged,
    norm_of,
    other_than_zero,
    read_entries,
    read_rows,
    unit_columns,
)

__all__ = ["Limits", "Pivots", "Solved", "solved_at_once"]

WIDTHS = (16, 8, 1)
"""Samples of a tile: the least that holds all, or the first of these; with 32 a tile outgrows the cache."""

(ERROR, ENTRIES, NORM, NORM_B, STEPS, LEFT, OTHER, DOUBTFUL, PRINTS, TARGET, ODD) = range(11)
HISTORY = 11
"""Rows of what is found per sample; `ODD` is not zero where a sample is left, other or doubtful, or a norm infinite."""

N_VECTORS = 7
"""Vectors of a tile: the right-hand side, units, y, two solutions, and two residuals, one where units of rows were."""


@dataclasses.dataclass(frozen=True)
class Limits:
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

    @functools.cached_property
    def numbers(self) -> np.ndarray:
        """All but `steps`, in their order."""
        return np.array(dataclasses.astuple(self)[:9])


class Layout(NamedTuple):
    """Tiles of a number of samples, and arrays that hold no sample's numbers: nothing writes to them."""

    width: int
    lanes: int
    n_tiles: int
    size: int
    """Numbers of the tiles of one thread."""
    is_small: bool
    every: np.ndarray
    """All samples in a row, the last one again in lanes that are left."""


class Pivots:
    """An elimination with its pivots, on the entries that are not zero."""

    def __init__(
        self, indptr: np.ndarray, indices: np.ndarray, places: np.ndarray, dropped: np.ndarray, program: np.ndarray,
        diagonal: np.ndarray, upper_starts: np.ndarray, columns: np.ndarray, marks: np.ndarray, pivots: np.ndarray,
        rows: np.ndarray, n_values: int,
    ) -> None:  # fmt: skip
        """Take the arrays of an elimination.

        Parameters
        ----------
        places, dropped : arrays of int32
            Where the matrix has the entries of `indptr` and `indices`, and where those that are zero.
        program : array of int32
            The list of `flat.flat_list`, whose sources are numbers of these entries. Values that no entry begins have
            their number for a source, where a zero is kept: no branch tells them apart.
        columns, marks : arrays
            As in `pivot_sequences.follows`.
        pivots, rows : arrays of int64
            The column and the row of each step.
        """
        self.arrays = (
            indptr, indices, places, dropped, program, diagonal, upper_starts, columns, marks, pivots, rows, n_values
        )  # fmt: skip
        self.n = diagonal.size
        self.lane_size = places.size + 1 + n_values + N_VECTORS * self.n
        self.layouts: dict[int, Layout] = {}

    def layout(self, count: int) -> Layout:
        """Return the tiles of so many samples; those of the last number are kept."""
        found = self.layouts.get(count)
        if found is None:
            width = 1 if count == 1 else min((each for each in WIDTHS if each >= count), default=WIDTHS[0])
            n_tiles = -(-count // width)
            size, lanes = self.lane_size * width, n_tiles * width
            every = np.minimum(np.arange(lanes), count - 1)
            found = Layout(width, lanes, n_tiles, size, size * n_tiles <= SMALL, every)
            self.layouts = {count: found}
        return found


class Solved:
    """What was found for each sample: `rows`, of shape (HISTORY + steps + 1, n_chosen), and parts of it."""

    __slots__ = ("rows",)

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    @property
    def is_plain(self) -> bool:
        """Whether no sample is left, other or doubtful, and all norms are numbers."""
        return not any(self.rows[ODD].tolist())  # a reduction by NumPy takes 20 us after other work

    def others(self) -> np.ndarray:
        """Return the places of the samples that are `other`."""
        found: np.ndarray = self.rows[OTHER].nonzero()[0]
        return found

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
    target = property(lambda self: self.rows[TARGET])
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
            own = np.int64(run) * ((kept + 1 + n_values + N_VECTORS * n) * w)
            factors = own + (kept + 1) * w
            store(work, own + kept * w, nothing)
            right = factors + n_values * w
            free = right + n * w
            units, y, start = free + n * w, free + 2 * n * w, free + 3 * n * w
            for tile in range(np.int64(run) * n_tiles // n_runs, (np.int64(run) + 1) * n_tiles // n_runs):
                first = tile * w
                new, old, r, r_old = start, start + n * w, start + 2 * n * w, free
                together = follow_each_other(samples, first, width)
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
                    work, own, w, work, factors, work, y, found, ODD * lanes + first, program, False, work, right, w,
                    False, work, new, w, work, y, nothing,
                )  # fmt: skip
                broken = load(found, ODD * lanes + first, nothing)
                other = select(broken == nothing, other, one)
                bad, small = other_pivots(
                    work, factors, w, diagonal, upper_starts, columns, marks, pivots, work, units, w, THRESHOLD, rows,
                    free, limits[8], nothing,
                )  # fmt: skip
                other = select(bad == nothing, other, one)
                store(found, OTHER * lanes + first, other)
                error, entries, norm, steps = nothing, nothing, nothing, nothing
                whole, last, active, by_norm = nothing, nothing, select(other == nothing, one, nothing), nothing
                norm_b, length, largest = nothing, nothing, nothing
                for i in range(0, n, ROW_BLOCK):
                    part = nothing
                    for k in range(i, min(i + ROW_BLOCK, n)):
                        value = load(work, right + k * w, nothing)
                        part = part + value * value
                    norm_b = norm_b + part
                norm_b = norm_of(work, right, n, norm_b, low, high, nothing, width)
                store(found, NORM_B * lanes + first, norm_b)
                target = load(rtol, first, nothing) * norm_b
                store(found, TARGET * lanes + first, target)
                for step in range(most_steps + 1):
                    if any_lane(active > nothing):
                        if step > 0:
                            solve_one(
                                work, factors, w, program, work, r, w, False, work, new, w, work[y : y + n * w], LU,
                                nothing,
                            )  # fmt: skip
                        length, largest = corrected(work, new, old, units, n, step > 0, nothing, width)
                        more, finest, squares = judged(
                            indptr, indices, work, own, new, right, r_old, largest, nothing, width
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
                if any_lane(doubt > nothing):  # one more correction is less work than three trials of the digits are
                    solve_one(
                        work, factors, w, program, work, r, w, False, work, new, w, work[y : y + n * w], LU, nothing
                    )  # fmt: skip
                    length, largest = corrected(work, new, old, units, n, False, nothing, width)
                    doubt = select(length <= limits[6] * whole, nothing, doubt)
                doubt = either(moved > nothing, doubt > nothing, one, nothing)
                doubt = select(small > nothing, one, doubt)
                doubt = select(error - error == nothing, select(other == nothing, doubt, nothing), nothing)
                store(found, DOUBTFUL * lanes + first, doubt)
                left = select(error <= tolerance, select(entries <= tolerance, other, one), one)
                store(found, LEFT * lanes + first, left)
                odd = select(left == nothing, select(other == nothing, doubt, one), one)
                store(found, ODD * lanes + first, select(norm - norm == nothing, odd, one))
                if follow_each_other(outs, first, width):
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
    values: np.ndarray, b: np.ndarray, samples: np.ndarray | None, rtol: Any, pivots: Pivots, limits: Limits,
    x: np.ndarray, outs: np.ndarray | None,
) -> Solved:  # fmt: skip
    """Solve ``A x = b`` with refinement for the samples that take the pivots given.

    Parameters
    ----------
    values : array of float64, shape (nnz, n_samples)
    b : array of float64, shape (n, n_samples), or (n,) for all samples
    samples : array of int64, shape (n_chosen,)
        The samples to be solved; all where none is named.
    rtol : float, or array of shape (n_samples,)
        Residual over the norm of b above which a solution is refined.
    x : array of float64, shape (n, any number)
        Takes the solutions of the samples that are not left, in columns `outs`, shape (n_chosen,), by default in the
        columns of all samples named.
    """
    n_samples, n_columns = values.shape[1], x.shape[1]
    count = n_samples if samples is None else samples.size
    width, lanes, n_tiles, size, is_small, every = pivots.layout(count)
    given = every if samples is None else samples[every] if lanes > count else samples
    places = every if outs is None else outs[every] if lanes > count else outs
    own_rtol = np.empty(lanes)
    own_rtol[:] = rtol if isinstance(rtol, float) or np.ndim(rtol) == 0 else np.asarray(rtol)[given]
    found = np.empty((HISTORY + limits.steps + 1, lanes))
    n_runs = 1 if is_small or n_tiles == 1 else min(n_tiles, thread_count())
    with Workspace((n_runs * size,), np.float64) as work:
        _solutions(width)(
            values.reshape(-1), b.reshape(-1), n_samples if b.ndim > 1 else 0, x.reshape(-1), given, places, n_columns,
            own_rtol, found.reshape(-1), work, *pivots.arrays, n_samples, limits.numbers, limits.steps, n_tiles, n_runs,
            threads=ONE_THREAD if n_runs == 1 else ALL_THREADS,
        )  # fmt: skip
    return Solved(found[:, :count] if lanes > count else found)
