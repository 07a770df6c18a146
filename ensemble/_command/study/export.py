"""``ensemble export``: inputs and outputs of a store as CSV or NetCDF."""

from __future__ import annotations

import argparse

from ensemble import uq
from ensemble._command.shared.files import require_writable
from ensemble._command.study.report import chosen_outputs

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble export``."""
    require_writable("FILE", options.file, (".csv", ".nc"))
    result = uq.open_study(options.store)
    names = chosen_outputs(result, options.outputs)
    try:
        result.save(options.file, outputs=names)
    except (ValueError, ImportError) as error:
        text = str(error).replace("UqResult.save:", "export:")
        kind = ImportError if isinstance(error, ImportError) else ValueError
        raise kind(text.replace("choose outputs.", "choose others by --output.")) from None
    return 0
