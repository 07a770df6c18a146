"""Values of a TOML file, checked when read: messages name the file, the key and what was seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "flag", "indices", "names", "numbers", "periods", "positive", "read", "real", "rows", "spread", "table", "tables",
    "text", "whole",
]  # fmt: skip


def read(where: str, entries: dict[str, Any], name: str, kind: Callable[[Any], Any]) -> Any:
    """The value of `name`, converted by `kind`; the first line of a kind's docstring is its requirement.

    Raises
    ------
    ValueError
        If it is something else.
    """
    try:
        return kind(entries[name])
    except (TypeError, ValueError):
        requirement = (kind.__doc__ or "").splitlines()[0].rstrip(".")
        raise ValueError(f"{where}: {name} must be {requirement}; got {entries[name]!r}.") from None


def real(value: Any) -> float:
    """a finite number"""
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise TypeError
    return float(value)


def positive(value: Any) -> float:
    """a finite number above zero"""
    if not real(value) > 0.0:
        raise ValueError
    return float(value)


def whole(value: Any) -> int:
    """a whole number"""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def flag(value: Any) -> bool:
    """true or false"""
    if not isinstance(value, bool):
        raise TypeError
    return value


def text(value: Any) -> str:
    """a string"""
    if not isinstance(value, str):
        raise TypeError
    return value


def names(value: Any) -> tuple[str, ...]:
    """a list of strings"""
    if not isinstance(value, list):
        raise TypeError
    return tuple(text(part) for part in value)


def numbers(value: Any) -> Any:
    """a finite number, or a list of them"""
    return np.array([real(part) for part in value]) if isinstance(value, list) else real(value)


def rows(value: Any) -> np.ndarray:
    """a finite number, a list of them for a diagonal, or a square matrix as a list of rows"""
    if not (isinstance(value, list) and value and all(isinstance(row, list) for row in value)):
        return np.diag(np.atleast_1d(numbers(value)))
    found = [[real(part) for part in row] for row in value]
    if any(len(row) != len(found) for row in found):
        raise ValueError
    return np.array(found)


def spread(value: Any) -> Any:
    """a finite number, a list of them for a diagonal, or a square matrix as a list of rows"""
    return rows(value) if isinstance(value, list) else real(value)


def indices(value: Any) -> list[int]:
    """a coordinate, or a list of them, counted from 0"""
    found = [whole(part) for part in (value if isinstance(value, list) else [value])]
    if not found or min(found) < 0:
        raise ValueError
    return found


def periods(value: Any) -> tuple[float | None, ...]:
    """a list of numbers above zero, with "none" for a coordinate without a period"""
    if not isinstance(value, list):
        raise TypeError
    return tuple(None if part == "none" else positive(part) for part in value)


def table(value: Any) -> dict[str, Any]:
    """a table"""
    if not isinstance(value, dict):
        raise TypeError
    return value


def tables(value: Any) -> list[dict[str, Any]]:
    """tables, one for each measurement"""
    if not isinstance(value, list):
        raise TypeError
    return [table(part) for part in value]
