"""Large graphs evaluated by an interpreter: no compilation per graph, whatever its length.

A program is a list of instructions, each an operation on rows of one tile of samples. Straight-line source of thousands
of nodes takes a compiler minutes; here an instruction costs a jump, shared by the samples of a tile.

An instruction moves three rows of a tile through the first- or second-level cache. Programs of basic operations are
interpreted in packed instructions for a fixed number of samples (`interpret`), which kernels of whole steps call, too.
"""

from __future__ import annotations

import functools
import math
import textwrap
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.kept_memory import empty
from ensemble._compile.lanes.types import zeros
from ensemble._compile.numba import compiled, inner, prange
from ensemble._compile.plain_code import LANES, Indices, Numbers, Register, behind, entry, load, plain, store
from ensemble._compile.trace.elementwise import SCALAR_FUNCTIONS
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numba_source import load_module
from ensemble._compile.trace.operations import OPERATIONS
from ensemble._typing import Array

__all__ = ["Program", "interpret_one", "load_tile", "program_of", "run_program", "store_tile", "width_of"]

WIDE = 32
"""Samples of a wide tile; a narrow one has 64 bytes of them, that of a lone sample one."""

COPY = 0

REAL = ("arithmetic", "same", "float", "order", "compare", "predicate", "logical", "select")

CODES = {name: code for code, name in enumerate(sorted(OPERATIONS), start=3) if OPERATIONS[name].rule in REAL}
"""The instruction of each operation; masks are numbers, 1 and 0."""

ADD, SUBTRACT, MULTIPLY, DIVIDE = (CODES[name] for name in ("add", "subtract", "multiply", "divide"))
NEGATIVE, SQUARE, RECIPROCAL, SQRT = (CODES[name] for name in ("negative", "square", "reciprocal", "sqrt"))

ABS, EQUAL, NOT_EQUAL, WHERE = (CODES[name] for name in ("abs", "equal", "not_equal", "where"))
LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = (
    CODES[name + end] for name in ("less", "greater") for end in ("", "_equal")
)  # fmt: skip

BASIC = frozenset(
    ["abs", "add", "divide", "equal", "greater", "greater_equal", "less", "less_equal", "multiply", "negative",
     "not_equal", "reciprocal", "sqrt", "square", "subtract", "where"]
)  # fmt: skip
"""Operations of most programs, which have an interpreter of their own."""

KNOWN = ("constant", "input")


class Program(NamedTuple):
    """A graph as instructions on rows ("slots"): constants, inputs beside the state, the state, outputs, and others."""

    code: Array
    """(n_instructions, 5): the operation, the row of its result, and up to three rows that it reads."""
    constants: Array
    """The values of the first rows."""
    n_rows: int
    """Inputs that are not the state."""
    n: int
    """Unknowns of the state."""
    n_outputs: int
    n_slots: int
    whole: bool
    """Whether it has operations that are not basic."""

    @property
    def first_output(self) -> int:
        """The row of the first output."""
        return self.constants.size + self.n_rows + self.n

    @property
    def n_spare(self) -> int:
        """Rows of values on the way."""
        return self.n_slots - self.first_output - self.n_outputs


def program_of(graph: Graph, n: int, dtype: str) -> Program | None:
    """The program of a graph of `dtype` alone, whose inputs 1 to `n` are the state; None where it has others.

    The inputs before and after the state are rows of a second array, in order. Rows are used again once nothing reads
    them; the result of an operation is never a row that it reads.
    """
    for node in graph.nodes:
        if node.dtype not in (dtype, "bool") or (node.operation not in CODES and node.operation not in KNOWN):
            return None
    constants = [float(node.value) for node in graph.nodes if node.operation == "constant"]
    known = (k for k, node in enumerate(graph.nodes) if node.operation == "constant")
    slots = {k: place for place, k in enumerate(known)}
    n_rows, code, free = graph.n_inputs - n, list[tuple[int, ...]](), list[int]()
    first_output = len(constants) + graph.n_inputs
    first_spare = first_output + len(graph.outputs)
    n_slots, order = first_spare, _early(graph)
    last = {i: k for k in order for i in graph.nodes[k].inputs}
    outputs: dict[int, list[int]] = {}
    for row, k in enumerate(graph.outputs):
        outputs.setdefault(k, []).append(first_output + row)
    for k in order:
        node, places = graph.nodes[k], outputs.get(k, [])
        if node.operation == "input":
            state = 1 <= node.value <= n
            row = n_rows + node.value - 1 if state else node.value - n * (node.value > n)
            slots[k] = len(constants) + row
        elif node.operation != "constant":
            if places:
                slots[k], *places = places
            elif free:
                slots[k] = free.pop()
            else:
                slots[k], n_slots = n_slots, n_slots + 1
            a, b, c = [*(slots[i] for i in node.inputs), 0, 0][:3]
            code.append((CODES[node.operation], slots[k], a, b, c))
        code += [(COPY, place, slots[k], 0, 0) for place in places]
        done = {slots[i] for i in (*node.inputs, k) if last.get(i, k) == k}
        free += sorted(slot for slot in done if slot >= first_spare)
    used = {node.operation for node in graph.nodes} - set(KNOWN)
    table = np.array(code, np.int32).reshape(-1, 5)
    return Program(table, np.array(constants, dtype), n_rows, n, len(graph.outputs), n_slots, not used <= BASIC)


def _early(graph: Graph) -> list[int]:
    """The nodes in their order, but outputs that nothing reads behind what they are made of."""
    read, outputs = {i for node in graph.nodes for i in node.inputs}, set(graph.outputs)

    def place(k: int) -> tuple[int, bool]:
        ends = k in outputs and k not in read and graph.nodes[k].inputs
        return (max(graph.nodes[k].inputs), True) if ends else (k, False)

    return sorted(range(len(graph.nodes)), key=place)


def width_of(n_samples: int, itemsize: int) -> int:
    """Samples of a tile: a wide one takes twice the time of a narrow one."""
    narrow = 64 // itemsize
    if n_samples == 1:
        return 1
    return WIDE if 2 * -(-n_samples // WIDE) < -(-n_samples // narrow) else narrow


# --- basic operations
@plain
def lane_by_lane(operation: int, r: Numbers, a: Numbers, b: Numbers, c: Numbers) -> None:
    """Operations without a packed instruction in this language; masks are 1 and 0."""
    for s in range(LANES):
        if operation == WHERE:
            r[s] = b[s] if a[s] != 0.0 else c[s]
        elif operation == ABS:
            r[s] = abs(a[s])
        elif operation == SQRT:
            r[s] = math.sqrt(a[s])
        elif operation == EQUAL:
            r[s] = 1.0 if a[s] == b[s] else 0.0
        elif operation == NOT_EQUAL:
            r[s] = 1.0 if a[s] != b[s] else 0.0
        elif operation == LESS:
            r[s] = 1.0 if a[s] < b[s] else 0.0
        elif operation == LESS_EQUAL:
            r[s] = 1.0 if a[s] <= b[s] else 0.0
        elif operation == GREATER:
            r[s] = 1.0 if a[s] > b[s] else 0.0
        else:
            r[s] = 1.0 if a[s] >= b[s] else 0.0


@plain
def interpret(code: Indices, first: int, count: int, memory: Numbers, place: int, zero: Register) -> None:
    """`count` instructions of `code` from number `first` on, on the rows of `memory` from entry `place` on.

    Rows have as many numbers as `zero`.
    """
    slots = behind(memory, place)
    for line in range(first, first + count):
        at = 5 * line
        operation = code[at]
        r, a = behind(slots, code[at + 1] * LANES), behind(slots, code[at + 2] * LANES)
        x = load(a, 0)
        if operation == MULTIPLY:
            store(r, 0, x * load(slots, code[at + 3] * LANES))
        elif operation == ADD:
            store(r, 0, x + load(slots, code[at + 3] * LANES))
        elif operation == SUBTRACT:
            store(r, 0, x - load(slots, code[at + 3] * LANES))
        elif operation == DIVIDE:
            store(r, 0, x / load(slots, code[at + 3] * LANES))
        elif operation == NEGATIVE:
            store(r, 0, -x)
        elif operation == SQUARE:
            store(r, 0, x * x)
        elif operation == RECIPROCAL:
            store(r, 0, 1.0 / x)
        elif operation == COPY:
            store(r, 0, x)
        else:
            lane_by_lane(operation, r, a, behind(slots, code[at + 3] * LANES), behind(slots, code[at + 4] * LANES))


interpret_one = entry(interpret)


@inner
def load_tile(source, first, count, slots, place, width):
    """Samples from `first` on of the rows of `source` to slots from `place` on; the last one in lanes that are left."""
    for k in range(source.shape[0]):
        at = (place + k) * width
        for s in range(count):
            slots[at + s] = source[k, first + s]
        for s in range(count, width):
            slots[at + s] = source[k, first + count - 1]


@inner
def store_tile(slots, place, width, target, first, count):
    """Rows of slots from `place` on to samples from `first` on of the rows of `target`."""
    for k in range(target.shape[0]):
        at = (place + k) * width
        for s in range(count):
            target[k, first + s] = slots[at + s]


@inner
def begin_tile(constants, rows, state, first, count, slots, width):
    """Constants and inputs of a tile."""
    for k in range(constants.size):
        for s in range(width):
            slots[k * width + s] = constants[k]
    load_tile(rows, first, count, slots, constants.size, width)
    load_tile(state, first, count, slots, constants.size + rows.shape[0], width)


@functools.cache
def _run(width: int) -> Any:
    @compiled
    def loop(code, n_lines, constants, rows, state, memory, out):
        for tile in prange(memory.shape[0]):
            slots, first = memory[tile], np.int64(tile) * width
            count = min(np.int64(width), out.shape[1] - first)
            begin_tile(constants, rows, state, first, count, slots, width)
            interpret_one(code, 0, n_lines, slots, 0, zeros(slots, width))
            store_tile(slots, constants.size + rows.shape[0] + state.shape[0], width, out, first, count)

    return loop


def run_program(program: Program, rows: Array, state: Array, out: Array | None = None) -> Array:
    """The outputs, shape (n_outputs, S), for `rows` of shape (n_rows, S) and `state` of shape (n, S)."""
    n_samples, dtype = rows.shape[1], program.constants.dtype
    out = empty((program.n_outputs, n_samples), dtype) if out is None else out
    if not n_samples:
        return out
    width = min(64, n_samples) if program.whole else width_of(n_samples, dtype.itemsize)
    memory = empty((-(-n_samples // width), program.n_slots, width), dtype)
    rows, state = (np.ascontiguousarray(array) for array in (rows, state))
    if program.whole:
        _whole()(program.code, program.constants, rows, state, memory, out)
    else:
        memory = memory.reshape(len(memory), -1)
        _run(width)(program.code.reshape(-1), len(program.code), program.constants, rows, state, memory, out)
    return out


# --- all operations
MODULE = '''"""An interpreter of programs, written by ensemble; it may be deleted at any time."""

import numpy as np

from ensemble._compile.numba import compiled, inner, prange
from ensemble._compile.trace.elementwise import {names}
from ensemble._kernels.ode.program import begin_tile, store_tile


@inner
def rare(op, x, y, z):
{rare}
    return np.nan


@compiled
def interpret(code, constants, rows, state, memory, out):
    for tile in prange(memory.shape[0]):
        slots, width = memory[tile], memory.shape[2]
        first = np.int64(tile) * width
        count = min(width, out.shape[1] - first)
        begin_tile(constants, rows, state, first, count, slots.reshape(-1), width)
        for line in range(code.shape[0]):
            op = code[line, 0]
            r, a, b, c = slots[code[line, 1]], slots[code[line, 2]], slots[code[line, 3]], slots[code[line, 4]]
            if op == 0:
                for s in range(width):
                    r[s] = a[s]
{branches}
            else:
                for s in range(width):
                    r[s] = rare(op, a[s], b[s], c[s])
        place = constants.size + rows.shape[0] + state.shape[0]
        store_tile(slots.reshape(-1), place, width, out, first, count)
'''

PACKED = ("add", "subtract", "multiply", "divide", "negative", "square", "reciprocal", "sqrt")
"""Operations that have a loop of their own."""

LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}


@functools.cache
def _whole() -> Any:
    """The interpreter of all operations. Few have a loop in packed instructions; the others share one."""
    branches, rare = [], []
    for name in sorted(CODES):
        text = OPERATIONS[name].text("python", False)
        if name in LOGICAL:
            text = f"({{0}} != 0) {LOGICAL[name]} ({{1}} != 0)"
        if name in PACKED:
            expression = text.format("a[s]", "b[s]", "c[s]")
            branches.append(f"elif op == {CODES[name]}:\n    for s in range(width):\n        r[s] = {expression}")
        else:
            rare.append(f"    if op == {CODES[name]}:\n        return np.float64({text.format('x', 'y', 'z')})")
    text, names = textwrap.indent("\n".join(branches), 12 * " "), ", ".join(SCALAR_FUNCTIONS)
    return load_module(MODULE.format(branches=text, rare="\n".join(rare), names=names)).interpret
