"""Small dense blocks in registers: their products with lanes, and their transposes."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ensemble._compile.instructions import prefetched
from ensemble._compile.lanes.transpose import write_tile
from ensemble._compile.lanes.types import alignment, data_of, fill_lanes, item_size, pointer_to, width_of

__all__ = ["add_block", "prefetch_block", "transpose_tile"]

LINE = 64


def _constant(value):
    return getattr(value, "literal_value", None)


@intrinsic(prefer_literal=True)
def add_block(typingctx, sums, values, place, step, x, column, stride, terms, row_step, term_step, shared):
    """Each sum i plus, for j ascending, entry (i, j) of a block times row j of `x`; a product and a sum per term.

    Entry (i, j) lies at ``values[place + (i * row_step + j * term_step) * step]``, row j of `x` at
    ``x[column + j * stride]``. `terms`, `row_step`, `term_step` and `shared` are compile-time constants; an entry that
    is `shared` is one number for all lanes.
    """
    n, rows, columns, one = (_constant(value) for value in (terms, row_step, term_step, shared))
    if n is None or rows is None or columns is None or one is None:
        return None
    width = sums.dtype.width

    def codegen(context, builder, signature, arguments):
        before, array, start, distance, vector, first, apart = arguments[:7]
        lanes, size = ir.IntType(64), item_size(sums.dtype.dtype)

        def loaded(kind, numbers, base, number, gap):
            offset = builder.add(base, builder.mul(gap, lanes(number)))
            if one and numbers is array:
                data = data_of(context, builder, kind, numbers)
                return fill_lanes(builder, builder.load(builder.gep(data, [offset], inbounds=True)), width)
            value = builder.load(pointer_to(context, builder, kind, numbers, offset, width))
            value.align = size
            return value

        factors = [loaded(signature.args[4], vector, first, j, apart) for j in range(n)]
        after = before
        for i in range(sums.count):
            total = builder.extract_value(before, i)
            for j in range(n):
                entry = loaded(signature.args[1], array, start, i * rows + j * columns, distance)
                total = builder.fadd(total, builder.fmul(entry, factors[j]))
            after = builder.insert_value(after, total, i)
        return after

    return sums(
        sums, values, types.int64, types.int64, x, types.int64, types.int64, *(terms, row_step, term_step, shared)
    ), codegen


@intrinsic(prefer_literal=True)
def prefetch_block(typingctx, values, place, step, count, sums):
    """Ask for `count` rows of lanes ahead of time, `step` numbers apart; less than half a line each: nothing."""
    n = _constant(count)
    if n is None:
        return None
    size = item_size(values.dtype)
    n_bytes = sums.dtype.width * size

    def codegen(context, builder, signature, arguments):
        array, start, distance = arguments[:3]
        data = data_of(context, builder, signature.args[0], array)
        for k in range(n if 2 * n_bytes >= LINE else 0):
            offset = builder.add(start, builder.mul(distance, ir.IntType(64)(k)))
            prefetched(builder, builder.gep(data, [offset]), n_bytes)
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, count, sums), codegen


@intrinsic(prefer_literal=True)
def transpose_tile(typingctx, source, at, stride, target, to, pitch, width):
    """``target[to + j * pitch + i] = source[at + i * stride + j]`` for i and j below `width`, in loops of kernels."""
    n = width_of(width)
    if n is None:
        return None

    def codegen(context, builder, signature, arguments):
        arrays = [data_of(context, builder, kind, arguments[k]) for k, kind in ((0, source), (3, target))]
        first, last = (builder.gep(data, [arguments[k]], inbounds=True) for data, k in zip(arrays, (1, 4), strict=True))
        write_tile(builder, first, arguments[2], last, arguments[5], n, alignment(source.dtype))
        return context.get_dummy_value()

    whole = types.int64
    return types.void(source, whole, whole, target, whole, whole, width), codegen
