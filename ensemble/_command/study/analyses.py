"""What ``ensemble sensitivity``, ``chaos`` and ``rare`` share: their model, inputs and options, or their store."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensemble._command.running_options import LIMITS
from ensemble._command.shared.ranks import require_one_process
from ensemble._command.shared.sources import reject_unknown, toml_table
from ensemble._command.shared.toml_values import read, table
from ensemble._command.study.configuration import model_and_study, read_configuration
from ensemble._command.study.declared import outputs_of_study
from ensemble._command.study.run import ADVICE

__all__ = [
    "Analysis",
    "inputs_named",
    "is_store",
    "options_of",
    "read_analysis",
    "require_no_options",
]

Kinds = Mapping[str, Callable[[Any], Any]]


@dataclass
class Analysis:
    """A model, its inputs, what was said of its outputs, and options from the TOML file."""

    model: Any
    inputs: Any
    study: dict[str, Any]
    """Options under [study]."""
    own: dict[str, Any]
    """Options of the analysis, of its own table or of the command line, which comes first."""
    outputs: Any


def is_store(source: str | None) -> bool:
    """Whether a command's first argument is a store: a model is FILE.py:FUNCTION, or without it a table [program]."""
    return source is not None and not (source.endswith(".py") or ".py:" in source)


def read_analysis(options: argparse.Namespace, name: str, kinds: Kinds) -> Analysis:
    """The model and the options of an analysis.

    Raises
    ------
    ValueError
        If a file cannot be read, or a value is not what its key needs.
    """
    require_one_process(ADVICE)
    model, study, inputs = model_and_study(options.source, options.config, None)
    options.source = options.source or ""
    own = {} if options.config is None else table_of(options.config, name, kinds)
    outputs = outputs_of_study(study, options.source, ((), ()))
    names = {"n": "samples", "seed": "seed", "ensemble_size": "ensemble_size", "on_failure": "on_failure"}
    names |= {key: key for key in ("workers", *LIMITS)}
    given = {key: getattr(options, name, None) for key, name in names.items()}
    study |= {key: value for key, value in given.items() if value is not None}
    return Analysis(model, inputs, study, own | options_of(options, kinds), outputs)


def table_of(path: Path, name: str, kinds: Kinds) -> dict[str, Any]:
    """The table of a TOML file that has the options of one command."""
    found = read(str(path), {name: {}, **toml_table(path)}, name, table)
    where = f"{path}: [{name}]"
    reject_unknown(where, found, set(kinds))
    return {key: read(where, found, key, kinds[key]) for key in found}


def options_of(options: argparse.Namespace, kinds: Kinds) -> dict[str, Any]:
    """The options of the command line that were given."""
    given = {key: getattr(options, key, None) for key in kinds if key != "output"}  # where the command prints to
    return {key: value for key, value in given.items() if value is not None}


def inputs_named(options: argparse.Namespace) -> Any:
    """The inputs of the TOML file that ``-c`` names; None without it."""
    return None if options.config is None else read_configuration(options.config)[1]


def require_no_options(options: argparse.Namespace, names: Mapping[str, str], where: str) -> None:
    """Raise for options that have no meaning there, by their attribute and their name on the command line."""
    for attribute, name in names.items():
        if getattr(options, attribute, None) not in (None, False):
            raise ValueError(f"{name} must be left out {where}; got {getattr(options, attribute)}.")
