"""Whether code that a run does not copy, such as methods and other packages, catches exceptions."""

from __future__ import annotations

import functools
import sys
from types import FunctionType, MethodType, ModuleType
from typing import Any

from ensemble._byte_code import enclosed, names_in
from ensemble.scalar.divergence.handler_code import catches
from ensemble.scalar.ensemble import Ensemble

__all__ = ["ARRAY_API_LIBRARIES", "catches_elsewhere", "package_of"]

ARRAY_API_LIBRARIES = frozenset((
    "array_api_compat", "array_api_extra", "array_api_strict", "cupy", "ensemble", "jax", "numpy", "scipy", "sklearn",
    "torch",
))  # fmt: skip
"""Packages whose functions test for types of arrays themselves: they are not copied."""

NOT_READ = ARRAY_API_LIBRARIES | sys.stdlib_module_names | {"numba", "llvmlite"}
"""Packages whose handlers are their own business: what they raise in the end reaches the user's code."""

MAX_VALUES, MAX_ENTRIES, MAX_DEPTH = 256, 64, 3


def catches_elsewhere(value: Any, names: frozenset[str], known: dict[int, Any], depth: int = MAX_DEPTH) -> bool:
    """Whether a function that `value` is or has has a handler; `names` are those that its user looks up in it.

    More than `MAX_VALUES` values are not read: then the result is True.
    """
    if len(known) > MAX_VALUES:
        return True
    if id(value) in known or isinstance(value, str | bytes | int | float | complex | None | Ensemble):
        return False
    known[id(value)] = value
    if isinstance(value, functools.partial | MethodType):
        owner = list(value.args) if isinstance(value, functools.partial) else value.__self__
        inner = value.func if isinstance(value, functools.partial) else value.__func__
        return catches_elsewhere(inner, names, known, depth) or catches_elsewhere(owner, names, known, depth)
    if isinstance(value, FunctionType):
        if package_of(value) in NOT_READ:
            return False
        return catches(value.__code__) or _any(_named_in(value), frozenset(names_in(value.__code__)), known, depth)
    if isinstance(value, ModuleType):
        if value.__name__.partition(".")[0] in NOT_READ:
            return False
        found = [part for name, part in list(vars(value).items()) if name in names]
        return _any(found, names, known, depth)
    if isinstance(value, list | tuple | set | frozenset):
        return _any(list(value)[:MAX_ENTRIES], names, known, depth - 1)
    if isinstance(value, dict):
        return _any(list(value.values())[:MAX_ENTRIES], names, known, depth - 1)
    kind = value if isinstance(value, type) else type(value)
    if _any_method_catches(kind, known, depth):
        return True
    parts = list(getattr(value, "__dict__", {}).values())[:MAX_ENTRIES] if kind is not value else []
    return _any(parts, names, known, depth - 1)


def package_of(value: Any) -> str:
    return (getattr(value, "__module__", None) or "").partition(".")[0]


def _any(values: list[Any], names: frozenset[str], known: dict[int, Any], depth: int) -> bool:
    return depth >= 0 and any(catches_elsewhere(value, names, known, depth) for value in values)


def _any_method_catches(kind: type, known: dict[int, Any], depth: int) -> bool:
    classes = [each for each in kind.__mro__ if package_of(each) not in NOT_READ]
    for each in classes:
        if id(each) in known and each is not kind:
            continue
        known[id(each)] = each
        for part in vars(each).values():
            function = part.fget if isinstance(part, property) else getattr(part, "__func__", part)
            if isinstance(function, FunctionType) and catches_elsewhere(function, frozenset(), known, depth):
                return True
    return False


def _named_in(f: FunctionType) -> list[Any]:
    """The values of the global names that `f` uses, and of its closure."""
    scope = f.__globals__
    named = [scope[name] for name in set(names_in(f.__code__)) if name in scope]
    return named + list(enclosed(f).values())
