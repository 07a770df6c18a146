"""Complex lanes in LLVM: real and imaginary parts in turn, in registers as in memory.

A product is that of the textbook, ``(ac - bd, ad + bc)``, each operation rounded: its bits depend neither on the width
nor on the lane.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ensemble._compile import instructions

__all__ = [
    "compared", "conjugate_product", "conjugated", "fill", "is_pair", "product", "quotient", "twice", "vector_of"
]  # fmt: skip

I32 = ir.IntType(32)


def is_pair(element: Any) -> bool:
    """Whether LLVM's type `element` is that of a complex number, a pair of parts."""
    return isinstance(element, ir.LiteralStructType)


def vector_of(element: Any, width: int) -> ir.VectorType:
    """LLVM's type of `width` lanes of `element`."""
    return ir.VectorType(element.elements[0], 2 * width) if is_pair(element) else ir.VectorType(element, width)


def shuffled(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    """Entries of `a`, and behind them of `b`, at the places named."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(places)), places))


def fill(builder: Any, scalar: Any, width: int) -> Any:
    """A complex number in every lane."""
    vector = vector_of(scalar.type, width)
    pair = ir.Constant(ir.VectorType(vector.element, 2), ir.Undefined)
    for k in range(2):
        pair = builder.insert_element(pair, builder.extract_value(scalar, k), I32(k))
    return shuffled(builder, pair, ir.Constant(pair.type, ir.Undefined), [0, 1] * width)


def _blended(builder: Any, even: Any, odd: Any) -> Any:
    """Real parts of `even`, imaginary parts of `odd`."""
    count = even.type.count
    return shuffled(builder, even, odd, [k + count * (k % 2) for k in range(count)])


def _negated(builder: Any, a: Any, imaginary: bool) -> Any:
    """The number with its imaginary part, or else its real part, negated, by one instruction on the signs."""
    bits = 64 if isinstance(a.type.element, ir.DoubleType) else 32
    whole = ir.VectorType(ir.IntType(bits), a.type.count)
    signs = ir.Constant(whole, [(1 << (bits - 1)) * (k % 2 == imaginary) for k in range(a.type.count)])
    return builder.bitcast(builder.xor(builder.bitcast(a, whole), signs), a.type)


def product(builder: Any, a: Any, b: Any) -> Any:
    """``a * b``. What is made of `a` alone leaves a loop in which it stays the same."""
    count, nothing = a.type.count, ir.Constant(a.type, ir.Undefined)
    real = shuffled(builder, a, nothing, [k - k % 2 for k in range(count)])
    imaginary = shuffled(builder, a, nothing, [k - k % 2 + 1 for k in range(count)])
    swapped = shuffled(builder, b, nothing, [k + 1 - 2 * (k % 2) for k in range(count)])
    crossed = builder.fmul(_negated(builder, imaginary, False), swapped)
    return builder.fadd(builder.fmul(real, b), crossed)


def conjugate_product(builder: Any, a: Any, b: Any) -> Any:
    """``conj(a) * b``, the bits of that product. What is made of `b` alone leaves a loop in which it stays the same."""
    count, nothing = a.type.count, ir.Constant(a.type, ir.Undefined)
    real = shuffled(builder, b, nothing, [k - k % 2 for k in range(count)])
    imaginary = shuffled(builder, b, nothing, [k - k % 2 + 1 for k in range(count)])
    swapped = shuffled(builder, a, nothing, [k + 1 - 2 * (k % 2) for k in range(count)])
    return builder.fadd(builder.fmul(a, _negated(builder, real, True)), builder.fmul(swapped, imaginary))


def quotient(builder: Any, a: Any, b: Any) -> Any:
    """``a / b``, by the larger part of b (Smith 1962): no square of a part leaves the range of numbers."""
    count, nothing = a.type.count, ir.Constant(a.type, ir.Undefined)
    real = shuffled(builder, b, nothing, [k - k % 2 for k in range(count)])
    imaginary = shuffled(builder, b, nothing, [k - k % 2 + 1 for k in range(count)])
    first, second = (_magnitude(builder, part) for part in (real, imaginary))
    by_real = builder.fcmp_ordered(">=", first, second)
    larger, smaller = builder.select(by_real, real, imaginary), builder.select(by_real, imaginary, real)
    ratio = builder.fdiv(smaller, larger)
    scale = builder.fadd(larger, builder.fmul(smaller, ratio))
    swapped = shuffled(builder, a, nothing, [k + 1 - 2 * (k % 2) for k in range(count)])
    # by a large real part (a + b r, b - a r), by a large imaginary part (a r + b, b r - a)
    direct = builder.select(by_real, a, builder.fmul(a, ratio))
    crossed = builder.select(by_real, builder.fmul(swapped, ratio), swapped)
    parts = _blended(builder, builder.fadd(direct, crossed), builder.fsub(direct, crossed))
    return builder.fdiv(parts, scale)


def _magnitude(builder: Any, a: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, ir.Constant(a.type, None)), builder.fneg(a), a)


def conjugated(builder: Any, a: Any) -> Any:
    """The complex conjugate."""
    return _negated(builder, a, True)


def twice(builder: Any, mask: Any) -> Any:
    """A mask of lanes as one of their parts."""
    nothing = ir.Constant(mask.type, ir.Undefined)
    return shuffled(builder, mask, nothing, [k // 2 for k in range(2 * mask.type.count)])


def compared(builder: Any, symbol: str, a: Any, b: Any) -> Any:
    """Which lanes are equal (``==``) or not (``!=``); NaN is equal to nothing."""
    parts = instructions.compared(builder, symbol, a, b)
    nothing = ir.Constant(parts.type, ir.Undefined)
    real, imaginary = (shuffled(builder, parts, nothing, list(range(k, a.type.count, 2))) for k in range(2))
    return (builder.or_ if symbol == "!=" else builder.and_)(real, imaginary)
