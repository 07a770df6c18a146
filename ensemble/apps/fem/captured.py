"""What an integrand reads beside its arguments: a trace holds these values as constants."""

from __future__ import annotations

import types
from collections.abc import Hashable
from typing import Any

import numpy as np

__all__ = ["captured_values"]

LARGE = 4096
"""Bytes of an array, and entries of a list, from which on only its identity is compared."""


def captured_values(function: Any) -> Hashable:
    """The numbers, arrays and strings that `function` reads from closures and globals, its functions' values too."""
    return _values(function, (), frozenset())


def _values(value: Any, names: tuple[str, ...], seen: frozenset[int]) -> Hashable:
    if isinstance(value, int | float | complex | str | bytes | np.generic | None):
        return type(value).__name__, repr(value)
    if isinstance(value, types.ModuleType | type) or id(value) in seen:
        return id(value)
    seen |= {id(value)}
    if isinstance(value, np.ndarray) and value.nbytes <= LARGE and value.dtype.kind in "biufc":
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, list | tuple) and len(value) <= LARGE:
        return tuple(_values(entry, names, seen) for entry in value)
    if isinstance(value, dict) and len(value) <= LARGE:
        return tuple((str(key), _values(entry, names, seen)) for key, entry in value.items())
    if isinstance(value, types.MethodType):
        return _values(value.__func__, names, seen), _values(value.__self__, value.__func__.__code__.co_names, seen)
    if isinstance(value, types.FunctionType):
        return _of_function(value, seen)
    attributes = getattr(value, "__dict__", {})
    found = tuple((name, _values(attributes[name], names, seen)) for name in names if name in attributes)
    return id(value), found


def _of_function(function: types.FunctionType, seen: frozenset[int]) -> Hashable:
    """The code's identity, and what its names stand for now."""
    code, scope = function.__code__, function.__globals__
    if function.__module__.partition(".")[0] in ("ensemble", "numpy"):
        return id(function)
    found = [_values(scope[name], code.co_names, seen) for name in code.co_names if name in scope]
    for cell in function.__closure__ or ():
        try:
            found.append(_values(cell.cell_contents, code.co_names, seen))
        except ValueError:  # not bound yet
            found.append(None)
    found += [_values(default, code.co_names, seen) for default in function.__defaults__ or ()]
    return id(code), tuple(found)
