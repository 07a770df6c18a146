"""Programs for one sample: instructions of one operation follow each other, so that none waits for a foreseen jump.

`program.py` shares a jump among the samples of a tile. A lone sample pays for it at each instruction. Here the
instructions are put in an order in which those of one operation stand together, and results have places of their own
(a row is one number). Batches whose operands lie side by side are done in registers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ensemble._compile.plain_code import LANES, Indices, Numbers, Register, behind, inlined, load, plain, spread, store
from ensemble._kernels.ode.program import (
    ABS,
    ADD,
    COPY,
    DIVIDE,
    EQUAL,
    GREATER,
    LESS,
    LESS_EQUAL,
    MULTIPLY,
    NEGATIVE,
    NOT_EQUAL,
    RECIPROCAL,
    SQRT,
    SQUARE,
    SUBTRACT,
    WHERE,
    Program,
)
from ensemble._typing import Array

__all__ = ["SCATTERED", "SIDE_BY_SIDE", "Batches", "batches_of", "run_batches"]

SCATTERED, SIDE_BY_SIDE = 0, 1
"""Kinds of batches: places of each instruction; first places, and whether operands move with the results."""

LEAST = 8
"""Instructions of a batch side by side, at least."""


class Batches(NamedTuple):
    """A program in another order, with a place for each value: constants, inputs, state and outputs as there."""

    code: Array
    """int32. Of each batch: operation, kind, number of instructions, and for each the places of its result and of
    three operands; side by side, the first ones, and the steps of the first two operands."""
    n_slots: int


def batches_of(program: Program) -> Batches:
    """The batches of a program of basic operations."""
    operations, reads = program.code[:, 0].tolist(), _operands(program)
    waiting, readers = [0] * len(reads), [list[int]() for _ in reads]
    fixed = program.first_output
    for i, operands in enumerate(reads):
        for made in {place - fixed for place in operands if place >= fixed}:
            waiting[i] += 1
            readers[made].append(i)
    ready: dict[int, list[int]] = {}
    for i, count in enumerate(waiting):
        if not count:
            ready.setdefault(operations[i], []).append(i)
    places, written = _places_of_outputs(program), program.first_output + program.n_outputs
    lines = list[int]()
    while ready:
        operation = max(ready, key=lambda each: len(ready[each]))
        batch = ready.pop(operation)
        rows = [(places[i] if places[i] >= 0 else 1 << 30, *(_place(k, fixed, places) for k in reads[i]), i)
                for i in batch]  # fmt: skip
        rows.sort()
        instructions = []
        for row, a, b, c, i in rows:
            if row == 1 << 30:
                places[i], written = written, written + 1
            instructions.append((places[i], a, b, c))
        lines += _batch(operation, instructions)
        for i in batch:
            for reader in readers[i]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready.setdefault(operations[reader], []).append(reader)
    return Batches(np.array(lines, np.int32), written)


def _operands(program: Program) -> list[tuple[int, int, int]]:
    """What each instruction reads: a fixed row, or `first_output` and the number of the instruction that makes it."""
    made, reads, first = dict[int, int](), list[tuple[int, int, int]](), program.first_output
    arity = {WHERE: 3} | dict.fromkeys((COPY, NEGATIVE, SQUARE, RECIPROCAL, SQRT, ABS), 1)
    for i, (operation, row, *operands) in enumerate(program.code.tolist()):
        count = arity.get(operation, 2)
        found = [made.get(place, place) for place in operands[:count]] + [0] * (3 - count)
        reads.append((found[0], found[1], found[2]))
        made[row] = first + i
    return reads


def _places_of_outputs(program: Program) -> list[int]:
    """The row of the output that an instruction writes; -1 where it writes another one."""
    first, last = program.first_output, program.first_output + program.n_outputs
    return [row if first <= row < last else -1 for row in program.code[:, 1].tolist()]


def _place(operand: int, fixed: int, places: list[int]) -> int:
    return operand if operand < fixed else places[operand - fixed]


def _batch(operation: int, instructions: list[tuple[int, int, int, int]]) -> list[int]:
    """The lines of instructions of one operation, which are ordered by their results."""
    lines, scattered, first = list[int](), list[tuple[int, int, int, int]](), 0
    while first < len(instructions):
        count, steps = _side_by_side(instructions, first)
        if count >= LEAST and operation in (MULTIPLY, ADD, SUBTRACT, DIVIDE):
            lines += [operation, SIDE_BY_SIDE, count, *instructions[first][:3], *steps]
        else:
            count = min(count, len(instructions) - first)
            scattered += instructions[first : first + count]
        first += count
    if scattered:
        lines += [operation, SCATTERED, len(scattered), *(place for each in scattered for place in each)]
    return lines


def _side_by_side(instructions: list[tuple[int, int, int, int]], first: int) -> tuple[int, tuple[int, int]]:
    """How many instructions from `first` on have places one behind the other, and the steps of two operands."""
    if first + 1 == len(instructions):
        return 1, (0, 0)
    r, a, b, _ = instructions[first]
    other = instructions[first + 1]
    steps = other[1] - a, other[2] - b
    if other[0] != r + 1 or not {*steps} <= {0, 1}:
        return 1, (0, 0)
    count = 2
    while first + count < len(instructions):
        row, left, right, _ = instructions[first + count]
        if (row, left, right) != (r + count, a + count * steps[0], b + count * steps[1]):
            break
        count += 1
    return count, steps


@plain
def _one(operation: int, slots: Numbers, r: int, a: int, b: int, c: int) -> None:
    """One instruction; masks are 1 and 0."""
    x, y = slots[a], slots[b]
    if operation == COPY:
        slots[r] = x
    elif operation == MULTIPLY:
        slots[r] = x * y
    elif operation == ADD:
        slots[r] = x + y
    elif operation == SUBTRACT:
        slots[r] = x - y
    elif operation == DIVIDE:
        slots[r] = x / y
    elif operation == NEGATIVE:
        slots[r] = -x
    elif operation == SQUARE:
        slots[r] = x * x
    elif operation == RECIPROCAL:
        slots[r] = 1.0 / x
    elif operation == WHERE:
        slots[r] = y if x != 0.0 else slots[c]
    elif operation == ABS:
        slots[r] = abs(x)
    elif operation == SQRT:
        slots[r] = math.sqrt(x)
    elif operation == EQUAL:
        slots[r] = 1.0 if x == y else 0.0
    elif operation == NOT_EQUAL:
        slots[r] = 1.0 if x != y else 0.0
    elif operation == LESS:
        slots[r] = 1.0 if x < y else 0.0
    elif operation == LESS_EQUAL:
        slots[r] = 1.0 if x <= y else 0.0
    elif operation == GREATER:
        slots[r] = 1.0 if x > y else 0.0
    else:
        slots[r] = 1.0 if x >= y else 0.0


@inlined
def _scattered(operation: int, count: int, code: Indices, slots: Numbers) -> None:
    """`count` instructions whose places follow each other in `code`."""
    if operation == MULTIPLY:
        for at in range(0, 4 * count, 4):
            slots[code[at]] = slots[code[at + 1]] * slots[code[at + 2]]
    elif operation == ADD:
        for at in range(0, 4 * count, 4):
            slots[code[at]] = slots[code[at + 1]] + slots[code[at + 2]]
    elif operation == SUBTRACT:
        for at in range(0, 4 * count, 4):
            slots[code[at]] = slots[code[at + 1]] - slots[code[at + 2]]
    else:
        for at in range(0, 4 * count, 4):
            _one(operation, slots, code[at], code[at + 1], code[at + 2], code[at + 3])


@inlined
def _in_registers(operation: int, count: int, code: Indices, slots: Numbers, free: int, zero: Register) -> None:
    """`count` instructions side by side; from ``slots[free]`` on there are two registers for operands that stay."""
    r, a, b, left, right = code[0], code[1], code[2], code[3], code[4]
    if left == 0:
        store(slots, free, spread(slots[a]))
        a = free
    if right == 0:
        store(slots, free + LANES, spread(slots[b]))
        b = free + LANES
    whole = count - count % LANES
    if operation == MULTIPLY:
        for k in range(0, whole, LANES):
            store(slots, r + k, load(slots, a + k * left) * load(slots, b + k * right))
    elif operation == ADD:
        for k in range(0, whole, LANES):
            store(slots, r + k, load(slots, a + k * left) + load(slots, b + k * right))
    elif operation == SUBTRACT:
        for k in range(0, whole, LANES):
            store(slots, r + k, load(slots, a + k * left) - load(slots, b + k * right))
    else:
        for k in range(0, whole, LANES):
            store(slots, r + k, load(slots, a + k * left) / load(slots, b + k * right))
    for k in range(whole, count):
        _one(operation, slots, r + k, a + k * left, b + k * right, 0)


@plain
def run_batches(code: Indices, first: int, last: int, slots: Numbers, free: int, zero: Register) -> None:
    """The batches between two entries of `code`; from ``slots[free]`` on there are two registers of memory."""
    at = first
    while at < last:
        operation, kind, count = code[at], code[at + 1], code[at + 2]
        if kind == SCATTERED:
            _scattered(operation, count, behind(code, at + 3), slots)
            at += 3 + 4 * count
        else:
            _in_registers(operation, count, behind(code, at + 3), slots, free, zero)
            at += 8
