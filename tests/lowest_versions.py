"""The lowest versions that pyproject.toml declares: as requirements for pip, or compared with what is installed."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest() -> dict[str, str]:
    """The lower bound of every direct dependency, and of those of pictures, by name."""
    bounds = {}
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["plots"]]:
        found = re.fullmatch(r"([\w.-]+)>=([\d.]+)", requirement)
        if found is None:
            raise SystemExit(f"pyproject.toml: a dependency must be NAME>=VERSION; got {requirement!r}.")
        bounds[found[1]] = found[2]
    return bounds


def same(bound: str, installed: str) -> bool:
    """Whether a version is the bound: 1.15.0 is 1.15."""
    a, b = ([int(part) for part in text.split(".")] for text in (bound, installed))
    return a + [0] * (len(b) - len(a)) == b


def main() -> int:
    """Print the requirements; with ``--installed``, fail where another version is installed."""
    if sys.argv[1:] != ["--installed"]:
        print("\n".join(f"{name}=={bound}" for name, bound in lowest().items()))
        return 0
    seen = {name: version(name) for name in lowest()}
    print(", ".join(f"{name} {number}" for name, number in seen.items()))
    return int(not all(same(bound, seen[name]) for name, bound in lowest().items()))


if __name__ == "__main__":
    sys.exit(main())
