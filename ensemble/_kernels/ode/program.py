"""Large graphs evaluated by an interpreter: no compilation per graph, whatever its length.

A program is a list of instructions, each an operation on rows of one tile of samples. Straight-line source of thousands
of nodes takes a compiler minutes; here an instruction costs a jump, shared by the samples of a tile.

An instruction moves three rows of a tile through the first- or second-level cache.
"""

from __future__ import annotations

import functools
import textwrap
from typing import Any, NamedTuple

import numpy as np

from ensemble._compile.trace.elementwise import SCALAR_FUNCTIONS
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numba_source import load_module
from ensemble._compile.trace.operations import OPERATIONS
from ensemble._typing import Array

__all__ = ["Program", "program_of", "run_program"]

TILE = 64
"""Samples of a tile."""

LOAD_STATE, LOAD_ROW, STORE = 0, 1, 2

REAL = ("arithmetic", "same", "float", "order", "compare", "predicate", "logical", "select")

CODES = {name: code for code, name in enumerate(sorted(OPERATIONS), start=3) if OPERATIONS[name].rule in REAL}
"""The instruction of each operation; masks are numbers, 1 and 0."""


class Program(NamedTuple):
    """A graph as instructions on rows ("slots")."""

    code: Array
    """(n_instructions, 5): the operation, the row of its result, and up to three rows that it reads or numbers."""
    constants: Array
    """The values of the first rows."""
    n_slots: int
    n_outputs: int
    whole: bool
    """Whether it has operations that are not basic."""


def program_of(graph: Graph, n: int, dtype: str) -> Program | None:
    """The program of a graph of `dtype` alone, whose inputs 1 to `n` are the state; None where it has others.

    The inputs before and after the state are rows of a second array, in order. Rows are used again once nothing reads
    them; the result of an operation is never a row that it reads.
    """
    code: list[tuple[int, int, int, int, int]] = []
    constants: list[float] = []
    slots: dict[int, int] = {}
    for k, node in enumerate(graph.nodes):
        if node.dtype not in (dtype, "bool") or (node.operation not in CODES and node.operation not in KNOWN):
            return None
        if node.operation == "constant":
            slots[k] = len(constants)
            constants.append(float(node.value))
    last = {i: k for k, node in enumerate(graph.nodes) for i in node.inputs}
    outputs: dict[int, list[int]] = {}
    for row, k in enumerate(graph.outputs):
        outputs.setdefault(k, []).append(row)
    free, n_slots = list[int](), len(constants)
    for k, node in enumerate(graph.nodes):
        operands = [slots[i] for i in node.inputs]
        if node.operation != "constant":
            if not free:
                free.append(n_slots)
                n_slots += 1
            slots[k] = free.pop()
            if node.operation == "input":
                state = 1 <= node.value <= n
                row = node.value - 1 if state else node.value - n * (node.value > n)
                code.append((LOAD_STATE if state else LOAD_ROW, slots[k], row, 0, 0))
            else:
                a, b, c = [*operands, 0, 0][:3]
                code.append((CODES[node.operation], slots[k], a, b, c))
        code += [(STORE, slots[k], slots[k], row, 0) for row in outputs.get(k, [])]
        done = {i for i in (*node.inputs, k) if last.get(i, k) == k and graph.nodes[i].operation != "constant"}
        free += [slots[i] for i in sorted(done)]
    used = {node.operation for node in graph.nodes} - set(KNOWN)
    table = np.array(code, np.int64).reshape(-1, 5)
    return Program(table, np.array(constants, dtype), n_slots, len(graph.outputs), not used <= BASIC)


KNOWN = ("constant", "input")


def run_program(program: Program, rows: Array, state: Array, out: Array | None = None) -> Array:
    """The outputs, shape (n_outputs, S), for `rows` of shape (n_rows, S) and `state` of shape (n, S)."""
    n_samples = rows.shape[1]
    out = np.empty((program.n_outputs, n_samples), program.constants.dtype) if out is None else out
    memory = np.empty((-(-n_samples // TILE), program.n_slots, TILE), program.constants.dtype)
    rows, state = (np.ascontiguousarray(array) for array in (rows, state))
    if n_samples:
        _interpreter(program.whole)(program.code, program.constants, rows, state, memory, out)
    return out


MODULE = '''"""An interpreter of programs, written by ensemble; it may be deleted at any time."""

import numpy as np

from ensemble._compile.numba import compiled, inner, prange
{rare}

@compiled
def interpret(code, constants, rows, state, memory, out):
    n_tiles = memory.shape[0]
    for tile in prange(n_tiles):
        slots = memory[tile]
        first = np.int64(tile) * {tile}
        width = min({tile}, out.shape[1] - first)
        for k in range(constants.size):
            slots[k, :] = constants[k]
        for line in range(code.shape[0]):
            op, place = code[line, 0], code[line, 1]
            r, a, b, c = slots[place], slots[code[line, 2]], slots[code[line, 3]], slots[code[line, 4]]
            if op == 0:
                for s in range(width):
                    r[s] = state[code[line, 2], first + s]
            elif op == 1:
                for s in range(width):
                    r[s] = rows[code[line, 2], first + s]
            elif op == 2:
                for s in range(width):
                    out[code[line, 3], first + s] = a[s]
{branches}
'''

RARE = """
from ensemble._compile.trace.elementwise import {names}


@inner
def rare(op, x, y, z):
{branches}
    return np.nan
"""

BASIC = frozenset(["add", "subtract", "multiply", "divide", "negative", "square", "reciprocal", "sqrt"])
"""Operations of most programs, which have an interpreter of their own: it is compiled in a third of the time."""

LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}


@functools.cache
def _interpreter(whole: bool) -> Any:
    """The interpreter of basic operations, or of all. Few have a loop in packed instructions; the others share one."""
    branches, rare = [], []
    for name in sorted(CODES):
        text = OPERATIONS[name].text("python", False)
        if name in LOGICAL:
            text = f"({{0}} != 0) {LOGICAL[name]} ({{1}} != 0)"
        if name in BASIC:
            expression = text.format("a[s]", "b[s]", "c[s]")
            branches.append(f"elif op == {CODES[name]}:\n    for s in range(width):\n        r[s] = {expression}")
        else:
            rare.append(f"    if op == {CODES[name]}:\n        return np.float64({text.format('x', 'y', 'z')})")
    if whole:
        branches.append("else:\n    for s in range(width):\n        r[s] = rare(op, a[s], b[s], c[s])")
    text, names = textwrap.indent("\n".join(branches), 12 * " "), ", ".join(SCALAR_FUNCTIONS)
    others = RARE.format(names=names, branches="\n".join(rare)) if whole else ""
    return load_module(MODULE.format(tile=TILE, branches=text, rare=others)).interpret
