"""Factorisation and substitution on a device with values in slots of shared memory: records of all steps, and launches.

A block carries 8 samples and some rows of threads, which go through the steps of `schedules`. A value is written to memory
once, and read by later tasks from its slot; numbers that are read from memory come by asynchronous copies, some steps
ahead. Sums have the order of the CPU, so results have its bits.

Bytes that must move, float64: ``8 S (nnz + n_values)`` for a factorisation, ``8 S (n_values + 2 n)`` for a solution with
it, and as many that y takes between its passes. Each block reads 32 bytes of records for each row of threads and step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile import cuda, device
from ensemble._compile.memory import empty_like
from ensemble._kernels.direct.elimination import Elimination
from ensemble._kernels.direct.levels import kept_lists, triangles
from ensemble._kernels.direct.schedules import NONE, TERMS, ZERO_SLOT, Schedule, Tasks, row_positions, scheduled
from ensemble._kernels.direct.slot_tasks import factor_tasks

__all__ = ["slots_factorized", "slots_solved"]

WIDTH = 8
"""Samples of a block."""

SHARED_BYTES = 227 << 10
"""Shared memory of a multiprocessor that blocks can have."""

ROWS = (4, 8, 16, 32)
"""Rows of threads of a block."""

RESERVED_BYTES = 1536
"""Shared memory that a block takes beside."""

STEP_CYCLES, ISSUE_CYCLES = 200.0, 60.0
"""Time of a step that waits for its operands, and of its instructions on one of a multiprocessor's four schedulers."""

MOST_KEPT = 1024
"""Values up to which a block may keep all that backward substitution needs."""

MOST_MULTIPLY_ADDS = 1 << 21
"""Multiply-adds up to which records are made, about 16 bytes for each."""

START, FROM_SLOT, FIRST_PAIR, SECOND_PAIR, SCALED, FINISH, PIVOT, KEPT, SLOT_SCALED = (1 << k for k in range(9))
FLAG_BITS = 9
ZERO, NOTHING, VECTOR_ROWS = -1, -2, -3

CUDA = cuda.KernelModule(
    "direct/slots",
    [f"{name}<{ring}>" for name, rings in (("slot_factor", (16, 8)), ("slot_solve", (8, 4))) for ring in rings],
    headers=("direct/pivots.cuh", "direct/ahead.cuh"),
    only=cuda.Layout("double", 1, 1, 1),
)


class Program(NamedTuple):
    """Records of all steps, and what the first steps read."""

    records: Any
    """Shape (n_steps, rows of threads, 8), int32."""
    first_sources: Any
    n_slots: int

    @property
    def n_steps(self) -> int:
        """Steps of the schedule."""
        return int(self.records.shape[0])


class Form(NamedTuple):
    """Rows of threads of a block, and steps that it reads ahead, one more: of a substitution half as many."""

    height: int
    ring: int


# --- records
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


def _as_int32(records: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(records & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def _factor_program(plan: Elimination, nnz: int, with_rhs: bool, with_solution: bool, form: Form) -> Program:
    """Records {out and flags, slot and slot of the scale, source of a later step, slot of the start, pairs of slots}."""
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
    return Program(_as_int32(records), ahead[:, :, 0].copy(), plan_of.n_slots)


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


def _pass_program(plan: Elimination, given: Pass, form: Form) -> Program:
    """Records {out and flags, slot, four sources of a later step, four slots}."""
    n, position = plan.diagonal.size, row_positions(plan)
    rank = position if given.down else n - 1 - position
    order = np.argsort(rank)
    row, column, place = given.terms
    by_rank = np.lexsort((column if given.ascending else -column, rank[row]))
    starts = np.searchsorted(rank[row][by_rank], np.arange(n + 1))
    none, right = np.full(row.size, NONE, np.int64), rank[column[by_rank]]
    tasks = Tasks(starts, none, right, none_of(n), none_of(n))
    height = form.height
    plan_of = scheduled(tasks, height, 1, int(given.scaled))
    first, last, rows, slot = plan_of.first_step, plan_of.last_step, plan_of.row, plan_of.slots
    records = _empty(plan_of, height)
    sources, slots = (np.full((plan_of.n_steps, height, TERMS), fill, np.int64) for fill in (ZERO, ZERO_SLOT))
    task = np.repeat(np.arange(n), np.diff(starts))
    k = np.arange(task.size) - starts[:-1][task] + 1
    step = first[task] + k // TERMS
    sources[step, rows[task], k % TERMS], slots[step, rows[task], k % TERMS] = place[by_rank], slot[right]
    sources[first, rows, 0] = VECTOR_ROWS - given.source[order]
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
    return Program(_as_int32(records), ahead, plan_of.n_slots)


def none_of(n: int) -> np.ndarray:
    """`NONE` for each of `n` tasks."""
    return np.full(n, NONE, np.int64)


def _passes(plan: Elimination, transposed: bool) -> tuple[Pass, Pass]:
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


# --- forms
def _shared_bytes(form: Form, n_slots: int, itemsize: int, substitution: bool) -> int:
    """Shared memory of a block."""
    ring, entries = (form.ring // 2, 4) if substitution else (form.ring, 1)
    return 32 * ring * form.height + WIDTH * itemsize * (ring * form.height * entries + n_slots)


def _cycles(form: Form, n_steps: int, shared: int, n_blocks: int, like: Any) -> float:
    """About the time of all blocks, infinite where one does not fit."""
    units = device.multiprocessors() if hasattr(like.data, "ptr") else 1
    at_once = min(SHARED_BYTES // (shared + RESERVED_BYTES), 2048 // (WIDTH * form.height))
    if not at_once:
        return np.inf
    waves = -(-n_blocks // (units * at_once))
    warps = min(at_once, -(-n_blocks // units)) * max(1, WIDTH * form.height // 32)
    return waves * n_steps * max(STEP_CYCLES, ISSUE_CYCLES * warps / 4)


class Chosen(NamedTuple):
    """The form of a launch and its programs."""

    form: Form
    shared: int
    programs: Any


def _chosen(plan: Elimination, like: Any, key: tuple[Any, ...], n_blocks: int, forms: Any, make: Any) -> Any:
    """The quickest form by `_cycles`, or None where none fits; `make` gives steps, shared bytes and programs of a form."""
    units = device.multiprocessors() if hasattr(like.data, "ptr") else 1
    key = ("slots", *key, like.dtype.itemsize, forms, -(-n_blocks // units))

    def chosen() -> Any:
        best, least = None, np.inf
        for form in forms:
            programs, n_steps, shared = make(form)
            cycles = _cycles(form, n_steps, shared, n_blocks, like)
            if cycles < least:
                best, least = Chosen(form, shared, programs), cycles
        return best

    return kept_lists(plan, like, key, chosen)


FORMS = tuple(Form(height, ring) for height in ROWS for ring in (16, 8))


def _factor_form(plan: Elimination, nnz: int, b: Any, like: Any, n_blocks: int) -> Any:
    """Programs of a factorisation and of the backward substitution; the latter has no steps where the first includes it."""
    with_rhs = b is not None

    def make(form: Form) -> Any:
        ways = []
        for with_solution in (True, False) if with_rhs and plan.n_values <= MOST_KEPT else (False,):
            first = _factor_program(plan, nnz, with_rhs, with_solution, form)
            programs, n_steps = (first, None), first.n_steps
            shared = _shared_bytes(form, first.n_slots, like.dtype.itemsize, False)
            if with_rhs and not with_solution:
                back = _pass_program(plan, _passes(plan, False)[1], form)
                programs, n_steps = (first, back), n_steps + back.n_steps
                shared = max(shared, _shared_bytes(form, back.n_slots, like.dtype.itemsize, True))
            ways.append((_cycles(form, n_steps, shared, n_blocks, like), len(ways), (programs, n_steps, shared)))
        return min(ways)[2]

    return _chosen(plan, like, ("factor", nnz, with_rhs), n_blocks, FORMS, make)


def _solve_form(plan: Elimination, transposed: bool, like: Any, n_blocks: int) -> Any:
    """Programs of both passes of a substitution."""

    def make(form: Form) -> Any:
        programs = tuple(_pass_program(plan, each, form) for each in _passes(plan, transposed))
        slots = max(each.n_slots for each in programs)
        shared = _shared_bytes(form, slots, like.dtype.itemsize, True)
        return programs, sum(each.n_steps for each in programs), shared

    return _chosen(plan, like, ("solve", transposed), n_blocks, FORMS, make)


# --- launches
def _layout(array: Any) -> cuda.Layout:
    return cuda.Layout("double" if array.dtype.itemsize == 8 else "float", 1, 1, 1)


def slots_factorized(values: Any, plan: Elimination, b: Any) -> Any:
    """As `factorized_by_levels`; None for a plan whose values do not fit."""
    nnz, n_samples = values.shape
    if plan.multiply_adds > MOST_MULTIPLY_ADDS or plan.n_values >= 1 << (31 - FLAG_BITS):
        return None
    n_blocks = -(-n_samples // WIDTH)
    chosen = _factor_form(plan, nnz, b, values, n_blocks)
    if chosen is None:
        return None
    (first, back), form = chosen.programs, chosen.form
    out, broken = empty_like(values, (plan.n_values, n_samples)), empty_like(values, (n_samples,))
    x = None if b is None else empty_like(b)
    behind = (None, None) if back is None else (back.records, back.first_sources)
    arguments = (
        values, b, out, x, broken, first.records, first.first_sources, *behind, np.int32(nnz), np.int32(plan.n_values),
        np.int32(first.n_steps), np.int32(0 if back is None else back.n_steps), np.int32(n_samples),
    )  # fmt: skip
    name = f"slot_factor<{form.ring}>"
    CUDA.launch(name, _layout(values), (n_blocks,), (WIDTH, form.height), arguments, shared=chosen.shared)
    return out, broken, x


def slots_solved(factors: Any, plan: Elimination, b: Any, transposed: bool, out: Any) -> Any:
    """As `solved_by_levels`; None for values of another type, or where they do not fit."""
    n, k, n_samples = b.shape
    if factors.dtype != b.dtype or not b.size or plan.n_values >= 1 << (31 - FLAG_BITS):
        return None
    n_blocks = -(-n_samples // WIDTH)
    chosen = _solve_form(plan, transposed, b, n_blocks * k)
    if chosen is None:
        return None
    out = empty_like(b) if out is None else out
    if device.address(out) == device.address(b):
        b = b.copy()
    (forward, backward), form = chosen.programs, chosen.form
    shared = factors.shape[1] == 1 and n_samples != 1
    arguments = (
        factors, b, out, forward.records, forward.first_sources, backward.records, backward.first_sources,
        np.int32(forward.n_steps), np.int32(backward.n_steps), np.int32(k), np.int32(shared), np.int32(n_samples),
    )  # fmt: skip
    name = f"slot_solve<{form.ring // 2}>"
    CUDA.launch(name, _layout(b), (n_blocks, k), (WIDTH, form.height), arguments, shared=chosen.shared)
    return out
