"""Factorisation and substitution on a device with values in slots of shared memory: forms and launches.

A block carries 128 bytes of samples and goes through the steps of `schedules`: half of its warps subtract, the other
half copy numbers and records from memory, some steps ahead, and write results to it. A value is written once, and read
by later tasks from its slot. Sums have the order of the CPU, so results have its bits.

Bytes that must move, float64: ``8 S (nnz + n_values)`` for a factorisation, ``8 S (n_values + 2 n)`` for a solution
with it, and as many as y takes between its passes. Each block reads 32 bytes for each chunk and step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble._compile import cuda, device
from ensemble._kernels.direct.levels import MOST_ROW_BYTES, factor_outputs, kept_lists, layout_of, solution_arrays
from ensemble._kernels.direct.slot_records import (
    FEW_COPIES,
    GROUP,
    MANY_COPIES,
    MOST_SLOTS,
    MOST_VALUES,
    RINGS,
    SLOT_BYTES,
    WARP,
    WORDS,
    Form,
    program,
)
from ensemble._kernels.direct.slot_tasks import factor_work, solve_work
from ensemble._kernels.direct.symbolic.elimination import Elimination

__all__ = ["slots_factorized", "slots_solved"]

SHARED_BYTES = 228 << 10
"""Shared memory of a multiprocessor."""

MOST_WARPS = 36
"""Of a multiprocessor, as registers allow."""

RESERVED_BYTES = 1024 + 32
"""Shared memory that a block takes beside: the system's, and marks of samples."""

STEP_CYCLES, ISSUE_CYCLES = 240.0, 80.0
"""Cycles of a step, and as many more for each warp of a scheduler, on an H100."""

LEVELS_CYCLES, LEVELS_BYTES = 40e3, 1500.0
"""Cycles of the form by levels for many samples whatever the graph, and bytes of operands for each further one."""

MANY_SAMPLES = 4096
"""Samples above which the form by levels may be quicker for a factorisation (`benchmarks direct-device`)."""

MOST_KEPT = 1024
"""Values up to which a block may keep all that backward substitution needs."""

MOST_MULTIPLY_ADDS = 1 << 21
"""Multiply-adds up to which records are made, about 16 bytes for each."""

FORMS = tuple(Form(height, gap, False) for height, gap in ((2, 16), (2, 48), (3, 16), (3, 48), (6, 48)))
"""Each is scheduled at a graph's first call. On an H100, 10,000 samples, these hold the quickest of those measured for
each operation on chemistry and grid matrices; 6 warps are for few samples.
(`benchmarks direct-device`)"""

ROW_BYTES = 16
"""At whose multiples rows of memory begin that are copied by as many bytes at once."""

ALONE = ("-DALONE",)
"""Option of kernels that copy each sample alone, where they do not."""

CUDA = cuda.KernelModule(
    "direct/slots",
    ["slot_factor", "slot_solve"],
    headers=("direct/pivots.cuh", "../_compile/include/async_copies.cuh"),
    extras=((), ALONE),
    only=cuda.Layout("double", 1, 1, 1),
)


# --- forms
def _shared_bytes(form: Form, n_slots: int, copies: int) -> int:
    """Shared memory of a block."""
    return 4 * WORDS[copies] * RINGS[copies] * form.height * (WARP // GROUP) + SLOT_BYTES * n_slots


def _cycles(form: Form, n_steps: int, n_slots: int, shared: int, n_blocks: int, units: int) -> float:
    """About the time of all blocks, infinite where one does not fit."""
    at_once = min(SHARED_BYTES // (shared + RESERVED_BYTES), MOST_WARPS // (2 * form.height))
    if not at_once or n_slots > MOST_SLOTS - 1:
        return np.inf
    waves, rest = divmod(-(-n_blocks // units), at_once)
    step = lambda blocks: (STEP_CYCLES + ISSUE_CYCLES * blocks * form.height / 2) * (blocks > 0)
    return (n_steps + RINGS[FEW_COPIES]) * (waves * step(at_once) + step(rest))


def _cycles_by_levels(plan: Elimination, n_samples: int, itemsize: int, with_rhs: bool) -> float:
    """About the time of a factorisation by levels, where samples are many: that of its operands from the caches."""
    terms = plan.multiply_adds + (plan.lower.size + plan.upper.size) * with_rhs
    return LEVELS_CYCLES + (2 * terms + 2 * plan.n_values) * itemsize * n_samples / LEVELS_BYTES


class Chosen(NamedTuple):
    """The form of a launch, its programs, one or two, and its shared memory."""

    form: Form
    programs: Any
    n_slots: int
    shared: int
    cycles: float


def _chosen(plan: Elimination, like: Any, key: tuple[Any, ...], n_blocks: int, ways: Any) -> Any:
    """The quickest form by `_cycles`, None where none fits.

    `ways` gives, for `closely`, tuples of work and copies that are done one after another.
    """
    units = device.multiprocessors_of(like)
    forms = FORMS
    key = ("slots", *key, like.dtype.itemsize, forms, -(-n_blocks // units))

    def chosen() -> Any:
        best, least = None, np.inf
        works = {closely: ways(closely) for closely in {form.closely for form in forms}}
        for form in forms:
            for way in works[form.closely]:
                programs = [program(work, form, copies) for work, copies in way]
                n_steps, n_slots = sum(p.n_steps for p in programs), max(p.n_slots for p in programs)
                shared = max(_shared_bytes(form, n_slots, copies) for _, copies in way)
                cycles = _cycles(form, n_steps, n_slots, shared, n_blocks, units)
                if cycles < least:
                    best, least = Chosen(form, tuple(programs), n_slots, shared, cycles), cycles
        return best

    return kept_lists(plan, like, key, chosen)


def _factor_form(plan: Elimination, nnz: int, with_rhs: bool, like: Any, n_blocks: int) -> Any:
    """Programs of a factorisation and of the backward substitution, unless the first one includes that."""

    def ways(closely: bool) -> Any:
        alone = [(factor_work(plan, nnz, closely, with_rhs, False), FEW_COPIES)]
        if not with_rhs:
            return [alone]
        found = [[*alone, (solve_work(plan, False, closely, False)[1], MANY_COPIES)]]
        if plan.n_values <= MOST_KEPT:
            found.append([(factor_work(plan, nnz, closely, True, True), FEW_COPIES)])
        return found

    return _chosen(plan, like, ("factor", nnz, with_rhs), n_blocks, ways)


def _solve_form(plan: Elimination, transposed: bool, like: Any, n_blocks: int) -> Any:
    """Programs of both passes of a substitution, or of both together."""

    def ways(closely: bool) -> Any:
        return [
            [(work, MANY_COPIES) for work in solve_work(plan, transposed, closely, at_once)]
            for at_once in ((False, True) if plan.diagonal.size <= MOST_KEPT else (False,))
        ]

    return _chosen(plan, like, ("solve", transposed), n_blocks, ways)


# --- launches
def _n_blocks(n_samples: int, itemsize: int) -> int:
    """How many blocks the samples take."""
    return -(-n_samples * itemsize // SLOT_BYTES)


def _copied(n_samples: int, *arrays: Any) -> tuple[str, ...]:
    """Options of a kernel: how it copies rows of `n_samples` of these arrays."""
    return () if cuda.layout_of(n_samples, *arrays).vector * arrays[0].dtype.itemsize == ROW_BYTES else ALONE


def _lists(programs: Any) -> tuple[Any, ...]:
    """Records and first copies of two programs, and their steps; of the second one none where there is one."""
    back = programs[1] if len(programs) > 1 else None
    lists: tuple[Any, ...] = (programs[0].records, programs[0].first_copies)
    behind = (None, None) if back is None else (back.records, back.first_copies)
    return (*lists, *behind), (np.int32(programs[0].n_steps), np.int32(0 if back is None else back.n_steps))


def slots_factorized(values: Any, plan: Elimination, b: Any) -> Any:
    """As `factorized_by_levels`; None where values do not fit or levels are quicker."""
    nnz, n_samples = values.shape
    if (
        n_samples * values.dtype.itemsize >= MOST_ROW_BYTES
        or plan.multiply_adds > MOST_MULTIPLY_ADDS
        or max(nnz, plan.n_values) + plan.diagonal.size >= MOST_VALUES
    ):
        return None
    itemsize = values.dtype.itemsize
    n_blocks = _n_blocks(n_samples, itemsize)
    chosen = _factor_form(plan, nnz, b is not None, values, n_blocks)
    if chosen is None or (
        n_samples > MANY_SAMPLES and chosen.cycles > _cycles_by_levels(plan, n_samples, itemsize, b is not None)
    ):
        return None
    out, broken, x = factor_outputs(values, plan.n_values, b)
    lists, steps = _lists(chosen.programs)
    arguments = (
        values, b, out, x, broken, *lists, np.int32(nnz), np.int32(plan.n_values), *steps,
        np.int32(chosen.n_slots), np.int32(n_samples),
    )  # fmt: skip
    extra = _copied(n_samples, values, out, *(() if b is None else (b, x)))
    block = (WARP, 2 * chosen.form.height)
    CUDA.launch("slot_factor", layout_of(values), (n_blocks,), block, arguments, extra=extra, shared=chosen.shared)
    return out, broken, x


def slots_solved(factors: Any, plan: Elimination, b: Any, transposed: bool, out: Any) -> Any:
    """As `solved_by_levels`; None for values of another type, or where they do not fit."""
    _, k, n_samples = b.shape
    if factors.dtype != b.dtype or not b.size or plan.n_values + plan.diagonal.size >= MOST_VALUES:
        return None
    if k * n_samples * b.dtype.itemsize >= MOST_ROW_BYTES or plan.multiply_adds > MOST_MULTIPLY_ADDS:
        return None
    n_blocks = _n_blocks(n_samples, b.dtype.itemsize)
    chosen = _solve_form(plan, transposed, b, n_blocks * k)
    if chosen is None:
        return None
    b, out = solution_arrays(b, out)
    shared = factors.shape[1] == 1 and n_samples != 1
    lists, steps = _lists(chosen.programs)
    arguments = (
        factors, b, out, *lists, *steps, np.int32(chosen.n_slots), np.int32(k), np.int32(shared), np.int32(n_samples),
    )  # fmt: skip
    extra = ALONE if shared else _copied(n_samples, factors, b, out)
    block = (WARP, 2 * chosen.form.height)
    CUDA.launch("slot_solve", layout_of(b), (n_blocks, k), block, arguments, extra=extra, shared=chosen.shared)
    return out
