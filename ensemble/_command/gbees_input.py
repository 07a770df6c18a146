"""What ``ensemble gbees`` is to run: a published problem, a TOML file, or a Python file."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ensemble.apps.gbees import Configuration, Drift, Measurement, configuration, read_gaussian
from ensemble.apps.gbees.configurations import CONFIGURATIONS

__all__ = ["configuration_of"]

OPTIONS = (
    "threshold", "factor", "extent", "limiter", "cfl", "prune_every", "prune", "diffusion", "rotate", "time_varying",
    "time_order", "periods",
)  # fmt: skip
"""Of `Gbees`, by the same name in a TOML file."""

LIKELIHOODS = ("auto", "point", "cell")
"""Rules of `Gbees.update`."""

KEYS = {"system", "drift", "parameters", "initial", "mean", "covariance", "span", "records", "bounds", "start", "axes",
        "measurements", *OPTIONS}  # fmt: skip


def configuration_of(problem: str) -> Configuration:
    """The configuration that the command's argument names.

    Raises
    ------
    ValueError
        If it is neither a name nor a file, or the file does not say enough.
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


def from_python(reference: str, beside: Path, default: str = "") -> Configuration:
    """What a function of a Python file gives, or a `Configuration` that stands there."""
    found = thing_in(reference, beside, default)
    if not isinstance(found, Configuration):
        try:
            found = found()
        except Exception as error:
            seen = f"{type(error).__name__}: {error}"
            raise ValueError(f"{reference} must be a function without arguments that runs; got {seen}.") from error
    if not isinstance(found, Configuration):
        raise ValueError(f"{reference} must give a gbees.Configuration; got a {type(found).__name__}.")
    return found


def thing_in(reference: Any, beside: Path, default: str = "") -> Any:
    """What ``FILE.py:NAME`` stands for; FILE is looked for in the folder `beside`."""
    path, _, name = str(reference).partition(":")
    name = name or default
    if not path.endswith(".py") or not name:
        raise ValueError(f"a function must be given as FILE.py:NAME; got {reference!r}.")
    file = beside / path
    if not file.is_file():
        raise ValueError(f"{reference}: there must be a file {str(file)!r}; got none.")
    spec = importlib.util.spec_from_file_location(f"gbees_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{reference}: the file must run; got {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise ValueError(f"{reference}: {file.name} must define {name!r}; got no such name.")
    return getattr(module, name)


def from_toml(path: Path) -> Configuration:
    """A problem written down in TOML; ``docs/howto/gbees.md`` lists what may stand in it."""
    try:
        text = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"there must be a file {str(path)!r}; got none.") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} must be TOML; got an error: {error}.") from None
    complain_about_unknown(path, text, KEYS)
    beside = path.parent
    base = configuration(text["system"]) if "system" in text else None
    values: dict[str, Any] = {"name": path.stem}
    drift = thing_in(text["drift"], beside) if "drift" in text else None if base is None else base.drift
    if drift is None:
        raise ValueError(f"{path} must have a system or a drift; got neither.")
    values["drift"] = with_parameters(path, drift, text.get("parameters", {}))
    values |= initial_of(path, text)
    for name, kind in (("span", float), ("records", int), ("axes", tuple)):
        if name in text:
            values[name] = kind(text[name])
    options = dict(base.options) if base is not None else {}
    options |= {name: text[name] for name in OPTIONS if name in text}
    options |= {name: thing_in(text[name], beside) for name in ("bounds", "start") if name in text}
    values["options"] = options
    if "measurements" in text:
        values["measurements"] = tuple(measurement_of(path, k, part) for k, part in enumerate(text["measurements"]))
    if base is not None:
        return dataclasses.replace(base, **values)
    missing = [name for name in ("mean", "covariance", "span") if name not in values]
    missing += [] if "threshold" in options else ["threshold"]
    if missing:
        raise ValueError(f"{path} must say {', '.join(missing)}; got {', '.join(sorted(text))}.")
    return Configuration(**values)


def complain_about_unknown(path: Path, table: dict[str, Any], known: set[str]) -> None:
    """Raise if a key is misspelt."""
    unknown = sorted(set(table) - known)
    if unknown:
        raise ValueError(f"{path} must have no keys but {', '.join(sorted(known))}; got {', '.join(unknown)}.")


def with_parameters(path: Path, drift: Any, parameters: dict[str, float]) -> Any:
    """`drift` with new values of parameters."""
    if not parameters:
        return drift
    if not isinstance(drift, Drift):
        raise ValueError(f"{path}: parameters must belong to a system or a gbees.Drift; got a plain function.")
    return drift.with_parameters(**{name: float(value) for name, value in parameters.items()})


def matrix(value: Any) -> np.ndarray:
    """A square matrix; a list of numbers is a diagonal, a number a matrix of one entry."""
    found = np.asarray(value, dtype=np.float64)
    return np.diag(np.atleast_1d(found)) if found.ndim < 2 else found


def initial_of(path: Path, text: dict[str, Any]) -> dict[str, Any]:
    """Mean, covariance and span, as far as they are given."""
    values: dict[str, Any] = {}
    if "initial" in text:
        read = read_gaussian(path.parent / text["initial"])
        values |= {"mean": read.mean, "covariance": read.covariance, "span": read.span}
    if "mean" in text:
        values["mean"] = np.asarray(text["mean"], dtype=np.float64)
    if "covariance" in text:
        values["covariance"] = matrix(text["covariance"])
    return values


def measurement_of(path: Path, number: int, part: dict[str, Any]) -> Measurement:
    """One of the tables ``[[measurements]]``."""
    complain_about_unknown(path, part, {"coordinates", "h", "file", "y", "R", "span", "likelihood"})
    where = f"{path}: measurement {number}"
    values: dict[str, Any] = {}
    if "file" in part:
        read = read_gaussian(path.parent / part["file"])
        values = {"y": read.mean, "R": read.covariance, "span": read.span}
    values |= {name: part[name] for name in ("y", "R", "span") if name in part}
    missing = [name for name in ("y", "R", "span") if name not in values]
    if missing or ("coordinates" in part) == ("h" in part):
        seen = ", ".join(sorted(part)) or "nothing"
        raise ValueError(f"{where} must say y, R, span (or a file), and either coordinates or h; got {seen}.")
    h = thing_in(part["h"], path.parent) if "h" in part else seen_coordinates(part["coordinates"])
    y = tuple(float(value) for value in np.atleast_1d(values["y"]))
    likelihood = part.get("likelihood", "auto")
    if likelihood not in LIKELIHOODS:
        raise ValueError(f"{where}: likelihood must be one of {', '.join(LIKELIHOODS)}; got {likelihood!r}.")
    return Measurement(h, y, matrix(values["R"]), float(values["span"]), likelihood)


def seen_coordinates(coordinates: list[int]) -> Callable[..., Any]:
    """A measurement of coordinates themselves, counted from 0."""
    chosen = [int(i) for i in np.atleast_1d(coordinates)]
    return lambda x, xp: tuple(x[i] for i in chosen)
