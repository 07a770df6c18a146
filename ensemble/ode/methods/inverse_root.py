"""Roots of positive numbers without functions of the library: for step lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._compile.trace.bit_patterns import bits, from_bits
from ensemble._typing import Namespace

__all__ = ["inverse_root"]


def inverse_root(x: Any, m: int, xp: Namespace) -> Any:
    """``x**(-1 / m)`` to about 1e-3, for positive `x`: an estimate from the bit pattern, improved by Newton steps.

    The logarithm of the estimate errs by 0.06 / m at most: one step suffices from m = 4 on.

    Only additions and products: the same bits on every processor.
    """
    real = np.finfo(str(x.dtype))
    one = int(np.asarray(1.0, dtype=real.dtype).view(f"int{real.bits}"))
    pattern = xp.astype(bits(x), x.dtype)
    estimate = (1.0 + 1.0 / m) * one - pattern * (1.0 / m)
    y = from_bits(xp.astype(estimate, getattr(xp, f"int{real.bits}")))
    for _ in range(1 if m >= 4 else 2):
        y = y * ((m + 1) / m - (x * (1.0 / m)) * _power(y, m))
    return y


def _power(x: Any, m: int) -> Any:
    """``x**m`` by repeated squaring."""
    result, square = None, x
    while m:
        if m & 1:
            result = square if result is None else result * square
        m >>= 1
        square = square * square if m else square
    return result
