"""Tiles of matrices in registers: products with one loop over the inner axis, transposes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ensemble._kernels._lane_arithmetic import instruction
from ensemble._kernels._lane_transpose import interleaved
from ensemble._kernels._lanes import ROW_BYTES, _fill, _pointer

__all__ = ["reflect_tile", "tile", "transpose_tile"]


@intrinsic(prefer_literal=True)
def tile(typingctx, A, a, by_row, by_inner, B, b, inner, C, c, base, stride, rows, registers):
    """``C[c + i stride + j] = C[base + i stride + j] + sum_k A[a + i by_row + k by_inner] B[b + k stride + j]``.

    For i below `rows` and j below `registers` registers of `ROW_BYTES`, both known when compiled; zero in place of
    ``C[base + ...]`` where `base` is negative. The sum takes k in order, each product rounded once, with its sum.
    """
    n_rows, n_registers = rows.literal_value, registers.literal_value
    lanes = ROW_BYTES * 8 // C.dtype.bitwidth

    def codegen(context, builder, signature, arguments):
        A, a, by_row, by_inner, B, b, inner, C, c, base, stride, _, _ = arguments
        kinds, word = signature.args, ir.IntType(64)
        vector = ir.VectorType(context.get_data_type(kinds[7].dtype), lanes)
        entries = cgutils.create_struct_proxy(kinds[0])(context, builder, value=A).data

        def place(kind: Any, array: Any, first: Any, i: int, j: int) -> Any:
            row = builder.add(first, builder.mul(stride, word(i)))
            return _pointer(context, builder, kind, array, builder.add(row, word(j * lanes)), lanes)

        def read(pointer: Any) -> Any:
            value = builder.load(pointer)
            value.align = kinds[7].dtype.bitwidth // 8
            return value

        each = [(i, j) for i in range(n_rows) for j in range(n_registers)]
        sums = {at: cgutils.alloca_once(builder, vector) for at in each}
        with builder.if_else(builder.icmp_signed("<", base, word(0))) as (from_zero, from_values):
            with from_zero:
                for at in each:
                    builder.store(ir.Constant(vector, None), sums[at])
            with from_values:
                for at in each:
                    builder.store(read(place(kinds[7], C, base, *at)), sums[at])
        with cgutils.for_range(builder, inner) as loop:
            column = builder.add(a, builder.mul(loop.index, by_inner))
            row = builder.add(b, builder.mul(loop.index, stride))
            right = [read(place(kinds[4], B, row, 0, j)) for j in range(n_registers)]
            for i in range(n_rows):
                at = builder.add(column, builder.mul(by_row, word(i)))
                left = _fill(builder, builder.load(builder.gep(entries, [at], inbounds=True)), lanes)
                for j in range(n_registers):
                    total = instruction(builder, "fma", [right[j], left, builder.load(sums[i, j])])
                    builder.store(total, sums[i, j])
        for at in each:
            stored = builder.store(builder.load(sums[at]), place(kinds[7], C, c, *at))
            stored.align = kinds[7].dtype.bitwidth // 8
        return context.get_dummy_value()

    places = (A, types.int64, types.int64, types.int64, B, types.int64, types.int64, C, *[types.int64] * 3)
    return types.void(*places, rows, registers), codegen


def _square(context: Any, builder: Any, kind: Any, array: Any, at: Any, stride: Any) -> tuple[list[Any], list[Any]]:
    """Addresses and values of the rows of a square as wide as a register."""
    size = kind.dtype.bitwidth // 8
    n = ROW_BYTES // size
    places = []
    for i in range(n):
        row = builder.add(at, builder.mul(stride, ir.IntType(64)(i)))
        places.append(_pointer(context, builder, kind, array, row, n))
    rows = [builder.load(pointer) for pointer in places]
    for row in rows:
        row.align = size
    return places, rows


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    for _ in range(len(rows).bit_length() - 1):
        rows = interleaved(builder, rows)
    return rows


def _write(builder: Any, rows: list[Any], places: list[Any], size: int) -> None:
    for row, pointer in zip(rows, places, strict=True):
        builder.store(row, pointer).align = size


@intrinsic
def transpose_tile(typingctx, A, a, stride, C, c, pitch):
    """``C[c + j pitch + i] = A[a + i stride + j]`` for i and j below the entries of a register."""

    def codegen(context, builder, signature, arguments):
        A, a, stride, C, c, pitch = arguments
        _, rows = _square(context, builder, signature.args[0], A, a, stride)
        size = signature.args[3].dtype.bitwidth // 8
        places = []
        for i in range(len(rows)):
            row = builder.add(c, builder.mul(pitch, ir.IntType(64)(i)))
            places.append(_pointer(context, builder, signature.args[3], C, row, len(rows)))
        _write(builder, _transposed(builder, rows), places, size)
        return context.get_dummy_value()

    return types.void(A, types.int64, types.int64, C, types.int64, types.int64), codegen


@intrinsic
def reflect_tile(typingctx, A, a, stride):
    """The entries above the diagonal of a square as wide as a register below it, too."""

    def codegen(context, builder, signature, arguments):
        places, rows = _square(context, builder, signature.args[0], *arguments)
        n = len(rows)
        mixed = []
        for i, (row, other) in enumerate(zip(rows, _transposed(builder, rows), strict=True)):
            below = ir.Constant(ir.VectorType(ir.IntType(1), n), [j < i for j in range(n)])
            mixed.append(builder.select(below, other, row))
        _write(builder, mixed, places, signature.args[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(A, types.int64, types.int64), codegen
