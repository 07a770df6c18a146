"""Where the code of a function catches exceptions, and copies of that code that call a function first.

Python 3.11 has no event for a caught exception. There a copy of the code gets a few instructions before each handler:
they call a function with the exception. Later versions have `sys.monitoring`, and need no copies of code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from ensemble._byte_code import codes_in, encoded, encoded_guards, guards_of, handles

__all__ = ["HAS_EVENTS", "catches", "is_caught_at", "with_calls_before_handlers"]

HAS_EVENTS = sys.version_info >= (3, 12)

Ranges = tuple[tuple[int, int], ...]

_GUARDED: dict[int, tuple[CodeType, Ranges]] = {}
"""By identity: equal code objects may stand in different files, and comparing them takes long."""


def catches(code: CodeType) -> bool:
    """Whether `code` or a function inside it has an ``except``, a ``finally`` or a ``with``."""
    return any(_guarded(inner) for inner in codes_in(code))


def is_caught_at(code: CodeType, lasti: int) -> bool:
    """Whether an exception of the instruction at byte `lasti` goes to a handler in `code`."""
    return any(start <= lasti // 2 < end for start, end in _guarded(code))


def _guarded(code: CodeType) -> Ranges:
    """The ranges of instructions with a handler."""
    if not code.co_exceptiontable:
        return ()
    known = _GUARDED.get(id(code))
    if known is None or known[0] is not code:
        if len(_GUARDED) >= 1024:
            _GUARDED.clear()
        ranges = tuple((e.start, e.end) for e in guards_of(code) if handles(code, e))
        known = _GUARDED[id(code)] = code, ranges
    return known[1]


# -- copies for Python 3.11 --------------------------------------------------------------------------------------------

_COPIES: dict[int, tuple[CodeType, Any, CodeType]] = {}


def with_calls_before_handlers(code: CodeType, function: Callable[[BaseException], None]) -> CodeType:
    """`code`, which calls ``function(error)`` before each handler, in functions inside it too."""
    if HAS_EVENTS or not catches(code):
        return code
    known = _COPIES.get(id(code))
    if known is None or known[0] is not code or known[1] is not function:
        if len(_COPIES) >= 1024:
            _COPIES.clear()
        inner = tuple(
            with_calls_before_handlers(constant, function) if isinstance(constant, CodeType) else constant
            for constant in code.co_consts
        )
        known = _COPIES[id(code)] = code, function, _with_calls(code.replace(co_consts=inner), function)
    return known[2]


def _with_calls(code: CodeType, function: Callable[[BaseException], None]) -> CodeType:
    entries, steps = guards_of(code), bytearray(code.co_code)
    targets = sorted({e.target for e in entries if handles(code, e)})
    if not targets:
        return code
    places, outer = {}, []
    for target in targets:
        places[target] = start = len(steps) // 2
        steps += _call(len(code.co_consts))
        steps += _jump(len(steps) // 2 - target)
        # An exception of the call goes where one goes that the handler does not take.
        cleanup = next((e.target for e in entries if e.start <= target < e.end), None)
        beyond = next((e for e in entries if cleanup is not None and e.start <= cleanup < e.end), None)
        if beyond is not None:
            outer.append(beyond._replace(start=start, end=len(steps) // 2))
    added = len(steps) // 2 - len(code.co_code) // 2
    no_line = [0x80 | 15 << 3 | min(8, added - k) - 1 for k in range(0, added, 8)]
    # The calls come after all other code; one table entry may hold places of its own targets.
    moved = [e._replace(target=places.get(e.target, e.target)) for e in entries + outer]
    return code.replace(
        co_code=bytes(steps),
        co_consts=(*code.co_consts, function),
        co_exceptiontable=encoded_guards(moved),
        co_linetable=code.co_linetable + bytes(no_line),
        co_stacksize=code.co_stacksize + 4,
    )


def _call(constant: int) -> bytes:
    """``function(error)``, where the exception is on top of the stack."""
    call = ("PUSH_NULL", 0), ("LOAD_CONST", constant), ("COPY", 3), ("PRECALL", 1), ("CALL", 1), ("POP_TOP", 0)
    return b"".join(encoded(name, operand) for name, operand in call)


def _jump(distance: int) -> bytes:
    """A jump back by `distance` instructions, counted from its first one."""
    for extra in range(4):  # its operand counts from the instruction after it
        jump = encoded("JUMP_BACKWARD", distance + 1 + extra)
        if len(jump) == 2 * (1 + extra):
            return jump
    raise AssertionError("no jump is so long")
