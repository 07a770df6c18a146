"""Names that a module does not have: one line says where a public name of this package lies."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

__all__ = ["no_attribute"]


def public_names(folder: Path, package: str) -> dict[str, str]:
    """The public names of the packages in a folder and where they lie; their lists are read, nothing is imported."""
    import ast  # takes milliseconds

    found: dict[str, str] = {}
    for path in sorted(folder.rglob("__init__.py")):
        parts = path.parent.relative_to(folder).parts
        if not parts or any(part.startswith("_") for part in parts) or parts[0] == "scalar":
            continue
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "__all__":
                for name in ast.literal_eval(statement.value):
                    found.setdefault(name, ".".join((package, *parts, name)))
    return found


def no_attribute(module: str, name: str) -> AttributeError:
    """The error of a name that `module` does not have: with its place where another package here has it.

    Python itself adds a name that is spelt alike, where the error ends a program.
    """
    text = f"module {module!r} has no attribute {name!r}"
    if not name.startswith("_"):  # tools look up names with underscores
        place = public_names(Path(importlib.import_module("ensemble").__path__[0]), "ensemble").get(name)
        text += f". Use {place}." if place else ""
    return AttributeError(text, name=name, obj=sys.modules[module])
