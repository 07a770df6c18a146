"""Instructions of LLVM in groups that several writers of code use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from llvmlite import ir

__all__ = ["counted", "declared", "packed", "stack_slot", "unpacked", "zero_bytes"]


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


def packed(builder: Any, values: Sequence[Any]) -> Any:
    """Values of one type as an array of LLVM."""
    array = ir.Constant(ir.ArrayType(values[0].type, len(values)), ir.Undefined)
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
