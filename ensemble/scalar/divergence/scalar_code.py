"""Which functions are plain arithmetic on scalars, decided from their code: then a loop over samples may cost less.

A function gets one of two properties, from its instructions and the values of its names. *pure*: it has no
effect outside itself, and all that it calls takes no longer than an operation on scalars. *exact*: moreover, Python's
floats give the bits that NumPy's scalars give, as long as nothing is raised and every number that comes out is finite.

Where the two kinds of number differ: division by zero and overflow of a power (Python raises), a fractional power of a
negative number (complex in Python), comparisons as numbers (``True + True``), texts, ``round(x, 2)``, ``sum``, and
integers beyond 2**53 beside a float. What of these raises or is not finite shows; the rest is excluded here.
"""

from __future__ import annotations

import builtins
import math
import re
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._byte_code import NUMBERS, POWERS, enclosed, numbers_of, stored_outside
from ensemble.scalar.divergence.array_writes import OF_ARRAYS, writes_samples
from ensemble.scalar.divergence.side_effects import GENERATES

__all__ = ["ARRAYS", "EXACT", "NEITHER", "PURE", "kind_of"]

NEITHER, ARRAYS, PURE, EXACT = range(4)
"""`ARRAYS`: it has no effect outside itself, and writes what the samples give into plain arrays of its own, which only
one sample alone can do."""

LARGEST = 2**31
"""Integers of the source up to there make no integers that a float does not hold, short of a loop made for it."""


EXACT_CODES = numbers_of(
    "CACHE", "RESUME", "NOP", "EXTENDED_ARG", "POP_TOP", "PUSH_NULL", "COPY", "SWAP", "LOAD_FAST", "STORE_FAST",
    "LOAD_CONST", "LOAD_SMALL_INT", "RETURN_VALUE", "RETURN_CONST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLOSURE",
    "MAKE_CELL", "LOAD_ATTR", "LOAD_METHOD", "PRECALL", "CALL", "KW_NAMES", "BINARY_", "BUILD_TUPLE", "BUILD_LIST",
    "BUILD_MAP", "BUILD_CONST_KEY_MAP", "LIST_EXTEND", "LIST_APPEND", "UNPACK_SEQUENCE", "GET_ITER", "FOR_ITER",
    "END_FOR", "POP_ITER", "JUMP_FORWARD", "JUMP_BACKWARD", "POP_JUMP", "NOT_TAKEN", "COMPARE_OP", "CONTAINS_OP",
    "UNARY_", "TO_BOOL", "STORE_SUBSCR", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE",
) - numbers_of("CALL_INTRINSIC")  # fmt: skip
PURE_CODES = EXACT_CODES | numbers_of(
    "JUMP_IF", "IS_OP", "FORMAT_", "CONVERT_VALUE", "BUILD_STRING", "BUILD_SET", "BUILD_SLICE", "RAISE_VARARGS",
    "RERAISE", "PUSH_EXC_INFO", "POP_EXCEPT", "CHECK_EXC_MATCH", "STORE_DEREF", "LOAD_ASSERTION_ERROR",
    "LOAD_COMMON_CONSTANT", "CALL_INTRINSIC", "MAP_ADD", "SET_ADD", "LIST_TO_TUPLE", "DELETE_FAST",
    "RETURN_GENERATOR", "YIELD_VALUE", "STOP", "STORE_SLICE",
)  # fmt: skip

COMPARE, JUMPS = numbers_of("COMPARE_OP"), numbers_of("POP_JUMP", "UNARY_NOT", "TO_BOOL")
SKIPPED = numbers_of("CACHE", "NOP", "EXTENDED_ARG")
SEEN_COMPARISON = re.compile(
    b"[%b][%b]*(?![%b])"
    % tuple(
        b"".join(re.escape(bytes([code])) for code in sorted(codes)) for codes in (COMPARE, SKIPPED, JUMPS | SKIPPED)
    ),
    re.DOTALL,
)
"""A comparison that is for something else than a jump: there it shows whether it is a bool of Python or of NumPy."""

OPERATION, STORE_DEREF = NUMBERS["BINARY_OP"], NUMBERS["STORE_DEREF"]
POWER = "**"
"""Represents a power among the names of a function."""
WRITE = "[]="
"""Represents a write into an array of its own among the names of a function."""

OF_MATH = frozenset(name for name in dir(math) if not name.startswith("_"))
INTEGERS_OF_MATH = frozenset((
    "ceil", "comb", "factorial", "floor", "gcd", "isqrt", "lcm", "perm", "prod", "sumprod", "trunc",
))  # fmt: skip
OF_NUMPY = frozenset(
    name for name, value in vars(np).items() if isinstance(value, np.ufunc) and value.signature is None
) | {"e", "float64", "inf", "isscalar", "nan", "pi"}
EXACT_METHODS = frozenset(("append", "extend", "get", "items", "keys", "pop", "values"))
METHODS = EXACT_METHODS | {
    "conjugate", "count", "format", "imag", "index", "insert", "is_integer", "join", "real", "sort",
}  # fmt: skip

INEXACT = INTEGERS_OF_MATH | (METHODS - EXACT_METHODS)
"""Attributes of floats that *exact* code may not use; one may also be a name outside the function."""

EXACT_BUILTINS: frozenset[Any] = frozenset((
    abs, all, any, bool, dict, enumerate, float, len, list, max, min, range, reversed, sorted, tuple, zip,
))  # fmt: skip
PURE_BUILTINS: frozenset[Any] = frozenset((
    complex, divmod, format, frozenset, hasattr, int, isinstance, iter, map, next, pow, repr, round, set, str, sum,
))  # fmt: skip
FUNCTIONS_OF_MATH = frozenset(value for value in vars(math).values() if callable(value))
MODULES = (math, np)


def kind_of(f: Callable[..., Any]) -> int:
    """`EXACT`, `PURE`, `ARRAYS` or `NEITHER`."""
    if type(f) is not types.FunctionType:
        return NEITHER
    known: set[Any] = set()
    kind = _kind(f, known)
    if kind == ARRAYS and WRITE not in known:
        return NEITHER
    # A power may be complex in Python. Only `abs` makes a number of it that is not.
    return min(kind, PURE) if POWER in known and abs in known else kind


def _kind(f: types.FunctionType, known: set[Any]) -> int:
    code = f.__code__
    if id(code) in known:
        return EXACT
    if code.co_flags & GENERATES:
        return NEITHER
    known.add(id(code))
    kind, names = _of_code(code)
    if kind == NEITHER:
        return NEITHER
    scope, inner = f.__globals__, vars(builtins)
    for name in names:
        if name in (POWER, WRITE):
            known.add(name)
        elif name in scope:
            kind = min(kind, _of_value(scope[name], known), PURE if name in INEXACT else EXACT)
        elif name in inner:
            kind = min(kind, _of_value(inner[name], known))
        elif name in OF_MATH:
            kind = min(kind, PURE if name in INEXACT else EXACT)
        elif name in METHODS or name in OF_NUMPY:
            kind = min(kind, EXACT if name in EXACT_METHODS else PURE)
        elif name in OF_ARRAYS:
            kind = min(kind, ARRAYS)
        else:
            return NEITHER
        if kind == NEITHER:
            return NEITHER
    for value in f.__defaults__ or ():
        kind = min(kind, _of_value(value, known))
    for value in (f.__kwdefaults__ or {}).values():
        kind = min(kind, _of_value(value, known))
    cells = enclosed(f)
    if len(cells) < len(f.__code__.co_freevars):  # one is not yet filled
        return NEITHER
    for value in cells.values():
        kind = min(kind, _of_value(value, known))
    return kind


def _of_value(value: Any, known: set[Any]) -> int:
    """Rate a function by a global or closure `value` that it reads: `NEITHER` unless the value can never change."""
    kind = type(value)
    if kind in (float, bool, type(None), str, np.float64):
        return EXACT
    if kind is int:
        return EXACT if abs(value) <= LARGEST else PURE
    if kind is types.FunctionType:
        return _kind(value, known)
    if kind is tuple:
        return min((_of_value(part, known) for part in value), default=EXACT)
    try:
        if value in EXACT_BUILTINS:
            known.add(value)
            return EXACT
        if value in PURE_BUILTINS:
            return PURE
        if value in FUNCTIONS_OF_MATH:
            return PURE if value.__name__ in INTEGERS_OF_MATH else EXACT
    except (TypeError, ValueError):  # without a hash: it may change
        return NEITHER
    if value is math:
        return EXACT
    known_type = isinstance(value, type) and issubclass(value, Exception) and value.__module__ == "builtins"
    ufunc = isinstance(value, np.ufunc) and value.signature is None
    return PURE if value is np or known_type or ufunc or isinstance(value, np.number | np.bool) else NEITHER


Findings = tuple[int, tuple[str, ...]]

_FINDINGS: dict[int, tuple[types.CodeType, Findings]] = {}
"""Findings by the identity of a code object: the comparison of two code objects is slower than a look-up."""


def _of_code(code: types.CodeType) -> Findings:
    """What the instructions of `code` allow, and the names that it uses."""
    found = _FINDINGS.get(id(code))
    if found is None or found[0] is not code:
        if len(_FINDINGS) >= 1024:
            _FINDINGS.clear()
        found = _FINDINGS[id(code)] = (code, _read(code))
    return found[1]


def _read(code: types.CodeType) -> Findings:
    steps, operands = code.co_code[::2], code.co_code[1::2]
    codes = set(steps)
    if not codes <= PURE_CODES or (STORE_DEREF in codes and stored_outside(code)):
        return NEITHER, ()
    exact = codes <= EXACT_CODES and not code.co_exceptiontable and SEEN_COMPARISON.search(steps) is None
    kind, names = (EXACT if exact else PURE), dict.fromkeys(code.co_names)
    if not POWERS.isdisjoint(operands) and POWERS & {
        operand for step, operand in zip(steps, operands, strict=True) if step == OPERATION
    }:
        names[POWER] = None
    if writes_samples(code):
        names[WRITE] = None
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            inner, more = _of_code(constant)
            kind, names = min(kind, inner), names | dict.fromkeys(more)
        elif type(constant) in (complex, bytes, frozenset) or (type(constant) is int and abs(constant) > LARGEST):
            kind = min(kind, PURE)
    return kind, tuple(names)
