"""The code by which Python calls translated loops: it takes the arguments from Python's tuple, by the loop's table.

It is compiled once and kept on disk, for all loops. A loop takes its arguments as an array of words: of a number its
bits, of an array its address and its extents, of a tuple the words of its entries.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ensemble._compile.instructions import counted, declared, stack_slot
from ensemble._compile.loops.native_call import (
    ALL_THREADS,
    ARRAY,
    BY_SIZE,
    BYTES,
    COMPARED,
    COUNT,
    DATA,
    DOUBLE,
    DOUBLE_NUMBER,
    DTYPE,
    EXTENTS,
    FLAGS,
    HEADER,
    I1,
    I32,
    I64,
    INNER_ARRAY,
    ITEMS,
    KIND,
    KIND_MASK,
    MODE,
    N_ARGUMENTS,
    N_DIM,
    N_WORDS,
    ORDER_SHIFT,
    PART,
    ROW,
    SINGLE,
    SINGLE_NUMBER,
    SMALL,
    SWAPPED,
    TABLE,
    TRUTH,
    TUPLE,
    WHOLE,
    python_function,
)
from ensemble._compile.machine_code import Code, Module, kept_code

__all__ = ["WORDS", "argument_of", "reader_code", "reader_module"]

WORDS = I64.as_pointer()

COUNT_KIND = ir.FunctionType(I64, [WORDS])
PART_KIND = ir.FunctionType(I64, [WORDS, I64, I64])
"""Types of the functions of a loop: ``count(words)``, ``part(words, low, high)``."""

TASK = 3
"""Words in front of those of the loop: the number of rounds, of threads, and the address of ``part``."""

FIRST_ROW, NEXT_WORD, LARGE = range(3)
"""Places of what is known while arguments are taken: the next row, the next word, whether an array is large."""


@functools.cache
def reader_code() -> Code:
    """Return the machine code of `reader_module`; the threads of Numba must have been started."""
    key = repr(("reader", HEADER, ITEMS))
    return kept_code(key, lambda: Module(reader_module(), (), has_loops=True), ["call"], str)


def argument_of(builder: ir.IRBuilder, kind: ir.Type, word: Any) -> Any:
    """Return the argument of LLVM's type `kind` whose bits are those of a word."""
    if isinstance(kind, ir.PointerType):
        return builder.inttoptr(word, kind)
    if kind is DOUBLE:
        return builder.bitcast(word, kind)
    if kind is SINGLE:
        return builder.bitcast(builder.trunc(word, I32), kind)
    return word if kind is I64 else builder.trunc(word, kind)


def reader_module() -> str:
    """Write ``call(self, arguments)``, a function of Python's C interface; `self` is the array of `native`.

    It returns NULL after an error, the integer 0 where the arguments do not have the types of the table, else the
    loop's integer and one.
    """
    module = ir.Module()
    take, thread = _written_take(module), _written_thread(module)
    call = ir.Function(module, ir.FunctionType(BYTES, [BYTES, BYTES]), "call")
    builder = ir.IRBuilder(call.append_basic_block())
    own = _at(builder, call.args[0], DATA, WORDS)
    mode, count, part, n_words, n_arguments = (
        _word(builder, own, place) for place in (MODE, COUNT, PART, N_WORDS, N_ARGUMENTS)
    )
    task = builder.alloca(I64, builder.add(n_words, I64(TASK)))
    words = builder.gep(task, [I64(TASK)])
    state = builder.alloca(I64, 3)
    first = builder.ptrtoint(builder.gep(own, [I64(TABLE)]), I64)
    for place, value in ((FIRST_ROW, first), (NEXT_WORD, builder.ptrtoint(words, I64)), (LARGE, I64(0))):
        builder.store(value, builder.gep(state, [I64(place)]))
    taken = builder.call(take, [call.args[1], n_arguments, state])
    error = builder.call(python_function(module, "PyErr_Occurred"), [])
    with builder.if_then(builder.icmp_signed("!=", error, ir.Constant(BYTES, None)), likely=False):
        builder.ret(ir.Constant(BYTES, None))
    integer = python_function(module, "PyLong_FromLongLong")
    with builder.if_then(builder.not_(taken), likely=False):
        builder.ret(builder.call(integer, [I64(0)]))
    held = builder.call(python_function(module, "PyEval_SaveThread"), [])
    whole = _chosen(
        builder,
        builder.icmp_signed("==", count, I64(0)),
        lambda: I64(1),
        lambda: builder.call(builder.inttoptr(count, COUNT_KIND.as_pointer()), [words]),
    )
    by_size = builder.icmp_signed("==", mode, I64(BY_SIZE))
    large = builder.icmp_signed("!=", _word(builder, state, LARGE), I64(0))
    shares = builder.or_(builder.icmp_signed("==", mode, I64(ALL_THREADS)), builder.and_(by_size, large))
    numbers = declared(module, ir.FunctionType(I64, []), "get_num_threads")
    threads = _chosen(builder, shares, lambda: builder.call(numbers, []), lambda: I64(1))

    def alone() -> Any:
        return builder.call(builder.inttoptr(part, PART_KIND.as_pointer()), [words, I64(0), whole])

    def together() -> Any:
        for place, value in enumerate((whole, threads, part)):
            builder.store(value, builder.gep(task, [I64(place)]))
        _share(builder, thread, task, threads)
        return I64(0)

    result = _chosen(builder, builder.icmp_signed(">", threads, I64(1)), together, alone)
    builder.call(python_function(module, "PyEval_RestoreThread"), [held])
    builder.ret(builder.call(integer, [builder.add(result, I64(1))]))
    return str(module)


def _at(builder: ir.IRBuilder, thing: Any, place: int, kind: Any) -> Any:
    """Load what lies `place` bytes behind the address of a thing."""
    address = builder.gep(thing, [I64(place)])
    return builder.load(builder.bitcast(address, kind.as_pointer()))


def _word(builder: ir.IRBuilder, words: Any, place: int) -> Any:
    return builder.load(builder.gep(words, [I64(place)]))


def _chosen(builder: ir.IRBuilder, condition: Any, then: Any, other: Any) -> Any:
    """Return the value that `then` writes where a condition holds, else that of `other`."""
    values: list[tuple[Any, ir.Block]] = []
    with builder.if_else(condition) as branches:
        for branch, write in zip(branches, (then, other), strict=True):
            with branch:
                value = write()
                values.append((value, builder.block))
    made = builder.phi(I64)
    for value, block in values:
        made.add_incoming(value, block)
    return made


# --- arguments
def _written_take(module: ir.Module) -> ir.Function:
    """Write ``take(tuple, n, state)``, which takes the `n` entries of a tuple; false where one is of another type."""
    take = ir.Function(module, ir.FunctionType(I1, [BYTES, I64, WORDS]), "take")
    take.linkage = "internal"
    holder, n, state = take.args
    builder = ir.IRBuilder(take.append_basic_block())
    other = take.append_basic_block("other")
    ir.IRBuilder(other).ret(I1(0))
    _test(builder, builder.icmp_signed("==", _at(builder, holder, HEADER, I64), n), other)
    with counted(builder, n) as k:
        entry = builder.gep(holder, [builder.add(I64(ITEMS), builder.mul(I64(8), k))])
        thing = builder.load(builder.bitcast(entry, BYTES.as_pointer()))
        row = builder.inttoptr(_word(builder, state, FIRST_ROW), WORDS)
        place = builder.inttoptr(_word(builder, state, NEXT_WORD), WORDS)
        operation, kind, first, second = (_word(builder, row, at) for at in range(ROW))
        builder.store(builder.ptrtoint(builder.gep(row, [I64(ROW)]), I64), builder.gep(state, [I64(FIRST_ROW)]))
        _test(builder, builder.icmp_signed("==", _at(builder, thing, HEADER - 8, I64), kind), other)
        after = builder.append_basic_block("after")
        with builder.if_then(builder.icmp_signed("<=", operation, I64(INNER_ARRAY))):
            _take_array(builder, thing, (operation, first, second), place, state, other)
            builder.branch(after)
        with builder.if_then(builder.icmp_signed("==", operation, I64(TUPLE))):
            _test(builder, builder.call(take, [thing, first, state]), other)
            builder.branch(after)
        builder.store(_number(builder, thing, operation), place)
        builder.store(builder.ptrtoint(builder.gep(place, [I64(1)]), I64), builder.gep(state, [I64(NEXT_WORD)]))
        builder.branch(after)
        builder.position_at_end(after)
    builder.ret(I1(1))
    return take


def _test(builder: ir.IRBuilder, met: Any, other: ir.Block) -> None:
    """Go on where a condition is met, else to the block `other`."""
    more = builder.append_basic_block("more")
    builder.cbranch(met, more, other)
    builder.position_at_end(more)


def _take_array(
    builder: ir.IRBuilder, array: Any, row: Sequence[Any], place: Any, state: Any, other: ir.Block
) -> None:  # fmt: skip
    """Take the address and the extents of an array of the type and layout of a row."""
    operation, dtype, layout = row
    word = _at(builder, _at(builder, array, DTYPE, BYTES), KIND, I64)
    _test(builder, builder.icmp_signed("==", builder.and_(word, I64(KIND_MASK)), dtype), other)
    order = builder.and_(builder.lshr(word, I64(ORDER_SHIFT)), I64(0xFF))
    _test(builder, builder.icmp_signed("!=", order, I64(SWAPPED)), other)
    n_dim = builder.zext(_at(builder, array, N_DIM, I32), I64)
    flags = builder.zext(builder.and_(_at(builder, array, FLAGS, I32), I32(COMPARED)), I64)
    found = builder.or_(n_dim, builder.shl(flags, I64(32)))
    _test(builder, builder.icmp_signed("==", found, layout), other)
    builder.store(_at(builder, array, DATA, I64), place)
    extents = builder.bitcast(_at(builder, array, EXTENTS, BYTES), WORDS)
    size = stack_slot(builder, I64)
    builder.store(I64(1), size)
    with counted(builder, n_dim) as k:
        extent = builder.load(builder.gep(extents, [k]))
        builder.store(extent, builder.gep(place, [builder.add(k, I64(1))]))
        builder.store(builder.mul(builder.load(size), extent), size)
    following = builder.gep(place, [builder.add(n_dim, I64(1))])
    builder.store(builder.ptrtoint(following, I64), builder.gep(state, [I64(NEXT_WORD)]))
    large = builder.icmp_signed(">", builder.load(size), I64(SMALL))
    counts = builder.and_(large, builder.icmp_signed("==", operation, I64(ARRAY)))
    known = builder.gep(state, [I64(LARGE)])
    builder.store(builder.or_(builder.load(known), builder.zext(counts, I64)), known)


def _number(builder: ir.IRBuilder, thing: Any, operation: Any) -> Any:
    """Return the bits of a number."""

    def whole() -> Any:
        return builder.call(python_function(builder.module, "PyLong_AsLongLong"), [thing])

    def real() -> Any:
        number = builder.call(python_function(builder.module, "PyFloat_AsDouble"), [thing])
        single = builder.zext(builder.bitcast(builder.fptrunc(number, SINGLE), I32), I64)
        is_single = builder.icmp_signed("==", operation, I64(SINGLE_NUMBER))
        return builder.select(is_single, single, builder.bitcast(number, I64))

    assert WHOLE < TRUTH < SINGLE_NUMBER < DOUBLE_NUMBER
    return _chosen(builder, builder.icmp_signed("<=", operation, I64(TRUTH)), whole, real)


# --- threads
def _share(builder: ir.IRBuilder, thread: ir.Function, task: Any, threads: Any) -> None:
    """Run `thread` on every thread."""
    kind = ir.FunctionType(ir.VoidType(), [BYTES] * 5 + [I64] * 3)
    schedule = declared(builder.module, kind, "numba_parallel_for")
    first, step, size = (stack_slot(builder, I64, value) for value in (I64(0), I64(1), threads))
    places = [builder.bitcast(place, BYTES) for place in (thread, first, size, step, task)]
    builder.call(schedule, [*places, I64(0), I64(1), threads])


def _written_thread(module: ir.Module) -> ir.Function:
    """Write what the scheduler calls: ``thread(index, size, step, task)``, `index` being that of the thread."""
    made = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORDS, WORDS, WORDS, BYTES]), "thread")
    made.linkage = "internal"
    builder = ir.IRBuilder(made.append_basic_block())
    k, task = builder.load(made.args[0]), builder.bitcast(made.args[3], WORDS)
    count, threads, part = (_word(builder, task, place) for place in range(TASK))
    low, high = (builder.sdiv(builder.mul(at, count), threads) for at in (k, builder.add(k, I64(1))))
    passed = builder.gep(task, [I64(TASK)])
    builder.call(builder.inttoptr(part, PART_KIND.as_pointer()), [passed, low, high])
    builder.ret_void()
    return made
