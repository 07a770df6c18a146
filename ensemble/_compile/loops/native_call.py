"""Calls of translated loops from Python: arguments are taken from Python's tuple by the compiled code itself.

The code reads a NumPy array as NumPy's header files lay it out: where its data, extents, type and flags lie has been
the same since NumPy 1.7. `can_call` tests it once.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from llvmlite import binding, ir
from numba import types

from ensemble._compile.instructions import declared, stack_slot

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
    "guards_of",
    "kinds_of",
    "native",
    "python_function",
    "write_run",
]

ALL_THREADS, ONE_THREAD, BY_SIZE = -1, -2, -3
"""Threads that run a loop: all that Numba may use now, or the calling one; by the size of the largest array."""

SMALL = 1 << 17
"""Elements of the largest array up to which a loop that goes by size runs on one thread."""

I1, I32, I64, BYTES = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
SINGLE, DOUBLE = ir.FloatType(), ir.DoubleType()
SCALARS: dict[Any, ir.Type] = {types.boolean: I1, types.int64: I64, types.float32: SINGLE, types.float64: DOUBLE}
SCALARS |= {types.complex64: ir.LiteralStructType([SINGLE] * 2), types.complex128: ir.LiteralStructType([DOUBLE] * 2)}

HEADER = object.__basicsize__
"""Bytes in front of what is an object's own; the last eight are the address of its type."""

DATA, N_DIM, EXTENTS, DTYPE, FLAGS = HEADER, HEADER + 8, HEADER + 16, HEADER + 40, HEADER + 48
"""Where the parts of a NumPy array lie."""

C_ORDER_ALIGNED, WRITEABLE = 0x101, 0x400

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
        and dtype_word(array.dtype) == ctypes.c_int64.from_address(id(array.dtype) + KIND).value & KIND_MASK
        and at(HEADER - 8, ctypes.c_int64) == id(np.ndarray)
        and at(DATA, ctypes.c_int64) == array.ctypes.data
        and at(N_DIM, ctypes.c_int32) == 2
        and at(DTYPE, ctypes.c_int64) == id(array.dtype)
        and at(FLAGS, ctypes.c_int32) & C_ORDER_ALIGNED == C_ORDER_ALIGNED
        and at(FLAGS, ctypes.c_int32) == array.flags.num
    )


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
    """Return the number by which `write_run` compares dtypes: equal for all native objects of one type."""
    return ord(dtype.kind) | ord(dtype.char) << 8 | dtype.num << 32


def guards_of(arguments: Sequence[Any]) -> tuple[list[int], list[type]]:
    """Return addresses of types and `dtype_word` of arrays, which `write_run` compares; and the types, to be held."""
    found: list[int] = []
    held: list[type] = []
    for value in arguments:
        held.append(type(value))
        found.append(id(type(value)))
        if isinstance(value, tuple):
            inner, types_inside = guards_of(value)
            found, held = found + inner, held + types_inside
        elif type(value) is np.ndarray:
            found.append(dtype_word(value.dtype))
    return found, held


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


class _Arguments:
    """Instructions that take the arguments from Python's tuple, after tests of their types."""

    def __init__(self, builder: Any, guards: Any, other: ir.Block) -> None:
        self.builder, self.guards, self.other, self.tested = builder, guards, other, 0
        self.values: list[Any] = []
        self.large: Any = I1(0)
        """Whether an array, not one of a tuple, has more than `SMALL` elements."""

    def at(self, thing: Any, place: int, kind: Any) -> Any:
        address = self.builder.gep(thing, [I64(place)])
        return self.builder.load(self.builder.bitcast(address, kind.as_pointer()))

    def test(self, met: Any) -> None:
        more = self.builder.append_basic_block("more")
        self.builder.cbranch(met, more, self.other)
        self.builder.position_at_end(more)

    def test_guard(self, found: Any) -> None:
        wanted = self.builder.load(self.builder.gep(self.guards, [I64(self.tested)]))
        self.tested += 1
        self.test(self.builder.icmp_signed("==", found, wanted))

    def take(self, holder: Any, kinds: Sequence[Kind], inside: bool = False) -> None:
        builder = self.builder
        size = builder.call(python_function(builder.module, "PyTuple_Size"), [holder])
        self.test(builder.icmp_signed("==", size, I64(len(kinds))))
        for k, kind in enumerate(kinds):
            thing = builder.call(python_function(builder.module, "PyTuple_GetItem"), [holder, I64(k)])
            self.test_guard(self.at(thing, HEADER - 8, I64))
            if isinstance(kind, tuple):
                self.take(thing, kind, inside=True)
                continue
            if isinstance(kind, types.Array):
                size = self.take_array(thing, kind)
                if not inside:
                    self.large = builder.or_(self.large, builder.icmp_signed(">", size, I64(SMALL)))
                continue
            name = "PyFloat_AsDouble" if isinstance(kind, types.Float) else "PyLong_AsLongLong"
            number = builder.call(python_function(builder.module, name), [thing])
            if kind is types.boolean:
                number = builder.trunc(number, I1)
            elif kind is types.float32:
                number = builder.fptrunc(number, SINGLE)
            self.values.append(number)

    def take_array(self, array: Any, kind: types.Array) -> Any:
        """Take an array, and return the number of its elements."""
        builder = self.builder
        word = self.at(self.at(array, DTYPE, BYTES), KIND, I64)
        self.test_guard(builder.and_(word, I64(KIND_MASK)))
        order = builder.and_(builder.lshr(word, I64(ORDER_SHIFT)), I64(0xFF))
        self.test(builder.icmp_signed("!=", order, I64(SWAPPED)))
        self.test(builder.icmp_signed("==", self.at(array, N_DIM, I32), I32(kind.ndim)))
        flags = builder.and_(self.at(array, FLAGS, I32), I32(C_ORDER_ALIGNED | WRITEABLE))
        self.test(builder.icmp_signed("==", flags, I32(C_ORDER_ALIGNED | (WRITEABLE if kind.mutable else 0))))
        pointer, *extents = flat_types([kind])
        self.values.append(self.at(array, DATA, pointer))
        start = self.at(array, EXTENTS, BYTES)
        found = [self.at(start, 8 * k, I64) for k in range(len(extents))]
        self.values += found
        return functools.reduce(builder.mul, found)


def write_run(module: ir.Module, kinds: Sequence[Kind], flat: list[ir.Type], count: Any, part: Any) -> None:
    """Write ``run(arguments, guards, mode)``, which shares ``part(*arguments, low, high)`` among threads."""
    run = ir.Function(module, ir.FunctionType(I64, [BYTES, I64.as_pointer(), I64]), "run")
    for attribute in ("noinline", "optnone"):  # it reads arguments: passes over it cost more than they save
        run.attributes.add(attribute)
    builder = ir.IRBuilder(run.append_basic_block("start"))
    other = run.append_basic_block("other")
    ir.IRBuilder(other).ret(I64(0))
    taken = _Arguments(builder, run.args[1], other)
    taken.take(run.args[0], kinds)
    error = builder.call(python_function(module, "PyErr_Occurred"), [])
    taken.test(builder.icmp_signed("==", error, ir.Constant(BYTES, None)))
    state = builder.call(python_function(module, "PyEval_SaveThread"), [])
    whole = builder.call(count, taken.values)
    numbers = declared(module, ir.FunctionType(I64, []), "get_num_threads")
    by_size = builder.and_(builder.icmp_signed("==", run.args[2], I64(BY_SIZE)), taken.large)
    shares = builder.or_(builder.icmp_signed("==", run.args[2], I64(ALL_THREADS)), by_size)
    with builder.if_else(shares) as (all_threads, one_thread):
        with all_threads:
            several = builder.call(numbers, [])
            asked = builder.block
        with one_thread:
            alone = builder.block
    threads = builder.phi(I64)
    threads.add_incoming(several, asked)
    threads.add_incoming(I64(1), alone)
    with builder.if_else(builder.icmp_signed(">", threads, I64(1)), likely=False) as (together, single):
        with together:
            _share(builder, flat, part, taken.values, whole, threads)
            shared = builder.block
        with single:
            found = builder.call(part, [*taken.values, I64(0), whole])
            alone = builder.block
    result = builder.phi(I64)
    result.add_incoming(I64(0), shared)
    result.add_incoming(found, alone)
    builder.call(python_function(module, "PyEval_RestoreThread"), [state])
    builder.ret(builder.add(result, I64(1)))
    _write_call(module, run)


def _write_call(module: ir.Module, run: ir.Function) -> None:
    """Write ``call(self, arguments)``, a function of Python's C interface; `self` is an array of the mode and guards.

    ctypes takes 0.5 us more for a call.
    """
    call = ir.Function(module, ir.FunctionType(BYTES, [BYTES, BYTES]), "call")
    builder = ir.IRBuilder(call.append_basic_block())
    place = builder.bitcast(builder.gep(call.args[0], [I64(DATA)]), I64.as_pointer().as_pointer())
    own = builder.load(place)
    found = builder.call(run, [call.args[1], builder.gep(own, [I64(1)]), builder.load(own)])
    with builder.if_then(builder.icmp_signed("==", found, I64(0)), likely=False):
        error = builder.call(python_function(module, "PyErr_Occurred"), [])
        with builder.if_then(builder.icmp_signed("!=", error, ir.Constant(BYTES, None)), likely=False):
            builder.ret(ir.Constant(BYTES, None))
    builder.ret(builder.call(python_function(module, "PyLong_FromLongLong"), [found]))


def _share(builder: ir.IRBuilder, flat: list[ir.Type], part: Any, values: list[Any], whole: Any, threads: Any) -> None:
    """Call `part` on every thread with its part of ``range(whole)``."""
    module = builder.module
    layout = ir.LiteralStructType([I64, I64, *flat])
    task = stack_slot(builder, layout)
    for k, value in enumerate((whole, threads, *values)):
        builder.store(value, builder.gep(task, [I64(0), I32(k)]))
    first, step, size = (stack_slot(builder, value.type, value) for value in (I64(0), I64(1), threads))
    kind = ir.FunctionType(ir.VoidType(), [BYTES] * 5 + [I64] * 3)
    schedule = declared(module, kind, "numba_parallel_for")
    places = [_thread(module, layout, part), first, size, step, task]
    builder.call(schedule, [*(builder.bitcast(place, BYTES) for place in places), I64(0), I64(1), threads])


def _thread(module: ir.Module, layout: ir.LiteralStructType, part: Any) -> ir.Function:
    """The function that the scheduler calls: ``thread(index, size, step, task)``, `index` being that of the thread."""
    pointer = I64.as_pointer()
    made = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer, pointer, pointer, BYTES]), "thread")
    made.linkage = "internal"
    builder = ir.IRBuilder(made.append_basic_block())
    k, task = builder.load(made.args[0]), builder.bitcast(made.args[3], layout.as_pointer())
    count, threads, *passed = (builder.load(builder.gep(task, [I64(0), I32(at)])) for at in range(len(layout.elements)))
    low, high = (builder.sdiv(builder.mul(at, count), threads) for at in (k, builder.add(k, I64(1))))
    builder.call(part, [*passed, low, high])
    builder.ret_void()
    return made


NAME = ctypes.create_string_buffer(b"loop")

TAKES_TUPLE = 1
"""Python's `METH_VARARGS`."""

_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.argtypes, _new_function.restype = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p), ctypes.py_object


def native(address: int, guards: Sequence[int], mode: int) -> Any:
    """``call`` of a loop as a function of Python, on threads by `mode`.

    It returns zero where the arguments are others than those of `guards`, else the loop's integer and one. Its `self`
    is an array of the mode, the guards and Python's definition of the function (`PyMethodDef`), which lives as long as
    the function so.
    """
    definition = [ctypes.addressof(NAME), address, TAKES_TUPLE, 0]
    own = np.array([mode, *guards, *definition], np.int64)
    return _new_function(own.ctypes.data + own.nbytes - 8 * len(definition), own, None)
