"""Side effects of a function: outside variables compared before and after a call, as far as that takes little time."""

from __future__ import annotations

import collections
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._byte_code import enclosed, names_in
from ensemble._check import kind_of, message

__all__ = ["GENERATES", "changes", "refuse_generator", "refuse_lazy", "snapshot"]

SMALL = 4096
"""Arrays of up to so many entries are compared by their bytes; larger ones only by identity."""

GENERATES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

LAZY = (map, filter, zip, enumerate, reversed)

Snapshot = dict[str, tuple[Any, Any]]


def refuse_generator(f: Callable[..., Any]) -> None:
    """Raise for a generator function: its body runs after the call, when the samples are not grouped any more."""
    inner = f
    while isinstance(inner, functools.partial):
        inner = inner.func
    code = getattr(getattr(inner, "__func__", inner), "__code__", None)
    if code is not None and code.co_flags & GENERATES:
        raise TypeError(_text("a generator or coroutine function"))


def refuse_lazy(value: Any) -> None:
    """Raise for a lazy iterator that `f` returned."""
    if isinstance(value, LAZY) or inspect.isgenerator(value) or inspect.iscoroutine(value):
        raise TypeError(_text(kind_of(value)))


def _text(seen: str) -> str:
    advice = "Collect what it yields in a list: run(lambda *args: list(f(*args)), ...)."
    return message("run", "f", "finish its work before it returns", seen, advice)


def snapshot(f: Callable[..., Any]) -> Snapshot:
    """The outside variables that `f` can reach by name, each with a fingerprint of its content."""
    while isinstance(f, functools.partial):
        f = f.func
    seen: Snapshot = {}
    owner = getattr(f, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        seen |= {f"self.{name}": _fingerprint(value) for name, value in getattr(owner, "__dict__", {}).items()}
    f = inspect.unwrap(getattr(f, "__func__", f))
    code = getattr(f, "__code__", None)
    if code is None:
        return seen
    used = set(names_in(code))
    for name, value in f.__globals__.items():
        if not name.startswith("__"):
            seen[name] = _fingerprint(value) if name in used else (value, None)
    seen |= {name: _fingerprint(value) for name, value in enclosed(f).items()}
    return seen


def changes(before: Snapshot, after: Snapshot) -> list[str]:
    """The names that are bound to another value, or to one of other content, than before."""
    removed = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    other = [
        name
        for name in before.keys() & after.keys()
        if before[name][0] is not after[name][0] or before[name][1] != after[name][1]
    ]
    return sorted(removed + new + other)


def _fingerprint(value: Any) -> tuple[Any, Any]:
    if isinstance(value, list | dict | set | bytearray | collections.deque):
        return value, len(value)
    if isinstance(value, np.ndarray) and value.size <= SMALL and value.dtype.kind != "O":
        return value, value.tobytes()
    return value, None
