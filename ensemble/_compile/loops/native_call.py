"""Calls of translated loops from Python: compiled code takes the arguments from Python's tuple, by a table.

The table has a row for each argument. The code, `reader.py`, is compiled once for all loops; it reads a NumPy array as
NumPy's header files lay it out: where its data, extents, type and flags lie has been the same since NumPy 1.7.
`can_call` tests it once.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from llvmlite import binding, ir
from numba import types

from ensemble._compile.instructions import declared

__all__ = [
    "ALL_THREADS",
    "ARRAYS",
    "BY_SIZE",
    "HEADER",
    "ONE_THREAD",
    "SMALL",
    "can_call",
    "declare_python_functions",
    "dtype_word",
    "flat_types",
    "kinds_of",
    "native",
    "python_function",
    "table_of",
]

ALL_THREADS, ONE_THREAD, BY_SIZE = -1, -2, -3
"""Threads that run a loop: all that Numba may use now, or the calling one; by the size of the largest array."""

SMALL = 1 << 17
"""Elements of the largest array up to which a loop that goes by size runs on one thread (`benchmarks threads`)."""

I1, I32, I64, BYTES = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
SINGLE, DOUBLE = ir.FloatType(), ir.DoubleType()
SCALARS: dict[Any, ir.Type] = {types.boolean: I1, types.int64: I64, types.float32: SINGLE, types.float64: DOUBLE}
SCALARS |= {types.complex64: ir.LiteralStructType([SINGLE] * 2), types.complex128: ir.LiteralStructType([DOUBLE] * 2)}

HEADER = object.__basicsize__
"""Bytes in front of what is an object's own; the last eight are the address of its type."""

DATA, N_DIM, EXTENTS, DTYPE, FLAGS = HEADER, HEADER + 8, HEADER + 16, HEADER + 40, HEADER + 48
"""Where the parts of a NumPy array lie."""

C_ORDER_ALIGNED, WRITEABLE = 0x101, 0x400

COMPARED = C_ORDER_ALIGNED | WRITEABLE
"""Flags of an array that are those of the table."""

ITEMS = tuple.__basicsize__
"""Where the entries of a tuple begin; their number is the first of what is its own."""

ARRAY, INNER_ARRAY, TUPLE, WHOLE, TRUTH, SINGLE_NUMBER, DOUBLE_NUMBER = range(7)
"""Operations by which an argument is taken."""

NUMBERS: dict[Any, int] = {
    types.boolean: TRUTH, types.int64: WHOLE, types.float32: SINGLE_NUMBER, types.float64: DOUBLE_NUMBER,
}  # fmt: skip

ROW = 4
"""Words of a row of the table."""

MODE, COUNT, PART, N_WORDS, N_ARGUMENTS, TABLE = range(6)
"""Where in the array that `native` makes numbers of a loop lie, and the rows of its table."""

KIND = HEADER + 8
"""Where a dtype has the characters of its kind, type and byte order, a byte of flags, and its number in four bytes."""

KIND_MASK = ~0xFFFF0000
"""What of these tells native dtypes apart: kind, type, number."""

ORDER_SHIFT, SWAPPED = 16, ord(">")
"""The byte order: ``=``, ``<`` or ``|`` is native where the first byte of a number is its lowest."""

ARRAYS = {
    np.dtype(name): getattr(types, "boolean" if name == "bool" else name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
        "complex64", "complex128",
    )
}  # fmt: skip

PYTHON = {
    "PyTuple_Size": (I64, [BYTES]),
    "PyTuple_GetItem": (BYTES, [BYTES, I64]),
    "PyLong_AsLongLong": (I64, [BYTES]),
    "PyLong_FromLongLong": (BYTES, [I64]),
    "PyFloat_AsDouble": (DOUBLE, [BYTES]),
    "PyErr_Occurred": (BYTES, []),
    "PyEval_SaveThread": (BYTES, []),
    "PyEval_RestoreThread": (ir.VoidType(), [BYTES]),
    "PyMem_RawMalloc": (BYTES, [I64]),
    "PyMem_RawFree": (ir.VoidType(), [BYTES]),
}
"""Functions of Python that compiled code calls: results and arguments."""


@functools.cache
def can_call() -> bool:
    """Whether arrays lie in memory as this module expects."""
    array = np.arange(6.0).reshape(2, 3)

    def at(place: int, kind: Any) -> Any:
        return kind.from_address(id(array) + place).value

    return bool(
        sys.byteorder == "little"
        and can_take_tuples()
        and dtype_word(array.dtype) == ctypes.c_int64.from_address(id(array.dtype) + KIND).value & KIND_MASK
        and at(HEADER - 8, ctypes.c_int64) == id(np.ndarray)
        and at(DATA, ctypes.c_int64) == array.ctypes.data
        and at(N_DIM, ctypes.c_int32) == 2
        and at(DTYPE, ctypes.c_int64) == id(array.dtype)
        and at(FLAGS, ctypes.c_int32) & C_ORDER_ALIGNED == C_ORDER_ALIGNED
        and at(FLAGS, ctypes.c_int32) == array.flags.num
    )


def can_take_tuples() -> bool:
    """Whether the number of entries of a tuple and their addresses lie where they are read."""
    entries = object(), object(), object()
    words = (ctypes.c_int64 * 3).from_address(id(entries) + ITEMS)
    return [*words] == [*map(id, entries)] and ctypes.c_int64.from_address(id(entries) + HEADER).value == 3


@functools.cache
def declare_python_functions() -> None:
    """Make the functions of Python that compiled code calls known to LLVM."""
    for name in PYTHON:
        binding.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)


Kind: TypeAlias = "types.Type | tuple[Kind, ...]"
"""The type of an argument: Numba's, or those of the members of a tuple."""


def kinds_of(arguments: Sequence[Any]) -> tuple[Kind, ...] | None:
    """Return the types of arguments; None where a translated loop does not take one of them."""
    found: list[Kind] = []
    for value in arguments:
        kind: Kind | None = None
        if type(value) is np.ndarray:
            entry = ARRAYS.get(value.dtype)
            if entry is not None and value.ndim > 0 and value.flags.num & C_ORDER_ALIGNED == C_ORDER_ALIGNED:
                kind = types.Array(entry, value.ndim, "C", readonly=not value.flags.writeable)
        elif isinstance(value, tuple):
            kind = kinds_of(value)
        elif type(value) is bool:
            kind = types.boolean
        elif isinstance(value, int | np.integer) and not isinstance(value, np.uint64):
            kind = types.int64
        elif isinstance(value, float | np.float32):
            kind = types.float64 if isinstance(value, float) else types.float32
        if kind is None:
            return None
        found.append(kind)
    return tuple(found)


def dtype_word(dtype: np.dtype[Any]) -> int:
    """Return the number by which calls compare dtypes: equal for all native objects of one type."""
    return ord(dtype.kind) | ord(dtype.char) << 8 | dtype.num << 32


def table_of(arguments: Sequence[Any], kinds: Sequence[Kind]) -> tuple[list[int], list[type]]:
    """Return the table by which calls take such arguments, whose `kinds_of` is `kinds`; and types that must be held.

    A row is an operation, the address of a type, and two numbers: of an array, `dtype_word` and `layout_word`; of a
    tuple, how many entries it has, whose rows follow. The first number of the table is that of its arguments.
    """
    held: list[type] = []

    def rows(values: Sequence[Any], kinds: Sequence[Kind], array: int) -> Iterator[int]:
        for value, kind in zip(values, kinds, strict=True):
            held.append(type(value))
            if isinstance(kind, tuple):
                yield from (TUPLE, id(type(value)), len(kind), 0)
                yield from rows(value, kind, INNER_ARRAY)
            elif isinstance(kind, types.Array):
                layout = layout_word(value.ndim, value.flags.num)
                yield from (array, id(type(value)), dtype_word(value.dtype), layout)
            else:
                yield from (NUMBERS[kind], id(type(value)), 0, 0)

    return [len(arguments), *rows(arguments, kinds, ARRAY)], held


def layout_word(n_dim: int, flags: int) -> int:
    """Return the number of dimensions and the flags that calls compare, as they lie in one word."""
    return n_dim | (flags & COMPARED) << 32


def flat_types(kinds: Sequence[Kind]) -> list[ir.Type]:
    """Return LLVM's types of the arguments of a loop: of an array, its address and its extents."""
    found: list[ir.Type] = []
    for kind in kinds:
        if isinstance(kind, tuple):
            found += flat_types(kind)
        elif isinstance(kind, types.Array):
            bits = 8 if kind.dtype is types.boolean else kind.dtype.bitwidth
            real = isinstance(kind.dtype, types.Float | types.Complex)
            entry = SCALARS[kind.dtype] if real else ir.IntType(bits)
            found += [entry.as_pointer(), *[I64] * kind.ndim]
        else:
            found.append(SCALARS[kind])
    return found


def python_function(module: ir.Module, name: str) -> Any:
    """Declare in `module` a function of Python's C interface, which `PYTHON` lists, and return it."""
    result, arguments = PYTHON[name]
    return declared(module, ir.FunctionType(result, arguments), name)


NAME = ctypes.create_string_buffer(b"loop")

TAKES_TUPLE = 1
"""Python's `METH_VARARGS`."""

_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.argtypes, _new_function.restype = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p), ctypes.py_object


def native(reader: int, count: int, part: int, n_words: int, table: Sequence[int], mode: int) -> Any:
    """Return a function of Python that runs a loop on threads by `mode`, for arguments of the types of `table_of`.

    `reader` is the address of ``call`` of `reader.py`; `count` and `part` are those of the loop, 0 for none, whose
    arguments are `n_words` words. The function returns zero where its arguments are of other types, else the loop's
    integer and one. Its `self` is an array of these numbers and of Python's definition of the function
    (`PyMethodDef`), which lives as long as the function so.
    """
    definition = [ctypes.addressof(NAME), reader, TAKES_TUPLE, 0]
    own = np.array([mode, count, part, n_words, *table, *definition], np.int64)
    return _new_function(own.ctypes.data + own.nbytes - 8 * len(definition), own, None)
