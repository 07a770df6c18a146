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

__all__ = ["add_products_tile", "address", "reflect_tile", "subtract_squares_tile", "tile", "transpose_tile"]


@intrinsic
def address(typingctx, array):
    """Where the entries of an array lie: one argument of a function that is called, where an array is seven."""

    def codegen(context, builder, signature, arguments):
        return cgutils.create_struct_proxy(array)(context, builder, value=arguments[0]).data

    return types.CPointer(array.dtype)(array), codegen


@intrinsic(prefer_literal=True)
def tile(typingctx, A, a, by_row, by_inner, B, b, inner, C, c, base, stride, rows, registers):
    """``C[c + i stride + j] = C[base + i stride + j] + sum_k A[a + i by_row + k by_inner] B[b + k stride + j]``.

    A, B and C are addresses of entries. For i below `rows` and j below `registers` registers of `ROW_BYTES`, both known
    when compiled; zero in place of ``C[base + ...]`` where `base` is negative. The sum takes k in order, each product
    rounded once, with its sum.
    """
    n_rows, n_registers = rows.literal_value, registers.literal_value
    size = C.dtype.bitwidth // 8
    lanes = ROW_BYTES // size

    def codegen(context, builder, signature, arguments):
        A, a, by_row, by_inner, B, b, inner, C, c, base, stride, _, _ = arguments
        word = ir.IntType(64)
        vector = ir.VectorType(C.type.pointee, lanes)

        def place(array: Any, first: Any, i: int, j: int) -> Any:
            row = builder.add(first, builder.mul(stride, word(i)))
            at = builder.gep(array, [builder.add(row, word(j * lanes))], inbounds=True)
            return builder.bitcast(at, vector.as_pointer())

        def read(pointer: Any) -> Any:
            value = builder.load(pointer)
            value.align = size
            return value

        each = [(i, j) for i in range(n_rows) for j in range(n_registers)]
        sums = {at: cgutils.alloca_once(builder, vector) for at in each}
        with builder.if_else(builder.icmp_signed("<", base, word(0))) as (from_zero, from_values):
            with from_zero:
                for at in each:
                    builder.store(ir.Constant(vector, None), sums[at])
            with from_values:
                for at in each:
                    builder.store(read(place(C, base, *at)), sums[at])
        with cgutils.for_range(builder, inner) as loop:
            column = builder.add(a, builder.mul(loop.index, by_inner))
            row = builder.add(b, builder.mul(loop.index, stride))
            right = [read(place(B, row, 0, j)) for j in range(n_registers)]
            for i in range(n_rows):
                at = builder.add(column, builder.mul(by_row, word(i)))
                left = _fill(builder, builder.load(builder.gep(A, [at], inbounds=True)), lanes)
                for j in range(n_registers):
                    total = instruction(builder, "fma", [right[j], left, builder.load(sums[i, j])])
                    builder.store(total, sums[i, j])
        for at in each:
            builder.store(builder.load(sums[at]), place(C, c, *at)).align = size
        return context.get_dummy_value()

    places = (A, types.int64, types.int64, types.int64, B, types.int64, types.int64, C, *[types.int64] * 3)
    return types.void(*places, rows, registers), codegen


class _Squares:
    """Squares as wide as a register in one array, inside a function that is being written."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any) -> None:
        self.context, self.builder, self.kind, self.array = context, builder, kind, array
        self.size = kind.dtype.bitwidth // 8
        self.n = ROW_BYTES // self.size

    def place(self, at: Any) -> Any:
        return _pointer(self.context, self.builder, self.kind, self.array, at, self.n)

    def row(self, at: Any) -> Any:
        value = self.builder.load(self.place(at))
        value.align = self.size
        return value

    def number(self, at: Any, i: int = 0) -> Any:
        """An entry in every lane."""
        data = cgutils.create_struct_proxy(self.kind)(self.context, self.builder, value=self.array).data
        at = self.builder.add(at, ir.IntType(64)(i))
        return _fill(self.builder, self.builder.load(self.builder.gep(data, [at], inbounds=True)), self.n)

    def starts(self, at: Any, stride: Any) -> list[Any]:
        return [self.builder.add(at, self.builder.mul(stride, ir.IntType(64)(i))) for i in range(self.n)]

    def load(self, at: Any, stride: Any) -> list[Any]:
        return [self.row(start) for start in self.starts(at, stride)]

    def store(self, rows: list[Any], at: Any, stride: Any) -> None:
        for row, start in zip(rows, self.starts(at, stride), strict=True):
            self.builder.store(row, self.place(start)).align = self.size

    def transposed(self, rows: list[Any]) -> list[Any]:
        for _ in range(self.n.bit_length() - 1):
            rows = interleaved(self.builder, rows)
        return rows

    def reflected(self, rows: list[Any]) -> list[Any]:
        """The entries above the diagonal below it, too."""
        below = ir.VectorType(ir.IntType(1), self.n)
        masks = [ir.Constant(below, [j < i for j in range(self.n)]) for i in range(self.n)]
        pairs = zip(masks, self.transposed(rows), rows, strict=True)
        return [self.builder.select(mask, other, row) for mask, other, row in pairs]

    def sums(self, rows: list[Any]) -> list[Any]:
        """Variables that start as `rows`."""
        variables = [cgutils.alloca_once(self.builder, row.type) for row in rows]
        for variable, row in zip(variables, rows, strict=True):
            self.builder.store(row, variable)
        return variables

    def add(self, sums: list[Any], factors: Any) -> None:
        """Add the product of ``factors(i)``, rounded once with its sum, to variable i."""
        for i, variable in enumerate(sums):
            total = instruction(self.builder, "fma", [*factors(i), self.builder.load(variable)])
            self.builder.store(total, variable)


@intrinsic
def transpose_tile(typingctx, A, a, stride, C, c, pitch):
    """``C[c + j pitch + i] = A[a + i stride + j]`` for i and j below the entries of a register."""

    def codegen(context, builder, signature, arguments):
        A, a, stride, C, c, pitch = arguments
        source = _Squares(context, builder, signature.args[0], A)
        target = _Squares(context, builder, signature.args[3], C)
        target.store(source.transposed(source.load(a, stride)), c, pitch)
        return context.get_dummy_value()

    return types.void(A, types.int64, types.int64, C, types.int64, types.int64), codegen


@intrinsic
def reflect_tile(typingctx, A, a, stride):
    """The entries above the diagonal of a square as wide as a register below it, too."""

    def codegen(context, builder, signature, arguments):
        A, a, stride = arguments
        tiles = _Squares(context, builder, signature.args[0], A)
        tiles.store(tiles.reflected(tiles.load(a, stride)), a, stride)
        return context.get_dummy_value()

    return types.void(A, types.int64, types.int64), codegen


@intrinsic
def subtract_squares_tile(typingctx, w, a, c, rows, weights, count, stride, i, j):
    """The square at (i, j) of the matrix at `c`, and its transpose at (j, i).

    As that of the symmetric matrix at `a` less ``sum_k w[weights + k] row_k' row_k`` over `count` rows from `rows` on.
    """

    def codegen(context, builder, signature, arguments):
        w, a, c, rows, weights, count, stride, i, j = arguments
        tiles = _Squares(context, builder, signature.args[0], w)
        here = builder.add(builder.mul(i, stride), j)
        sums = tiles.sums(tiles.load(builder.add(a, here), stride))
        with cgutils.for_range(builder, count) as loop:
            row = builder.add(rows, builder.mul(loop.index, stride))
            left, right = builder.add(row, i), tiles.row(builder.add(row, j))
            weight = tiles.number(builder.add(weights, loop.index))
            scaled = [builder.fmul(right, builder.fneg(tiles.number(left, k))) for k in range(tiles.n)]
            tiles.add(sums, lambda k: (scaled[k], weight))
        total = [builder.load(variable) for variable in sums]
        tiles.store(total, builder.add(c, here), stride)
        tiles.store(tiles.transposed(total), builder.add(c, builder.add(builder.mul(j, stride), i)), stride)
        return context.get_dummy_value()

    return types.void(w, *[types.int64] * 8), codegen


@intrinsic
def add_products_tile(typingctx, w, c, left, right, count, stride, i, j):
    """Add ``sum_k left_k' right_k`` of rows to the square at (i, j) of the matrix at `c`, and to the one at (j, i).

    Above the diagonal; the entries below it are those above.
    """

    def codegen(context, builder, signature, arguments):
        w, c, left, right, count, stride, i, j = arguments
        tiles = _Squares(context, builder, signature.args[0], w)
        at, across = builder.add(builder.mul(i, stride), j), builder.add(builder.mul(j, stride), i)
        at, across = builder.add(c, at), builder.add(c, across)
        old = tiles.load(at, stride)
        sums = tiles.sums([ir.Constant(row.type, None) for row in old])
        with cgutils.for_range(builder, count) as loop:
            start = builder.mul(loop.index, stride)
            row = tiles.row(builder.add(builder.add(right, start), j))
            first = builder.add(builder.add(left, start), i)
            tiles.add(sums, lambda k: (row, tiles.number(first, k)))
        total = [builder.fadd(row, builder.load(variable)) for row, variable in zip(old, sums, strict=True)]
        diagonal = builder.icmp_signed("==", i, j)
        pairs = zip(tiles.reflected(total), total, strict=True)
        tiles.store([builder.select(diagonal, a, b) for a, b in pairs], at, stride)
        with builder.if_then(builder.not_(diagonal)):
            tiles.store(tiles.transposed(total), across, stride)
        return context.get_dummy_value()

    return types.void(w, *[types.int64] * 7), codegen
