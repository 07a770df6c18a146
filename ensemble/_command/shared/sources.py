"""Input files of commands: a TOML file, or an object of a Python file."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["importable", "located", "object_in", "python_files_of", "raised_in", "reject_unknown", "toml_table"]


T = TypeVar("T")


def located(where: str, make: Callable[[], T]) -> T:
    """The result of `make`; its errors begin with the file, or the part of it, that they are about."""
    try:
        return make()
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {str(error).removeprefix('Configuration: ')}") from error


def object_in(reference: Any, folder: Path, default: str = "", *, package: str = "") -> Any:
    """The object ``FILE.py:NAME``; FILE is relative to `folder`.

    The module is imported as `package` followed by the file's name without its ending, so that its functions can be
    sent to other processes by name where `package` is empty.

    Raises
    ------
    ValueError
        If there is no such file or name, or the file does not run.
    """
    path, _, name = str(reference).partition(":")
    name = name or default
    if not path.endswith(".py") or not name:
        raise ValueError(f"a function must be given as FILE.py:NAME; got {reference!r}.")
    file = folder / path
    if not file.is_file():
        raise ValueError(f"{reference}: there must be a file {str(file)!r}; got none.")
    spec = importlib.util.spec_from_file_location(f"{package}{file.stem}", file)
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


def importable(folder: Path) -> None:
    """Let modules of a folder be imported by their names, as for ``python FILE.py``."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)


def raised_in(reference: str, error: Exception) -> str | None:
    """What an error of the user's code is and its last line in the file of `reference`; None where it has none."""
    file = Path(reference.partition(".py")[0] + ".py").resolve()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).resolve() == file]
    if ".py" not in reference or not frames:
        return None
    return f"{reference} raised {type(error).__name__} in line {frames[-1].lineno}: {error}"


def toml_table(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises
    ------
    ValueError
        If the file cannot be read or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"there must be a file {str(path)!r}; got none.") from None
    except OSError as error:
        raise ValueError(f"{path} must be a file that can be read; got an error: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be TOML; got an error: {error}.") from None


def reject_unknown(where: Path | str, table: dict[str, Any], known: set[str]) -> None:
    """Raise if a key is misspelt."""
    unknown = sorted(set(table) - known)
    if unknown:
        raise ValueError(f"{where} must have no keys but {', '.join(sorted(known))}; got {', '.join(unknown)}.")


def python_files_of(path: Path) -> list[Path]:
    """The Python files that a TOML file names, by ``object = "FILE.py:NAME"`` or ``function``, without running them."""
    found: list[Path] = []

    def visit(entry: Any) -> None:
        for key, value in entry.items() if isinstance(entry, dict) else enumerate(entry):
            if key in ("object", "function") and isinstance(value, str):
                found.append(path.parent / value.partition(":")[0])
            elif isinstance(value, (dict, list)):
                visit(value)

    visit(toml_table(path))
    return found
