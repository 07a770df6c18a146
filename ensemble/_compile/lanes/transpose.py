"""Transposes of square tiles in SIMD registers, and prefetches."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ensemble._compile.instructions import prefetched
from ensemble._compile.plain_language import Function
from ensemble._compile.plain_translation import Group

__all__ = ["Prefetch", "Transpose", "interleaved", "write_tile"]


def write_tile(builder: Any, source: Any, stride: Any, target: Any, pitch: Any, n: int, aligned: int) -> None:
    """Emit ``target[j * pitch + i] = source[i * stride + j]`` for i and j below `n`, a power of two."""
    pointer = ir.VectorType(source.type.pointee, n).as_pointer()

    def place(array: Any, step: Any, i: int) -> Any:
        return builder.bitcast(builder.gep(array, [builder.mul(step, ir.IntType(64)(i))], inbounds=True), pointer)

    rows = []
    for i in range(n):
        rows.append(builder.load(place(source, stride, i)))
        rows[-1].align = aligned
    for _ in range(n.bit_length() - 1):
        rows = interleaved(builder, rows)
    for j, row in enumerate(rows):
        builder.store(row, place(target, pitch, j)).align = aligned


class Transpose(Function):
    """``target[to + j * pitch + i] = source[at + i * stride + j]`` for i and j below `width`, a power of two."""

    def __init__(self, width: int) -> None:
        source, target = ("source", "Numbers"), ("target", "Numbers")
        at, stride, to, pitch = ((name, "int") for name in ("at", "stride", "to", "pitch"))
        super().__init__("transpose", [source, at, stride, target, to, pitch], ["None"])
        self.width = width

    def write(self, group: Group, made: ir.Function) -> None:
        builder = ir.IRBuilder(made.append_basic_block())
        source, at, stride, target, to, pitch = made.args
        source, target = builder.gep(source, [at], inbounds=True), builder.gep(target, [to], inbounds=True)
        write_tile(builder, source, stride, target, pitch, self.width, group.alignment)
        builder.ret_void()


class Prefetch(Function):
    """Prefetch the line of ``array[offset]`` into the second-level cache; the address may be invalid."""

    attribute = "alwaysinline"

    def __init__(self) -> None:
        super().__init__("prefetch", [("array", "Numbers"), ("offset", "int")], ["None"])

    def write(self, group: Group, made: ir.Function) -> None:
        builder = ir.IRBuilder(made.append_basic_block())
        prefetched(builder, builder.gep(made.args[0], [made.args[1]]), 1)
        builder.ret_void()


def interleaved(builder: Any, rows: list[Any]) -> list[Any]:
    """Interleave row k of the first half with row k of the second; ``log2(n)`` such passes transpose n rows."""
    n = len(rows)
    out = []
    for a, b in zip(rows[: n // 2], rows[n // 2 :], strict=True):
        for start in (0, n // 2):
            order = [k for i in range(start, start + n // 2) for k in (i, n + i)]
            out.append(builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), n), order)))
    return out
