"""What the byte code of a function says: the only module that knows instructions of CPython.

An instruction is two bytes, its number and its operand, in all versions from 3.6 on. Exceptions that a function catches
stand in a table beside the instructions, from 3.11 on.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

__all__ = [
    "NUMBERS",
    "POWERS",
    "Guard",
    "assigns_entry",
    "codes_in",
    "enclosed",
    "encoded",
    "encoded_guards",
    "guards_of",
    "handles",
    "names_in",
    "numbers_of",
    "raises",
    "steps_of",
    "stored_outside",
    "variables_in",
]

NUMBERS = dis.opmap
"""The number of each instruction, by its name, in this version of Python."""

POWERS = frozenset(k for k, (name, _) in enumerate(dis._nb_ops) if "POWER" in name)  # type: ignore[attr-defined]
"""Operands with which BINARY_OP is a power."""

PUSH_EXC_INFO, RAISE_VARARGS = NUMBERS["PUSH_EXC_INFO"], NUMBERS["RAISE_VARARGS"]
STORE_DEREF, STORE_SUBSCR = NUMBERS["STORE_DEREF"], NUMBERS["STORE_SUBSCR"]

READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
"""Instructions that read a variable which is not the function's own."""

steps_of = dis.get_instructions
"""The instructions of a code object one by one, each with `opname` and `argval`."""


def numbers_of(*names: str) -> frozenset[int]:
    """Return the numbers of all instructions whose names begin with one of `names`."""
    return frozenset(number for name, number in NUMBERS.items() if name.startswith(names))


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """`code` and the code of all functions and classes inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def names_in(code: CodeType) -> Iterator[str]:
    """The names of global variables and attributes that `code` and what is inside it use."""
    return (name for inner in codes_in(code) for name in inner.co_names)


def variables_in(code: CodeType) -> Iterator[str]:
    """The names that `code` and what is inside it read as global variables; attributes are none."""
    return (step.argval for inner in codes_in(code) for step in steps_of(inner) if step.opname in READS)


def enclosed(function: Any) -> dict[str, Any]:
    """The values of the variables of enclosing functions, by name; those without a value yet are left out."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def stored_outside(code: CodeType) -> set[str]:
    """The variables of enclosing functions that `code` assigns to; all free variables where that is not clear."""
    own = len(set(code.co_varnames) | set(code.co_cellvars))
    steps = code.co_code
    if own + len(code.co_freevars) > 255:  # their numbers take two instructions
        return set(code.co_freevars)
    places = {steps[k + 1] for k in range(0, len(steps), 2) if steps[k] == STORE_DEREF}
    return {code.co_freevars[place - own] for place in places if place >= own}


def assigns_entry(code: CodeType, lasti: int) -> bool:
    """Whether the instruction at byte `lasti` is ``x[i] = y``."""
    return code.co_code[lasti] == STORE_SUBSCR


def raises(code: CodeType, lasti: int) -> bool:
    """Whether the instruction at byte `lasti` is a ``raise``."""
    return code.co_code[lasti] == RAISE_VARARGS


# -- the table of exceptions -------------------------------------------------------------------------------------------


class Guard(NamedTuple):
    """Instructions `start` to `end`, whose exceptions go to `target` with `depth` values left on the stack."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def guards_of(code: CodeType) -> list[Guard]:
    """The table, as the file Objects/exception_handling_notes.txt of CPython describes it."""
    numbers, found = _varints(code.co_exceptiontable), []
    for start in numbers:
        length, target, rest = next(numbers), next(numbers), next(numbers)
        found.append(Guard(start, start + length, target, rest >> 1, bool(rest & 1)))
    return found


def handles(code: CodeType, guard: Guard) -> bool:
    """Whether the target of a guard is an ``except``, a ``finally`` or the end of a ``with``."""
    return code.co_code[2 * guard.target] == PUSH_EXC_INFO


def _varints(table: bytes) -> Iterator[int]:
    value = 0
    for byte in table:
        value = (value << 6) | (byte & 63)
        if not byte & 64:
            yield value
            value = 0


def encoded_guards(guards: list[Guard]) -> bytes:
    """The bytes of a table of exceptions."""
    table = bytearray()
    for guard in guards:
        first = len(table)
        for value in (guard.start, guard.end - guard.start, guard.target, (guard.depth << 1) | guard.lasti):
            groups = [value >> shift & 63 for shift in range(24, -1, -6)]
            while len(groups) > 1 and not groups[0]:
                groups.pop(0)
            table += bytes([group | 64 for group in groups[:-1]] + groups[-1:])
        table[first] |= 128
    return bytes(table)


def encoded(name: str, operand: int = 0) -> bytes:
    """The bytes of an instruction, with the words behind it that Python 3.11 keeps its inline caches in."""
    extended = [operand >> shift & 255 for shift in (24, 16, 8)]
    while extended and not extended[0]:
        extended.pop(0)
    steps = [(NUMBERS["EXTENDED_ARG"], part) for part in extended] + [(NUMBERS[name], operand & 255)]
    entries = dis._inline_cache_entries  # type: ignore[attr-defined]
    caches = entries.get(name, 0) if isinstance(entries, dict) else entries[NUMBERS[name]]  # by name since Python 3.13
    return bytes(byte for step in steps for byte in step) + bytes(2 * caches)
