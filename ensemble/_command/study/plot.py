"""``ensemble plot``: a picture of an output of a store."""

from __future__ import annotations

import argparse

from ensemble import uq
from ensemble._command.shared.files import PLOT_SUFFIXES, require_writable, save_figure
from ensemble._command.study.report import chosen_outputs

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble plot``."""
    require_writable("FILE", options.file, PLOT_SUFFIXES)
    result = uq.open_study(options.store)
    if not result.ids.size:
        raise ValueError(f"{options.store} must have a sample that did not fail; got {result.n_failed} failed.")
    names = chosen_outputs(result, None if options.name is None else [options.name])
    if options.kind == "scatter":
        if options.name is not None and (kind := result.samples(names[0]).dtype).kind not in "iuf":
            raise ValueError(f"--output must name an output of real numbers for a scatter plot; got {kind}.")
        axes = result.plot.scatter(outputs=None if options.name is None else names)
    else:
        axes = getattr(result.plot, options.kind)(names[0])
    save_figure(getattr(axes, "figure", None) or axes, options.file)
    return 0
