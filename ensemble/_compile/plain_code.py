"""Functions of integers, numbers and flat arrays, written to LLVM as they stand, in one module with their caller.

Numba infers the types of each function, optimises it, translates it to machine code, and does the last two again in
each caller of it, and in theirs. A group of small functions costs ten seconds so. Here types are declared, and all
functions of a group are translated together, once.

    @plain
    def total(w: Numbers, first: int, count: int) -> float:
        ...

    sum_of = entry(total)  # for functions that Numba compiles: sum_of(w, first, count)

The language is a part of Python's: names, numbers, ``w[i]`` with ``i >= 0``, arithmetic, comparisons, ``and``, ``or``,
``not``, ``a if c else b``, assignments, ``if``, ``while``, ``for`` over ranges with a constant step, ``break``,
``continue``, ``return``, and calls of `Function`, ``min``, ``max``, ``abs``, ``int``, ``float``, ``math.sqrt``,
``np.isnan``, `local_array`, `numbers_at`, `integers_at`, `behind`, `fma`, `spread`, `load`, `store`, `chosen` and
`prefetch`.
A variable has the type of its first value; ``int`` is an int64, ``float`` the type of the numbers in `Numbers`. A
register holds as many of them as fill `ROW_BYTES`, or as the `Register` that the entry is given, but in a function that
is `narrow` no more than one of the processor's; a number beside a register is broadcast to its lanes. Division of
integers by ``//`` and ``%`` is that of numbers that are not negative. Nothing is reassociated or contracted. Indices
are not checked.

The words stand in `plain_language.py`, the translation in `plain_translation.py`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ensemble._compile.instructions import unpacked
from ensemble._compile.lanes.types import data_of
from ensemble._compile.plain_language import (
    EPS,
    LANES,
    PART,
    REGISTERS,
    Function,
    Indices,
    Integers,
    Numbers,
    Register,
    Stored,
    behind,
    chosen,
    fma,
    integers_at,
    load,
    local_array,
    numbers_at,
    prefetch,
    spread,
    store,
)
from ensemble._compile.plain_translation import Body, Group

__all__ = [
    "EPS",
    "LANES",
    "PART",
    "REGISTERS",
    "Function",
    "Group",
    "Indices",
    "Integers",
    "Numbers",
    "PlainText",
    "Register",
    "Stored",
    "behind",
    "chosen",
    "entry",
    "fma",
    "inlined",
    "integers_at",
    "load",
    "local_array",
    "module_text",
    "narrow",
    "numbers_at",
    "plain",
    "prefetch",
    "rolled",
    "spread",
    "store",
]


class Plain(Function):
    """A function of this language: its statements, and the names in its scope."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name, self.function = function.__name__, function
        self.names: Mapping[str, Any] = ChainMap(dict(inspect.getclosurevars(function).nonlocals), function.__globals__)
        self.rolled = False
        self.body: list[ast.stmt]

    def __getattr__(self, name: str) -> Any:
        """`arguments`, `returned` and `body`: read from the source when a function is translated, not when defined."""
        if name not in ("arguments", "returned", "body"):
            raise AttributeError(name)
        tree: Any = ast.parse(self.text()).body[0]
        several: Any = getattr(tree.returns, "slice", None)
        parts = several.elts if several else [tree.returns]
        self.arguments = [(a.arg, ast.unparse(a.annotation)) for a in tree.args.args]
        self.returned, self.body = [ast.unparse(part) for part in parts], tree.body
        return self.__dict__[name]

    def text(self) -> str:
        """The source."""
        return textwrap.dedent(inspect.getsource(self.function))

    def write(self, group: Group, made: ir.Function) -> None:
        Body(group, self, made).write()


class PlainText(Plain):
    """A function of this language by its name, its source text and the names in its scope."""

    def __init__(self, name: str, source: str, names: Mapping[str, Any]) -> None:
        self.name, self.source, self.names, self.rolled = name, source, names, False

    def text(self) -> str:
        return self.source


def plain(function: Callable[..., Any]) -> Any:
    """A function that is translated with the function it is called from."""
    return Plain(function)


def rolled(function: Callable[..., Any]) -> Any:
    """Like `plain`, for loops of few rounds: LLVM neither unrolls nor vectorises them, which takes it long."""
    made = Plain(function)
    made.rolled = True
    return made


def inlined(function: Callable[..., Any]) -> Any:
    """Make a function as `plain` does, whose code is copied into its callers: for short ones and single callers."""
    made = Plain(function)
    made.attribute = "alwaysinline"
    return made


def narrow(function: Callable[..., Any]) -> Any:
    """Like `plain`, for loops that need most registers: theirs hold `PART` numbers, no more than the processor's."""
    made = Plain(function)
    made.narrow = True
    return made


def entry(function: Function, dtype: str | None = None) -> Any:
    """`function` for callers that Numba compiles; numbers are of `dtype`, or of the type of its first array of them."""

    @intrinsic
    def call(typingctx, *arguments):
        names = [kind for _, kind in function.arguments]
        given = dict(zip(names, arguments, strict=True))
        number = given["Numbers"].dtype if dtype is None else getattr(types, dtype)
        kinds = {"int": types.int64, "float": number, "bool": types.boolean}
        entries = {"Integers": types.int64, "Indices": types.int32, "Numbers": number}
        for (argument, kind), array in zip(function.arguments, arguments, strict=True):
            if kind in entries and array.dtype != entries[kind]:
                raise TypeError(f"{function.name}: {argument} must hold {entries[kind]}; got {array}.")
        lanes = given.get("Register")
        wanted = [kinds.get(kind, argument) for kind, argument in zip(names, arguments, strict=True)]

        def codegen(context, builder, signature, values):
            parts = unpacked(builder, values[0])
            plain_values = [
                data_of(context, builder, kind, part) if isinstance(kind, types.Array) else part
                for kind, part in zip(wanted, parts, strict=True)
            ]
            width = None if lanes is None else lanes.width
            stored = context.get_value_type(given["Stored"].dtype) if "Stored" in given else None
            written = Group(builder.module, context.get_value_type(number), width, stored=stored).function(function)
            result = builder.call(written, plain_values)
            return context.get_dummy_value() if function.returned == ["None"] else result

        (returned,) = function.returned
        return kinds.get(returned, types.void)(types.StarArgTuple(wanted)), codegen

    return call


def module_text(function: Function, width: int) -> str:
    """A module in LLVM's assembly with `function`, called from outside; a register holds `width` float64."""
    group = Group(ir.Module(), ir.DoubleType(), width)
    group.function(function).linkage = ""
    return str(group.module)
