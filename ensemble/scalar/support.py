"""`support`: which functions work on which array library, as recorded by tests."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from ensemble._check import require

__all__ = ["support", "support_table"]


def support_table() -> dict[str, Any]:
    """The recorded table: ``libraries`` with their versions, and ``functions``, each with one word per library."""
    text = resources.files("ensemble.scalar").joinpath("support.json").read_text()
    table: dict[str, Any] = json.loads(text)
    return table


def support(name: str = "") -> None:
    """Print which functions work on which array library.

    Parameters
    ----------
    name : str
        Print only functions whose name contains it.

    Raises
    ------
    ValueError
        If no function does.

    Notes
    -----
    "yes": tried on samples that differ, and each sample of the result was the result of that sample alone. The table
    is written by ``make support``, never by hand.

    Examples
    --------
    >>> support("linalg.det")
    function         numpy array_api_strict  torch    jax   cupy
    linalg.det         yes              yes    yes    yes    yes
    """
    table = support_table()
    libraries = list(table["libraries"])
    rows = {key: words for key, words in table["functions"].items() if name in key}
    require(bool(rows), "support", "name", "be part of the name of a function", repr(name), "support() prints all.")
    width = max(15, *(len(key) for key in rows))
    widths = [max(6, len(library)) for library in libraries]
    print("function".ljust(width), *(library.rjust(n) for library, n in zip(libraries, widths, strict=True)))
    for key, words in rows.items():
        print(key.ljust(width), *(words.get(one, "?").rjust(n) for one, n in zip(libraries, widths, strict=True)))
