"""The input of ``ensemble gbees``: a published problem, a TOML file, or a Python file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ensemble._check import kind_of
from ensemble._command.shared import toml_values as kinds
from ensemble._command.shared.sources import located, object_in, reject_unknown, toml_table
from ensemble._command.shared.toml_values import read
from ensemble.apps.gbees import Configuration, Drift, Measurement, configuration, read_gaussian
from ensemble.apps.gbees.systems.configurations import CONFIGURATIONS

__all__ = ["configuration_of"]

OPTIONS = (
    "threshold", "factor", "extent", "limiter", "cfl", "prune_every", "prune", "diffusion", "rotate", "time_varying",
    "time_order", "periods",
)  # fmt: skip
"""Arguments of `Gbees` that a TOML file may give by the same name."""

LIKELIHOODS = ("auto", "point", "cell")
"""Rules of `Gbees.update`."""

KINDS: dict[str, Callable[[Any], Any]] = {
    "threshold": kinds.positive, "factor": kinds.numbers, "extent": kinds.numbers, "limiter": kinds.text,
    "cfl": kinds.positive, "prune_every": kinds.whole, "prune": kinds.text, "diffusion": kinds.spread,
    "rotate": kinds.flag, "time_varying": kinds.flag, "time_order": kinds.whole, "periods": kinds.periods,
    "span": kinds.positive, "records": kinds.whole, "axes": kinds.names, "units": kinds.names,
    "time_unit": kinds.text,
}  # fmt: skip
"""The conversion of the value of each key; other keys are checked where they are used."""

PLAIN = ("span", "records", "axes", "units", "time_unit")
"""Attributes of a `Configuration` that a TOML file gives by the same name."""

KEYS = {"system", "drift", "parameters", "initial", "mean", "covariance", "span", "records", "bounds", "start", "axes",
        "units", "time_unit", "measurements", *OPTIONS}  # fmt: skip


def configuration_of(problem: str) -> Configuration:
    """The configuration that the command's argument names.

    Raises
    ------
    ValueError
        If it is neither a name nor a file, or the file is incomplete.
    """
    if problem in CONFIGURATIONS:
        return configuration(problem)
    path, _, name = problem.partition(":")
    if path.endswith(".toml"):
        return from_toml(Path(path))
    if path.endswith(".py"):
        return from_python(problem, Path("."), name or "configuration")
    names = ", ".join(CONFIGURATIONS)
    raise ValueError(f"PROBLEM must be one of {names}, FILE.toml or FILE.py[:FUNCTION]; got {problem!r}.")


def from_python(reference: str, folder: Path, default: str = "") -> Configuration:
    """The result of a function of a Python file, or a `Configuration` in it."""
    found = object_in(reference, folder, default, package="gbees_")
    if not isinstance(found, Configuration):
        try:
            found = found()
        except Exception as error:
            seen = f"{type(error).__name__}: {error}"
            raise ValueError(f"{reference} must be a function without arguments that runs; got {seen}.") from error
    if not isinstance(found, Configuration):
        raise ValueError(f"{reference} must give a gbees.Configuration; got {kind_of(found)}.")
    return found


def from_toml(path: Path) -> Configuration:
    """A problem written down in TOML; ``docs/howto/gbees.md`` lists its keys."""
    text = toml_table(path)
    reject_unknown(path, text, KEYS)
    folder, where = path.parent, str(path)
    base = system_of(where, text) if "system" in text else None
    values: dict[str, Any] = {"name": path.stem}
    drift = named_in(where, text, "drift", folder) if "drift" in text else None if base is None else base.drift
    if drift is None:
        raise ValueError(f"{path} must have a system or a drift; got neither.")
    values["drift"] = with_parameters(path, drift, read(where, {"parameters": {}, **text}, "parameters", kinds.table))
    values |= initial_of(path, text)
    values |= {name: read(where, text, name, KINDS[name]) for name in PLAIN if name in text}
    options = dict(base.options) if base is not None else {}
    for name in OPTIONS:
        if name in text:
            options[name] = read(where, text, name, KINDS[name]) if name in KINDS else text[name]
    options |= {name: named_in(where, text, name, folder) for name in ("bounds", "start") if name in text}
    values["options"] = options
    mean = values.get("mean", None if base is None else base.mean)
    n = None if mean is None else len(mean)
    if "measurements" in text:
        parts = read(where, text, "measurements", kinds.tables)
        values["measurements"] = tuple(measurement_of(path, k, part, n) for k, part in enumerate(parts))
    for name in ("axes", "units"):
        if n is not None and len(values.get(name, ())) not in (0, n):
            raise ValueError(f"{path}: {name} must be {n} names, one for each coordinate; got {text[name]!r}.")
    if base is not None:
        return located(where, lambda: dataclasses.replace(base, **values))
    missing = [name for name in ("mean", "covariance", "span") if name not in values]
    missing += [] if "threshold" in options else ["threshold"]
    if missing:
        raise ValueError(f"{path} must say {', '.join(missing)}; got {', '.join(sorted(text))}.")
    return located(where, lambda: Configuration(**values))


def system_of(where: str, text: dict[str, Any]) -> Configuration:
    """The published problem that the file begins with."""
    name = read(where, text, "system", kinds.text)
    if name not in CONFIGURATIONS:
        raise ValueError(f"{where}: system must be one of {', '.join(CONFIGURATIONS)}; got {name!r}.")
    return configuration(name)


def named_in(where: str, text: dict[str, Any], name: str, folder: Path) -> Any:
    """The function given under `name` as FILE.py:NAME."""
    return located(f"{where}: {name}", lambda: object_in(read(where, text, name, kinds.text), folder, package="gbees_"))


def with_parameters(path: Path, drift: Any, parameters: dict[str, float]) -> Any:
    """`drift` with new values of parameters."""
    if not parameters:
        return drift
    if not isinstance(drift, Drift):
        raise ValueError(f"{path}: parameters must belong to a system or a gbees.Drift; got a plain function.")
    where = f"{path}: parameters"
    values = {name: read(where, parameters, name, kinds.numbers) for name in parameters}
    return located(where, lambda: drift.with_parameters(**values))


def initial_of(path: Path, text: dict[str, Any]) -> dict[str, Any]:
    """Mean, covariance and span, as far as they are given."""
    values: dict[str, Any] = {}
    if "initial" in text:
        found = gaussian_in(str(path), text, "initial", path.parent)
        values |= {"mean": found.mean, "covariance": found.covariance, "span": found.span}
    if "mean" in text:
        values["mean"] = np.atleast_1d(read(str(path), text, "mean", kinds.numbers))
    if "covariance" in text:
        values["covariance"] = read(str(path), text, "covariance", kinds.rows)
    return values


def gaussian_in(where: str, text: dict[str, Any], name: str, folder: Path) -> Any:
    """The content of the public program's file given under `name`."""
    file = folder / read(where, text, name, kinds.text)
    try:
        return located(f"{where}: {name}", lambda: read_gaussian(file))
    except OSError:
        raise ValueError(f"{where}: {name} must be a file that can be read; got {str(file)!r}.") from None


def measurement_of(path: Path, number: int, part: dict[str, Any], n: int | None) -> Measurement:
    """One of the tables ``[[measurements]]`` of a problem in `n` dimensions."""
    reject_unknown(path, part, {"coordinates", "h", "file", "y", "R", "span", "likelihood"})
    where = f"{path}: measurement {number}"
    values: dict[str, Any] = {}
    if "file" in part:
        found = gaussian_in(where, part, "file", path.parent)
        values = {"y": found.mean, "R": found.covariance, "span": found.span}
    of = {"y": kinds.numbers, "R": kinds.rows, "span": kinds.positive}
    values |= {name: read(where, part, name, kind) for name, kind in of.items() if name in part}
    missing = [name for name in ("y", "R", "span") if name not in values]
    if missing or ("coordinates" in part) == ("h" in part):
        seen = ", ".join(sorted(part)) or "nothing"
        raise ValueError(f"{where} must say y, R, span (or a file), and either coordinates or h; got {seen}.")
    y = tuple(float(value) for value in np.atleast_1d(values["y"]))
    if "h" in part:
        h = named_in(where, part, "h", path.parent)
    else:
        coordinates = read(where, part, "coordinates", kinds.indices)
        if n is not None and max(coordinates) >= n:
            seen = f"{part['coordinates']!r} for {n} dimensions"
            raise ValueError(f"{where}: coordinates must be below the number of dimensions; got {seen}.")
        h = seen_coordinates(coordinates)
    likelihood = part.get("likelihood", "auto")
    if likelihood not in LIKELIHOODS:
        raise ValueError(f"{where}: likelihood must be one of {', '.join(LIKELIHOODS)}; got {likelihood!r}.")
    return located(where, lambda: Measurement(h, y, values["R"], float(values["span"]), likelihood))


def seen_coordinates(coordinates: list[int]) -> Callable[..., Any]:
    """A measurement of coordinates themselves, counted from 0."""
    return lambda x, xp: tuple(x[i] for i in coordinates)
