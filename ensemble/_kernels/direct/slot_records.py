"""Records of the steps of `slots.cu`: what each warp does in a step, and what it copies from memory for a later one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._kernels.direct.slot_tasks import Work
from ensemble._kernels.direct.symbolic.schedules import NONE, TERMS, Schedule, chunked, scheduled

__all__ = [
    "FEW_COPIES",
    "GROUP",
    "MANY_COPIES",
    "MOST_SLOTS",
    "MOST_VALUES",
    "RINGS",
    "SLOT_BYTES",
    "WARP",
    "WORDS",
    "Form",
    "Program",
    "program",
]

WARP_BUSY, SCALED, PIVOT, FINAL, OUT, WARP_SCALED, WARP_PIVOT = (1 << k for k in range(3, 10))
"""Flags of a record, as in slots.cu; below them stands the number of terms of its warp: 0, 1, 2 or 4."""

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

RINGS = {FEW_COPIES: 8, MANY_COPIES: 7}
"""Steps whose records are in shared memory, as in slots.cu; numbers are copied two steps less ahead."""

WARP, GROUP = 32, 8
"""As in slots.cu: lanes of a warp, and of a chunk."""

SLOT_BYTES = 128
"""Of the samples of a block."""


class Program(NamedTuple):
    """The lists of operations and places that a launch reads in order."""

    records: Any
    """Shape (n_steps, groups, words), int32; behind them as many steps that do nothing as records are read ahead."""
    first_copies: Any
    """What is copied before the first step: shape (groups, copies, GROUP)."""
    n_slots: int
    n_steps: int


class Form(NamedTuple):
    """How a launch goes through its steps."""

    height: int
    """Warps of a block that work on chunks, WARP / GROUP each in a step; as many copy for them. At most 6."""
    gap: int
    """As in `schedules.chunked`."""
    closely: bool
    """As in `slot_tasks.factor_work`."""


def program(work: Work, form: Form, copies: int) -> Program:
    """The records of a schedule.

    Words: {flags, terms and row of the result; slots of result, scale and start; copies; pairs of slots}. The first
    copy is that of the start.
    """
    tasks, ring = work.tasks, RINGS[copies]
    ahead = ring - 2
    chunks = chunked(tasks, form.gap)
    height = form.height * (WARP // GROUP)
    plan = scheduled(tasks, chunks, height, ahead)
    number, slot = chunks.number, plan.slots
    n_terms, last = chunks.end - chunks.first, chunks.last
    begin, scale, out = tasks.begin[number], tasks.scale[number], work.out[number]
    scaled, pivot = last & (scale != NONE), last & work.pivot[number]
    fetched = plan.fetcher[number] != NONE
    busy = (n_terms > 0) | scaled | pivot | ((chunks.previous == NONE) & ~fetched)
    step, row = plan.step, _alike(plan.step, busy, pivot, n_terms)
    plan = plan._replace(row=row)
    n_steps = plan.n_steps + 2 - plan.n_steps % 2  # what the last step makes is written a step later
    words = np.zeros((n_steps + ring - 1, height, WORDS[copies]), np.int64)
    start = np.where((chunks.previous != NONE) | fetched, slot[number], np.where(begin != NONE, slot[begin], 0))
    of_warp = np.zeros((*words.shape[:2], 3), np.int64)
    terms = np.where(n_terms == 3, 4, n_terms)
    of_warp[step, row] = np.stack([busy * WARP_BUSY | terms, scaled * WARP_SCALED, pivot * WARP_PIVOT], axis=-1)
    most = of_warp.reshape(-1, form.height, WARP // GROUP, 3).max(axis=2).sum(axis=-1)
    words[:, :, 0] = np.repeat(most, WARP // GROUP, axis=1)
    flags = last * FINAL | scaled * SCALED | pivot * PIVOT | (last & (out != NONE)) * OUT
    behind = work.behind if copies == MANY_COPIES else 0
    words[step, row, 0] |= np.maximum(out - behind, 0) << FLAG_BITS | flags
    scale_slot = np.where(scale != NONE, slot[scale], 0)
    words[step, row, 1] = slot[number] | scale_slot << SLOT_BITS | start << 2 * SLOT_BITS
    chunk = np.repeat(np.arange(number.size), n_terms)
    k = np.arange(chunk.size) - np.repeat(np.cumsum(n_terms) - n_terms, n_terms)
    term = chunks.first[chunk] + k
    first_pair = words.shape[2] - TERMS
    shift = SLOT_BYTES.bit_length() - 1
    pair = slot[tasks.left[term]] | slot[tasks.right[term]] << SLOT_BITS
    words[step[chunk], row[chunk], first_pair + k] = pair << shift
    first_copies = _copies(tasks.source, tasks.passive, behind, plan, words, ahead, copies)
    return Program(words.astype(np.uint32).view(np.int32), first_copies, plan.n_slots, n_steps)


def _alike(step: np.ndarray, *costs: np.ndarray) -> np.ndarray:
    """The row of each chunk among those of its step: chunks that take as many instructions share a warp."""
    order = np.lexsort((*(-cost.astype(np.int64) for cost in reversed(costs)), step))
    row = np.empty(step.size, np.int64)
    row[order] = np.arange(step.size) - np.searchsorted(step[order], step[order])
    return row


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
    before = np.zeros((height, copies, GROUP), np.uint32)
    before[row[~late], k[~late], step[~late]] = word[~late]
    return before.view(np.int32)
