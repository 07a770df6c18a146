"""The input of ``ensemble run``: a model of a Python file, and inputs of a TOML file or of the same Python file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ensemble import uq
from ensemble._check import kind_of
from ensemble._command.running_options import LIMITS
from ensemble._command.shared import toml_values as kinds
from ensemble._command.shared.sources import importable, located, object_in, reject_unknown, toml_table
from ensemble._command.shared.toml_values import read
from ensemble._command.study.data import bounds, data_of
from ensemble._command.study.declared import outputs_from_table
from ensemble._command.study.program import program_from
from ensemble.uq.fields import KarhunenLoeve

__all__ = ["STUDY_KEYS", "inputs_from_python", "inputs_from_table", "model_and_study", "model_of", "read_configuration"]


def at_least_one(value: Any) -> int:
    """a whole number of at least 1"""
    if kinds.whole(value) < 1:
        raise ValueError
    return int(value)


def size(value: Any) -> Any:
    """a whole number of at least 1, or "auto\""""
    return value if value == "auto" else at_least_one(value)


def seed(value: Any) -> int:
    """a whole number from 0"""
    if kinds.whole(value) < 0:
        raise ValueError
    return int(value)


STUDY_KEYS: dict[str, Callable[[Any], Any]] = {
    "n": at_least_one, "sampler": kinds.text, "seed": seed, "ensemble_size": size, "group_by": kinds.text,
    "on_failure": kinds.text, "workers": at_least_one, **dict.fromkeys(LIMITS, kinds.positive),
}  # fmt: skip
"""Keys of the table ``[study]``: values of options that the command line does not give."""

ANALYSES = ("sensitivity", "chaos", "rare")
"""Tables with the options of further commands."""

KINDS = "a number, a list of numbers, or a table with distribution, data, categories, mixture, field or object"


def read_configuration(path: Path) -> tuple[dict[str, Any], Any]:
    """The options of the table ``[study]``, with ``[outputs]`` and ``[program]`` among them, and the inputs.

    Raises
    ------
    ValueError
        If the file cannot be read, or a value is not what its key needs.
    """
    table = toml_table(path)
    known = {"study", "inputs", "outputs", "program", "correlation", "correlation_kind", *ANALYSES}
    reject_unknown(path, table, known)
    study = read(str(path), {"study": {}, **table}, "study", kinds.table)
    reject_unknown(f"{path}: [study]", study, set(STUDY_KEYS))
    options = {name: read(f"{path}: [study]", study, name, STUDY_KEYS[name]) for name in study}
    if "outputs" in table:
        options["outputs"] = outputs_from_table(f"{path}: outputs", read(str(path), table, "outputs", kinds.table))
    if "program" in table:
        options["program"] = program_from(
            f"{path}: program", read(str(path), table, "program", kinds.table), path.parent
        )
    if "inputs" not in table:
        raise ValueError(f"{path} must have a table [inputs]; got {', '.join(table) or 'an empty file'}.")
    return options, inputs_from_table(path, table)


def inputs_from_table(path: Path, table: Mapping[str, Any]) -> Any:
    """The tables ``[inputs]`` and ``[correlation]`` as `Inputs`."""
    entries = read(str(path), dict(table), "inputs", kinds.table)
    found = {name: one_input(f"{path}: inputs.{name}", entry, path.parent) for name, entry in entries.items()}
    correlation = read(str(path), {"correlation": {}, **table}, "correlation", kinds.table)
    pairs = {pair_of(path, key): read(f"{path}: correlation", correlation, key, kinds.numbers) for key in correlation}
    options: dict[str, Any] = {"correlation": pairs} if pairs else {}
    if "correlation_kind" in table:
        options["correlation_kind"] = table["correlation_kind"]
    return located(str(path), lambda: uq.Inputs(**options, **found))


def pair_of(path: Path, key: str) -> tuple[Any, ...]:
    """The key ``"E, v[1]"`` as a name and a component of a vector."""
    parts = [re.fullmatch(r"\s*(\w+)\s*(?:\[(\d+)\])?\s*", part) for part in key.split(",")]
    if len(parts) != 2 or None in parts:
        raise ValueError(f'{path}: keys of [correlation] must be two inputs, as in "E, v[1]" = -0.3; got {key!r}.')
    return tuple(part[1] if part[2] is None else (part[1], int(part[2])) for part in parts if part is not None)


def one_input(where: str, entry: Any, folder: Path) -> Any:
    """What `Inputs` takes for one entry of ``[inputs]``."""
    if not isinstance(entry, dict):
        return read(where, {"value": entry}, "value", kinds.numbers)
    makers: dict[str, Callable[[str, dict[str, Any], Path], Any]] = {
        "distribution": distribution_of, "data": data_of, "categories": categories_of, "mixture": mixture_of,
        "field": field_of, "object": object_of,
    }  # fmt: skip
    named = [kind for kind in makers if kind in entry]
    if len(named) != 1:
        raise ValueError(f"{where} must be {KINDS}; got a table with {', '.join(entry) or 'nothing'}.")
    return makers[named[0]](where, entry, folder)


def distribution_of(where: str, entry: dict[str, Any], folder: Path) -> Any:
    """A frozen distribution of `scipy.stats`, or a vector of independent ones."""
    from scipy import stats

    name = read(where, entry, "distribution", kinds.text)
    generic = getattr(stats, name, None)
    if not (hasattr(generic, "rvs") and callable(generic)):
        raise ValueError(f"{where}: distribution must be a name of scipy.stats, as norm or uniform; got {name!r}.")
    own = ("distribution", "size", "truncate")
    parameters = {key: read(where, entry, key, kinds.real) for key in entry if key not in own}
    try:
        frozen = generic(**parameters)
    except (TypeError, ValueError) as error:
        wanted = f"{generic.shapes}, loc, scale" if getattr(generic, "shapes", None) else "loc, scale"
        seen = ", ".join(f"{key} = {value!r}" for key, value in parameters.items()) or "none"
        raise ValueError(f"{where}: parameters of {name} must be {wanted}; got {seen}.") from error
    found = frozen
    if "truncate" in entry:
        low, high = read(where, entry, "truncate", bounds)
        found = located(where, lambda: uq.Truncated(frozen, low, high))
    if "size" in entry:
        return uq.Vector(found, read(where, entry, "size", at_least_one))
    return found


def categories_of(where: str, entry: dict[str, Any], folder: Path) -> Any:
    """Labels with their probabilities."""
    reject_unknown(where, entry, {"categories"})
    table = read(where, entry, "categories", kinds.table)
    return located(where, lambda: uq.Categorical(table))


def mixture_of(where: str, entry: dict[str, Any], folder: Path) -> Any:
    """Distributions with weights."""
    reject_unknown(where, entry, {"mixture"})
    parts = read(where, entry, "mixture", kinds.tables)
    weights = [read(f"{where}: mixture {k}", {"weight": 1.0, **part}, "weight", kinds.positive)
               for k, part in enumerate(parts)]  # fmt: skip
    found = [
        one_input(f"{where}: mixture {k}", {key: value for key, value in part.items() if key != "weight"}, folder)
        for k, part in enumerate(parts)
    ]
    return located(where, lambda: uq.Mixture(found, [weight / sum(weights) for weight in weights]))


def field_of(where: str, entry: dict[str, Any], folder: Path) -> Any:
    """A Karhunen-Loeve expansion in closed form."""
    kind = read(where, entry, "field", kinds.text)
    options = {key: value for key, value in entry.items() if key != "field"}
    if kind != "exponential":
        raise ValueError(f'{where}: field must be "exponential", or an object of a Python file; got {kind!r}.')
    return located(where, lambda: KarhunenLoeve.exponential(**options))


def object_of(where: str, entry: dict[str, Any], folder: Path) -> Any:
    """Any input that a Python file makes."""
    reject_unknown(where, entry, {"object"})
    return located(where, lambda: object_in(read(where, entry, "object", kinds.text), folder))


def model_of(reference: str) -> Callable[..., Any]:
    """The function ``FILE.py:NAME``."""
    importable(Path(reference.partition(":")[0]).parent)  # other processes of a study import the file by its name
    found = object_in(reference, Path("."))
    if not callable(found):
        raise ValueError(f"{reference} must be a function of one argument; got {kind_of(found)}.")
    return found  # type: ignore[no-any-return]


def model_and_study(
    reference: str | None, config: Path | None, program: dict[str, Any] | None
) -> tuple[Any, dict[str, Any], Any]:
    """The model, the options of the TOML file, and the inputs.

    The model is the function `reference`, or the program of options, or that of the TOML file.
    """
    if reference and program is not None:
        raise ValueError(f"--command must stand without FILE.py:FUNCTION; got {reference}.")
    model = model_of(reference) if reference else None
    study: dict[str, Any] = {}
    if config is not None:
        study, inputs = read_configuration(config)
    elif reference:
        inputs = inputs_from_python(reference)
    else:
        raise ValueError(
            "-c must name a TOML file with the inputs of the program, or FILE.py:FUNCTION a model; got none."
        )
    of_table = study.pop("program", None)
    if model is None:
        model = of_table if program is None else program_from("--command", program, Path("."))
    if model is None:
        raise ValueError("the model must be FILE.py:FUNCTION, --command or a table [program]; got none.")
    return model, study, inputs


def inputs_from_python(reference: str) -> Any:
    """The object ``inputs`` of the model's file, which `model_of` has run."""
    path = reference.partition(":")[0]
    module = sys.modules[Path(path).stem]
    if not hasattr(module, "inputs"):
        raise ValueError(f"{path} must define 'inputs', or -c must name a TOML file; got neither.")
    found = module.inputs
    if not isinstance(found, uq.Inputs):
        raise ValueError(f"{path}: inputs must be an ensemble.Inputs; got {kind_of(found)}.")
    return found
