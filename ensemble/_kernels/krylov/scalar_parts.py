"""Arithmetic of single complex numbers in compiled code, as two real numbers each.

The bits are those of `sparse.complex_numbers` for arrays, and of real numbers where imaginary parts are zero.
"""

from __future__ import annotations

import numpy as np

from ensemble._compile.numba import inner

__all__ = ["as_parts", "magnitude", "product_parts", "quotient_parts"]


@inner(forceinline=True)
def product_parts(a, ai, b, bi):
    """Real and imaginary part of a product."""
    return a * b - ai * bi, a * bi + ai * b


@inner(forceinline=True)
def quotient_parts(a, ai, b, bi):
    """Real and imaginary part of ``a / b``, by the larger part of b (Smith 1962)."""
    if abs(b) >= abs(bi):
        ratio = bi / b
        scale, real, imaginary = b + bi * ratio, a + ai * ratio, ai - a * ratio
    else:
        ratio = b / bi
        scale, real, imaginary = bi + b * ratio, a * ratio + ai, ai * ratio - a
    return real / scale, imaginary / scale


@inner(forceinline=True)
def magnitude(a, ai):
    """The magnitude, without squares outside the range of numbers."""
    larger, smaller = abs(a), abs(ai)
    if larger < smaller:
        larger, smaller = abs(ai), abs(a)
    ratio = smaller / larger if larger > 0.0 else 0.0
    return larger * np.sqrt(1.0 + ratio * ratio)


def as_parts(array: np.ndarray) -> np.ndarray:
    """The same memory as real numbers, parts of a complex number beside each other in the last axis."""
    return array.view(array.real.dtype)
