"""Nested containers of values: their parts, and containers of the same type made of other parts."""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable
from typing import Any

from ensemble._check import message

__all__ = ["Attribute", "filled", "mapped", "parts_of"]

PLAIN = (dict, list, tuple)


@dataclasses.dataclass(frozen=True)
class Attribute:
    """The key of a part that is an attribute of its container, not an entry."""

    name: str


def parts_of(value: Any) -> dict[Any, Any] | None:
    """The parts of a dict, list, tuple or dataclass by their keys, attributes included; None for anything else.

    The methods of the three types themselves are called, whatever a subclass makes of them.
    """
    kind = type(value)
    parts: dict[Any, Any]
    if kind is dict:
        parts = value
        return parts
    if kind is list or kind is tuple:
        return dict(enumerate(value))
    if isinstance(value, dict):
        parts = {key: dict.__getitem__(value, key) for key in dict.keys(value)}
    elif isinstance(value, list):
        parts = dict(enumerate(list.__iter__(value)))
    elif isinstance(value, tuple):
        parts = dict(enumerate(tuple.__iter__(value)))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {}
    else:
        return None
    return parts | {Attribute(name): part for name, part in _attributes(value).items()}


def _attributes(value: Any) -> dict[str, Any]:
    """What the object holds beside its entries: in its ``__dict__`` and in slots."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            private = f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and name[-2:] != "__" else name
            if name not in ("__dict__", "__weakref__") and hasattr(value, private):
                found[private] = getattr(value, private)
    return found


def filled(value: Any, parts: list[Any]) -> Any:
    """A container of the type of `value` that holds `parts`, in the order of ``parts_of(value)``.

    No constructor of a subclass is called: one with arguments of its own would take the parts for something else.

    Raises
    ------
    TypeError
        If an object of that type cannot be made without its constructor.
    """
    kind = type(value)
    if kind is dict:
        return dict(zip(value, parts, strict=True))
    if kind is list or kind is tuple:
        return kind(parts)
    found = dict(zip(parts_of(value) or {}, parts, strict=True))
    entries = {key: part for key, part in found.items() if type(key) is not Attribute}
    try:
        new = _holding(value, kind, entries)
        for key, part in found.items():
            if type(key) is Attribute:
                object.__setattr__(new, key.name, part)
    except (TypeError, AttributeError) as error:
        seen = f"a {kind.__module__}.{kind.__qualname__}, of which no other can be made ({error})"
        advice = "Use a dict, list, tuple, namedtuple or dataclass."
        raise TypeError(
            message("ensemble", "a container of ensembles", "be one that can be copied", seen, advice)
        ) from None
    return new


def _holding(value: Any, kind: type, entries: dict[Any, Any]) -> Any:
    if isinstance(value, tuple):
        constructor: Any = kind.__new__
        of_c = not isinstance(constructor, types.FunctionType) and constructor is not tuple.__new__
        return kind(entries.values()) if of_c else tuple.__new__(kind, entries.values())  # as time.struct_time
    if isinstance(value, list):
        rows: list[Any] = list.__new__(kind)
        list.extend(rows, entries.values())
        return rows
    if isinstance(value, collections.OrderedDict):
        ordered: Any = collections.OrderedDict.__new__(kind)
        for key, part in entries.items():
            collections.OrderedDict.__setitem__(ordered, key, part)
        return ordered
    if isinstance(value, collections.defaultdict):
        filling: Any = collections.defaultdict.__new__(kind)
        collections.defaultdict.__init__(filling, value.default_factory)
        dict.update(filling, entries)
        return filling
    if isinstance(value, dict):
        named: Any = dict.__new__(kind)
        dict.update(named, entries)
        return named
    return object.__new__(kind)


def mapped(f: Callable[[Any], Any], value: Any) -> Any:
    """`f` of every value in nested containers."""
    parts = parts_of(value)
    if parts is None:
        return f(value)
    others = [mapped(f, part) for part in parts.values()]
    try:
        return filled(value, others)
    except TypeError:
        if all(other is part for other, part in zip(others, parts.values(), strict=True)):
            return value  # as sys.version_info: nothing in it was to be replaced
        raise
