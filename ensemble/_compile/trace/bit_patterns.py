"""Numbers as bit patterns, of traced values and of arrays: for estimates that need no function of the library."""

from __future__ import annotations

from typing import Any

from ensemble._compile.trace.tracer import Traced

__all__ = ["bits", "from_bits", "high_word"]

INTEGERS = {"float64": "int64", "float32": "int32"}


def bits(x: Any) -> Any:
    """The bit pattern of floating-point numbers, as integers of the same size."""
    dtype = str(x.dtype)
    if isinstance(x, Traced):
        return x.internal("bits", INTEGERS[dtype])
    return x.view(INTEGERS[dtype])


def from_bits(i: Any) -> Any:
    """The floating-point numbers with these bit patterns."""
    dtype = {integer: real for real, integer in INTEGERS.items()}[str(i.dtype)]
    return i.internal("from_bits", dtype) if isinstance(i, Traced) else i.view(dtype)


def high_word(i: Any) -> Any:
    """The upper 32 bits of int64 numbers, taken as unsigned ones."""
    return i.internal("high_word", "int64") if isinstance(i, Traced) else (i.view("uint64") >> 32).view("int64")
