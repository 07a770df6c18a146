"""Schedules of a device's chunks: what a step reads was written in a step before, and is not overwritten too early."""

import numpy as np
import pytest

from ensemble._kernels.direct.slot_tasks import factor_work, solve_work
from ensemble._kernels.direct.symbolic.schedules import LAZY, NONE, TERMS, chunked, row_positions, scheduled
from tests.linalg.eliminated_graphs import banded, elimination, matrices, network

GRAPHS = {"network": network(), "band": banded(40, 5)}
AHEAD = 6


@pytest.fixture(
    scope="module",
    params=[(name, symmetric, which) for name in GRAPHS for symmetric in (0, 1) for which in range(4)],
    ids=str,
)
def tasks(request):
    name, symmetric, which = request.param
    graph, values = matrices(GRAPHS[name], 1)
    plan, closely = elimination(graph, bool(symmetric), None), which % 2 == 1
    if which < 2:
        return factor_work(plan, values.shape[0], closely, True, which == 1).tasks
    return solve_work(plan, which == 3, closely, which == 3)[-1].tasks


KINDS = [(0, 1), (4, 4), (LAZY, 16)]
"""Gaps and heights that are always tried; the other pairs of them in slow runs."""

OTHERS = [(gap, height) for gap, _ in KINDS for _, height in KINDS if (gap, height) not in KINDS]


@pytest.fixture(scope="module", params=KINDS + [pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS], ids=str)
def case(request, tasks):
    gap, height = request.param
    chunks = chunked(tasks, gap)
    return tasks, chunks, scheduled(tasks, chunks, height, AHEAD), height


def uses(tasks, chunks):
    """(number, chunk) of all that chunks read besides their own sums."""
    lengths = chunks.end - chunks.first
    chunk = np.repeat(np.arange(lengths.size), lengths)
    term = np.concatenate([np.arange(a, b) for a, b in zip(chunks.first, chunks.end, strict=True)] or [chunk])
    begun, ended = np.flatnonzero(chunks.previous == NONE), np.flatnonzero(chunks.last)
    number = np.concatenate(
        [tasks.left[term], tasks.right[term], tasks.begin[chunks.number[begun]], tasks.scale[chunks.number[ended]]]
    )
    reader = np.concatenate([chunk, chunk, begun, ended])
    return number[number != NONE], reader[number != NONE]


def test_chunks_have_all_terms_in_their_order(case):
    tasks, chunks, schedule, _ = case
    assert (chunks.end - chunks.first <= TERMS).all()
    for v in np.flatnonzero(~tasks.passive):
        own = np.flatnonzero(chunks.number == v)
        own = own[np.argsort(schedule.step[own])]
        terms = [k for c in own for k in range(chunks.first[c], chunks.end[c])]
        assert terms == list(range(tasks.starts[v], tasks.starts[v + 1]))
        assert chunks.last[own].tolist() == [False] * (own.size - 1) + [True]
        assert chunks.previous[own].tolist() == [NONE, *own[:-1]] and np.diff(schedule.step[own], prepend=-1).min() > 0


def test_numbers_are_read_after_they_are_known(case):
    tasks, chunks, schedule, _ = case
    known = np.where(tasks.passive, -1, np.iinfo(np.int64).max)
    known[chunks.number[chunks.last]] = schedule.step[chunks.last]
    number, reader = uses(tasks, chunks)
    assert (known[number] < schedule.step[reader]).all()
    assert (schedule.slots[number] != NONE).all()


def test_a_row_of_threads_has_one_chunk_in_a_step(case):
    _, _, schedule, height = case
    assert schedule.step.max() + 1 == schedule.n_steps and 0 <= schedule.row.min() <= schedule.row.max() < height
    assert np.unique(schedule.step * height + schedule.row).size == schedule.step.size


def test_a_slot_belongs_to_one_number_at_a_time(case):
    tasks, chunks, schedule, _ = case
    n = tasks.time.size
    birth, death = np.full(n, np.iinfo(np.int64).max), np.full(n, -1)
    number, reader = uses(tasks, chunks)
    np.maximum.at(death, number, schedule.step[reader])
    np.maximum.at(death, chunks.number, schedule.step + chunks.last)  # it is written to memory a step later
    np.minimum.at(birth, chunks.number, schedule.step)
    copied = schedule.fetcher != NONE
    assert (copied == (tasks.source != NONE) & (death >= 0)).all()
    np.minimum.at(birth, number[tasks.passive[number]], schedule.step[reader][tasks.passive[number]])
    assert (schedule.step[schedule.fetcher[copied]] == birth[copied]).all()
    birth[copied] -= AHEAD
    kept = schedule.slots != NONE
    assert schedule.slots[kept].min() > 0 and schedule.slots[kept].max() < schedule.n_slots
    order = np.lexsort((birth, schedule.slots))
    order = order[kept[order]]
    same = schedule.slots[order][1:] == schedule.slots[order][:-1]
    assert (death[order][:-1] < birth[order][1:])[same].all()


@pytest.mark.parametrize("name", GRAPHS)
def test_rows_follow_those_that_they_need(name):
    graph, _ = matrices(GRAPHS[name], 1)
    plan = elimination(graph, False, None)
    position = row_positions(plan)
    row = np.repeat(np.arange(plan.diagonal.size), np.diff(plan.lower_starts))
    assert (position[plan.lower] < position[row]).all()
    assert sorted(position) == list(range(plan.diagonal.size))
