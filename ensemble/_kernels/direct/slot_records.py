"""Records of the steps of `slots.cu`: what each row of threads does, and what it reads ahead, 32 bytes for a step.

Numbers that a step reads from memory stand in a record some steps before, so that their copies begin in time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._kernels.direct.elimination import Elimination
from ensemble._kernels.direct.levels import triangles
from ensemble._kernels.direct.schedules import NONE, TERMS, ZERO_SLOT, Schedule, Tasks, row_positions, scheduled
from ensemble._kernels.direct.slot_tasks import factor_tasks

__all__ = ["MOST_VALUES", "Form", "Program", "factor_program", "pass_program", "passes"]

START, FROM_SLOT, FIRST_PAIR, SECOND_PAIR, SCALED, FINISH, PIVOT, KEPT, SLOT_SCALED = (1 << k for k in range(9))
FLAG_BITS = 9
"""Flags of a record, as in slots.cu; its first word holds them below the place of the result."""

MOST_VALUES = 1 << (31 - FLAG_BITS)
"""Values and rows together, below which their places fit there."""

ZERO, NOTHING = -1, -2
"""Sources below the rows of an array: the number zero, and none."""


class Program(NamedTuple):
    """Records of all steps, and what the first steps read."""

    records: Any
    """Shape (n_steps, rows of threads, 8), int32."""
    first_sources: Any
    n_slots: int

    n_steps: int


class Form(NamedTuple):
    """Rows of threads of a block, and steps that it reads ahead, one more: of a substitution half as many."""

    height: int
    ring: int


def _empty(schedule: Schedule, height: int) -> np.ndarray:
    return np.zeros((schedule.n_steps, height, 2 * TERMS), np.int64)


def _moved_ahead(records: np.ndarray, sources: np.ndarray, words: slice, ahead: int) -> np.ndarray:
    """Put the sources of each step into the record `ahead` steps before; returns those of the first steps."""
    records[:, :, words] = NOTHING
    if sources.shape[0] > ahead:
        records[:-ahead, :, words] = sources[ahead:]
    first = np.full((ahead, *sources.shape[1:]), NOTHING, np.int32)
    first[: sources.shape[0]] = sources[:ahead]
    return first


def _as_int32(records: np.ndarray, first_sources: np.ndarray) -> np.ndarray:
    """Records as they lie in memory, behind them as many that do nothing as steps are read ahead."""
    whole = np.zeros((records.shape[0] + first_sources.shape[0], *records.shape[1:]), np.uint32)
    whole[: records.shape[0]] = records & 0xFFFFFFFF
    return whole.view(np.int32)


def factor_program(plan: Elimination, nnz: int, with_rhs: bool, with_solution: bool, form: Form) -> Program:
    """Records {out and flags, slot and slot of the scale, later source, slot of the start, pairs of slots}."""
    made = factor_tasks(plan, nnz, with_rhs, with_solution)
    tasks = made.tasks
    height = form.height
    plan_of = scheduled(tasks, height)
    first, last, row, slot = plan_of.first_step, plan_of.last_step, plan_of.row, plan_of.slots
    records = _empty(plan_of, height)
    lengths = np.diff(tasks.starts)
    task = np.repeat(np.arange(lengths.size), lengths)
    k = np.arange(task.size) - tasks.starts[:-1][task]
    step = first[task] + k // TERMS
    records[step, row[task], 4 + k % TERMS] = slot[tasks.left] | slot[tasks.right] << 16
    for place, flag in ((0, FIRST_PAIR), (2, SECOND_PAIR)):
        chosen = k % TERMS == place
        records[step[chosen], row[task[chosen]], 0] |= flag
    records[first, row, 0] |= START + np.where(tasks.begin != NONE, FROM_SLOT, 0)
    records[first, row, 3] = np.where(tasks.begin != NONE, slot[tasks.begin], 0)
    records[last, row, 0] |= (
        FINISH + np.where(tasks.scale != NONE, SCALED, 0) + np.where(made.pivot, PIVOT, 0)
        + np.where(slot != NONE, KEPT, 0) + (made.out << FLAG_BITS)
    )  # fmt: skip
    scale = np.where(tasks.scale != NONE, slot[tasks.scale], 0)
    records[last, row, 1] = np.where(slot != NONE, slot, 0) | scale << 16
    sources = np.full((plan_of.n_steps, height), NOTHING, np.int64)
    sources[first, row] = np.where(tasks.begin != NONE, NOTHING, made.source)
    ahead = _moved_ahead(records, sources[:, :, None], slice(2, 3), form.ring - 1)
    return Program(_as_int32(records, ahead), ahead[:, :, 0].copy(), plan_of.n_slots, plan_of.n_steps)


class Pass(NamedTuple):
    """One pass of a substitution in elimination order."""

    terms: tuple[np.ndarray, np.ndarray, np.ndarray]
    """(row, column, place of the value) of the terms."""
    down: bool
    """Whether rows follow from the first to the last; they need the rows before them then."""
    ascending: bool
    """The order of a row's terms by their columns."""
    own: np.ndarray
    """The row of x of each row."""
    source: np.ndarray
    """The row that its sum begins as."""
    scaled: bool
    """Whether sums are multiplied by the reciprocal pivot of their rows."""
    slot_scaled: bool = False
    """Whether that product stays in the slot alone."""


def pass_program(plan: Elimination, given: Pass, form: Form) -> Program:
    """Records {out and flags, slot, four sources of a later step, four slots}."""
    n, position = plan.diagonal.size, row_positions(plan)
    rank = position if given.down else n - 1 - position
    order = np.argsort(rank)
    row, column, place = given.terms
    by_rank = np.lexsort((column if given.ascending else -column, rank[row]))
    starts = np.searchsorted(rank[row][by_rank], np.arange(n + 1))
    none, right = np.full(row.size, NONE, np.int64), rank[column[by_rank]]
    tasks = Tasks(starts, none, right, _none_of(n), _none_of(n))
    height = form.height
    plan_of = scheduled(tasks, height, 1, int(given.scaled))
    first, last, rows, slot = plan_of.first_step, plan_of.last_step, plan_of.row, plan_of.slots
    records = _empty(plan_of, height)
    sources, slots = (np.full((plan_of.n_steps, height, TERMS), fill, np.int64) for fill in (ZERO, ZERO_SLOT))
    task = np.repeat(np.arange(n), np.diff(starts))
    k = np.arange(task.size) - starts[:-1][task] + 1
    step = first[task] + k // TERMS
    sources[step, rows[task], k % TERMS], slots[step, rows[task], k % TERMS] = place[by_rank], slot[right]
    sources[first, rows, 0] = plan.n_values + given.source[order]
    used = np.zeros((plan_of.n_steps, height), bool)
    used[step, rows[task]] |= k % TERMS >= 2
    np.logical_or.at(used, (step, rows[task]), k % TERMS >= 2)
    if given.scaled:
        sources[last, rows, TERMS - 1] = plan.diagonal[order]
        used[last, rows] = True
    sources[:, :, 2:][~used] = NOTHING
    records[used, 0] |= SECOND_PAIR
    records[first, rows, 0] |= START
    flags = FINISH + SCALED * given.scaled + SLOT_SCALED * given.slot_scaled
    records[last, rows, 0] |= flags + np.where(slot != NONE, KEPT, 0) + (given.own[order].astype(np.int64) << FLAG_BITS)
    records[last, rows, 1] = np.where(slot != NONE, slot, 0)
    records[:, :, 6], records[:, :, 7] = slots[:, :, 0] | slots[:, :, 1] << 16, slots[:, :, 2] | slots[:, :, 3] << 16
    ahead = _moved_ahead(records, sources, slice(2, 6), form.ring // 2 - 1)
    return Program(_as_int32(records, ahead), ahead, plan_of.n_slots, plan_of.n_steps)


def _none_of(n: int) -> np.ndarray:
    """`NONE` for each of `n` tasks."""
    return np.full(n, NONE, np.int64)


def passes(plan: Elimination, transposed: bool) -> tuple[Pass, Pass]:
    """Forward and backward substitution."""
    (row, column, place), (upper_row, upper_column, upper_place) = triangles(plan)
    rows, columns = (plan.columns, plan.rows) if transposed else (plan.rows, plan.columns)
    if transposed and not plan.symmetric:
        before, after = (upper_column, upper_row, upper_place), (column, row, place)
    else:
        before, after = (row, column, place), (upper_row, upper_column, upper_place)
    by_columns = transposed and not plan.symmetric
    forward = Pass(before, True, True, columns, rows, by_columns or plan.symmetric, plan.symmetric)
    return forward, Pass(after, False, not by_columns, columns, columns, not by_columns)
