"""Records of the steps of `slots.cu`: what each warp does in a step, and what it copies from memory for a later one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._kernels.direct.schedules import NONE, TERMS, Schedule, chunked, scheduled
from ensemble._kernels.direct.slot_tasks import Work

__all__ = ["FEW_COPIES", "MANY_COPIES", "MOST_SLOTS", "MOST_VALUES", "RING", "WORDS", "Form", "Program", "program"]

BUSY, SCALED, PIVOT, FINAL, OUT = (1 << k for k in range(3, 8))
"""Flags of a record, as in slots.cu; below them stands the number of its terms: 0, 1, 2 or 4."""

FLAG_BITS = 10
"""Of the first word, below the row that a number is written to."""

SLOT_BITS = 10
"""Of a slot in words that name several, and below the row that is copied there."""

MOST_SLOTS = 1 << SLOT_BITS
MOST_VALUES = 1 << (32 - FLAG_BITS)
"""Rows of memory, values and right-hand side together, that records can name."""

FEW_COPIES, MANY_COPIES = 1, 6
"""Copies that a record names: the start of a sum, or besides the values of its terms and the pivot."""

WORDS = {FEW_COPIES: 8, MANY_COPIES: 12}
"""Of a record with so many copies."""

WARP, RING = 32, 8
"""As in slots.cu: lanes, and steps whose records are in shared memory; numbers are copied two steps less ahead."""


class Program(NamedTuple):
    """What a launch goes through."""

    records: Any
    """Shape (n_steps, warps, words), int32; behind them as many steps that do nothing as records are read ahead."""
    first_copies: Any
    """What is copied before the first step: shape (warps, copies, 32)."""
    n_slots: int
    n_steps: int


class Form(NamedTuple):
    """How a launch goes through its steps."""

    height: int
    """Warps of a block."""
    gap: int
    """As in `schedules.chunked`."""
    closely: bool
    """As in `slot_tasks.factor_work`."""


def program(work: Work, form: Form, copies: int, itemsize: int) -> Program:
    """The records of a schedule.

    Words: {flags, terms and row of the result; slots of result, scale and start; copies; pairs of slots}. The first
    copy is that of the start. Numbers that nothing reads are written to a slot all the same.
    """
    tasks, ahead = work.tasks, RING - 2
    chunks = chunked(tasks, form.gap)
    plan = scheduled(tasks, chunks, form.height, ahead)
    step, row, number, slot = plan.step, plan.row, chunks.number, np.where(plan.slots == NONE, plan.n_slots, plan.slots)
    n_steps = plan.n_steps + plan.n_steps % 2
    words = np.zeros((n_steps + RING - 1, form.height, WORDS[copies]), np.int64)
    n_terms = chunks.end - chunks.first
    begin = tasks.begin[number]
    start = np.where((chunks.previous != NONE) | (plan.fetcher[number] != NONE), slot[number],
                     np.where(begin != NONE, slot[begin], 0))  # fmt: skip
    last, scale, out = chunks.last, tasks.scale[number], work.out[number]
    flags = BUSY | np.where(n_terms == 3, 4, n_terms) | np.where(last, FINAL, 0)
    flags |= np.where(last & (scale != NONE), SCALED, 0) | np.where(last & work.pivot[number], PIVOT, 0)
    flags |= np.where(last & (out != NONE), OUT, 0)
    behind = work.behind if copies == MANY_COPIES else 0
    words[step, row, 0] = np.maximum(out - behind, 0) << FLAG_BITS | flags
    scale_slot = np.where(scale != NONE, slot[scale], 0)
    words[step, row, 1] = slot[number] | scale_slot << SLOT_BITS | start << 2 * SLOT_BITS
    chunk = np.repeat(np.arange(number.size), n_terms)
    k = np.arange(chunk.size) - np.repeat(np.cumsum(n_terms) - n_terms, n_terms)
    term = chunks.first[chunk] + k
    first_pair = words.shape[2] - TERMS
    shift = (WARP * itemsize).bit_length() - 1
    pair = slot[tasks.left[term]] | slot[tasks.right[term]] << SLOT_BITS
    words[step[chunk], row[chunk], first_pair + k] = pair << shift
    first_copies = _copies(tasks.source, tasks.passive, behind, plan, words, ahead, copies)
    return Program(words.astype(np.uint32).view(np.int32), first_copies, plan.n_slots + 1, n_steps)


def _copies(
    source: np.ndarray, passive: np.ndarray, behind: int, plan: Schedule, words: np.ndarray, ahead: int, copies: int
) -> np.ndarray:
    """Put the copies of each chunk into its warp's record `ahead` steps before; returns those of the first steps."""
    height = words.shape[1]
    number = np.flatnonzero(plan.fetcher != NONE)
    number = number[np.lexsort((passive[number], plan.fetcher[number]))]
    chunk, later = plan.fetcher[number], passive[number]
    first = np.searchsorted(chunk, chunk)
    k = np.arange(chunk.size) - first + (later & later[first])
    word = (source[number] - np.where(later, 0, behind)) << SLOT_BITS | plan.slots[number]
    step, row = plan.step[chunk], plan.row[chunk]
    late = step >= ahead
    words[step[late] - ahead, row[late], 2 + k[late]] = word[late]
    before = np.zeros((height, copies, WARP), np.uint32)
    before[row[~late], k[~late], step[~late]] = word[~late]
    return before.view(np.int32)
