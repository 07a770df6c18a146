"""`Lanes`: one SIMD register set as a value inside a compiled kernel.

LLVM keeps ``<width x float64>`` in registers and splits it to the machine's own width, so a row sum over 32 samples
needs no memory for its accumulators (a NumPy-style inner loop over samples stores and reloads them at every entry,
which costs half the bandwidth). Each lane obeys IEEE arithmetic by itself: the same bits as a scalar loop.

Inside a compiled function::

    total = zeros(values, WIDTH)
    total = total + load(values, offset, WIDTH) * splat(scalar, values, WIDTH)
    store(out, offset, total)

Arrays are flat; `offset` counts elements; WIDTH is a compile-time constant, or lanes whose width is meant.
``select(mask, a, b)`` picks lane by lane, comparisons of lanes give masks. ``fma(a, b, c)`` rounds a * b + c once, in
every lane and at every width: asked for by name it is one operation of IEEE arithmetic, not a compiler's liberty.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

__all__ = [
    "PREFETCH_BYTES",
    "REGISTER_BYTES",
    "Lanes",
    "add_terms",
    "combine",
    "convert",
    "fence",
    "fma",
    "library_function",
    "load",
    "prefetch",
    "select",
    "splat",
    "sqrt",
    "store",
    "stream",
    "zero_sums",
    "zeros",
]

PREFETCH_BYTES = 8192
"""How far ahead of its use a stream of matrix values is asked for: the hardware's own prefetch stops at page ends."""


REGISTER_BYTES = 2048 if binding.get_host_cpu_features().get("avx512f") else 512
"""What the machine's SIMD registers hold together: a loop that needs more keeps the rest in memory."""


class Lanes(types.Type):
    """The Numba type of `width` numbers of `dtype` held in SIMD registers."""

    def __init__(self, dtype: types.Type, width: int) -> None:
        self.dtype, self.width = dtype, width
        super().__init__(name=f"Lanes({dtype}, {width})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Lanes) -> None:
        element = ir.IntType(1) if fe_type.dtype is types.boolean else dmm.lookup(fe_type.dtype).get_value_type()
        super().__init__(dmm, fe_type, ir.VectorType(element, fe_type.width))


def _width_of(width: Any) -> int | None:
    """The number of lanes that a constant, or another value of lanes, asks for."""
    return width.width if isinstance(width, Lanes) else getattr(width, "literal_value", None)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, width: int) -> Any:
    struct = cgutils.create_struct_proxy(array_type)(context, builder, value=array)
    vector = ir.VectorType(context.get_value_type(array_type.dtype), width)
    return builder.bitcast(builder.gep(struct.data, [offset], inbounds=True), vector.as_pointer())


def _fill(builder: Any, scalar: Any, width: int) -> Any:
    vector = ir.VectorType(scalar.type, width)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(
        one, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    )


@intrinsic(prefer_literal=True)
def load(typingctx, array, offset, width):
    """``array[offset : offset + width]`` as lanes; `array` is flat and contiguous."""
    n = _width_of(width)
    if n is None:
        return None

    def codegen(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], n)
        value = builder.load(pointer)
        value.align = array.dtype.bitwidth // 8
        return value

    return Lanes(array.dtype, n)(array, types.int64, width), codegen


@intrinsic
def store(typingctx, array, offset, lanes):
    """``array[offset : offset + width] = lanes``."""

    def codegen(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], lanes.width)
        builder.store(arguments[2], pointer).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes), codegen


@intrinsic
def stream(typingctx, array, offset, lanes):
    """Like `store`, past the cache: no line is read only to be overwritten. The address must start a cache line."""

    def codegen(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], lanes.width)
        instruction = builder.store(arguments[2], pointer)
        instruction.align = min(64, lanes.width * array.dtype.bitwidth // 8)
        hint = builder.module.add_metadata([ir.IntType(32)(1)])
        instruction.set_metadata("nontemporal", hint)
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes), codegen


@intrinsic(prefer_literal=True)
def prefetch(typingctx, array, offset, width):
    """Ask for ``array[offset : offset + width]`` ahead of time, wherever it is; less than half a line: nothing."""
    n = _width_of(width)
    if n is None:
        return None
    n_bytes = n * array.dtype.bitwidth // 8

    def codegen(context, builder, signature, arguments):
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        struct = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=arguments[0])
        start = builder.bitcast(builder.gep(struct.data, [arguments[1]]), byte)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, word, word, word]), "llvm.prefetch.p0i8"
        )
        for line in range(0, n_bytes if n_bytes >= 32 else 0, 64):
            builder.call(function, [builder.gep(start, [ir.IntType(64)(line)]), word(0), word(0), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64, width), codegen


@intrinsic(prefer_literal=True)
def splat(typingctx, scalar, array, width):
    """`scalar` in every lane, as the dtype of `array`."""
    n = _width_of(width)
    if n is None:
        return None

    def codegen(context, builder, signature, arguments):
        return _fill(builder, arguments[0], n)

    return Lanes(array.dtype, n)(array.dtype, array, width), codegen


@intrinsic(prefer_literal=True)
def zeros(typingctx, array, width):
    """Zero in every lane, as the dtype of `array`."""
    n = _width_of(width)
    if n is None:
        return None

    def codegen(context, builder, signature, arguments):
        return ir.Constant(ir.VectorType(context.get_value_type(array.dtype), n), None)

    return Lanes(array.dtype, n)(array, width), codegen


@intrinsic
def select(typingctx, mask, a, b):
    """Lane by lane, `a` where `mask` holds and `b` elsewhere."""

    def codegen(context, builder, signature, arguments):
        return builder.select(*arguments)

    return a(mask, a, b), codegen


@intrinsic
def sqrt(typingctx, a):
    """The square root of each lane, correctly rounded."""

    def codegen(context, builder, signature, arguments):
        vector = arguments[0].type
        element = "f32" if a.dtype is types.float32 else "f64"
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), f"llvm.sqrt.v{a.width}{element}"
        )
        return builder.call(function, arguments)

    return a(a), codegen


def _fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    element = "f32" if a.type.element == ir.FloatType() else "f64"
    kind = ir.FunctionType(a.type, [a.type] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{a.type.count}{element}")
    return builder.call(function, [a, b, c])


@intrinsic
def fma(typingctx, a, b, c):
    """a * b + c, rounded once."""

    def codegen(context, builder, signature, arguments):
        return _fused(builder, *arguments)

    return a(a, b, c), codegen


@intrinsic
def convert(typingctx, lanes, array):
    """The lanes as the dtype of `array`: rounded to nearest where that is narrower."""
    narrow, wide = lanes.dtype.bitwidth > array.dtype.bitwidth, lanes.dtype.bitwidth < array.dtype.bitwidth

    def codegen(context, builder, signature, arguments):
        vector = ir.VectorType(context.get_value_type(array.dtype), lanes.width)
        if narrow:
            return builder.fptrunc(arguments[0], vector)
        return builder.fpext(arguments[0], vector) if wide else arguments[0]

    return Lanes(array.dtype, lanes.width)(lanes, array), codegen


# --- several sums at once, one for each term of an affine entry
@intrinsic(prefer_literal=True)
def zero_sums(typingctx, array, width, n_terms):
    """`n_terms` sums at zero, a tuple of lanes: `n_terms` is a compile-time constant."""
    n, count = _width_of(width), getattr(n_terms, "literal_value", None)
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
        struct = cgutils.create_struct_proxy(signature.args[1])(context, builder, value=array)
        start = builder.mul(position, ir.IntType(64)(sums.count))
        after = before
        for i in range(sums.count):
            place = builder.gep(struct.data, [builder.add(start, ir.IntType(64)(i))], inbounds=True)
            term = _fill(builder, builder.load(place), sums.dtype.width)
            total = _fused(builder, term, factor, builder.extract_value(before, i))
            after = builder.insert_value(after, total, i)
        return after

    return sums(sums, terms, types.int64, x), codegen


@intrinsic
def combine(typingctx, sums, coefficients, first, n_samples):
    """Sum 0 plus each further sum i times coefficient i - 1 of its sample; `coefficients` is flat, a row a term."""

    def codegen(context, builder, signature, arguments):
        values, array, offset, stride = arguments
        total = builder.extract_value(values, 0)
        for i in range(1, sums.count):
            place = builder.add(offset, builder.mul(stride, ir.IntType(64)(i - 1)))
            pointer = _pointer(context, builder, signature.args[1], array, place, sums.dtype.width)
            factor = builder.load(pointer)
            factor.align = sums.dtype.dtype.bitwidth // 8
            total = _fused(builder, factor, builder.extract_value(values, i), total)
        return total

    return sums.dtype(sums, coefficients, types.int64, types.int64), codegen


def _arithmetic(operation: Any, instruction: str) -> None:
    @intrinsic
    def emit(typingctx, a, b):
        def codegen(context, builder, signature, arguments):
            return getattr(builder, instruction)(*arguments)

        return a(a, b), codegen

    @overload(operation)
    def _(a, b):
        if isinstance(a, Lanes) and a == b:
            return lambda a, b: emit(a, b)
        return None


def _comparison(operation: Any, symbol: str, compare: str = "fcmp_ordered") -> None:
    @intrinsic
    def emit(typingctx, a, b):
        def codegen(context, builder, signature, arguments):
            return getattr(builder, compare)(symbol, *arguments)

        return Lanes(types.boolean, a.width)(a, b), codegen

    @overload(operation)
    def _(a, b):
        if isinstance(a, Lanes) and a == b:
            return lambda a, b: emit(a, b)
        return None


for _operation, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _arithmetic(_operation, _instruction)

for _operation, _symbol in ((operator.gt, ">"), (operator.lt, "<"), (operator.ge, ">="), (operator.le, "<=")):
    _comparison(_operation, _symbol)

_comparison(operator.ne, "!=", "fcmp_unordered")  # a NaN differs from everything, itself included


@intrinsic
def fence(typingctx):
    """Wait until what `stream` wrote has reached memory: other threads are about to read it."""

    def codegen(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


def library_function(name: str, arity: int) -> Any:
    """The C library's function `name` of float64, kept out of line.

    LLVM may put a vector library's function of other rounding in the place of one that it knows, but only in the whole
    vectors of a loop and not in its rest: a value would depend on where it stands. A call that it cannot see through
    stays one function for all.
    """
    double = ir.DoubleType()
    kind = ir.FunctionType(double, [double] * arity)

    def codegen(context, builder, signature, arguments):
        outer = cgutils.get_or_insert_function(builder.module, kind, f"ensemble_{name}")
        if outer.is_declaration:
            outer.linkage = "internal"
            outer.attributes.add("noinline")
            inside = ir.IRBuilder(outer.append_basic_block())
            inside.ret(inside.call(cgutils.get_or_insert_function(builder.module, kind, name), outer.args))
        return builder.call(outer, arguments)

    if arity == 1:
        return intrinsic(lambda typingctx, x: (types.float64(types.float64), codegen))
    return intrinsic(lambda typingctx, x, y: (types.float64(types.float64, types.float64), codegen))
