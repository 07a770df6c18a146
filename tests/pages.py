"""Pages of the folder `docs` that are written by hand."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
MADE = {"_build", "api", "beside", "examples"}
"""Folders that `make docs` fills."""


def pages() -> list[Path]:
    """All of them, in order."""
    return sorted(path for path in DOCS.rglob("*.md") if not MADE & set(path.relative_to(DOCS).parts))
