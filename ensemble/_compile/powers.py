"""Powers of two in compiled code, without a call of the mathematical library: as `numpy.frexp` and `numpy.ldexp`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["exponent_of", "times_power_of_two"]

I64, DOUBLE = ir.IntType(64), ir.DoubleType()

MANTISSA, BIAS, FIELD = 52, 1023, 0x7FF
"""Bits of the fraction of a float64, what is added to its exponent, and the bits of that."""

SMALL_POWER = 60
"""Numbers without a leading one have it after a product with two to this power."""

MOST = 2200
"""An exponent beyond which every product overflows, or vanishes."""


@intrinsic
def exponent_of(typingctx: Any, value: Any) -> Any:
    """The exponent of the largest power of two that is at most a positive finite number."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = builder.fpext(arguments[0], DOUBLE) if value is types.float32 else arguments[0]
        raised = builder.fmul(wide, ir.Constant(DOUBLE, 2.0**SMALL_POWER))
        normal = builder.fcmp_ordered(">=", wide, ir.Constant(DOUBLE, 2.0 ** (1 - BIAS)))
        word = builder.bitcast(builder.select(normal, wide, raised), I64)
        field = builder.and_(builder.lshr(word, I64(MANTISSA)), I64(FIELD))
        return builder.sub(field, builder.select(normal, I64(BIAS), I64(BIAS + SMALL_POWER)))

    return types.int64(value), codegen


@intrinsic
def times_power_of_two(typingctx: Any, value: Any, exponent: Any) -> Any:
    """A power of two, or zero, times another: rounded once where the result has no leading one."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, power = arguments
        wide = builder.fpext(number, DOUBLE) if value is types.float32 else number
        low, high = I64(-MOST), I64(MOST)
        power = builder.select(builder.icmp_signed("<", power, low), low, power)
        power = builder.select(builder.icmp_signed(">", power, high), high, power)
        for part in (3, 2, 1):  # each factor is a number with a leading one; no product leaves the range before its end
            share = builder.sdiv(power, I64(part))
            power = builder.sub(power, share)
            factor = builder.shl(builder.add(share, I64(BIAS)), I64(MANTISSA))
            wide = builder.fmul(wide, builder.bitcast(factor, DOUBLE))
        return builder.fptrunc(wide, ir.FloatType()) if value is types.float32 else wide

    return value(value, types.int64), codegen
