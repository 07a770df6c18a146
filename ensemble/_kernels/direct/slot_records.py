"""Records of the steps of `slots.cu`: what each warp does in a step, and what it copies from memory for a later one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._kernels.direct.schedules import NONE, TERMS, Schedule, chunked, scheduled
from ensemble._kernels.direct.slot_tasks import Work

__all__ = ["FEW_COPIES", "MANY_COPIES", "MOST_SLOTS", "MOST_VALUES", "WORDS", "Form", "Program", "program"]

BUSY, SCALED, PIVOT, KEPT, CHECKED, OUT = (1 << k for k in range(3, 9))
"""Flags of a record, as in slots.cu; below them stands the number of its terms."""

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

WARP = 32


class Program(NamedTuple):
    """What a launch goes through."""

    records: Any
    """Shape (n_steps, warps, words), int32; behind them as many steps that do nothing as records are read ahead."""
    first_copies: Any
    """What is copied before the first step: shape (warps, a multiple of 32)."""
    n_slots: int
    n_steps: int


class Form(NamedTuple):
    """How a launch goes through its steps."""

    height: int
    """Warps of a block."""
    ring: int
    """Steps whose records are in shared memory; numbers are copied two steps less ahead."""
    gap: int
    """As in `schedules.chunked`."""
    closely: bool
    """As in `slot_tasks.factor_work`."""


def program(work: Work, form: Form, copies: int) -> Program:
    """The records of a schedule.

    Words: {flags, terms and row of the result; slots of result, scale and start; copies; pairs of slots}.
    """
    tasks, ahead = work.tasks, form.ring - 2
    chunks = chunked(tasks, form.gap)
    plan = scheduled(tasks, chunks, form.height, ahead)
    step, row, number, slot = plan.step, plan.row, chunks.number, np.maximum(plan.slots, 0)
    words = np.zeros((plan.n_steps + form.ring - 1, form.height, WORDS[copies]), np.int64)
    n_terms = chunks.end - chunks.first
    begin = tasks.begin[number]
    start = np.where((chunks.previous != NONE) | (plan.fetcher[number] != NONE), slot[number],
                     np.where(begin != NONE, slot[begin], 0))  # fmt: skip
    last, scale, out = chunks.last, tasks.scale[number], work.out[number]
    flags = BUSY | np.where(plan.slots[number] != NONE, KEPT, 0)
    flags |= np.where(last & (scale != NONE), SCALED, 0) | np.where(last & work.pivot[number], PIVOT, 0)
    flags |= np.where(last & work.checked[number], CHECKED, 0) | np.where(last & (out != NONE), OUT, 0)
    words[step, row, 0] = np.maximum(out, 0) << FLAG_BITS | flags | n_terms
    scale_slot = np.where(scale != NONE, slot[scale], 0)
    words[step, row, 1] = slot[number] | scale_slot << SLOT_BITS | start << 2 * SLOT_BITS
    chunk = np.repeat(np.arange(number.size), n_terms)
    k = np.arange(chunk.size) - np.repeat(np.cumsum(n_terms) - n_terms, n_terms)
    term = chunks.first[chunk] + k
    first_pair = words.shape[2] - TERMS
    words[step[chunk], row[chunk], first_pair + k] = slot[tasks.left[term]] | slot[tasks.right[term]] << 16
    first_copies = _copies(tasks.source, plan, words, ahead, copies)
    return Program(words.astype(np.uint32).view(np.int32), first_copies, plan.n_slots, plan.n_steps)


def _copies(source: np.ndarray, plan: Schedule, words: np.ndarray, ahead: int, copies: int) -> np.ndarray:
    """Put the copies of each chunk into the record of its warp `ahead` steps before; returns those of the first steps."""
    height = words.shape[1]
    number = np.flatnonzero(plan.fetcher != NONE)
    by_chunk = np.argsort(plan.fetcher[number], kind="stable")
    number = number[by_chunk]
    chunk = plan.fetcher[number]
    k = np.arange(chunk.size) - np.searchsorted(chunk, chunk)
    word = source[number] << SLOT_BITS | plan.slots[number]
    step, row = plan.step[chunk], plan.row[chunk]
    later = step >= ahead
    words[step[later] - ahead, row[later], 2 + k[later]] = word[later]
    first = np.zeros((height, -(-ahead * copies // WARP) * WARP), np.uint32)
    first[row[~later], step[~later] * copies + k[~later]] = word[~later]
    return first.view(np.int32)
