"""Factorisation and substitution on a device with values in slots of shared memory: forms and launches.

A block carries 8 samples and some rows of threads, which go through the steps of `schedules`. A value is written to
memory once, and read by later tasks from its slot; numbers that are read from memory come by asynchronous copies, some
steps ahead. Sums have the order of the CPU, so results have its bits.

Bytes that must move, float64: ``8 S (nnz + n_values)`` for a factorisation, ``8 S (n_values + 2 n)`` for a solution
with it, and as many as y takes between its passes. Each block reads 32 bytes for each row of threads and step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile import cuda, device
from ensemble._compile.memory import empty_like
from ensemble._kernels.direct.elimination import Elimination
from ensemble._kernels.direct.levels import kept_lists
from ensemble._kernels.direct.slot_records import MOST_VALUES, Form, Program, factor_program, pass_program, passes

__all__ = ["slots_factorized", "slots_solved"]

WIDTH = 8
"""Samples of a block, as in slots.cu."""

SHARED_BYTES = 227 << 10
"""Shared memory of a multiprocessor that blocks can have."""

ROWS = (4, 8, 16, 32)
"""Rows of threads of a block."""

RESERVED_BYTES = 1536
"""Shared memory that a block takes beside."""

STEP_CYCLES, ISSUE_CYCLES = 585.0, 117.0
"""Cycles of a step, and as many more for each warp of a scheduler, on an H200."""

LEVELS_CYCLES, LEVELS_BYTES = 40e3, 1500.0
"""Cycles of the form by levels for many samples whatever the graph, and bytes of operands for each further one."""

MANY_BLOCKS = 512
"""Blocks above which the form by levels may be quicker for a factorisation."""

MOST_ROW_BYTES = 1 << 32
"""Bytes of a row of all samples, below which a row's place takes one multiplication."""

MOST_KEPT = 1024
"""Values up to which a block may keep all that backward substitution needs."""

MOST_MULTIPLY_ADDS = 1 << 21
"""Multiply-adds up to which records are made, about 16 bytes for each."""

CUDA = cuda.KernelModule(
    "direct/slots",
    [f"{name}<{ring}>" for name, rings in (("slot_factor", (16, 8)), ("slot_solve", (8, 4))) for ring in rings],
    headers=("direct/pivots.cuh", "direct/ahead.cuh"),
    only=cuda.Layout("double", 1, 1, 1),
)


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
    waves = max(1.0, n_blocks / (units * at_once))
    warps = min(at_once, -(-n_blocks // units)) * max(1, WIDTH * form.height // 32)
    return waves * (n_steps + form.ring) * (STEP_CYCLES + ISSUE_CYCLES * warps / 4)


def _cycles_by_levels(plan: Elimination, n_blocks: int, itemsize: int, with_rhs: bool) -> float:
    """About the time of a factorisation by levels, where samples are many: that of its operands from the caches."""
    terms = plan.multiply_adds + (plan.lower.size + plan.upper.size) * with_rhs
    return LEVELS_CYCLES + (2 * terms + 2 * plan.n_values) * itemsize * WIDTH * n_blocks / LEVELS_BYTES


class Chosen(NamedTuple):
    """The form of a launch and its programs."""

    form: Form
    shared: int
    programs: Any
    cycles: float


def _chosen(plan: Elimination, like: Any, key: tuple[Any, ...], n_blocks: int, forms: Any, make: Any) -> Any:
    """The quickest form by `_cycles`, None where none fits; `make` gives programs, steps and shared bytes of one."""
    units = device.multiprocessors() if hasattr(like.data, "ptr") else 1
    key = ("slots", *key, like.dtype.itemsize, forms, -(-n_blocks // units))

    def chosen() -> Any:
        best, least = None, np.inf
        for form in forms:
            programs, n_steps, shared = make(form)
            cycles = _cycles(form, n_steps, shared, n_blocks, like)
            if cycles < least:
                best, least = Chosen(form, shared, programs, cycles), cycles
        return best

    return kept_lists(plan, like, key, chosen)


FORMS = tuple(Form(height, ring) for height in ROWS for ring in (16, 8))


def _factor_form(plan: Elimination, nnz: int, b: Any, like: Any, n_blocks: int) -> Any:
    """Programs of a factorisation and of the backward substitution, unless the first one includes that."""
    with_rhs = b is not None

    def make(form: Form) -> Any:
        ways: list[Any] = []
        for with_solution in (True, False) if with_rhs and plan.n_values <= MOST_KEPT else (False,):
            first = factor_program(plan, nnz, with_rhs, with_solution, form)
            programs: tuple[Program, Program | None] = first, None
            n_steps = first.n_steps
            shared = _shared_bytes(form, first.n_slots, like.dtype.itemsize, False)
            if with_rhs and not with_solution:
                back = pass_program(plan, passes(plan, False)[1], form)
                programs, n_steps = (first, back), n_steps + back.n_steps
                shared = max(shared, _shared_bytes(form, back.n_slots, like.dtype.itemsize, True))
            ways.append((_cycles(form, n_steps, shared, n_blocks, like), len(ways), (programs, n_steps, shared)))
        return min(ways)[2]

    return _chosen(plan, like, ("factor", nnz, with_rhs), n_blocks, FORMS, make)


def _solve_form(plan: Elimination, transposed: bool, like: Any, n_blocks: int) -> Any:
    """Programs of both passes of a substitution."""

    def make(form: Form) -> Any:
        programs = tuple(pass_program(plan, each, form) for each in passes(plan, transposed))
        slots = max(each.n_slots for each in programs)
        shared = _shared_bytes(form, slots, like.dtype.itemsize, True)
        return programs, sum(each.n_steps for each in programs), shared

    return _chosen(plan, like, ("solve", transposed), n_blocks, FORMS, make)


# --- launches
def _layout(array: Any) -> cuda.Layout:
    return cuda.Layout("double" if array.dtype.itemsize == 8 else "float", 1, 1, 1)


def slots_factorized(values: Any, plan: Elimination, b: Any) -> Any:
    """As `factorized_by_levels`; None where values do not fit or levels are quicker."""
    nnz, n_samples = values.shape
    if (
        n_samples * values.dtype.itemsize >= MOST_ROW_BYTES
        or plan.multiply_adds > MOST_MULTIPLY_ADDS
        or plan.n_values + plan.diagonal.size >= MOST_VALUES
    ):
        return None
    n_blocks = -(-n_samples // WIDTH)
    chosen = _factor_form(plan, nnz, b, values, n_blocks)
    if chosen is None or (
        n_blocks > MANY_BLOCKS
        and chosen.cycles > _cycles_by_levels(plan, n_blocks, values.dtype.itemsize, b is not None)
    ):
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
    _, k, n_samples = b.shape
    if factors.dtype != b.dtype or not b.size or plan.n_values + plan.diagonal.size >= MOST_VALUES:
        return None
    if k * n_samples * b.dtype.itemsize >= MOST_ROW_BYTES:
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
        np.int32(plan.n_values), np.int32(forward.n_steps), np.int32(backward.n_steps), np.int32(k), np.int32(shared),
        np.int32(n_samples),
    )  # fmt: skip
    name = f"slot_solve<{form.ring // 2}>"
    CUDA.launch(name, _layout(b), (n_blocks, k), (WIDTH, form.height), arguments, shared=chosen.shared)
    return out
