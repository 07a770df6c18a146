"""Schedules of a device's tasks: what a step reads was written in a step before, and is not overwritten too early."""

import numpy as np
import pytest

from ensemble._kernels.direct.schedules import NONE, TERMS, row_positions, scheduled
from ensemble._kernels.direct.slot_tasks import factor_tasks
from tests.linalg.eliminated_graphs import banded, elimination, matrices, network

GRAPHS = {"network": network(), "band": banded(40, 5)}


@pytest.fixture(params=[(name, symmetric, solution) for name in GRAPHS for symmetric in (0, 1) for solution in (0, 1)])
def tasks(request):
    name, symmetric, solution = request.param
    graph, values = matrices(GRAPHS[name], 1)
    return factor_tasks(elimination(graph, bool(symmetric), None), values.shape[0], True, bool(solution)).tasks


def reads(tasks, schedule):
    """(task that is read, step) of everything that tasks read."""
    lengths = np.diff(tasks.starts)
    reader = np.repeat(np.arange(lengths.size), lengths)
    step = schedule.first_step[reader] + (np.arange(reader.size) - tasks.starts[:-1][reader]) // TERMS
    read = np.concatenate([tasks.left, tasks.right, tasks.begin, tasks.scale])
    when = np.concatenate([step, step, schedule.first_step, schedule.last_step])
    return read[read != NONE], when[read != NONE]


@pytest.mark.parametrize("height", [1, 4, 16])
def test_values_are_read_after_they_are_written(tasks, height):
    schedule = scheduled(tasks, height)
    read, when = reads(tasks, schedule)
    assert (schedule.last_step[read] < when).all()
    assert (schedule.slots[read] != NONE).all()


@pytest.mark.parametrize("height", [1, 4, 16])
def test_a_row_of_threads_has_one_task_at_a_time(tasks, height):
    schedule = scheduled(tasks, height)
    busy = np.zeros((schedule.n_steps, height), int)
    for first, last, row in zip(schedule.first_step, schedule.last_step, schedule.row, strict=True):
        busy[first : last + 1, row] += 1
    assert busy.max() == 1


@pytest.mark.parametrize("height", [1, 4, 16])
def test_a_slot_holds_one_value_at_a_time(tasks, height):
    schedule = scheduled(tasks, height)
    read, when = reads(tasks, schedule)
    last = np.full(schedule.slots.size, -1)
    np.maximum.at(last, read, when)
    kept = schedule.slots != NONE
    assert schedule.slots[kept].min() > 0 and schedule.slots[kept].max() < schedule.n_slots
    order = np.lexsort((schedule.last_step, schedule.slots))
    order = order[kept[order]]
    same = schedule.slots[order][1:] == schedule.slots[order][:-1]
    assert (last[order][:-1] < schedule.last_step[order][1:])[same].all()


@pytest.mark.parametrize("name", GRAPHS)
def test_rows_follow_those_that_they_need(name):
    graph, _ = matrices(GRAPHS[name], 1)
    plan = elimination(graph, False, None)
    position = row_positions(plan)
    row = np.repeat(np.arange(plan.diagonal.size), np.diff(plan.lower_starts))
    assert (position[plan.lower] < position[row]).all()
    assert sorted(position) == list(range(plan.diagonal.size))
