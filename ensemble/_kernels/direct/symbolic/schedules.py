"""The order in which a block of threads works out numbers that stay in shared memory: chunks, steps and slots.

A number is one value of a factorisation or one row of a substitution. Its terms are subtracted in chunks of up to
`TERMS`; a partial sum stays in the slot of the number. Chunks are sorted by the time at which their operands are
known, so that operands die early (right-looking); one step later other chunks may read what a chunk wrote. In each
step a row of threads takes the first chunk that is ready. A slot belongs to one number from its copy from memory, or
from its first chunk, to its last reader, and to the step after its last chunk, in which it is written to memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ensemble._compile.numba import compiled_procedure, compiled_serial
from ensemble._kernels.direct.symbolic.elimination import Elimination

__all__ = ["LAZY", "NONE", "TERMS", "ZERO_SLOT", "Chunks", "Schedule", "Tasks", "chunked", "row_positions", "scheduled"]

NONE = -1
"""In place of a number, a chunk or a slot."""

ZERO_SLOT, FIRST_SLOT = 0, 1
"""Slots of the constant 0, and of the first number."""

WINDOW = 16
"""Chunks for each row of threads, of which it takes the first that is ready: more chunks need more slots."""

TERMS = 4
"""Terms of a chunk."""

LAZY = -1
"""In place of a gap: all chunks of a number come when the number is due."""


class Tasks(NamedTuple):
    """Numbers, which name each other by their places."""

    time: np.ndarray
    """When a number is due: later than all that it needs."""
    rank: np.ndarray
    """The order of numbers that are due at the same time."""
    starts: np.ndarray
    """Where the terms of each number begin, one more than there are numbers."""
    left: np.ndarray
    """First factor of each term."""
    right: np.ndarray
    """Second factor of each term."""
    begin: np.ndarray
    """The number whose value the sum begins as, or NONE."""
    scale: np.ndarray
    """The number whose value the sum is multiplied by, or NONE."""
    source: np.ndarray
    """The row in memory that the sum begins as, or NONE."""
    passive: np.ndarray
    """Whether a number is what memory holds, and has no chunk."""


class Chunks(NamedTuple):
    """Chunks in the order in which rows of threads look for one that is ready."""

    number: np.ndarray
    first: np.ndarray
    """The first of the terms."""
    end: np.ndarray
    previous: np.ndarray
    """The chunk before of the same number, or NONE."""
    last: np.ndarray
    """Whether the number is known after it."""


class Schedule(NamedTuple):
    """The step and the row of threads of each chunk, and the slot of each number."""

    step: np.ndarray
    row: np.ndarray
    fetcher: np.ndarray
    """The chunk for which a number is copied from memory, NONE for numbers that are not."""
    read: np.ndarray
    """Whether other numbers read a number."""
    slots: np.ndarray
    """NONE for numbers that need none."""
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


@compiled_procedure
def _cut(time, starts, left, right, scale, passive, gap, chunks, keys, fill):
    """Count the chunks of all numbers, or write (number, first, end, last) and keys with `fill`; returns their number.

    A chunk has terms that become known within `gap`; the last one waits for the number's own time if that is as near,
    and a number that is scaled gets one of its own at that time if not.
    """
    count = 0
    for v in range(time.size):
        if passive[v]:
            continue
        low, high = starts[v], starts[v + 1]
        p, done, known = low, False, -1
        while not done:
            first, opened = p, -1
            while p < high and p - first < TERMS:
                when = max(known, max(time[left[p]], time[right[p]]))
                if opened < 0:
                    opened = when
                if gap >= 0 and when - opened > gap:
                    break
                known = when
                p += 1
            key = min(2 * known + 1, 2 * time[v])
            done = p == high
            if gap < 0 or opened < 0 or (done and time[v] - opened <= gap):
                key = 2 * time[v]
            elif done and scale[v] >= 0:
                done = False
            if fill:
                chunks[count, 0], chunks[count, 1], chunks[count, 2], chunks[count, 3] = v, first, p, done
                keys[count] = key
            count += 1
    return count


def chunked(tasks: Tasks, gap: int) -> Chunks:
    """The terms of all numbers in chunks: of terms that become known within `gap`, or `LAZY`."""
    given = tasks.time, tasks.starts, tasks.left, tasks.right, tasks.scale, tasks.passive, gap
    n = int(_cut(*given, np.empty((0, 4), np.int64), np.empty(0, np.int64), False))
    chunks, keys = np.empty((n, 4), np.int64), np.empty(n, np.int64)
    _cut(*given, chunks, keys, True)
    number = chunks[:, 0]
    # Chunks of one number keep their order; sums that are due sooner come first.
    order = np.lexsort((np.arange(n), tasks.rank[number], tasks.time[number], keys))
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    previous = np.where(np.diff(number, prepend=NONE) == 0, np.append(NONE, place[:-1])[:n], NONE)
    sorted_chunks = chunks[order]
    first, end = (np.ascontiguousarray(sorted_chunks[:, k]) for k in (1, 2))
    return Chunks(np.ascontiguousarray(number[order]), first, end, previous[order], sorted_chunks[:, 3] != 0)


@compiled_serial
def _steps(chunks, left, right, begin, scale, passive, height, window, step_of, row):
    """The step and the row of threads of each chunk; returns the number of steps, -1 where chunks wait for ever."""
    number, first, end, previous, last = chunks
    n = number.size
    done = np.full(passive.size, 1 << 60, np.int64)  # the step after which a number is known
    for v in range(passive.size):
        if passive[v]:
            done[v] = -1
    low = step = 0
    while low < n:
        r = 0
        for c in range(low, min(low + window, n)):
            if r == height:
                break
            if step_of[c] >= 0:
                continue
            v = number[c]
            if previous[c] >= 0:
                ready = 0 <= step_of[previous[c]] < step
            else:
                ready = begin[v] < 0 or done[begin[v]] < step
            ready = ready and (not last[c] or scale[v] < 0 or done[scale[v]] < step)
            k = first[c]
            while ready and k < end[c]:
                ready = done[left[k]] < step and done[right[k]] < step
                k += 1
            if ready:
                step_of[c], row[c] = step, r
                if last[c]:
                    done[v] = step
                r += 1
        if r == 0:
            return -1
        step += 1
        while low < n and step_of[low] >= 0:
            low += 1
    return step


@compiled_procedure
def _lives(chunks, left, right, begin, scale, source, step_of, ahead, birth, death, fetcher, read):
    """The steps in which each number has a slot, who has it copied, and whether other numbers read it."""
    number, first, end, previous, last = chunks
    for c in range(number.size):
        v, t = number[c], step_of[c]
        if previous[c] < 0:
            birth[v] = t
            if source[v] >= 0:
                birth[v], fetcher[v] = t - ahead, c
        death[v] = max(death[v], t + last[c])  # written to memory one step after it is known
    for c in range(number.size):
        v, t = number[c], step_of[c]
        for k in range(first[c] - 2, end[c]):
            if k >= first[c]:
                used = (left[k], right[k])
            elif k == first[c] - 1:
                used = (begin[v] if previous[c] < 0 else -1, scale[v] if last[c] else -1)
            else:
                continue
            for u in used:
                if u < 0:
                    continue
                read[u] = True
                death[u] = max(death[u], t)
                copier = fetcher[u]
                own = copier >= 0 and number[copier] == u  # else it is passive, and copied for the first that reads it
                if source[u] >= 0 and not own and (copier < 0 or step_of[copier] > t):
                    fetcher[u], birth[u] = c, t - ahead


@compiled_serial
def _slots(birth, death, wanted, slots):
    """A slot for each number that wants one; returns how many there are."""
    born, ended = np.argsort(birth), np.argsort(death)
    free, n_free, n_slots, e = np.empty(birth.size, np.int64), 0, FIRST_SLOT, 0
    for v in born:
        if not wanted[v]:
            continue
        while e < ended.size and death[ended[e]] < birth[v]:  # read for the last time in a step before
            if slots[ended[e]] >= 0:
                free[n_free] = slots[ended[e]]
                n_free += 1
            e += 1
        if n_free:
            n_free -= 1
            slots[v] = free[n_free]
        else:
            slots[v] = n_slots
            n_slots += 1
    return n_slots


def scheduled(tasks: Tasks, chunks: Chunks, height: int, ahead: int) -> Schedule:
    """Steps of `height` rows of threads; numbers are copied from memory `ahead` steps before they are read."""
    n, n_chunks = tasks.time.size, chunks.number.size
    step, row = (np.full(n_chunks, NONE, np.int64) for _ in range(2))
    operands = tasks.left, tasks.right, tasks.begin, tasks.scale
    n_steps = int(_steps(tuple(chunks), *operands, tasks.passive, height, WINDOW * height, step, row))
    assert n_steps >= 0
    birth, death, fetcher, slots = (np.full(n, fill, np.int64) for fill in (-(1 << 60), NONE, NONE, NONE))
    read = np.zeros(n, np.bool_)
    _lives(tuple(chunks), *operands, tasks.source, step, ahead, birth, death, fetcher, read)
    wanted = read | (fetcher != NONE)
    wanted[chunks.number] = True
    n_slots = int(_slots(birth, death, wanted, slots))
    return Schedule(step, row, fetcher, read, slots, n_steps, n_slots)
