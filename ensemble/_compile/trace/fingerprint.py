"""What a function's trace depends on: its code and the values that it reads, so that a trace can be kept."""

from __future__ import annotations

import builtins
import dis
import functools
import hashlib
import math
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["fingerprint", "reads_arguments_only"]

MOST_BYTES = 1 << 23
"""Bytes of the largest array whose values are part of a fingerprint."""

SHORT_BYTES = 1 << 8
"""Bytes of the largest array that stands there itself; of larger ones their digest."""

MOST_VALUES = 1 << 17
"""Values that a fingerprint holds, at most."""

PLAIN = (type(None), bool, int, float, complex, str, bytes)

PURE = frozenset(
    ["NotImplementedError", "TypeError", "ValueError", "abs", "all", "any", "bool", "complex", "divmod", "enumerate",
     "filter", "float", "int", "isinstance", "len", "list", "map", "max", "min", "pow", "range", "reversed", "round",
     "set", "slice", "sorted", "str", "sum", "tuple", "zip"]
)  # fmt: skip
"""Builtin functions whose result depends on their arguments alone."""

LIBRARY = __name__.partition(".")[0]

MODULES = (math, np)
"""Modules whose attributes are taken as constant, `numpy.random` excepted."""

FORBIDDEN = frozenset(
    ["DELETE_ATTR", "DELETE_GLOBAL", "IMPORT_NAME", "LOAD_BUILD_CLASS", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_NAME",
     "STORE_ATTR", "STORE_GLOBAL"]
)  # fmt: skip
"""Instructions of functions that do more than compute."""

IMPURE = frozenset(["fromfile", "genfromtxt", "load", "loadtxt", "memmap", "random"])
"""Names in NumPy whose results change from call to call."""

HARMLESS = {"terminal", "direction"}
"""Attributes of event functions, which are read elsewhere."""


class _UnknownError(Exception):
    """The function reads what cannot be compared."""


def fingerprint(*functions: Callable[..., Any]) -> Any:
    """A hashable value: equal for functions of equal code that read equal values; None where that is not known.

    What counts as read: the values of closure cells and of defaults, and global names in the code, of functions that
    are called too. Numbers, text, small NumPy arrays, and lists, tuples and dictionaries of them are compared by value
    at each call, so a change is seen. Functions and modules of this library, and what `math` and `numpy` name, are
    taken as constant. An object whose class has `traces_as` counts as that function. A function that reads anything
    else (an object's attribute, another module, random numbers, a clock) or that changes globals has no fingerprint.
    """
    try:
        return tuple(_of_callable(f, _Walk()) for f in functions)
    except _UnknownError:
        return None


def reads_arguments_only(function: Callable[..., Any]) -> bool:
    """Whether a function reads nothing but its arguments, `math`, NumPy and Python's pure functions."""
    if type(function) is not types.FunctionType or function.__closure__:
        return False
    try:
        names = _reads(function.__code__)
    except _UnknownError:
        return False
    known = function.__globals__
    return all(any(known[n] is m for m in MODULES) if n in known else n in PURE for n in names)


class _Walk:
    """The functions seen so far, for recursion, and the number of values."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.count = 0


@functools.lru_cache(maxsize=1024)
def _reads(code: types.CodeType) -> tuple[str, ...]:
    """The global names that a code object reads, nested ones included.

    Raises
    ------
    _UnknownError
        If it does more than compute.
    """
    names: dict[str, None] = {}
    for instruction in dis.get_instructions(code):
        changes_cell = instruction.opname == "STORE_DEREF" and instruction.argval in code.co_freevars
        if (
            instruction.opname in FORBIDDEN
            or changes_cell
            or (isinstance(instruction.argval, str) and instruction.argval in IMPURE)
        ):
            raise _UnknownError
        if instruction.opname == "LOAD_GLOBAL":
            names[instruction.argval] = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= dict.fromkeys(_reads(constant))
    return tuple(names)


def _of_callable(f: Any, walk: _Walk) -> Any:
    return _of_value(f, walk) if type(f) is functools.partial else _of_function(f, walk)


def _of_function(f: Any, walk: _Walk) -> Any:
    if type(f) is not types.FunctionType:
        raise _UnknownError
    if id(f) in walk.seen:
        return ("again", walk.seen[id(f)])
    walk.seen[id(f)] = len(walk.seen)
    read = []
    for name in _reads(f.__code__):
        if name in f.__globals__:
            read.append(_of_value(f.__globals__[name], walk))
        elif name in PURE and hasattr(builtins, name):
            read.append(name)
        else:
            raise _UnknownError
    try:
        cells = [_of_value(cell.cell_contents, walk) for cell in f.__closure__ or ()]
    except ValueError:  # an empty cell
        raise _UnknownError from None
    defaults = _of_value((f.__defaults__, f.__kwdefaults__), walk)
    return (f.__code__, tuple(read), tuple(cells), defaults)


def _is_module(module: types.ModuleType) -> bool:
    """Whether the module's attributes are constant: one of `MODULES`, or of this library."""
    name = module.__name__
    return module in MODULES or (name.partition(".")[0] == LIBRARY and sys.modules.get(name) is module)


def _is_own(function: types.FunctionType) -> bool:
    """Whether the function stands in a module of this library: it has no values of its own."""
    module = sys.modules.get(function.__module__)
    return module is not None and _is_module(module) and getattr(module, function.__name__, None) is function


def _of_value(value: Any, walk: _Walk) -> Any:
    walk.count += 1
    if walk.count > MOST_VALUES:
        raise _UnknownError
    kind = type(value)
    if kind in PLAIN:
        return (kind, repr(value) if kind in (float, complex) else value)  # zeros have signs, and NaN equals itself
    if kind in (list, tuple):
        return (kind, *(_of_value(each, walk) for each in value))
    if kind is dict:
        return (kind, *((_of_value(key, walk), _of_value(each, walk)) for key, each in value.items()))
    if isinstance(value, np.generic | np.ndarray) and kind.__module__ == "numpy":
        if value.dtype.hasobject or value.nbytes > MOST_BYTES:
            raise _UnknownError
        content = value.tobytes()
        if len(content) > SHORT_BYTES:
            content = hashlib.blake2b(content, digest_size=32).digest()
        return (kind, value.dtype.str, value.shape, content)
    if _is_module(value) if kind is types.ModuleType else isinstance(value, np.ufunc):
        return value.__name__
    if kind is functools.partial and not value.__dict__:
        return (kind, *(_of_value(part, walk) for part in (value.func, value.args, value.keywords)))
    if kind is types.FunctionType and _is_own(value):
        return (value.__module__, value.__name__)
    if kind is types.FunctionType:
        if not set(value.__dict__) <= HARMLESS:
            raise _UnknownError
        return _of_function(value, walk)
    if hasattr(kind, "traces_as"):
        return _of_value(value.traces_as, walk)
    if kind is types.BuiltinFunctionType and value.__module__ == "math":
        return ("math", value.__name__)
    raise _UnknownError
