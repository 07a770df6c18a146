"""What a function's trace depends on: its code and the values that it reads, so that a trace can be kept."""

from __future__ import annotations

import builtins
import functools
import hashlib
import math
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from ensemble._byte_code import codes_in, enclosed, names_in, steps_of, stored_outside

__all__ = ["fingerprint", "kept_under_code", "reads_arguments_only"]

T = TypeVar("T")

MOST_BYTES = 1 << 23
"""Bytes of the largest array whose values are part of a fingerprint."""

SHORT_BYTES = 1 << 8
"""Bytes of the largest array that stands there itself; of larger ones their digest."""

MOST_VALUES = 1 << 17
"""Values that a fingerprint holds, at most."""

MOST_OBJECTS = 64
"""Objects of classes written in Python that a function may read."""

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


HEAP_TYPE = 1 << 9
"""The flag of classes that a class statement made."""

DYNAMIC = frozenset(["__getattr__", "__getattribute__", "__get__", "__slots__"])
"""What makes attributes of an object other than entries of its dictionary and of those of its classes."""

OPERATORS = frozenset(
    f"__{name}__"
    for name in ("abs", "add", "and", "array", "array_function", "array_interface", "array_struct", "array_ufunc",
                 "bool", "call", "ceil", "complex", "contains", "delitem", "divmod", "dlpack", "enter", "eq",
                 "exit", "float", "floor", "floordiv", "format", "ge", "getitem", "gt", "hash", "iadd", "iand",
                 "ifloordiv", "ilshift", "imatmul", "imod", "imul", "index", "int", "invert", "ior", "ipow",
                 "irshift", "isub", "iter", "itruediv", "ixor", "le", "len", "lshift", "lt", "matmul", "missing",
                 "mod", "mul", "ne", "neg", "next", "or", "pos", "pow", "radd", "rand", "rdivmod", "repr",
                 "reversed", "rfloordiv", "rlshift", "rmatmul", "rmod", "rmul", "ror", "round", "rpow", "rrshift",
                 "rshift", "rsub", "rtruediv", "rxor", "setitem", "str", "sub", "truediv", "trunc", "xor")
)  # fmt: skip
"""Methods that code calls without their names."""


class _UnknownError(Exception):
    """The function reads what cannot be compared."""


def fingerprint(*functions: Callable[..., Any]) -> Any:
    """A hashable value: equal for functions of equal code that read equal values; None where that is not known.

    What counts as read: the values of closure cells and of defaults, and global names in the code, of functions that
    are called too. Numbers, text, small NumPy arrays, and lists, tuples and dictionaries of them are compared by value
    at each call, so a change is seen. Functions and modules of this library, and what `math` and `numpy` name, are
    taken as constant. An object whose class has `traces_as` counts as that function. Other objects of classes written
    in Python count as their attributes and methods, as far as any of the code has their names. A function that reads
    anything else (another module, random numbers, a clock) or that changes globals or attributes has no fingerprint.
    """
    try:
        return tuple(_with_objects(f, _Walk()) for f in functions)
    except _UnknownError:
        return None


def kept_under_code(
    kept: dict[Any, T], most: int, make: Callable[[], T], functions: Iterable[Callable[..., Any]], *about: Any
) -> T:
    """What `make` traces of `functions`, from `kept` where all that they read can be compared (`fingerprint`).

    `about` is what it depends on besides; of more than `most` in `kept` the oldest goes.
    """
    seen = fingerprint(*functions)
    if seen is None:
        return make()
    key = (seen, *about)
    if key not in kept:
        made = make()
        if len(kept) >= most:
            kept.pop(next(iter(kept)), None)
        kept[key] = made
    return kept[key]


def _with_objects(f: Any, walk: _Walk) -> Any:
    """What a function reads, and what the code that was seen so may read of the objects that were seen."""
    found, read = [_of_callable(f, walk)], set[tuple[int, str]]()
    more = True
    while more:
        more = False
        for place, value in enumerate(tuple(walk.objects)):
            for name in sorted(_present(value) & (walk.names | OPERATORS)):
                if (place, name) not in read:
                    read.add((place, name))
                    more = True
                    found.append((place, name, _of_attribute(value, name, walk)))
    return tuple(found)


def _present(value: Any) -> set[str]:
    """The names under which an object or its classes have something."""
    return set().union(vars(value), *map(vars, type(value).__mro__[:-1])) | {"__dict__", "__class__"}


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
    """The functions and objects seen so far, for recursion, and the number of values."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.count = 0
        self.objects: list[Any] = []
        self.names: set[str] = set()
        """Names of attributes in the code of the functions."""


@functools.lru_cache(maxsize=1024)
def _reads(code: types.CodeType) -> tuple[str, ...]:
    """The global names that a code object reads, nested ones included.

    Raises
    ------
    _UnknownError
        If it does more than compute.
    """
    names: dict[str, None] = {}
    for inner in codes_in(code):
        if stored_outside(inner):
            raise _UnknownError
        for step in steps_of(inner):
            if step.opname in FORBIDDEN or (isinstance(step.argval, str) and step.argval in IMPURE):
                raise _UnknownError
            if step.opname == "LOAD_GLOBAL":
                names[step.argval] = None
    return tuple(names)


@functools.lru_cache(maxsize=1024)
def _attributes(code: types.CodeType) -> frozenset[str]:
    """The names that a code object reads of anything, nested ones included."""
    return frozenset(names_in(code))


def _of_callable(f: Any, walk: _Walk) -> Any:
    if type(f) is types.FunctionType:
        return _of_function(f, walk)
    return (_of_value if type(f) in (functools.partial, types.MethodType) else _of_object)(f, walk)


def _of_object(value: Any, walk: _Walk) -> Any:
    """An object by its place among those seen; its attributes follow once all code is known (`_with_objects`).

    Raises
    ------
    _UnknownError
        If its attributes may be other than those of its dictionary and of the dictionaries of its classes.
    """
    if id(value) in walk.seen:
        return ("again", walk.seen[id(value)])
    *classes, last = type(value).__mro__
    plain = last is object and all(type(kind) is type and kind.__flags__ & HEAP_TYPE for kind in classes)
    own = any(kind.__module__.partition(".")[0] == LIBRARY for kind in classes)  # functions that are constant read them
    plain = plain and not own and len(walk.objects) < MOST_OBJECTS
    if not plain or any(vars(kind).keys() & DYNAMIC for kind in classes) or not hasattr(value, "__dict__"):
        raise _UnknownError
    walk.seen[id(value)] = len(walk.seen)
    walk.objects.append(value)
    return ("object", type(value), len(walk.objects))


def _of_attribute(value: Any, name: str, walk: _Walk) -> Any:
    """What an object and its classes have under a name: a property of a class comes before the object's own."""
    if name in ("__dict__", "__class__"):
        raise _UnknownError
    own = _of_value(vars(value)[name], walk) if name in vars(value) else None
    found = next((vars(kind)[name] for kind in type(value).__mro__[:-1] if name in vars(kind)), None)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    elif type(found) is property:
        found = found.fget
    return own, None if found is None else _of_value(found, walk)


def _of_function(f: Any, walk: _Walk) -> Any:
    if type(f) is not types.FunctionType:
        raise _UnknownError
    if id(f) in walk.seen:
        return ("again", walk.seen[id(f)])
    walk.seen[id(f)] = len(walk.seen)
    walk.names |= _attributes(f.__code__)
    read = []
    for name in _reads(f.__code__):
        if name in f.__globals__:
            read.append(_of_value(f.__globals__[name], walk))
        elif name in PURE and hasattr(builtins, name):
            read.append(name)
        else:
            raise _UnknownError
    enclosing = enclosed(f)
    if len(enclosing) < len(f.__code__.co_freevars):  # one has no value yet
        raise _UnknownError
    cells = [_of_value(value, walk) for value in enclosing.values()]
    defaults = _of_value((f.__defaults__, f.__kwdefaults__), walk)
    return (f.__code__, tuple(read), tuple(cells), defaults)


_digests: dict[int, tuple[Any, np.ndarray, bytes]] = {}
"""Arrays met lately, by their place: a weak reference, their content then, and its digest."""

_digesting = threading.Lock()


def _digest(array: Any) -> bytes:
    """The digest of the content of an array. One that was met lately and has the same content is only compared."""
    words = array.reshape(-1).view(np.uint64) if _is_comparable(array) else None
    met = _digests.get(id(array))
    if words is not None and met is not None and met[0]() is array and np.array_equal(words, met[1]):
        return met[2]
    digest = hashlib.blake2b(array.tobytes(), digest_size=32).digest()
    if words is not None:
        with _digesting:
            _digests.pop(id(array), None)
            while _digests and sum(each.nbytes for _, each, _ in _digests.values()) + array.nbytes > MOST_BYTES:
                _digests.pop(next(iter(_digests)))
            _digests[id(array)] = (weakref.ref(array), words.copy(), digest)
    return digest


def _is_comparable(array: Any) -> bool:
    """Whether the memory of an array is one piece of whole words that ends with it."""
    return type(array) is np.ndarray and bool(array.flags.c_contiguous) and array.nbytes % 8 == 0


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
        content = value.tobytes() if value.nbytes <= SHORT_BYTES else _digest(value)
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
    if kind is types.MethodType:
        return (kind, _of_value(value.__func__, walk), _of_value(value.__self__, walk))
    return _of_object(value, walk)
