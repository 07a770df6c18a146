"""The words of the language of `plain_code.py`: kinds of arguments, functions that only it has, and constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from ensemble._compile.processor import register_bytes

__all__ = [
    "EPS",
    "LANES",
    "PART",
    "REGISTERS",
    "Function",
    "Indices",
    "Integers",
    "Numbers",
    "OfGroup",
    "Register",
    "Stored",
    "behind",
    "chosen",
    "fma",
    "integers_at",
    "load",
    "local_array",
    "numbers_at",
    "prefetch",
    "spread",
    "store",
]

Numbers = Any
"""A flat array of floating-point numbers."""

Stored = Any
"""A flat array of floating-point numbers of another type, maybe, read as `Numbers`; nothing is written to it."""

Integers = Any
"""A flat array of int64."""

Indices = Any
"""A flat array of int32, read as int64; nothing is written to it."""

Register = Any
"""A value in a register; as an argument of an entry, `Lanes`, whose width is that of all registers."""


def local_array(count: int) -> Numbers:
    """An array of so many numbers, a constant, that ends with the call of the function that it is made in."""
    raise NotImplementedError("local_array: only in functions of this language")


def numbers_at(address: int) -> Numbers:
    """The array of numbers that starts at an address; it owns nothing."""
    raise NotImplementedError("numbers_at: only in functions of this language")


def integers_at(address: int, bits: int) -> Integers:
    """The array of integers of 16, 32 or 64 bits, a constant, that starts at an address; nothing is written to it."""
    raise NotImplementedError("integers_at: only in functions of this language")


def behind(numbers: Numbers, count: int) -> Numbers:
    """The array of numbers that starts at entry `count` of another."""
    raise NotImplementedError("behind: only in functions of this language")


def fma(a: float, b: float, c: float) -> float:
    """``a b + c``, rounded once; of numbers, registers or both."""
    raise NotImplementedError("fma: only in functions of this language")


def spread(number: float) -> Any:
    """A register with this number in all lanes."""
    raise NotImplementedError("spread: only in functions of this language")


def load(numbers: Numbers, first: int) -> Any:
    """A register of the entries from `first` on."""
    raise NotImplementedError("load: only in functions of this language")


def chosen(condition: Any, a: Any, b: Any) -> Any:
    """A register with `a` in the lanes where a comparison of registers holds, and `b` in the others."""
    raise NotImplementedError("chosen: only in functions of this language")


def store(numbers: Numbers, first: int, register: Any) -> None:
    """Write a register to the entries from `first` on."""
    raise NotImplementedError("store: only in functions of this language")


def prefetch(numbers: Numbers, first: int, count: int = 0) -> None:
    """Start to load the cache lines of a register from entry `first` on; there need not be such an entry.

    With `count`, a constant, those of so many numbers, into the second-level cache: none for less than half a line.
    """
    raise NotImplementedError("prefetch: only in functions of this language")


class OfGroup:
    """A constant that depends on the type of numbers, the width of registers or the processor, by a function of these.

    The function takes the `Group` in which the constant is read.
    """

    def __init__(self, value: Callable[[Any], int | float]) -> None:
        self.value = value


LANES: Any = OfGroup(lambda group: group.lanes)
"""Numbers in a register; in functions that are `narrow`, in a register of the others."""

PART: Any = OfGroup(lambda group: group.part)
"""Numbers in a register of a function that is `narrow`."""

REGISTERS: Any = OfGroup(lambda group: 32 if register_bytes() == 64 else 16)
"""Vector registers of the processor."""

EPS: Any = OfGroup(lambda group: float(np.finfo(np.float64 if group.is_double else np.float32).eps))
"""The distance from one to the next number."""


class Function:
    """What functions of this language call.

    `arguments` have a name and a kind, ``int``, ``float``, ``bool``, ``Numbers``, ``Stored``, ``Integers``, ``Indices``
    or ``Register``; `returned` is a list of kinds, ``["None"]`` for nothing.
    """

    attribute = "noinline"
    """LLVM's inlining attribute of the function."""

    narrow = False
    """Whether its registers are those of the processor, where these hold less than the samples of an entry."""

    def __init__(self, name: str, arguments: list[tuple[str, str]], returned: list[str]) -> None:
        self.name, self.arguments, self.returned = name, arguments, returned

    def __call__(self, *arguments: Any) -> Any:
        raise NotImplementedError(f"{self.name}: only in functions of this language, or by `entry`")

    def write(self, group: Any, made: ir.Function) -> None:
        """The instructions, to the empty function `made`."""
        raise NotImplementedError
