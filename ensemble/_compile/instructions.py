"""Instructions of LLVM: the tables of operations and what emits them, for all that write code for the CPU.

Both translators, the operators of `Lanes`, straight-line code and the text of traced bodies take from here which
instruction an operation is; values may be numbers or vectors of them.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

__all__ = [
    "ARITHMETIC",
    "COMPARISONS",
    "CONDITIONS",
    "INTRINSICS",
    "arithmetic",
    "compared",
    "conversion",
    "counted",
    "declared",
    "instruction",
    "is_real",
    "keep_rolled",
    "packed",
    "prefetched",
    "smaller",
    "stack_slot",
    "unpacked",
    "zero_bytes",
]

ARITHMETIC: dict[Any, tuple[str, str]] = {
    operator.add: ("fadd", "add"), operator.sub: ("fsub", "sub"), operator.mul: ("fmul", "mul"),
    operator.truediv: ("fdiv", ""), operator.and_: ("", "and_"), operator.or_: ("", "or_"), operator.xor: ("", "xor"),
    operator.lshift: ("", "shl"), operator.rshift: ("", "ashr"), operator.neg: ("fneg", "neg"),
    operator.invert: ("", "not_"),
}  # fmt: skip
"""The instruction of each operator of Python on real numbers and on signed integers, as builders name it."""

COMPARISONS: dict[Any, str] = {
    operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
}  # fmt: skip
"""The symbol of each comparison of Python."""

CONDITIONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
"""What LLVM calls it."""

INTRINSICS = {"abs": "fabs", "round": "rint"} | {
    name: name for name in ("ceil", "copysign", "floor", "fma", "rint", "sqrt", "trunc")
}
"""Functions of real numbers that are one instruction, by the names that Python's, NumPy's and the tracer's have."""


def is_real(kind: Any) -> bool:
    """Tell whether values of a type are real numbers, or vectors of them."""
    return isinstance(getattr(kind, "element", kind), ir.FloatType | ir.DoubleType)


def arithmetic(builder: Any, operation: Callable[..., Any], *values: Any, **flags: Any) -> Any:
    """Emit an operator of Python on one or two values of one type, which has no check of overflow or of zero."""
    real, whole = ARITHMETIC[operation]
    return getattr(builder, real if is_real(values[0].type) else whole)(*values, **flags)


def conversion(source: str, target: str) -> str:
    """The instruction that converts numbers of one type to another by the processor's rules; not to ``bool``.

    Types are NumPy's names. llvmlite's builders have a method of the instruction's name.
    """
    whole, signed = "int" in target, source.startswith("int")
    if source == "bool":
        return "zext" if whole else "uitofp"
    wider = np.dtype(target).itemsize > np.dtype(source).itemsize
    if source.startswith("float"):
        return ("fptoui" if target.startswith("u") else "fptosi") if whole else "fpext" if wider else "fptrunc"
    if not whole:
        return "sitofp" if signed else "uitofp"
    return ("sext" if signed else "zext") if wider else "trunc"


def instruction(builder: Any, name: str, arguments: Any) -> Any:
    """The LLVM intrinsic of this name, on real numbers or vectors of one type."""
    kind = arguments[0].type
    scalar, lanes = (kind.element, f"v{kind.count}") if isinstance(kind, ir.VectorType) else (kind, "")
    width = "f64" if isinstance(scalar, ir.DoubleType) else "f32"
    signature = ir.FunctionType(kind, [kind] * len(arguments))
    function = declared(builder.module, signature, f"llvm.{name}.{lanes}{width}")
    return builder.call(function, arguments)


def compared(builder: Any, symbol: str, a: Any, b: Any, *, signed: bool = True) -> Any:
    """Whether a comparison of two values, or of each lane, holds: NaN is unequal to all numbers."""
    if is_real(a.type):
        return (builder.fcmp_unordered if symbol == "!=" else builder.fcmp_ordered)(symbol, a, b)
    return (builder.icmp_signed if signed else builder.icmp_unsigned)(symbol, a, b)


def smaller(builder: Any, least: bool, a: Any, b: Any, *, signed: bool = True) -> Any:
    """The smaller of two values, or else the larger, as Python's ``min`` and ``max``: `a` where they are equal."""
    return builder.select(compared(builder, "<" if least else ">", b, a, signed=signed), b, a)


def declared(module: ir.Module, kind: ir.FunctionType, name: str) -> Any:
    """The function `name` of a module, declared where it is not there yet."""
    function = module.globals.get(name)
    return ir.Function(module, kind, name) if function is None else function


def stack_slot(builder: Any, kind: Any, value: Any = None) -> Any:
    """Memory on the stack of the function, zero and then `value`; loops do not make it again."""
    with builder.goto_entry_block():
        place = builder.alloca(kind)
        builder.store(ir.Constant(kind, None), place)
    if value is not None:
        builder.store(value, place)
    return place


def prefetched(
    builder: Any, start: Any, n_bytes: int, *, first_level: bool = False, writes: bool = False, least: int = 0
) -> None:
    """Emit prefetches of the cache lines of `n_bytes` from `start` on, an address that may be invalid.

    They go into the second-level cache, or into the first; nothing is emitted for fewer bytes than `least`.
    """
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    function = declared(builder.module, kind, "llvm.prefetch.p0i8")
    place = builder.bitcast(start, byte)
    how = word(int(writes)), word(3 if first_level else 1), word(1)
    for line in range(0, n_bytes if n_bytes >= least else 0, 64):
        builder.call(function, [builder.gep(place, [ir.IntType(64)(line)]), *how])


def keep_rolled(module: ir.Module, branches: Sequence[Any], scalar: bool, wholly: bool = False) -> None:
    """Tell LLVM not to unroll the loop to whose start `branches` lead, unless it knows the number of rounds.

    `wholly`: not even then. Nor does it make packed instructions of the rounds of a loop that stays `scalar`.
    """
    properties: list[Any] = [["llvm.loop.unroll.disable" if wholly else "llvm.loop.unroll.runtime.disable"]]
    if scalar:
        properties.append(["llvm.loop.vectorize.enable", ir.IntType(1)(0)])
    node = module.add_metadata([ir.IntType(64)(len(module.metadata)), *properties])
    node.operands = (node, *node.operands[1:])  # the name of a loop refers to itself
    for branch in branches:
        branch.set_metadata("llvm.loop", node)


@contextlib.contextmanager
def counted(builder: Any, count: Any) -> Iterator[Any]:
    """A loop over ``range(count)``, whose body is written within; the number of the round is given."""
    condition, body, end = (builder.append_basic_block(f"for.{part}") for part in ("cond", "body", "end"))
    before = builder.block
    builder.branch(condition)
    with builder.goto_block(condition):
        index = builder.phi(count.type, name="loop.index")
        builder.cbranch(builder.icmp_signed("<", index, count), body, end)
    with builder.goto_block(body):
        yield index
        last = builder.block
        following = builder.add(index, index.type(1), flags=["nsw"])
        if not last.is_terminated:
            builder.branch(condition)
    index.add_incoming(count.type(0), before)
    index.add_incoming(following, last)
    builder.position_at_end(end)


def packed(builder: Any, values: Sequence[Any], kind: ir.Type | None = None) -> Any:
    """Values of one type as an array of LLVM, or as the structure `kind`."""
    array = ir.Constant(ir.ArrayType(values[0].type, len(values)) if kind is None else kind, ir.Undefined)
    for k, value in enumerate(values):
        array = builder.insert_value(array, value, k)
    return array


def unpacked(builder: Any, values: Any) -> list[Any]:
    """The entries of an array or structure of LLVM."""
    return [builder.extract_value(values, k) for k in range(len(values.type.elements))]


def zero_bytes(builder: Any, place: Any, count: Any) -> None:
    """Set `count` bytes from `place` on to zero."""
    byte = ir.IntType(8)
    function = builder.module.declare_intrinsic("llvm.memset", (byte.as_pointer(), count.type))
    builder.call(function, [builder.bitcast(place, byte.as_pointer()), byte(0), count, ir.IntType(1)(0)])
