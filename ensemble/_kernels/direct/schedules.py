"""The order in which a block of threads works out values that stay in shared memory: tasks, steps and slots.

A task is one value of a factorisation or one row of a substitution. Tasks are sorted by a depth-first walk over the
rows, so that few values are needed at one time. In each step a row of threads adds some terms of its task, or takes the
first task that need not wait. A value has a slot of shared memory from its last step to that of its last reader.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ensemble._compile.numba import compiled_serial
from ensemble._kernels.direct.elimination import Elimination

__all__ = ["NONE", "TERMS", "ZERO_SLOT", "Schedule", "Tasks", "row_positions", "scheduled"]

NONE = -1
"""In place of a task, a value or a row."""

ZERO_SLOT, FIRST_SLOT = 0, 1
"""Slots of the constant 0, and of the first value."""

WINDOW = 64
"""Tasks for each row of threads, of which it takes the first that is ready: more tasks keep more values in slots."""

TERMS = 4
"""Terms that a step adds."""


class Tasks(NamedTuple):
    """Tasks in an order in which each follows those that it needs; tasks name each other by their places in it."""

    starts: np.ndarray
    """Where the terms of each task begin, one more than there are tasks."""
    left: np.ndarray
    """First factor of each term, NONE for a number that is read from memory."""
    right: np.ndarray
    """Second factor of each term."""
    begin: np.ndarray
    """The task whose value the sum begins as, or NONE."""
    scale: np.ndarray
    """The task whose value the sum is multiplied by, or NONE."""


class Schedule(NamedTuple):
    """Steps in which each row of threads adds up to `TERMS` terms of its task."""

    first_step: np.ndarray
    """The first step of each task."""
    last_step: np.ndarray
    """Its last one, after which other tasks read its value."""
    row: np.ndarray
    """The row of threads of each task."""
    slots: np.ndarray
    """The slot of each task's value, NONE where no other task reads it."""
    n_steps: int
    n_slots: int


@compiled_serial
def _depth_first(starts, below, order):
    """Rows in an order in which each follows those of `below`, whose numbers are smaller, closely."""
    n = starts.size - 1
    seen, stack, place = np.zeros(n, np.bool_), np.empty(n, np.int64), starts[1:].copy()
    count = 0
    for root in range(n - 1, -1, -1):
        if seen[root]:
            continue
        seen[root], stack[0], depth = True, root, 1
        while depth:
            i = stack[depth - 1]
            if place[i] == starts[i]:
                order[count] = i
                count, depth = count + 1, depth - 1
                continue
            place[i] -= 1
            k = below[place[i]]
            if not seen[k]:
                seen[k], stack[depth] = True, k
                depth += 1


def row_positions(plan: Elimination) -> np.ndarray:
    """The place of each row in a depth-first order of the elimination."""
    n = plan.diagonal.size
    line = np.arange(n)
    row = np.concatenate([np.repeat(line, np.diff(plan.lower_starts)), plan.upper])
    column = np.concatenate([plan.lower, np.repeat(line, np.diff(plan.upper_starts))])
    by_row = np.lexsort((column, row))
    starts = np.searchsorted(row[by_row], np.arange(n + 1))
    order = np.empty(n, np.int64)
    _depth_first(starts, np.ascontiguousarray(column[by_row], np.int64), order)
    positions = np.empty(n, np.int64)
    positions[order] = line
    return positions


@compiled_serial
def _steps(starts, left, right, begin, scale, height, window, before, behind, first_step, last_step, row):
    """First and last step and the row of threads of each task; returns the number of steps.

    A term needs its factors in the step in which it is added.
    """
    n = starts.size - 1
    busy = np.zeros(height, np.int64)
    low = step = 0
    while low < n:
        r = 0
        for t in range(low, min(low + window, n)):
            while r < height and busy[r] > step:
                r += 1
            if r == height:
                break
            if last_step[t] >= 0:
                continue
            length = max(1, (starts[t + 1] - starts[t] + before + behind + TERMS - 1) // TERMS)
            ready = (begin[t] < 0 or 0 <= last_step[begin[t]] < step) and (
                scale[t] < 0 or 0 <= last_step[scale[t]] < step + length - 1
            )
            k = starts[t]
            while ready and k < starts[t + 1]:
                when = step + (k - starts[t] + before) // TERMS
                ready = (left[k] < 0 or 0 <= last_step[left[k]] < when) and (
                    right[k] < 0 or 0 <= last_step[right[k]] < when
                )
                k += 1
            if ready:
                first_step[t], last_step[t], row[t] = step, step + length - 1, r
                busy[r] = step + length
        step += 1
        while low < n and last_step[low] >= 0:
            low += 1
    return last_step.max() + 1 if n else 0


@compiled_serial
def _slots(starts, left, right, begin, scale, last_step, n_steps, first, slots):
    """A slot for each value that is read, from its last step to that of the last reader; returns their number."""
    n = starts.size - 1
    last = np.full(n, -1, np.int64)
    for t in range(n):
        p = last_step[t]
        for k in range(starts[t], starts[t + 1]):
            if left[k] >= 0:
                last[left[k]] = max(last[left[k]], p)
            if right[k] >= 0:
                last[right[k]] = max(last[right[k]], p)
        if begin[t] >= 0:
            last[begin[t]] = max(last[begin[t]], p)
        if scale[t] >= 0:
            last[scale[t]] = max(last[scale[t]], p)
    written, ended = np.argsort(last_step), np.argsort(last)
    free, n_free, n_slots, e = np.empty(n, np.int64), 0, first, 0
    for t in written:
        if last[t] < 0:
            continue
        while last[ended[e]] < last_step[t]:  # read for the last time in a step before
            if last[ended[e]] >= 0:
                free[n_free] = slots[ended[e]]
                n_free += 1
            e += 1
        if n_free:
            n_free -= 1
            slots[t] = free[n_free]
        else:
            slots[t] = n_slots
            n_slots += 1
    return n_slots


def scheduled(tasks: Tasks, height: int, before: int = 0, behind: int = 0) -> Schedule:
    """Steps of `height` rows of threads; each task reads so many numbers before and behind its terms."""
    n = tasks.starts.size - 1
    first_step, last_step, row = (np.full(n, NONE, np.int64) for _ in range(3))
    lists = tasks.starts, tasks.left, tasks.right, tasks.begin, tasks.scale
    n_steps = int(_steps(*lists, height, WINDOW * height, before, behind, first_step, last_step, row))
    slots = np.full(n, NONE, np.int64)
    n_slots = int(_slots(*lists, last_step, n_steps, FIRST_SLOT, slots))
    return Schedule(first_step, last_step, row, slots, n_steps, n_slots)
