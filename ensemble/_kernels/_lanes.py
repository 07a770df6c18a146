"""`Lanes`: one SIMD register set as a value inside a compiled kernel.

LLVM keeps ``<width x float64>`` in registers and splits it to the machine's own width, so a row sum over 32 samples
needs no memory for its accumulators (a NumPy-style inner loop over samples stores and reloads them at every entry,
which costs half the bandwidth). Each lane obeys IEEE arithmetic by itself: the same bits as a scalar loop.

Inside a compiled function::

    total = zeros(values, WIDTH)
    total = total + load(values, offset, WIDTH) * splat(scalar, values, WIDTH)
    store(out, offset, total)

Arrays are flat; `offset` counts elements; WIDTH is a compile-time constant, or lanes whose width is meant.
``select(mask, a, b)`` picks lane by lane, comparisons of lanes give masks.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

__all__ = [
    "PREFETCH_BYTES",
    "Lanes",
    "fence",
    "library_function",
    "load",
    "prefetch",
    "select",
    "splat",
    "sqrt",
    "store",
    "straight_line",
    "stream",
    "zeros",
]

PREFETCH_BYTES = 8192
"""How far ahead of its use a stream of matrix values is asked for: the hardware's own prefetch stops at page ends."""


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
