"""Linear interpolation in tables, for one number and on lanes, with the bits of `numpy.interp`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ensemble._compile.numba import inner

__all__ = ["interpolated", "interpolated_lanes"]


@inner
def interpolated(x, points, values):
    """The value at `x` of the lines between ``values`` at ascending ``points``; constant outside them."""
    last = points.size - 1
    if not x > points[0]:
        return values[0] if x == x else x
    if x >= points[last]:
        return values[last]
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        if points[middle] <= x:
            low = middle
        else:
            high = middle
    slope = (values[low + 1] - values[low]) / (points[low + 1] - points[low])
    return slope * (x - points[low]) + values[low]


def _interpolate_one(x, points, values):
    return interpolated(x, points, values)


@intrinsic
def interpolated_lanes(typingctx, x, points, values):
    """`interpolated` of each lane, one by one: the branches of a search differ between lanes."""

    def codegen(context, builder, signature, arguments):
        lanes, *tables = arguments
        one: Any = types.float64(types.float64, points, values)
        result = lanes
        for k in range(x.width):
            place = ir.IntType(32)(k)
            number = builder.extract_element(lanes, place)
            found = context.compile_internal(builder, _interpolate_one, one, [number, *tables])
            result = builder.insert_element(result, found, place)
        return result

    return x(x, points, values), codegen
