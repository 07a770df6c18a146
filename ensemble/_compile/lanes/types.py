"""`Lanes`: one SIMD register set as a value inside a compiled kernel.

Longer than 400 lines: one type and its instructions.

LLVM keeps ``<width x float64>`` in registers and splits it to the machine's own width, so a row sum over 32 samples
keeps its accumulators in registers (a NumPy-style inner loop over samples stores and reloads them at every entry,
which costs half the bandwidth). Each lane follows IEEE arithmetic: the bits are those of a scalar loop.

Inside a compiled function::

    total = zeros(values, WIDTH)
    total = total + load(values, offset, WIDTH) * splat(scalar, values, WIDTH)
    store(out, offset, total)

Arrays are flat; `offset` counts elements; WIDTH is a compile-time constant, or lanes of that width.
Operators work lane by lane, on two lanes of one kind or on lanes and a number; comparisons give masks, and
``select(mask, a, b)`` selects. Further operations are in `arithmetic.py`. Complex lanes hold real and imaginary parts
in turn (`complex_numbers.py`) and have sums, differences, products, negation and tests for equality.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, lower_builtin, lower_cast, models, register_model, type_callable

from ensemble._compile.instructions import (
    ARITHMETIC,
    COMPARISONS,
    arithmetic,
    compared,
    counted,
    declared,
    instruction,
    prefetched,
    stack_slot,
)
from ensemble._compile.lanes import complex_numbers
from ensemble._compile.lanes.complex_numbers import vector_of
from ensemble._compile.processor import STACK_ALIGNMENT

__all__ = [
    "OPERATORS",
    "PREFETCH_BYTES",
    "ROW_BYTES",
    "Lanes",
    "borrowed",
    "called",
    "data_of",
    "fence",
    "library_call",
    "library_function",
    "load",
    "load_some",
    "prefetch",
    "prefetch_for_writing",
    "select",
    "splat",
    "sqrt",
    "store",
    "store_some",
    "stream",
    "zeros",
]

PREFETCH_BYTES = 8192
"""Prefetch distance of a stream of matrix values: the hardware prefetcher stops at page boundaries.

Measured again by `benchmarks spmv`.
"""

ROW_BYTES = 32
"""Bytes of a register for small matrices; their rows are padded to it."""


class Lanes(types.Type):
    """The Numba type of `width` numbers of `dtype` held in SIMD registers."""

    def __init__(self, dtype: types.Type, width: int) -> None:
        self.dtype, self.width = dtype, width
        super().__init__(name=f"Lanes({dtype}, {width})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Lanes) -> None:
        element = ir.IntType(1) if fe_type.dtype is types.boolean else dmm.lookup(fe_type.dtype).get_value_type()
        super().__init__(dmm, fe_type, vector_of(element, fe_type.width))


def width_of(width: Any) -> int | None:
    """Return how many lanes an argument asks for: a constant says it, or lanes have it; None for neither."""
    return width.width if isinstance(width, Lanes) else getattr(width, "literal_value", None)


def item_size(dtype: Any) -> int:
    return 1 if dtype is types.boolean else dtype.bitwidth // 8


def alignment(dtype: Any) -> int:
    """Bytes at a multiple of which an entry lies: for a complex number those of its parts."""
    return item_size(dtype) // 2 if isinstance(dtype, types.Complex) else item_size(dtype)


def data_of(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """The address of an array's first entry."""
    return builder.extract_value(array, context.data_model_manager[array_type].get_field_position("data"))


def pointer_to(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, width: int) -> Any:
    vector = vector_of(context.get_data_type(array_type.dtype), width)
    builder.function.attributes.alignstack = STACK_ALIGNMENT
    place = builder.gep(data_of(context, builder, array_type, array), [offset], inbounds=True)
    return builder.bitcast(place, vector.as_pointer())


def _from_memory(builder: Any, dtype: Any, value: Any) -> Any:
    """Loaded lanes as they are held in registers: masks have one bit per lane."""
    return builder.icmp_signed("!=", value, ir.Constant(value.type, None)) if dtype is types.boolean else value


def _to_memory(builder: Any, dtype: Any, value: Any) -> Any:
    wide = ir.VectorType(ir.IntType(8), value.type.count)
    return builder.zext(value, wide) if dtype is types.boolean else value


def fill_lanes(builder: Any, scalar: Any, width: int) -> Any:
    if complex_numbers.is_pair(scalar.type):
        return complex_numbers.fill(builder, scalar, width)
    vector = ir.VectorType(scalar.type, width)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(
        one, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    )


@intrinsic
def borrowed(typingctx, array):
    """`array` without a reference count; its memory must outlive it.

    Slicing changes the reference count by locked instructions, each of which waits until all streaming stores have
    reached memory.
    """

    def codegen(context, builder, signature, arguments):
        struct = context.make_array(array)(context, builder, value=arguments[0])
        struct.meminfo = ir.Constant(struct.meminfo.type, None)
        struct.parent = ir.Constant(struct.parent.type, None)
        return struct._getvalue()

    return array(array), codegen


@intrinsic(prefer_literal=True)
def load(typingctx, array, offset, width):
    """``array[offset : offset + width]`` as lanes; `array` is flat and contiguous."""
    n = width_of(width)
    if n is None:
        return None

    def codegen(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1], n)
        value = builder.load(pointer)
        value.align = alignment(array.dtype)
        return _from_memory(builder, array.dtype, value)

    return Lanes(array.dtype, n)(array, types.int64, width), codegen


@intrinsic
def store(typingctx, array, offset, lanes):
    """``array[offset : offset + width] = lanes``."""

    def codegen(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1], lanes.width)
        value = _to_memory(builder, array.dtype, arguments[2])
        builder.store(value, pointer).align = alignment(array.dtype)
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes), codegen


@intrinsic
def stream(typingctx, array, offset, lanes):
    """Non-temporal `store`: no line is read before it is overwritten. The address must start a cache line."""

    def codegen(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1], lanes.width)
        instruction = builder.store(_to_memory(builder, array.dtype, arguments[2]), pointer)
        instruction.align = min(64, lanes.width * item_size(array.dtype))
        hint = builder.module.add_metadata([ir.IntType(32)(1)])
        instruction.set_metadata("nontemporal", hint)
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes), codegen


@intrinsic(prefer_literal=True)
def load_some(typingctx, array, offset, count, width):
    """The first `count` of `width` lanes from ``array[offset:]``, zero in the others: the end of an array."""
    n = width_of(width)
    if n is None:
        return None

    def codegen(context, builder, signature, arguments):
        first = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1], n)
        memory = stack_slot(builder, first.type.pointee)
        builder.store(ir.Constant(first.type.pointee, None), memory)
        _copy_some(builder, array.dtype, first, memory, arguments[2])
        return _from_memory(builder, array.dtype, builder.load(memory))

    return Lanes(array.dtype, n)(array, types.int64, types.int64, width), codegen


@intrinsic
def store_some(typingctx, array, offset, count, lanes):
    """``array[offset : offset + count]`` = the first `count` lanes."""

    def codegen(context, builder, signature, arguments):
        first = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1], lanes.width)
        memory = stack_slot(builder, first.type.pointee)
        builder.store(_to_memory(builder, array.dtype, arguments[3]), memory)
        _copy_some(builder, array.dtype, memory, first, arguments[2])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, lanes), codegen


def _copy_some(builder: Any, dtype: Any, source: Any, target: Any, count: Any) -> None:
    if isinstance(dtype, types.Complex):
        count = builder.add(count, count)
    element = source.type.pointee.element.as_pointer()
    source, target = builder.bitcast(source, element), builder.bitcast(target, element)
    with counted(builder, count) as k:
        builder.store(builder.load(builder.gep(source, [k])), builder.gep(target, [k]))


def _prefetching(array, width, writes):
    """What `prefetch` and `prefetch_for_writing` return."""
    n = width_of(width)
    if n is None:
        return None
    n_bytes = n * item_size(array.dtype)

    def codegen(context, builder, signature, arguments):
        data = data_of(context, builder, signature.args[0], arguments[0])
        start = builder.gep(data, [arguments[1]])
        prefetched(builder, start, n_bytes, first_level=writes, writes=writes, least=32)
        return context.get_dummy_value()

    return types.void(array, types.int64, width), codegen


@intrinsic(prefer_literal=True)
def prefetch(typingctx, array, offset, width):
    """Prefetch ``array[offset : offset + width]`` into the second-level cache; no-op for less than half a line.

    The address may be invalid. A non-temporal hint halves the bandwidth of some processors.
    """
    return _prefetching(array, width, writes=False)


@intrinsic(prefer_literal=True)
def prefetch_for_writing(typingctx, array, offset, width):
    """As `prefetch`, into the first-level cache and away from other processors, which would delay a store."""
    return _prefetching(array, width, writes=True)


@intrinsic(prefer_literal=True)
def splat(typingctx, scalar, array, width):
    """Return lanes that all hold `scalar`, in the dtype of `array`."""
    n = width_of(width)
    if n is None:
        return None

    def codegen(context, builder, signature, arguments):
        return fill_lanes(builder, arguments[0], n)

    return Lanes(array.dtype, n)(array.dtype, array, width), codegen


@intrinsic(prefer_literal=True)
def zeros(typingctx, array, width):
    """Zero in every lane, in the dtype of `array`."""
    n = width_of(width)
    if n is None:
        return None

    def codegen(context, builder, signature, arguments):
        return ir.Constant(vector_of(context.get_value_type(array.dtype), n), None)

    return Lanes(array.dtype, n)(array, width), codegen


@intrinsic
def called(typingctx):
    """Disable inlining of the calling function, so that it is compiled once."""

    def codegen(context, builder, signature, arguments):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def select(typingctx, mask, a, b):
    """Lane by lane, `a` where `mask` holds and `b` elsewhere; one of them may be a number."""
    lanes = lanes_among((a, b))

    def codegen(context, builder, signature, arguments):
        chosen, *values = arguments
        if isinstance(lanes.dtype, types.Complex):
            chosen = complex_numbers.twice(builder, chosen)
        return builder.select(chosen, *values)

    return lanes(mask, lanes, lanes), codegen


@intrinsic
def sqrt(typingctx, a):
    """The square root of each lane, correctly rounded."""

    def codegen(context, builder, signature, arguments):
        return instruction(builder, "sqrt", arguments)

    return a(a), codegen


# --- operators
# Registered with the compiler's own tables: an overload would compile a small function for each pair of types.


def lanes_among(arguments: Any) -> Any:
    """The lanes type of an operator's operands; a plain number is broadcast to it."""
    lanes = {argument for argument in arguments if isinstance(argument, Lanes)}
    plain = all(isinstance(argument, Lanes | types.Number | types.Boolean) for argument in arguments)
    return lanes.pop() if len(lanes) == 1 and plain else None


OPERATORS: dict[Any, Any] = {}
"""What emits each operator on lanes: ``emit(builder, dtype, *values)``."""


def _operator(operation: Any, arity: int, emit: Any, gives_mask: bool = False) -> None:
    """Register `operation` on lanes: ``emit(builder, dtype, *values)`` emits it."""
    OPERATORS[operation] = emit

    def result(*operands: Any) -> Any:
        kind = lanes_among(operands)
        return None if kind is None else Lanes(types.boolean, kind.width) if gives_mask else kind

    typer: Any = (lambda a: result(a)) if arity == 1 else lambda a, b: result(a, b)  # the number is part of the type
    type_callable(operation)(lambda context: typer)

    def lower(context: Any, builder: Any, signed: Any, values: Any) -> Any:
        kind = lanes_among(signed.args)
        spread = [
            value if given is kind else _spread(context, builder, given, kind, value)
            for given, value in zip(signed.args, values, strict=True)
        ]
        return emit(builder, kind.dtype, *spread)

    for kinds in itertools.product((Lanes, types.Number, types.Boolean), repeat=arity):
        if Lanes in kinds:
            lower_builtin(operation, *kinds)(lower)


@lower_cast(types.Number, Lanes)
@lower_cast(types.Boolean, Lanes)
def _spread(context: Any, builder: Any, scalar: Any, lanes: Any, value: Any) -> Any:
    return fill_lanes(builder, context.cast(builder, value, scalar, lanes.dtype), lanes.width)


def _arithmetic(operation: Any, arity: int) -> None:
    def emit(builder: Any, dtype: Any, *values: Any) -> Any:
        if isinstance(dtype, types.Complex) and operation is operator.mul:
            return complex_numbers.product(builder, *values)
        if isinstance(dtype, types.Complex) and operation not in (operator.add, operator.sub, operator.neg):
            raise NotImplementedError(f"{operation.__name__} of complex lanes")
        return arithmetic(builder, operation, *values)

    _operator(operation, arity, emit)


def _comparison(operation: Any, symbol: str) -> None:
    def emit(builder: Any, dtype: Any, a: Any, b: Any) -> Any:
        if isinstance(dtype, types.Complex):
            return complex_numbers.compared(builder, symbol, a, b)
        return compared(builder, symbol, a, b, signed=dtype is not types.boolean)

    _operator(operation, 2, emit, gives_mask=True)


for _operation in ARITHMETIC:
    _arithmetic(_operation, 1 if _operation in (operator.neg, operator.invert) else 2)
for _operation, _symbol in COMPARISONS.items():
    _comparison(_operation, _symbol)


@intrinsic
def fence(typingctx):
    """Wait until the stores of `stream` have reached memory, before other threads read them."""

    def codegen(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


def library_call(builder: Any, name: str, arguments: Any) -> Any:
    """A call of the C library's function `name` of float64, kept out of line.

    LLVM may replace a known function by a vector library's of other rounding, in the vectorised part of a loop but not
    in its remainder: a value would depend on its position. An opaque call is the same function at every position.
    """
    double = ir.DoubleType()
    kind = ir.FunctionType(double, [double] * len(arguments))
    outer = declared(builder.module, kind, f"ensemble_{name}")
    if outer.is_declaration:
        outer.linkage = "internal"
        outer.attributes.add("noinline")
        inside = ir.IRBuilder(outer.append_basic_block())
        inside.ret(inside.call(declared(builder.module, kind, name), outer.args))
    return builder.call(outer, arguments)


def library_function(name: str, arity: int) -> Any:
    """The C library's function `name` of float64, for one number."""

    def codegen(context, builder, signature, arguments):
        return library_call(builder, name, arguments)

    if arity == 1:
        return intrinsic(lambda typingctx, x: (types.float64(types.float64), codegen))
    return intrinsic(lambda typingctx, x, y: (types.float64(types.float64, types.float64), codegen))
