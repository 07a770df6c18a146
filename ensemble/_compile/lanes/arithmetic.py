"""Operations on lanes besides operators: conversions, bits, rounding, and functions called lane by lane.

Loads, stores and operators are in `types.py`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from ensemble._compile.instructions import compared, conversion, declared, instruction
from ensemble._compile.lanes import complex_numbers
from ensemble._compile.lanes.types import (
    Lanes,
    data_of,
    fill_lanes,
    item_size,
    lanes_among,
    library_call,
    pointer_to,
    width_of,
)

__all__ = [
    "REGISTER_BYTES",
    "absolute",
    "add_terms",
    "any_lane",
    "as_bool",
    "as_float32",
    "as_float64",
    "as_int32",
    "as_int64",
    "bits",
    "ceil",
    "combine",
    "conjugate",
    "conjugate_product",
    "convert",
    "converted",
    "copysign",
    "floor",
    "fma",
    "from_bits",
    "gather",
    "lane",
    "library_lanes",
    "polynomial",
    "quotient",
    "rint",
    "spread",
    "trunc",
    "zero_sums",
]


@intrinsic(prefer_literal=True)
def spread(typingctx, scalar, width):
    """`scalar` broadcast to every lane, in its own dtype."""
    n = width_of(width)
    kind = getattr(scalar, "literal_type", scalar)
    if n is None:
        return None

    def codegen(context, builder, signature, arguments):
        return fill_lanes(builder, arguments[0], n)

    return Lanes(kind, n)(kind, width), codegen


# --- conversions
def _conversion(target: Any) -> Any:
    """Lanes converted to `target` by the processor's rules."""

    @intrinsic
    def convert(typingctx, a):
        def codegen(context, builder, signature, arguments):
            return converted(builder, a.dtype, target, arguments[0], lanes)

        lanes = Lanes(target, a.width)
        return lanes(a), codegen

    return convert


def converted(builder: Any, source: Any, target: Any, value: Any, lanes: Any) -> Any:
    """Instructions that convert `value` from type `source` to type `target`; `lanes` is the result's type."""
    if source == target:
        return value
    if target is types.boolean:
        return compared(builder, "!=", value, ir.Constant(value.type, None))
    whole = isinstance(target, types.Integer)
    element = ir.IntType(target.bitwidth) if whole else ir.DoubleType() if target.bitwidth == 64 else ir.FloatType()
    return getattr(builder, conversion(str(source), str(target)))(value, ir.VectorType(element, lanes.width))


as_bool, as_int32, as_int64 = map(_conversion, (types.boolean, types.int32, types.int64))
as_float32, as_float64 = map(_conversion, (types.float32, types.float64))


@intrinsic
def bits(typingctx, a):
    """The bit patterns of floating-point lanes, as integers of their size."""
    kind = types.int64 if a.dtype is types.float64 else types.int32

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.VectorType(ir.IntType(kind.bitwidth), a.width))

    return Lanes(kind, a.width)(a), codegen


@intrinsic
def from_bits(typingctx, a):
    """The floating-point lanes of these bit patterns, of int64 or int32."""
    kind, element = (types.float64, ir.DoubleType()) if a.dtype is types.int64 else (types.float32, ir.FloatType())

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.VectorType(element, a.width))

    return Lanes(kind, a.width)(a), codegen


# --- arithmetic
def _rounding(name: str) -> Any:
    @intrinsic
    def function(typingctx, a):
        def codegen(context, builder, signature, arguments):
            return instruction(builder, name, arguments)

        return a(a), codegen

    return function


floor, ceil, trunc, rint = map(_rounding, ("floor", "ceil", "trunc", "rint"))


@intrinsic
def absolute(typingctx, a):
    """The absolute value; the smallest integer is unchanged."""

    def codegen(context, builder, signature, arguments):
        if isinstance(a.dtype, types.Float):
            return instruction(builder, "fabs", arguments)
        negative = builder.icmp_signed("<", arguments[0], ir.Constant(arguments[0].type, None))
        return builder.select(negative, builder.neg(arguments[0]), arguments[0])

    return a(a), codegen


@intrinsic
def conjugate(typingctx, a):
    """The complex conjugate; real lanes are unchanged."""

    def codegen(context, builder, signature, arguments):
        is_complex = isinstance(a.dtype, types.Complex)
        return complex_numbers.conjugated(builder, arguments[0]) if is_complex else arguments[0]

    return a(a), codegen


@intrinsic
def conjugate_product(typingctx, a, b):
    """``conjugate(a) * b`` in fewer instructions."""

    def codegen(context, builder, signature, arguments):
        is_complex = isinstance(a.dtype, types.Complex)
        return complex_numbers.conjugate_product(builder, *arguments) if is_complex else builder.fmul(*arguments)

    return a(a, b), codegen


@intrinsic
def copysign(typingctx, a, b):
    """`a` with the sign bit of `b`."""
    lanes = lanes_among((a, b))

    def codegen(context, builder, signature, arguments):
        return instruction(builder, "copysign", arguments)

    return lanes(lanes, lanes), codegen


@intrinsic
def fma(typingctx, a, b, c):
    """``a * b + c``, rounded once, on every processor; on lanes or on numbers."""
    lanes = a if isinstance(a, types.Float) else lanes_among((a, b, c))

    def codegen(context, builder, signature, arguments):
        return instruction(builder, "fma", arguments)

    return lanes(lanes, lanes, lanes), codegen


@intrinsic
def quotient(typingctx, a, b):
    """The integer quotient, rounded towards zero; no lane of `b` may be 0 or -1."""

    def codegen(context, builder, signature, arguments):
        return builder.sdiv(*arguments)

    return a(a, b), codegen


# --- memory
@intrinsic
def gather(typingctx, array, offset, indices):
    """``array[offset + indices]`` as lanes; `array` is flat and contiguous."""
    lanes = Lanes(array.dtype, indices.width)

    def codegen(context, builder, signature, arguments):
        base = data_of(context, builder, array, arguments[0])
        base = builder.gep(base, [arguments[1]], inbounds=True)
        element, n = base.type.pointee, indices.width
        places = builder.gep(base, [arguments[2]], inbounds=True, source_etype=element)
        places.type = ir.VectorType(base.type, n)  # a vector of indices gives a vector of addresses
        vector, mask, size = ir.VectorType(element, n), ir.VectorType(ir.IntType(1), n), ir.IntType(32)
        letter = "f" if isinstance(array.dtype, types.Float) else "i"
        name = f"llvm.masked.gather.v{n}{letter}{array.dtype.bitwidth}.v{n}p0"
        kind = ir.FunctionType(vector, [places.type, size, mask, vector])
        function = declared(builder.module, kind, name)
        every, other = ir.Constant(mask, [1] * n), ir.Constant(vector, ir.Undefined)
        return builder.call(function, [places, size(item_size(array.dtype)), every, other])

    return lanes(array, types.int64, indices), codegen


# --- single lanes
@intrinsic
def any_lane(typingctx, mask):
    """Whether `mask` holds in some lane."""

    def codegen(context, builder, signature, arguments):
        word = builder.bitcast(arguments[0], ir.IntType(mask.width))
        return builder.icmp_unsigned("!=", word, ir.Constant(word.type, 0))

    return types.boolean(mask), codegen


@intrinsic
def lane(typingctx, a, position):
    """The number in lane `position`."""

    def codegen(context, builder, signature, arguments):
        return builder.extract_element(*arguments)

    return a.dtype(a, types.int64), codegen


def library_lanes(name: str, arity: int) -> Any:
    """``function(mask, other, x[, y])``: the C library's `name` where `mask` holds, `other` elsewhere.

    The function is that of float64. For float32 lanes its results must be exact, as those of `fmod` are: the conversion
    to float64 and back then rounds nothing.
    """

    def codegen(context, builder, signature, arguments):
        vector, width = arguments[1].type, arguments[1].type.count
        # As bytes: LLVM ends the process where a mask of one lane is an argument and the processor has mask registers.
        mask = builder.zext(arguments[0], ir.VectorType(ir.IntType(8), width))
        kind = ir.FunctionType(vector, [mask.type, *[vector] * (arity + 1)])
        outer = declared(builder.module, kind, f"ensemble_{name}_{width}")
        if outer.is_declaration:
            outer.linkage = "internal"
            outer.attributes.add("noinline")
            _write_loop(ir.IRBuilder(outer.append_basic_block()), name, outer.args)
        return builder.call(outer, [mask, *arguments[1:]])

    if arity == 1:
        return intrinsic(lambda typingctx, mask, other, x: (x(mask, x, x), codegen))
    return intrinsic(lambda typingctx, mask, other, x, y: (x(mask, x, x, x), codegen))


def _write_loop(builder: Any, name: str, arguments: Any) -> None:
    mask, other, *operands = arguments
    memory = builder.alloca(other.type)
    builder.store(other, memory)
    for k in range(other.type.count):
        place = ir.IntType(32)(k)
        with builder.if_then(builder.trunc(builder.extract_element(mask, place), ir.IntType(1))):
            numbers = [builder.extract_element(operand, place) for operand in operands]
            narrow, double = numbers[0].type, ir.DoubleType()
            if narrow != double:
                numbers = [builder.fpext(number, double) for number in numbers]
            result = library_call(builder, name, numbers)
            if narrow != double:
                result = builder.fptrunc(result, narrow)
            builder.store(builder.insert_element(builder.load(memory), result, place), memory)
    builder.ret(builder.load(memory))


def polynomial(*coefficients: float) -> Any:
    """``function(z)``: ``c0 + c1 z + c2 z**2 + ...`` by fused multiply-adds, in pairs of pairs.

    Estrin's scheme halves the dependency chain of Horner's scheme; its latency determines the run time.
    """

    def codegen(context, builder, signature, arguments):
        lanes, power = signature.args[0], arguments[0]
        parts = [ir.Constant(power.type, [c] * lanes.width) for c in coefficients]
        while len(parts) > 1:
            pairs = [parts[k : k + 2] for k in range(0, len(parts), 2)]
            parts = [
                instruction(builder, "fma", [pair[1], power, pair[0]]) if len(pair) == 2 else pair[0] for pair in pairs
            ]
            power = builder.fmul(power, power)
        return parts[0]

    return intrinsic(lambda typingctx, z: (z(z), codegen))


# --- products rounded once, and several sums at once: one for each term of an affine entry
REGISTER_BYTES = 2048 if binding.get_host_cpu_features().get("avx512f") else 512
"""Capacity of all SIMD registers of the machine: a loop that needs more spills to memory."""


@intrinsic
def convert(typingctx, lanes, array):
    """The lanes converted to the dtype of `array`; a narrower one rounds to nearest."""
    narrow, wide = lanes.dtype.bitwidth > array.dtype.bitwidth, lanes.dtype.bitwidth < array.dtype.bitwidth

    def codegen(context, builder, signature, arguments):
        vector = ir.VectorType(context.get_value_type(array.dtype), lanes.width)
        if narrow:
            return builder.fptrunc(arguments[0], vector)
        return builder.fpext(arguments[0], vector) if wide else arguments[0]

    return Lanes(array.dtype, lanes.width)(lanes, array), codegen


@intrinsic(prefer_literal=True)
def zero_sums(typingctx, array, width, n_terms):
    """`n_terms` sums at zero, a tuple of lanes: `n_terms` is a compile-time constant."""
    n, count = width_of(width), getattr(n_terms, "literal_value", None)
    if n is None or count is None:
        return None
    result = types.UniTuple(Lanes(array.dtype, n), count)

    def codegen(context, builder, signature, arguments):
        return ir.Constant(context.get_value_type(result), None)

    return result(array, width, n_terms), codegen


@intrinsic
def add_terms(typingctx, sums, terms, k, x):
    """Each sum i plus ``terms[k * len(sums) + i] * x``, rounded once; `terms` is flat."""

    def codegen(context, builder, signature, arguments):
        before, array, position, factor = arguments
        data = data_of(context, builder, signature.args[1], array)
        start = builder.mul(position, ir.IntType(64)(sums.count))
        after = before
        for i in range(sums.count):
            place = builder.gep(data, [builder.add(start, ir.IntType(64)(i))], inbounds=True)
            term = fill_lanes(builder, builder.load(place), sums.dtype.width)
            total = instruction(builder, "fma", [term, factor, builder.extract_value(before, i)])
            after = builder.insert_value(after, total, i)
        return after

    return sums(sums, terms, types.int64, x), codegen


@intrinsic
def combine(typingctx, sums, coefficients, first, n_samples):
    """Sum 0 plus each further sum i times coefficient i - 1 of its sample; `coefficients` is flat, one row per term."""

    def codegen(context, builder, signature, arguments):
        values, array, offset, stride = arguments
        total = builder.extract_value(values, 0)
        for i in range(1, sums.count):
            place = builder.add(offset, builder.mul(stride, ir.IntType(64)(i - 1)))
            pointer = pointer_to(context, builder, signature.args[1], array, place, sums.dtype.width)
            factor = builder.load(pointer)
            factor.align = sums.dtype.dtype.bitwidth // 8
            total = instruction(builder, "fma", [factor, builder.extract_value(values, i), total])
        return total

    return sums.dtype(sums, coefficients, types.int64, types.int64), codegen
