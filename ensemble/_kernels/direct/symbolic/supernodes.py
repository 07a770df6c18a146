"""Supernodes: neighbouring rows of a factorisation with the same columns right of them, and who updates whom.

Rows are merged although their columns differ where few zeros are stored for it, so that a run of rows is long enough
for products of small blocks. Source: Ashcraft, Grimes (1989), ACM Trans. Math. Softw. 15, 291.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.numba import compiled_arrays

__all__ = ["Supernodes", "merged_rows", "padded_columns", "supernodes_of"]

WIDEST = 48
"""Rows of a supernode at most; longer runs are cut."""

ZEROS = ((4, 0.3), (16, 0.15), (48, 0.07), (np.inf, 0.03))
"""Rows of a run, and the share of its values that may be zeros stored to make it as long."""


class Supernodes(NamedTuple):
    """Runs of rows, and for each one the runs above it whose multiples are subtracted from its rows.

    Supernode s has the rows ``rows[s]`` to ``rows[s + 1]`` and, right of them, the columns
    ``columns[starts[s] : starts[s + 1]]``. Its updates u, ``updates[s]`` to ``updates[s + 1]``, have three numbers
    each, from ``sources[3 * u]`` on: a supernode above, in ascending order, and the first and last of its columns that
    are rows of s.
    """

    rows: np.ndarray
    starts: np.ndarray
    columns: np.ndarray
    updates: np.ndarray
    sources: np.ndarray
    left: np.ndarray
    """Of LU, the place of the first value of L in the row ``columns[t]`` and the columns of its supernode."""
    sizes: tuple[int, int, int]
    """Rows of the widest panel in blocks of four, columns of the longest, numbers of the largest with a spare row."""


def merged_rows(starts: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The first row of each run that is worth being one supernode, and n, of a filled graph."""
    rows: np.ndarray = _merged_rows(starts, columns, np.array(ZEROS))
    return rows


@compiled_arrays
def _merged_rows(starts, columns, limits):
    n = starts.size - 1
    first = np.empty(n + 1, np.int64)  # fundamental runs
    count = 0
    for k in range(n):
        alone = k == 0 or starts[k] - starts[k - 1] != starts[k + 1] - starts[k] + 1 or columns[starts[k - 1]] != k
        if alone:
            first[count] = k
            count += 1
    first[count] = n
    width, length = np.empty(count, np.int64), np.empty(count, np.int64)
    zeros, end = np.zeros(count, np.int64), np.empty(count, np.int64)
    stack = np.empty(count, np.int64)  # runs made so far, the nearest on top
    depth = 0
    for s in range(count - 1, -1, -1):
        low, high = first[s], first[s + 1]
        width[s], length[s], end[s] = high - low, starts[high] - starts[high - 1], high
        while depth:
            t = stack[depth - 1]
            parent = columns[starts[end[s] - 1]] if length[s] else -1
            if length[s] == 0 or not first[t] <= parent < end[t]:
                break
            rows = width[s] + width[t]
            added = width[s] * (width[t] + length[t] - length[s])
            total = zeros[s] + zeros[t] + added
            stored = rows * (rows + 1) // 2 + rows * length[t]
            share = total / stored
            k = 0
            while rows > limits[k, 0]:
                k += 1
            if share > limits[k, 1]:
                break
            width[s], length[s], end[s], zeros[s] = rows, length[t], end[t], total
            depth -= 1
        stack[depth] = s
        depth += 1
    runs = np.empty(depth + 1, np.int64)
    for k in range(depth):
        runs[k] = first[stack[depth - 1 - k]]
    runs[depth] = n
    return runs


@compiled_arrays
def padded_columns(starts, columns, runs):
    """(starts, columns) of the filled graph in which all rows of a run have the columns of its last row."""
    n = starts.size - 1
    longer = np.zeros(n + 1, np.int64)
    for s in range(runs.size - 1):
        length = starts[runs[s + 1]] - starts[runs[s + 1] - 1]
        for k in range(runs[s], runs[s + 1]):
            longer[k + 1] = runs[s + 1] - 1 - k + length
    longer = np.cumsum(longer)
    filled = np.empty(longer[n], columns.dtype)
    for s in range(runs.size - 1):
        high = runs[s + 1]
        for k in range(runs[s], high):
            place = longer[k]
            for j in range(k + 1, high):
                filled[place] = j
                place += 1
            for t in range(starts[high - 1], starts[high]):
                filled[place] = columns[t]
                place += 1
    return longer, filled


@compiled_arrays
def _cut(runs, widest):
    """Runs of at most `widest` rows, multiples of four of about the same length."""
    n = runs[runs.size - 1]
    cut = np.empty(n + 1, np.int64)
    count = 0
    for s in range(runs.size - 1):
        rows = runs[s + 1] - runs[s]
        parts = (rows + widest - 1) // widest
        step = ((rows + parts - 1) // parts + 3) // 4 * 4
        for k in range(runs[s], runs[s + 1], step):
            cut[count] = k
            count += 1
    cut[count] = n
    return cut[: count + 1].copy()


@compiled_arrays
def _columns_of(rows, starts, columns):
    """The columns right of each supernode."""
    count = rows.size - 1
    first = np.zeros(count + 1, np.int64)
    for s in range(count):
        first[s + 1] = first[s] + starts[rows[s + 1]] - starts[rows[s + 1] - 1]
    own = np.empty(first[count], np.int64)
    for s in range(count):
        low = starts[rows[s + 1] - 1]
        for t in range(first[s + 1] - first[s]):
            own[first[s] + t] = columns[low + t]
    return first, own


@compiled_arrays
def _updates(rows, first, columns):
    """For each supernode, those above it that have columns among its rows, and which columns."""
    count = rows.size - 1
    of_row = np.empty(rows[count], np.int64)
    for s in range(count):
        of_row[rows[s] : rows[s + 1]] = s
    starts = np.zeros(count + 1, np.int64)
    for fill in range(2):
        if fill:
            starts = np.cumsum(starts)
            place = starts.copy()
            sources = np.empty(3 * starts[count], np.int64)
        for s in range(count):
            t = first[s]
            while t < first[s + 1]:
                target = of_row[columns[t]]
                low = t
                while t < first[s + 1] and of_row[columns[t]] == target:
                    t += 1
                if fill:
                    u = place[target]
                    place[target] += 1
                    sources[3 * u], sources[3 * u + 1], sources[3 * u + 2] = s, low, t
                else:
                    starts[target + 1] += 1
    return starts, sources


@compiled_arrays
def _left_places(rows, starts, columns, lower_starts, first_value):
    """Where row ``columns[t]`` of L has its values in the columns of the supernode."""
    met = np.zeros(rows[rows.size - 1], np.int64)  # values of each row so far
    places = np.empty(columns.size, np.int64)
    for s in range(rows.size - 1):
        for t in range(starts[s], starts[s + 1]):
            places[t] = first_value[columns[t]] + met[columns[t]]
            met[columns[t]] += rows[s + 1] - rows[s]
        for i in range(rows[s], rows[s + 1]):
            met[i] = lower_starts[i + 1] - lower_starts[i]
    return places


def supernodes_of(
    runs: Any, upper_starts: Any, upper: Any, lower_starts: Any, first: Any, symmetric: bool
) -> Supernodes:
    """The supernodes of a padded graph; `first` is the place of the first value of each row."""
    rows = _cut(runs, WIDEST)
    starts, columns = _columns_of(rows, upper_starts, upper)
    left = np.empty(0, np.int64) if symmetric else _left_places(rows, starts, columns, lower_starts, first)
    wide: np.ndarray = (np.diff(rows) + 3) // 4 * 4
    long = np.maximum(np.diff(rows) + np.diff(starts), wide)
    sizes = int(wide.max(initial=4)), int(long.max(initial=4)), int(((wide + 1) * long).max(initial=0))
    updates, sources = _updates(rows, starts, columns)
    return Supernodes(rows, starts, columns, updates, sources, left, sizes)
