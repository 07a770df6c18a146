"""All files below a folder."""

from pathlib import Path

from ensemble.uq.store.costs import COST_FILE


def tree(folder: Path) -> dict[str, bytes]:
    """The contents of every file below `folder`, by relative path, but for that of the times of its runs."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != COST_FILE]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
