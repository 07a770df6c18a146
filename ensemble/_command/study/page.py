"""``ensemble report``: a page of HTML that tells the study of a store."""

from __future__ import annotations

import argparse

from ensemble import uq
from ensemble._command.shared.files import require_writable

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble report``; 0 also for a study that is not finished, which the page says."""
    if not 0.0 < options.level < 1.0:
        raise ValueError(f"--level must be in (0, 1); got {options.level:g}. Divide percentages by 100.")
    require_writable("--out", options.out, (".html", ".htm"))
    found = uq.open_study(options.store).report(options.out, level=options.level)
    options.output.print(f"{options.out}: {found!r}")
    return 0
