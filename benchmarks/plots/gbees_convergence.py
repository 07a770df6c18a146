"""GBEES against runs with small steps and small cells, from the records of `bench_gbees_convergence`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.plots import panels, pyplot, record, save

TIMES = np.arange(1, 21) / 10
MARKS = "os^D"


def draw(results: dict[str, list[dict[str, Any]]], references: dict[str, float]) -> None:
    """Both metrics over time, a row of panels for each study."""
    symbols = {"time": "\\epsilon", "width": "\\eta"}
    figure, axes = panels(len(results), 2, 3.4 * len(results), squeeze=False, sharex=True)
    for (left, right), (name, rows) in zip(axes, results.items(), strict=True):
        colours = pyplot().get_cmap("viridis")(np.linspace(0.05, 0.8, len(rows)))
        for row, colour, mark in zip(rows, colours, MARKS, strict=True):
            label = f"${symbols[name]} = {row[name]:g}$"
            left.semilogy(TIMES, [row[f"E({t:g})"] for t in TIMES], mark + "-", ms=4, color=colour, label=label)
            right.plot(TIMES, [row[f"BC({t:g})"] for t in TIMES], mark + "-", ms=4, color=colour)
        kind = "time steps" if name == "time" else "cells"
        against = f"{kind} against ${symbols[name]} = {references[name]:g}$"
        left.set_title(f"{against}:\ndistance E in the 1-norm", loc="left")
        right.set_title("Bhattacharyya\ncoefficient", loc="left")
        left.legend(ncols=2, loc="lower left", bbox_to_anchor=(0.0, -0.42), columnspacing=1.0, handlelength=1.5)
        for panel in (left, right):
            panel.axvline(1.0, color="0.6", linewidth=0.9, ls="--", zorder=0)
    for panel in axes.flat:
        panel.tick_params(labelbottom=True)
    for panel in axes[:, 1]:
        panel.set_xlabel("t (measurement at t = 1)")
    save(figure, "gbees-convergence.png")


def main() -> None:
    """Draw both studies."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    contents = {name: record(f"gbees-convergence-{name}") for name in ("time", "width")}
    rows = {name: content["rows"] for name, content in contents.items()}
    draw(rows, {name: content["reference"] for name, content in contents.items()})
