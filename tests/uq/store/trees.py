"""All files below a folder."""

import re
from pathlib import Path

TIMES = re.compile(r"cost(-\d+)?\.json")


def tree(folder: Path) -> dict[str, bytes]:
    """The contents of every file below `folder`, by relative path, but for those of the times of its runs."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not TIMES.fullmatch(path.name)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
