"""Products, quotients and magnitudes of arrays that may be complex, with one rounding at every place.

NumPy contracts products of complex arrays in some of its loops and not in others, so that the bits of an entry depend
on the array's shape. Here they are made from real and imaginary parts; real arrays are NumPy's own.
"""

from __future__ import annotations

import numpy as np

from ensemble._backend import array_namespace, library_of
from ensemble._compile.kept_memory import empty_like
from ensemble._typing import Array

__all__ = ["complex_of", "conjugated", "is_complex", "magnitudes", "quotients", "real_parts", "times"]


def is_complex(array: Array) -> bool:
    """Whether an array holds complex numbers."""
    if isinstance(array, np.ndarray | np.generic):
        return array.dtype.kind == "c"
    return bool(array_namespace(array).isdtype(array.dtype, "complex floating"))


def complex_of(real: Array, imaginary: Array) -> Array:
    """The complex array of these parts."""
    if library_of(real) not in ("numpy", "cupy"):  # parts of an array are no views
        return real + 1j * imaginary
    made = empty_like(real, dtype=np.result_type(real.dtype, np.complex64))
    made.real, made.imag = real, imaginary
    return made


def real_parts(array: Array) -> Array:
    """The real parts; a real array itself."""
    return array_namespace(array).real(array) if is_complex(array) else array


def conjugated(array: Array) -> Array:
    """The complex conjugate; a real array itself."""
    return array_namespace(array).conj(array) if is_complex(array) else array


def times(a: Array, b: Array) -> Array:
    """``a * b``: of complex numbers ``(ac - bd, ad + bc)``."""
    if not (is_complex(a) and is_complex(b)):
        return _parts_by(a, b) if is_complex(a) else _parts_by(b, a) if is_complex(b) else a * b
    xp = array_namespace(a, b)
    (ar, ai), (br, bi) = ((xp.real(each), xp.imag(each)) for each in (a, b))
    return complex_of(ar * br - ai * bi, ar * bi + ai * br)


def _parts_by(number: Array, factor: Array) -> Array:
    """A complex array times a real one."""
    xp = array_namespace(number)
    return complex_of(xp.real(number) * factor, xp.imag(number) * factor)


def quotients(a: Array, b: Array) -> Array:
    """``a / b``: of complex numbers by the larger part of b, as complex lanes (Smith 1962)."""
    if not is_complex(b):
        return complex_of(a.real / b, a.imag / b) if is_complex(a) else a / b
    xp = array_namespace(b)
    by_real = xp.abs(b.real) >= xp.abs(b.imag)
    larger, smaller = xp.where(by_real, b.real, b.imag), xp.where(by_real, b.imag, b.real)
    ratio = smaller / larger
    scale = larger + smaller * ratio
    real = xp.where(by_real, a.real + a.imag * ratio, a.real * ratio + a.imag)
    imaginary = xp.where(by_real, a.imag - a.real * ratio, a.imag * ratio - a.real)
    return complex_of(real / scale, imaginary / scale)


def magnitudes(a: Array) -> Array:
    """``|a|`` without squares outside the range of numbers."""
    xp = array_namespace(a)
    if not is_complex(a):
        return xp.abs(a)
    larger = xp.maximum(xp.abs(a.real), xp.abs(a.imag))
    smaller = xp.minimum(xp.abs(a.real), xp.abs(a.imag))
    ratio = xp.where(larger > 0.0, smaller / larger, xp.zeros_like(larger))
    return larger * xp.sqrt(1.0 + ratio * ratio)
