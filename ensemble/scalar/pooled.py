"""Elementwise results in memory that is used again: fresh pages cost more than the arithmetic on them.

NumPy elides temporaries of expressions, which it cannot see behind an ensemble. With the memory of kernels for results,
the next operation of an expression writes where the last temporary was, which is still in the caches.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ensemble._compile.kept_memory import empty

__all__ = ["LARGE", "pooled"]

LARGE = 20_000
"""Numbers of float64 from which results are put into such memory: smaller arrays stay with the C library between
operations, and a piece of such memory costs 6 us (`benchmarks operators`)."""

EXACT = 2**53
"""Beyond it, NumPy may take an integer of Python for another type."""


@functools.cache
def _result_type(ufunc: Any, n_inputs: int) -> str:
    """The one type that `ufunc` makes of float64, or nothing."""
    if ufunc.nin != n_inputs or ufunc.nout != 1 or ufunc.signature is not None or ufunc is np.power:
        return ""
    found = [loop[-1] for loop in ufunc.types if loop[:-1] == "d" * n_inputs + "->"]
    return found[0] if found and found[0] in "d?" else ""


def pooled(ufunc: Any, *operands: Any) -> np.ndarray | None:
    """``ufunc(*operands)`` of float64 in the order of rows, in such memory; None for what is left to NumPy."""
    kind = _result_type(ufunc, len(operands))
    if not kind:
        return None
    shape: tuple[int, ...] | None = None
    for x in operands:
        if type(x) is np.ndarray:
            if x.dtype.char != "d" or not x.flags.c_contiguous:
                return None
            if shape is None:
                shape = x.shape
            elif x.shape != shape:
                try:
                    shape = np.broadcast_shapes(shape, x.shape)
                except ValueError:
                    return None
        elif type(x) is not float and (type(x) is not int or not -EXACT <= x <= EXACT):
            return None
    if shape is None:
        return None
    result: np.ndarray = ufunc(*operands, out=empty(shape, kind))
    return result
