"""Arrays that compiled functions allocate, without a function of Numba's for each type of them.

Numba compiles `np.empty`, `np.zeros` and `np.full` as functions of their own for every type and every way of naming
it, 0.04 to 0.13 s each, again in every process. Here the call of the allocator becomes part of the caller.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from ensemble._compile.numba_private import found

__all__ = ["new", "new_full"]


@intrinsic
def _part_of_caller(typingctx, n, dtype):
    """``np.empty(n, dtype)``."""
    made = types.Array(dtype.dtype, 1, "C")

    def codegen(context, builder, signature, arguments):
        size = context.cast(builder, arguments[0], n, types.intp)
        return found("empty_array")(context, builder, made, [size])._getvalue()

    return made(n, dtype), codegen


@njit(inline="always", error_model="numpy")
def _called(n, dtype):
    return np.empty(n, dtype)


new = _called if found("empty_array") is None else _part_of_caller
"""``new(n, dtype)``: ``np.empty(n, dtype)``."""


@njit(inline="always", error_model="numpy")
def new_full(n, value, dtype):
    """``np.full(n, value, dtype)``."""
    array = new(n, dtype)
    for i in range(array.size):
        array[i] = value
    return array
