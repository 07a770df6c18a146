"""Elimination of one sample with exchanges of columns, and the test whether other samples take the same pivots.

Rows follow an order that the graph decides. A row takes the column that the graph prefers for it, unless its entry is
below `THRESHOLD` of the largest that is left in the row; then, of the columns that are not, the one of least rank. So a
sample decides where the graph's choice would break, and nowhere else: samples that differ by some percent, or by units,
take the same pivots.

Sums are those of `flat.py`, in its order, so that both see the same numbers.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.allocation import new, new_full
from ensemble._compile.lanes.arithmetic import absolute, any_lane
from ensemble._compile.lanes.types import load, select, splat, store, zeros
from ensemble._compile.numba import compiled, compiled_procedure, inner, per_width, prange, tiles
from ensemble._compile.work_sharing import ALL_THREADS, ONE_THREAD
from ensemble._kernels.direct.growth import SMALL, jobs_of, padded
from ensemble._kernels.direct.symbolic.elimination import Elimination

__all__ = [
    "BETTER", "CANDIDATE", "THRESHOLD", "Sequence", "follows", "other_pivots", "pivot_sequence", "sizes_in"
]  # fmt: skip

THRESHOLD = 2.0**-30
"""Share of the largest entry of a row below which it is no pivot: refinement makes up for the digits that are lost."""

NEARLY = 0.9
"""Share of the limits up to which a quick test is sure of the outcome of the exact one.

Measured again by `benchmarks direct-exchanges`.
"""

CANDIDATE, BETTER = 1, 2
"""Marks of values: an entry that may be a pivot, and one that is preferred to the pivot of its row."""

U = np.uint64  # an unsigned index needs no test for a negative one

DONE, SINGULAR, FULL = range(3)


class Sequence(NamedTuple):
    """The factors of one sample, with columns in the order of elimination, as in `Elimination`."""

    columns: np.ndarray
    lower_starts: np.ndarray
    lower: np.ndarray
    upper_starts: np.ndarray
    upper: np.ndarray
    values: np.ndarray
    exchanges: int
    """Rows that did not take the column that is preferred."""


@inner
def _rounded(x):
    """The magnitude of `x` as it comes out of its reciprocal, which is what factors hold of a pivot."""
    return 1.0 / abs(1.0 / x)


@inner
def _pushed(heap, count, item):
    """Put a number into a heap of `count`."""
    at = count
    while at > 0 and heap[(at - 1) >> 1] > item:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = item


@inner
def _popped(heap, count):
    """Take the least number out of a heap of `count`."""
    least, last, at, child = heap[0], heap[count - 1], 0, 1
    while child < count - 1:
        if child + 1 < count - 1 and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = last
    return least


@inner
def _pivot_of(line, count, work, units, step, preferred, rank, threshold):
    """The column that is the pivot of a row, -1 for none; its columns are the first `count` of `line`."""
    largest, there = 0.0, False
    for t in range(count):
        j = line[t]
        if step[j] < 0:
            largest = max(largest, abs(work[j]) * units[j])
            there = there or j == preferred
    if not largest > 0.0 or not largest < np.inf:
        return -1
    if there and NEARLY * abs(work[preferred]) * units[preferred] >= threshold * largest:
        return preferred
    limit = 0.0
    for t in range(count):
        j = line[t]
        if step[j] < 0:
            limit = max(limit, _rounded(work[j]) * units[j])
    limit = limit * threshold
    if there and _rounded(work[preferred]) * units[preferred] >= limit:
        return preferred
    chosen = -1
    for t in range(count):
        j = line[t]
        if step[j] < 0 and _rounded(work[j]) * units[j] >= limit and (chosen < 0 or rank[j] < rank[chosen]):
            chosen = j
    return chosen


@compiled_procedure
def _eliminated(
    indptr, indices, values, units, rows, preferred, rank, threshold, columns, inverse, lower_starts, lower,
    lower_values, upper_starts, upper, upper_values,
):  # fmt: skip
    """Write the factors, the columns of U in the numbers of the matrix and in no order; returns how it ended."""
    n = rows.size
    step, met = new_full(n, -1, np.int64), new_full(n, -1, np.int64)
    work, line, heap = new_full(n, 0.0, np.float64), new(n, np.int64), new(n, np.int64)
    left, right = np.int64(0), np.int64(0)
    for i in range(n):
        count, waiting = 0, 0
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            j = np.int64(indices[p])
            work[j], met[j], line[count] = values[p], i, j
            count += 1
            if step[j] >= 0:
                _pushed(heap, waiting, step[j])
                waiting += 1
        if left + n > lower.size or right + n > upper.size:
            return FULL
        while waiting > 0:
            k = _popped(heap, waiting)
            waiting -= 1
            own = columns[k]
            factor = work[own] * inverse[k]
            lower[left], lower_values[left] = k, factor
            left += 1
            for q in range(upper_starts[k], upper_starts[k + 1]):
                j = np.int64(upper[q])
                if met[j] != i:
                    work[j], met[j], line[count] = 0.0, i, j
                    count += 1
                    if step[j] >= 0:
                        _pushed(heap, waiting, step[j])
                        waiting += 1
                work[j] = work[j] - factor * upper_values[q]
        chosen = _pivot_of(line, count, work, units, step, preferred[i], rank, threshold)
        if chosen < 0:
            return SINGULAR
        columns[i], step[chosen], inverse[i] = chosen, i, 1.0 / work[chosen]
        for t in range(count):
            j = line[t]
            if step[j] < 0:
                upper[right], upper_values[right] = j, work[j]
                right += 1
        lower_starts[i + 1], upper_starts[i + 1] = left, right
    return DONE


@compiled_procedure
def _arranged(
    columns, inverse, lower_starts, lower_values, upper_starts, upper, upper_values, sorted_upper, values
):  # fmt: skip
    """Columns of U in the order of elimination, ascending, and all values row by row."""
    n = columns.size
    step, starts, at = new(n, np.int64), new_full(n + 1, 0, np.int64), new(n + 1, np.int64)
    row, number = new(upper.size, np.int64), new(upper.size, np.float64)
    for i in range(n):
        step[U(columns[i])] = i
    for entry in range(upper.size):
        starts[U(step[U(upper[entry])]) + U(1)] += 1
    for k in range(n):
        starts[k + 1] += starts[k]
        at[k] = starts[k]
    for i in range(n):
        for q in range(U(upper_starts[i]), U(upper_starts[i + 1])):
            j = U(step[U(upper[q])])
            place = U(at[j])
            row[place], number[place] = i, upper_values[q]
            at[j] = place + U(1)
    for i in range(n):
        at[i] = upper_starts[i]
    for k in range(n):
        for q in range(U(starts[k]), U(starts[k + 1])):
            r = U(row[q])
            place = U(at[r])
            sorted_upper[place] = k
            values[U(lower_starts[r + U(1)]) + r + U(1) + place] = number[q]
            at[r] = place + U(1)
    for i in range(n):
        begin, first, end = U(i + upper_starts[i]), U(lower_starts[i]), U(lower_starts[i + 1])
        for p in range(first, end):
            values[begin + p] = lower_values[p]
        values[begin + end] = inverse[i]
    return 0


def pivot_sequence(
    indptr: Any, indices: Any, values: np.ndarray, units: np.ndarray, rows: np.ndarray, preferred: np.ndarray,
    rank: np.ndarray, threshold: float = THRESHOLD, most_values: int | None = None,
) -> Sequence | None:  # fmt: skip
    """The elimination of one matrix, row ``rows[i]`` at step i, with exchanges of columns; None where it is singular.

    None also where it takes more than `most_values` on either side of the diagonal.

    Parameters
    ----------
    indptr, indices, values : arrays
        A square matrix.
    units : array of float, shape (n,)
        What entries of each column are multiplied by before they are compared.
    rows, preferred : arrays of int, shape (n,)
        The row of each step, and the column that is its pivot where the numbers allow.
    rank : array of int, shape (n,)
        Of columns that may take its place, the one of least rank does.
    threshold : float
        Share of the largest entry of a row below which it is no pivot.
    """
    n, capacity = rows.size, 4 * values.size + 4 * rows.size
    columns, inverse = np.empty(n, np.int64), np.empty(n)
    starts = np.zeros((2, n + 1), np.int64)
    while True:
        (lower, upper), numbers = np.empty((2, capacity), np.int32), np.empty((2, capacity))
        end = _eliminated(
            indptr, indices, values, units, rows, preferred, rank, threshold, columns, inverse, starts[0], lower,
            numbers[0], starts[1], upper, numbers[1],
        )  # fmt: skip
        if end != FULL:
            break
        if most_values is not None and capacity >= most_values:
            return None
        capacity *= 4
    if end == SINGULAR:
        return None
    left, right = int(starts[0, -1]), int(starts[1, -1])
    made, right_columns = np.empty(left + n + right), np.empty(right, np.int32)
    _arranged(
        columns, inverse, starts[0], numbers[0], starts[1], upper[:right], numbers[1, :right], right_columns, made
    )  # fmt: skip
    exchanges = int((columns != preferred).sum())
    return Sequence(columns, starts[0], lower[:left].copy(), starts[1], right_columns, made, exchanges)


@inner
def other_pivots(
    values, base, stride, diagonal, upper_starts, columns, marks, pivots, units, own, lanes, threshold, rows,
    of_rows, limit, nothing,
):  # fmt: skip
    """Zero for samples whose elimination takes the pivots of their factors, a tile from ``values[base]`` on, else one.

    The units of the tile begin at ``units[own]``, those of a column `lanes` numbers behind those of the one before. If
    `rows` are given, the row of each step, whose units begin at ``units[of_rows]``, returns also one for samples with a
    reciprocal pivot above `limit` in the units of its row and column, else zero.
    """
    one, bad, small = splat(1.0, values, nothing), nothing, nothing
    for i in range(diagonal.size):
        inverse = absolute(load(values, base + np.int64(diagonal[i]) * stride, nothing))
        others, better = nothing, nothing
        begin = base + (np.int64(diagonal[i]) + 1) * stride
        place = begin
        for t in range(U(upper_starts[i]), U(upper_starts[i + 1])):
            size = load(units, np.int64(columns[t]) * lanes + own, nothing)
            size = size * absolute(load(values, place, nothing))
            others = select(size > others, size, others)
            if marks[t] == BETTER:
                better = select(size > better, size, better)
            place += stride
        unit = load(units, np.int64(pivots[i]) * lanes + own, nothing)
        if rows.size > 0:
            least = load(units, np.int64(rows[i]) * lanes + of_rows, nothing) * unit
            small = select(inverse > limit * least, one, small)
        doubt = select(NEARLY * unit >= threshold * (others * inverse), nothing, one)
        doubt = select(better * inverse > (NEARLY * threshold) * unit, one, doubt)
        bad = select(inverse - inverse == nothing, bad, one)
        if any_lane(doubt > nothing):
            largest, better = nothing, nothing
            place = begin
            for t in range(U(upper_starts[i]), U(upper_starts[i + 1])):
                size = one / (one / absolute(load(values, place, nothing)))
                size = size * load(units, np.int64(columns[t]) * lanes + own, nothing)
                largest = select(size > largest, size, largest)
                if marks[t] == BETTER:
                    better = select(size > better, size, better)
                place += stride
            pivot = one / inverse * unit
            bound = threshold * select(largest > pivot, largest, pivot)
            bad = select(pivot >= bound, bad, one)
            bad = select(better >= bound, one, bad)
    return bad, small


@functools.cache
def _follows(width: int) -> Any:
    @compiled
    def loop(values, bases, stride, diagonal, upper_starts, columns, marks, pivots, units, lanes, threshold, out):
        for job in prange(bases.size):
            own, nothing = np.int64(job) * width, zeros(values, width)
            bad, _ = other_pivots(
                values, bases[job], stride, diagonal, upper_starts, columns, marks, pivots, units, own, lanes,
                threshold, pivots[:0], own, 0.0, nothing,
            )  # fmt: skip
            store(out, own, bad)

    return loop


def follows(values: Any, plan: Elimination, columns: np.ndarray, marks: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Whether the elimination of each sample would have taken the pivots of `plan`, shape (n_samples,).

    Parameters
    ----------
    values : Tiles, or array of shape (n_values, n_samples)
        Those of a factorisation by `plan`.
    columns : array of int32
        For each value right of the diagonal, its column in the matrix.
    marks : array of int8
        For each of these, `BETTER` where that column is preferred to the pivot's.
    units : array, shape (n, n_samples)
        What entries of each column are multiplied by before they are compared.
    """
    data, bases, width, n_samples = jobs_of(values)
    out, wide = np.empty(bases.size * width, data.dtype), padded(units, bases.size * width)
    with np.errstate(all="ignore"):
        _follows(width)(
            data.reshape(-1), bases, data.shape[2], plan.diagonal, plan.upper_starts, columns, marks, plan.columns,
            wide.reshape(-1), wide.shape[1], THRESHOLD, out, threads=ONE_THREAD if data.size <= SMALL else ALL_THREADS,
        )  # fmt: skip
    found: np.ndarray = out[:n_samples] == 0.0
    return found


@per_width
def _sizes(width):
    @compiled
    def loop(x, units, out, n_samples, first):
        for _ in prange(1):
            most, check = zeros(x, width), zeros(x, width)
            for j in range(x.size // n_samples):
                size = absolute(load(x, j * n_samples + first, most)) / load(units, j * n_samples + first, most)
                most = select(size > most, size, most)
                check = check + (size - size)
            store(out, np.int64(first), most + check)

    return loop


def sizes_in(x: np.ndarray, units: np.ndarray) -> np.ndarray:
    """The largest magnitude of each sample of `x` over `units`, both of shape (n, n_samples); NaN where one is."""
    out = np.empty(x.shape[1], x.dtype)
    for first, width in tiles(x.shape[1], 32):
        _sizes(width)(x.reshape(-1), units.reshape(-1), out, x.shape[1], first)
    return out
