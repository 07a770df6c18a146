"""Square tiles of memory turned round in SIMD registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ensemble._kernels._lanes import _pointer

__all__ = ["interleaved", "transpose"]


@intrinsic(prefer_literal=True)
def transpose(typingctx, source, at, stride, target, to, pitch, width):
    """``target[to + j * pitch + i] = source[at + i * stride + j]`` for i and j below `width`, a power of two."""
    n = width.literal_value

    def codegen(context, builder, signature, arguments):
        source_array, at, stride, target_array, to, pitch, _ = arguments

        def place(kind: Any, array: Any, first: Any, step: Any, i: int) -> Any:
            offset = builder.add(first, builder.mul(step, ir.IntType(64)(i)))
            return _pointer(context, builder, kind, array, offset, n)

        rows = []
        for i in range(n):
            rows.append(builder.load(place(source, source_array, at, stride, i)))
            rows[-1].align = source.dtype.bitwidth // 8
        for _ in range(n.bit_length() - 1):
            rows = interleaved(builder, rows)
        for j, row in enumerate(rows):
            stored = builder.store(row, place(target, target_array, to, pitch, j))
            stored.align = source.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(source, types.int64, types.int64, target, types.int64, types.int64, width), codegen


def interleaved(builder: Any, rows: list[Any]) -> list[Any]:
    """Each row of the first half and its fellow of the second, entries in turns: as often as n doubles, a transpose."""
    n = len(rows)
    out = []
    for a, b in zip(rows[: n // 2], rows[n // 2 :], strict=True):
        for start in (0, n // 2):
            turns = [k for i in range(start, start + n // 2) for k in (i, n + i)]
            out.append(builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), n), turns)))
    return out
