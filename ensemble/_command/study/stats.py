"""``ensemble stats``: the statistics of a store."""

from __future__ import annotations

import argparse
import json

from ensemble import uq
from ensemble._command.study.report import as_json, as_text, chosen_outputs

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble stats``."""
    if not 0.0 < options.level < 1.0:
        raise ValueError(f"--level must be in (0, 1); got {options.level:g}. Divide percentages by 100.")
    result = uq.open_study(options.store)
    names = chosen_outputs(result, options.outputs)
    if options.json:
        found = as_json(result, names, options.quantiles, options.level)
        options.output.print(json.dumps(found, allow_nan=False))
    else:
        options.output.print(as_text(result, names, options.quantiles, options.level))
    return 0
