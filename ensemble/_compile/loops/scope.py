"""Names and values of a function whose loop is translated, and its syntax tree."""

from __future__ import annotations

import ast
import builtins
import functools
import linecache
import textwrap
from collections.abc import Callable
from typing import Any

from llvmlite import ir

__all__ = ["Scope", "Span", "TranslationError", "Value", "is_constant", "source_of"]


class TranslationError(Exception):
    """A statement or an operation that is not in this language."""


class Value:
    """A value of the program that runs: its type, Numba's, and LLVM's value."""

    __slots__ = ("kind", "made", "natural", "parts")

    def __init__(self, kind: Any, made: Any, natural: bool = False) -> None:
        self.kind, self.made = kind, made
        self.parts: tuple[Any, list[Any], Any] | None = None
        """Address, extents and size of an array."""
        self.natural = natural
        """Whether it is known not to be negative: an index needs no test then."""


class Span(tuple[Any, ...]):
    """The entries of ``range``: first, last, step."""

    __slots__ = ()


@functools.cache
def source_of(code: Any) -> ast.FunctionDef:
    """The syntax tree of a function, from its first decorator on, with the file's line numbers."""
    last = max(place[1] or 0 for place in code.co_positions())
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 : last]
    tree = ast.parse(textwrap.dedent("".join(lines)))
    if not tree.body:
        raise OSError(
            f"{code.co_name}: no source in {code.co_filename}; a function that is compiled must be in a file."
        )
    function = ast.increment_lineno(tree, code.co_firstlineno - 1).body[0]
    assert isinstance(function, ast.FunctionDef)
    return function


@functools.cache
def _variables(code: Any) -> frozenset[str]:
    """Names that a function gives more than one value."""
    tree = source_of(code)
    seen = {each.arg: 1 for each in tree.args.args}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            seen[node.id] = seen.get(node.id, 0) + 1
    return frozenset(name for name, count in seen.items() if count > 1)


def _names_of(function: Any) -> Callable[[str], Any]:
    """What a name means in the scope of a function."""
    free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def look_up(name: str) -> Any:
        if name in free:
            return free[name].cell_contents
        if name in function.__globals__:
            return function.__globals__[name]
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise TranslationError(f"unknown name {name}")

    return look_up


def is_constant(value: Any) -> bool:
    return not isinstance(value, Value) and not (isinstance(value, tuple) and not all(map(is_constant, value)))


class Scope:
    """The variables of one function whose statements are translated."""

    def __init__(self, function: Any) -> None:
        self.names = _names_of(function)
        self.variables = _variables(function.__code__)
        self.values: dict[str, Any] = {}
        """Constants, arrays and tuples, by name."""
        self.places: dict[str, tuple[Any, Any]] = {}
        """The type and the stack slot of each other variable."""
        self.tuples: dict[str, tuple[str, ...]] = {}
        """Names of the entries of tuples that are assigned several times."""
        self.natural: set[str] = set()
        """Variables that are not negative: counters."""
        self.end: Any = None
        """The block behind the statements of a called function."""
        self.returned: list[tuple[Any, ir.Block]] = []
        """What it returns, and the blocks in which."""
