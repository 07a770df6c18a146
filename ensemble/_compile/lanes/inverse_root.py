"""An estimate of inverse square roots, by an instruction of AVX-512."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ensemble._compile.instructions import declared

__all__ = ["inverse_root_estimate"]


@intrinsic
def inverse_root_estimate(typingctx, a):
    """``1 / sqrt(a)`` of positive lanes with a relative error below 2**-14, by an instruction of AVX-512."""
    size = 8 if a.dtype is types.float64 else 16

    def codegen(context, builder, signature, arguments):
        (value,) = arguments
        register, mask = ir.VectorType(value.type.element, size), ir.IntType(size)
        kind = ir.FunctionType(register, [register, register, mask])
        name = f"llvm.x86.avx512.rsqrt14.{'pd' if size == 8 else 'ps'}.512"
        function = declared(builder.module, kind, name)

        def lanes(vector, first, count):  # lanes beyond the last are not used
            places = [min(first + k, vector.type.count - 1) for k in range(count)]
            index = ir.Constant(ir.VectorType(ir.IntType(32), count), places)
            return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), index)

        parts = [
            builder.call(function, [lanes(value, first, size), ir.Constant(register, None), ir.Constant(mask, -1)])
            for first in range(0, a.width, size)
        ]
        while len(parts) > 1:
            parts = [_joined(builder, *parts[k : k + 2]) for k in range(0, len(parts), 2)]
        return parts[0] if a.width >= size else lanes(parts[0], 0, a.width)

    return a(a), codegen


def _joined(builder: Any, a: Any, b: Any) -> Any:
    index = ir.Constant(ir.VectorType(ir.IntType(32), 2 * a.type.count), list(range(2 * a.type.count)))
    return builder.shuffle_vector(a, b, index)
