"""Long runs of statements on lanes, written to LLVM in one piece."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["straight_line"]


def straight_line(parts: str, statements: str, writes: str, numbers: dict[str, float], width: int) -> Any:
    """A compiled function ``f(arrays, offsets)`` that runs statements without branches on `width` lanes.

    `arrays` and `offsets` are tuples, one flat array and its offset for each name in `parts`. A statement is
    ``x = a + b`` (or ``-``, ``*``, ``/``, ``!=``, ``<=``) or ``x = pick(c, a, b)``; an operand is a result, a name in
    `numbers`, or entry c of a part, ``F_c``, which lies at ``offset + c * width``. `writes` lists ``mean_0 t5``: what
    is stored where, after everything else. Thousands of statements go to LLVM in one piece: Numba, which types each by
    itself, would take a minute over them.
    """
    names = parts.split()

    @intrinsic
    def run(typingctx, arrays, offsets):
        dtype = arrays.dtype.dtype

        def codegen(context, builder, signature, arguments):
            structs = cgutils.unpack_tuple(builder, arguments[0], len(names))
            places = cgutils.unpack_tuple(builder, arguments[1], len(names))
            emit = _StraightLine(context, builder, dtype, width, numbers)
            for name, struct, place in zip(names, structs, places, strict=True):
                data = cgutils.create_struct_proxy(arrays.dtype)(context, builder, value=struct).data
                emit.starts[name] = builder.gep(data, [place], inbounds=True)
            for line in statements.splitlines():
                emit.statement(line)
            for line in writes.splitlines():
                target, source = line.split()
                builder.store(emit.value(source), emit.pointer(target)).align = dtype.bitwidth // 8
            return context.get_dummy_value()

        return types.void(arrays, offsets), codegen

    return run


INSTRUCTIONS = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}


class _StraightLine:
    """Statements of `straight_line` on their way to LLVM."""

    def __init__(self, context: Any, builder: Any, dtype: Any, width: int, numbers: dict[str, float]) -> None:
        scalar = context.get_value_type(dtype)
        self.type = scalar if width == 1 else ir.VectorType(scalar, width)
        self.builder, self.dtype, self.width = builder, dtype, width
        self.starts: dict[str, Any] = {}
        self.values = {
            name: ir.Constant(self.type, number if width == 1 else [number] * width) for name, number in numbers.items()
        }

    def pointer(self, entry: str) -> Any:
        part, _, c = entry.rpartition("_")
        place = self.builder.gep(self.starts[part], [ir.IntType(64)(int(c) * self.width)], inbounds=True)
        return place if self.width == 1 else self.builder.bitcast(place, self.type.as_pointer())

    def value(self, name: str) -> Any:
        if name not in self.values:
            loaded = self.builder.load(self.pointer(name))
            loaded.align = self.dtype.bitwidth // 8
            self.values[name] = loaded
        return self.values[name]

    def statement(self, line: str) -> None:
        target, text = line.split(" = ")
        if text.startswith("pick("):
            result = self.builder.select(*(self.value(name) for name in text[5:-1].split(", ")))
        else:
            left, symbol, right = text.split(" ")
            a, b = self.value(left), self.value(right)
            if symbol in INSTRUCTIONS:
                result = getattr(self.builder, INSTRUCTIONS[symbol])(a, b)
            else:
                compare = self.builder.fcmp_unordered if symbol == "!=" else self.builder.fcmp_ordered
                result = compare(symbol, a, b)
        self.values[target] = result
