"""All files below a folder."""

from pathlib import Path


def tree(folder: Path) -> dict[str, bytes]:
    """The contents of every file below `folder`, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
