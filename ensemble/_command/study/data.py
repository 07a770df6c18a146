"""Inputs of a TOML file that are observed numbers, and bounds of distributions."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from ensemble import uq
from ensemble._command.shared import toml_values as kinds
from ensemble._command.shared.sources import located, reject_unknown
from ensemble._command.shared.toml_values import read

__all__ = ["bounds", "data_of"]


def bounds(value: Any) -> tuple[float, float]:
    """a list of two numbers, the smaller one first; -inf and inf are no bound"""
    if not isinstance(value, list) or len(value) != 2:
        raise TypeError
    ends = tuple(float(end) if end in (-np.inf, np.inf) else float(kinds.numbers(end)) for end in value)
    if not ends[0] < ends[1]:
        raise ValueError
    return ends[0], ends[1]


def numbers_or_file(value: Any) -> Any:
    """a list of numbers, or the name of a CSV file"""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise TypeError
    return kinds.numbers(value)


def data_of(where: str, entry: dict[str, Any], folder: Path) -> Any:
    """The distribution of observed numbers: ``{data = "loads.csv", column = "load", truncate = [0.0, 2.0]}``."""
    reject_unknown(where, entry, {"data", "column", "truncate"})
    given = read(where, entry, "data", numbers_or_file)
    if isinstance(given, str):
        column = read(where, entry, "column", kinds.text) if "column" in entry else None
        values = column_of(where, folder / given, column)
    else:
        if "column" in entry:
            raise ValueError(f"{where}: column must go with the name of a file; got a list of numbers.")
        values = np.asarray(given)
    if "truncate" in entry:
        low, high = read(where, entry, "truncate", bounds)
        inside = values[(values >= low) & (values <= high)]
        if not inside.size:
            seen = f"{values.size} numbers from {values.min():g} to {values.max():g}"
            raise ValueError(f"{where}: truncate must leave a number between {low:g} and {high:g}; got {seen}.")
        values = inside
    return located(where, lambda: uq.empirical(values))


def column_of(where: str, path: Path, column: str | None) -> np.ndarray:
    """The numbers of one column of a CSV file, by its name in the first line; without a name the only column."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{where}: data must be a CSV file that can be read; got {str(path)!r} ({why}).") from None
    if not rows:
        raise ValueError(f"{where}: data must have numbers; got the empty file {str(path)!r}.")
    names = [cell.strip() for cell in rows[0]]
    if column is None and len(names) > 1:
        raise ValueError(
            f"{where}: column must name one of the columns of {str(path)!r}; got none of {', '.join(names)}."
        )
    if column is not None and column not in names:
        raise ValueError(f"{where}: column must be one of {', '.join(names)} in {str(path)!r}; got {column!r}.")
    place = 0 if column is None else names.index(column)
    first = 1 if column is not None or not is_number(names[0]) else 0
    found = []
    for k, row in enumerate(rows[first:], first + 1):
        text = row[place].strip() if place < len(row) else ""
        if not is_number(text):
            seen = f"{text!r} in row {k} of {str(path)!r}"
            raise ValueError(f"{where}: data must hold finite numbers; got {seen}. Leave out rows without a number.")
        found.append(float(text))
    if not found:
        raise ValueError(f"{where}: data must have numbers; got none below the names of {str(path)!r}.")
    return np.array(found)


def is_number(text: str) -> bool:
    """Whether a cell is a finite number."""
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
