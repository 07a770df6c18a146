"""Coordinates and units of outputs: of a TOML file, of the model's Python file, and of options."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ensemble import uq
from ensemble._command.shared import toml_values as kinds
from ensemble._command.shared.sources import located, reject_unknown
from ensemble._command.shared.toml_values import read

__all__ = ["outputs_from_options", "outputs_from_table", "outputs_of_study"]

RANGE = {"start", "stop", "count"}


def entries(value: Any) -> Any:
    """a list of numbers, texts or dates, or a table with start, stop and count"""
    if not isinstance(value, list):
        raise TypeError
    return value


def count(value: Any) -> int:
    """a whole number of at least 2"""
    if kinds.whole(value) < 2:
        raise ValueError
    return int(value)


def outputs_from_table(where: str, table: dict[str, Any]) -> uq.Outputs:
    """The table ``[outputs]`` of a TOML file: coordinates by the name of an axis, ``units`` and ``axes``.

    Raises
    ------
    ValueError
        If a value is not what its key needs.
    """
    units = read(where, {"units": {}, **table}, "units", kinds.table)
    given = read(where, {"axes": {}, **table}, "axes", kinds.table)
    listed = {name: read(f"{where}: axes", given, name, kinds.names) for name in given}
    axes = {name: [None if one == "none" else one for one in names] for name, names in listed.items()}
    coordinates = {name: one_axis(where, table, name) for name in table if name not in ("units", "axes")}
    texts = {name: read(f"{where}: units", units, name, kinds.text) for name in units}
    return located(where, lambda: uq.Outputs(coordinates, axes=axes, units=texts))


def one_axis(where: str, table: dict[str, Any], name: str) -> Any:
    """The coordinates of one axis: a list, or equidistant numbers."""
    entry = table[name]
    if not isinstance(entry, dict):
        return read(where, table, name, entries)
    inside = f"{where}.{name}"
    reject_unknown(inside, entry, RANGE)
    missing = [key for key in ("start", "stop", "count") if key not in entry]
    if missing:
        raise ValueError(f"{inside} must have start, stop and count; got {', '.join(entry) or 'an empty table'}.")
    start, stop = (float(read(inside, entry, key, number)) for key in ("start", "stop"))
    return np.linspace(start, stop, int(read(inside, entry, "count", count)))


def number(value: Any) -> float:
    """a finite number"""
    if isinstance(value, list):
        raise TypeError
    return float(kinds.numbers(value))


def outputs_of_study(study: dict[str, Any], reference: str, said: Sequence[Sequence[str]]) -> uq.Outputs | None:
    """What was said of the outputs: by the TOML file, else by the Python file, and by options, which come last."""
    module = sys.modules.get(Path(reference.partition(":")[0]).stem)
    found = study.pop("outputs", None) or getattr(module, "outputs", None)
    found = found if isinstance(found, uq.Outputs) else None
    if not any(said):
        return found
    coordinates, units = outputs_from_options(*said)
    base = found or uq.Outputs()
    return uq.Outputs({**base.coordinates, **coordinates}, axes=base.axes, units={**base.units, **units})


def outputs_from_options(coordinates: Sequence[str], units: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The options ``--coordinate t=0:10:101`` and ``--unit t=s``, which are checked when they are parsed."""
    named, labels = ([text.partition("=") for text in texts] for texts in (coordinates, units))
    return {name: values_of(text) for name, _, text in named}, {name: unit for name, _, unit in labels}


def values_of(text: str) -> Any:
    """``START:STOP:COUNT``, or numbers or texts between commas."""
    with contextlib.suppress(ValueError):
        start, stop, n = text.split(":")
        return np.linspace(float(start), float(stop), int(n))
    parts = text.split(",")
    with contextlib.suppress(ValueError):
        return np.array([float(part) for part in parts])
    return parts
