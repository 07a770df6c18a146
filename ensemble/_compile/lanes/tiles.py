"""Tiles of matrices in registers, for `plain_code`: products with one loop over the inner axis, transposes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ensemble._compile.instructions import instruction, keep_rolled
from ensemble._compile.lanes.transpose import interleaved
from ensemble._compile.lanes.types import fill_lanes
from ensemble._compile.plain_language import Function
from ensemble._compile.plain_translation import I64, Group

__all__ = ["AddProducts", "Reflect", "SubtractSquares", "Tile", "TransposeSquare"]


def _loop(builder: Any, count: Any, moving: list[tuple[Any, Any]], sums: list[Any], body: Any) -> list[Any]:
    """``sums = body(pointers, sums)`` `count` times; `moving` are pointers and their increments. Returns the sums.

    Unrolling is disabled: it takes longer to compile and uses registers that the sums need.
    """
    function = builder.function
    inside, after = function.append_basic_block("inside"), function.append_basic_block("after")
    before = builder.block
    builder.cbranch(builder.icmp_signed(">", count, I64(0)), inside, after)
    builder.position_at_end(inside)
    left = builder.phi(I64)
    left.add_incoming(count, before)
    pointers = [builder.phi(pointer.type) for pointer, _ in moving]
    now = [builder.phi(value.type) for value in sums]
    for phi, value in zip((*pointers, *now), (*(pointer for pointer, _ in moving), *sums), strict=True):
        phi.add_incoming(value, before)
    found = body(pointers, now)
    steps = [builder.gep(pointer, [step], inbounds=True) for pointer, (_, step) in zip(pointers, moving, strict=True)]
    for phi, value in zip((*pointers, *now), (*steps, *found), strict=True):
        phi.add_incoming(value, inside)
    fewer = builder.sub(left, I64(1))
    left.add_incoming(fewer, inside)
    again = builder.cbranch(builder.icmp_signed(">", fewer, I64(0)), inside, after)
    keep_rolled(builder.module, [again], scalar=True, wholly=True)
    builder.position_at_end(after)
    ends = [builder.phi(value.type) for value in sums]
    for end, first, last in zip(ends, sums, found, strict=True):
        end.add_incoming(first, before)
        end.add_incoming(last, inside)
    return ends


class Tile(Function):
    """``C[i stride + j] = base[i stride + j] + sum_k A[i by_row + k by_inner] B[k stride + j]``.

    For i below `rows` and j below `registers` registers; zero in place of `base` without `from_base`. The sum is taken
    in the order of k by fused multiply-adds.
    """

    attribute = "alwaysinline"

    def __init__(self, rows: int, registers: int) -> None:
        arguments = [("A", "Numbers"), ("by_row", "int"), ("by_inner", "int"), ("B", "Numbers"), ("inner", "int")]
        arguments += [("C", "Numbers"), ("base", "Numbers"), ("from_base", "bool"), ("stride", "int")]
        super().__init__(f"tile_{rows}_{registers}", arguments, ["None"])
        self.rows, self.registers = rows, registers

    def write(self, group: Group, made: ir.Function) -> None:
        before, reading, start = (made.append_basic_block() for _ in range(3))
        builder = ir.IRBuilder(before)
        A, by_row, by_inner, B, inner, C, base, from_base, stride = made.args
        each = [(i, j) for i in range(self.rows) for j in range(self.registers)]

        def row(array: Any, i: int, step: Any) -> Any:
            return builder.gep(array, [builder.mul(step, I64(i))], inbounds=True)

        def register(array: Any, j: int) -> Any:
            return group.registers(builder, array, I64(j * group.register.count))

        builder.cbranch(from_base, reading, start)
        builder.position_at_end(reading)
        old = [group.read(builder, register(row(base, i, stride), j)) for i, j in each]
        builder.branch(start)
        builder.position_at_end(start)
        sums = [builder.phi(group.register) for _ in each]
        for phi, value in zip(sums, old, strict=True):
            phi.add_incoming(ir.Constant(group.register, None), before)
            phi.add_incoming(value, reading)

        def body(pointers: list[Any], now: list[Any]) -> list[Any]:
            a, b = pointers
            right = [group.read(builder, register(b, j)) for j in range(self.registers)]
            left = [
                fill_lanes(builder, builder.load(row(a, i, by_row)), group.register.count) for i in range(self.rows)
            ]
            return [
                instruction(builder, "fma", [right[j], left[i], total]) for (i, j), total in zip(each, now, strict=True)
            ]

        totals = _loop(builder, inner, [(A, by_inner), (B, stride)], sums, body)
        for (i, j), total in zip(each, totals, strict=True):
            group.write(builder, total, register(row(C, i, stride), j))
        builder.ret_void()


class _Squares:
    """Emits loads, stores and transposes of square tiles as wide as a register."""

    def __init__(self, group: Group, builder: Any) -> None:
        self.group, self.builder, self.n = group, builder, group.register.count

    def row(self, array: Any, at: Any) -> Any:
        return self.group.read(self.builder, self.group.registers(self.builder, array, at))

    def number(self, array: Any, at: Any, i: int = 0) -> Any:
        """An entry broadcast to every lane."""
        at = self.builder.add(at, I64(i))
        return fill_lanes(self.builder, self.builder.load(self.builder.gep(array, [at], inbounds=True)), self.n)

    def starts(self, stride: Any) -> list[Any]:
        return [self.builder.mul(stride, I64(i)) for i in range(self.n)]

    def load(self, array: Any, stride: Any) -> list[Any]:
        return [self.row(array, start) for start in self.starts(stride)]

    def store(self, rows: list[Any], array: Any, stride: Any) -> None:
        for row, start in zip(rows, self.starts(stride), strict=True):
            self.group.write(self.builder, row, self.group.registers(self.builder, array, start))

    def transposed(self, rows: list[Any]) -> list[Any]:
        for _ in range(self.n.bit_length() - 1):
            rows = interleaved(self.builder, rows)
        return rows

    def reflected(self, rows: list[Any]) -> list[Any]:
        """Copy the entries above the diagonal to those below it."""
        below = ir.VectorType(ir.IntType(1), self.n)
        masks = [ir.Constant(below, [j < i for j in range(self.n)]) for i in range(self.n)]
        pairs = zip(masks, self.transposed(rows), rows, strict=True)
        return [self.builder.select(mask, other, row) for mask, other, row in pairs]


class TransposeSquare(Function):
    """``C[j pitch + i] = A[i stride + j]`` for i and j below the entries of a register."""

    attribute = "alwaysinline"

    def __init__(self) -> None:
        arguments = [("A", "Numbers"), ("stride", "int"), ("C", "Numbers"), ("pitch", "int")]
        super().__init__("turn", arguments, ["None"])

    def write(self, group: Group, made: ir.Function) -> None:
        tiles = _Squares(group, ir.IRBuilder(made.append_basic_block()))
        A, stride, C, pitch = made.args
        tiles.store(tiles.transposed(tiles.load(A, stride)), C, pitch)
        tiles.builder.ret_void()


class Reflect(Function):
    """Copy the entries above the diagonal of a square as wide as a register to those below it."""

    attribute = "alwaysinline"

    def __init__(self) -> None:
        super().__init__("reflect", [("A", "Numbers"), ("stride", "int")], ["None"])

    def write(self, group: Group, made: ir.Function) -> None:
        tiles = _Squares(group, ir.IRBuilder(made.append_basic_block()))
        A, stride = made.args
        tiles.store(tiles.reflected(tiles.load(A, stride)), A, stride)
        tiles.builder.ret_void()


class SubtractSquares(Function):
    """The square at (i, j) of the matrix C, and its transpose at (j, i).

    C is the symmetric matrix A minus ``sum_k weights[k] row_k' row_k`` over the first `count` of `rows`.
    """

    attribute = "alwaysinline"

    def __init__(self) -> None:
        arguments = [(name, "Numbers") for name in ("A", "C", "rows", "weights")]
        arguments += [(name, "int") for name in ("count", "stride", "i", "j")]
        super().__init__("subtract_squares", arguments, ["None"])

    def write(self, group: Group, made: ir.Function) -> None:
        builder = ir.IRBuilder(made.append_basic_block())
        A, C, rows, weights, count, stride, i, j = made.args
        tiles = _Squares(group, builder)
        here = builder.add(builder.mul(i, stride), j)
        across = builder.add(builder.mul(j, stride), i)
        at = lambda array, place: builder.gep(array, [place], inbounds=True)

        def body(pointers: list[Any], now: list[Any]) -> list[Any]:
            row, weight = pointers
            right, spread = tiles.row(row, j), tiles.number(weight, I64(0))
            scaled = [builder.fmul(right, builder.fneg(tiles.number(row, i, k))) for k in range(tiles.n)]
            return [instruction(builder, "fma", [s, spread, old]) for s, old in zip(scaled, now, strict=True)]

        first = tiles.load(at(A, here), stride)
        total = _loop(builder, count, [(rows, stride), (weights, I64(1))], first, body)
        tiles.store(total, at(C, here), stride)
        tiles.store(tiles.transposed(total), at(C, across), stride)
        builder.ret_void()


class AddProducts(Function):
    """Add ``sum_k left_k' right_k`` of rows to the square at (i, j) of the matrix C, and to the one at (j, i).

    Entries above the diagonal are computed and copied to those below it.
    """

    attribute = "alwaysinline"

    def __init__(self) -> None:
        arguments = [(name, "Numbers") for name in ("C", "left", "right")]
        arguments += [(name, "int") for name in ("count", "stride", "i", "j")]
        super().__init__("add_products", arguments, ["None"])

    def write(self, group: Group, made: ir.Function) -> None:
        builder = ir.IRBuilder(made.append_basic_block())
        C, left, right, count, stride, i, j = made.args
        tiles = _Squares(group, builder)
        at = builder.gep(C, [builder.add(builder.mul(i, stride), j)], inbounds=True)
        across = builder.gep(C, [builder.add(builder.mul(j, stride), i)], inbounds=True)
        old = tiles.load(at, stride)

        def body(pointers: list[Any], now: list[Any]) -> list[Any]:
            row = tiles.row(pointers[1], j)
            factors = [tiles.number(pointers[0], i, k) for k in range(tiles.n)]
            return [instruction(builder, "fma", [row, x, total]) for x, total in zip(factors, now, strict=True)]

        zeros = [ir.Constant(row.type, None) for row in old]
        sums = _loop(builder, count, [(left, stride), (right, stride)], zeros, body)
        total = [builder.fadd(row, change) for row, change in zip(old, sums, strict=True)]
        diagonal = builder.icmp_signed("==", i, j)
        pairs = zip(tiles.reflected(total), total, strict=True)
        tiles.store([builder.select(diagonal, a, b) for a, b in pairs], at, stride)
        with builder.if_then(builder.not_(diagonal)):
            tiles.store(tiles.transposed(total), across, stride)
        builder.ret_void()
