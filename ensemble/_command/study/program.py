"""A program outside Python as the model of ``ensemble run``: by options, or by the table ``[program]``."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ensemble import uq
from ensemble._command.shared import toml_values as kinds
from ensemble._command.shared.sources import importable, located, object_in, reject_unknown
from ensemble._command.shared.toml_values import read

__all__ = ["program_from", "program_options", "template_files"]

KEYS = (
    "command", "template", "outputs", "folder", "keep", "links", "delimiters", "environment", "success_codes",
    "log_lines",
)  # fmt: skip

WHAT = {".csv": "column", ".json": "key", ".nc": "variable"}
"""What the text after a file's name says, by the ending of the name; of other files it is a pattern."""

FOLDERS = ("template", "folder")
"""Keys whose paths are relative to the file that has them."""


def program_options(options: argparse.Namespace) -> dict[str, Any] | None:
    """The program that the options describe, with absolute paths; None without ``--command``."""
    given = {"--template": options.template, "--read": options.read, "--runs": options.runs, "--keep": options.keep}
    if options.command is None:
        alone = [name for name, value in given.items() if value]
        if alone:
            raise ValueError(f"{alone[0]} must stand beside --command; got no command.")
        return None
    if not options.read:
        raise ValueError("--command must stand beside --read NAME=FILE, one for each output; got none.")
    found: dict[str, Any] = {"command": options.command, "outputs": dict(map(output_of, options.read))}
    found |= {"template": str(options.template.resolve())} if options.template is not None else {}
    found |= {"folder": str((options.runs or Path("runs")).resolve())}
    return found | ({"keep": options.keep} if options.keep else {})


def output_of(text: str) -> tuple[str, Any]:
    """``NAME=FILE`` or ``NAME=FILE:WHAT`` as a name and a table."""
    name, _, file = text.partition("=")
    file, _, what = file.partition(":")
    table = {"file": file}
    if what:
        key = WHAT.get(Path(file).suffix.lower(), "pattern")
        table[key] = what
    return name, table


def program_from(where: str, table: Mapping[str, Any], base: Path) -> uq.Program:
    """The program of a table, whose paths are relative to `base`."""
    entries = dict(table)
    reject_unknown(where, entries, set(KEYS))
    for name in ("command", "outputs"):
        if name not in entries:
            raise ValueError(f"{where} must have the key {name}; got {', '.join(entries) or 'nothing'}.")
    command = entries.pop("command")
    if not isinstance(command, str):
        command = read(where, {"command": command}, "command", kinds.names)
    outputs = read(where, entries, "outputs", kinds.table)
    readers = {name: reader_from(f"{where}: outputs.{name}", given, base) for name, given in outputs.items()}
    entries.pop("outputs")
    for name in FOLDERS:
        if name in entries:
            entries[name] = base / read(where, entries, name, kinds.text)
    entries.setdefault("folder", base / "runs")
    return located(where, lambda: uq.Program(command, readers, **entries))


def reader_from(where: str, given: Any, base: Path) -> Any:
    """The reader of an output: the name of a file, or a table of `FromFile`, or of a function."""
    if isinstance(given, str):
        return located(where, lambda: uq.FromFile(given))
    if not isinstance(given, dict):
        raise ValueError(f"{where} must be the name of a file or a table; got {given!r}.")
    if "function" in given:
        reject_unknown(where, given, {"function"})
        reference = read(where, given, "function", kinds.text)
        importable((base / reference.partition(":")[0]).parent)  # other processes of a study import it by its name
        return object_in(reference, base)
    if "file" not in given:
        raise ValueError(f"{where} must have the key file or function; got {', '.join(given) or 'nothing'}.")
    reject_unknown(where, given, {field.name for field in dataclasses.fields(uq.FromFile)})
    table = dict(given)
    if isinstance(table.get("column"), str) and table["column"].isdecimal():
        table["column"] = int(table["column"])
    return located(where, lambda: uq.FromFile(**table))


def template_files(table: Mapping[str, Any], base: Path) -> list[Path]:
    """The files that a program is made from, of which a change is a change of the model."""
    template = table.get("template")
    if not isinstance(template, str):
        return []
    root = base / template
    return sorted(path for path in root.rglob("*") if path.is_file()) if root.is_dir() else [root]
