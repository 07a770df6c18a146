"""``ensemble plot``: a picture of an output of a store."""

from __future__ import annotations

import argparse

import numpy as np

from ensemble import uq
from ensemble._command.shared.files import require_plot, save_figure
from ensemble._command.study.report import chosen_outputs

__all__ = ["run"]

KINDS = {0: ("hist",), 1: ("fan", "field"), 2: ("field",)}
"""Pictures of an output by the number of its axes; the first is the default."""


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble plot``."""
    require_plot("FILE", options.file)
    result = uq.open_study(options.store)
    if not result.ids.size:
        raise ValueError(f"{options.store} must have a sample that did not fail; got {result.n_failed} failed.")
    names = chosen_outputs(result, None if options.name is None else [options.name])
    kind = options.kind
    if kind != "scatter":
        kind = kind_for(result, names[0], options)
    if kind == "scatter":
        if options.name is not None and (y := result.samples(names[0])).dtype.kind not in "iuf":
            raise ValueError(f"--output must name an output of real numbers for a scatter plot; got {y.dtype}.")
        if options.name is not None and y.shape:
            seen = f"{names[0]!r} of shape {y.shape}"
            raise ValueError(f"--output must name an output of one number for a scatter plot; got {seen}.")
        axes = result.plot.scatter(outputs=None if options.name is None else names)
    else:
        axes = getattr(result.plot, kind)(names[0])
    figure = getattr(axes, "figure", None) or axes
    if figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained")  # no empty band in the place of a title
    save_figure(figure, options.file)
    return 0


def kind_for(result: uq.UqResult, name: str, options: argparse.Namespace) -> str:
    """The picture of an output, by default one that its shape has."""
    shape = np.shape(result.mean(name))
    fitting = KINDS.get(len(shape), ())
    others = [other for other in result.names if other != name and np.ndim(result.mean(other)) != len(shape)]
    if not fitting:
        raise ValueError(f"--output must name an output of at most two axes; got {name!r} of shape {shape}.")
    if options.kind not in (None, *fitting):
        advice = f"Take --kind {' or '.join(fitting)}" + (f", or --output {others[0]}." if others else ".")
        raise ValueError(f"--kind must fit output {name!r} of shape {shape}; got {options.kind}. {advice}")
    return str(options.kind or fitting[0])
