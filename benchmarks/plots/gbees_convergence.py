"""GBEES against runs with small steps and small cells, from the records of `bench_gbees_convergence`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.plots import IMAGES, pyplot, record

TIMES = np.arange(1, 21) / 10


def draw(results: dict[str, list[dict[str, Any]]], references: dict[str, float]) -> None:
    """Both metrics over time, a row of panels for each study."""
    plt = pyplot()

    symbols = {"time": "\\epsilon", "width": "\\eta"}
    figure, axes = plt.subplots(len(results), 2, figsize=(9.0, 3.4 * len(results)), squeeze=False, sharex=True)
    for (left, right), (name, rows) in zip(axes, results.items(), strict=True):
        colours = plt.get_cmap("viridis")(np.linspace(0.05, 0.8, len(rows)))
        for row, colour in zip(rows, colours, strict=True):
            label = f"${symbols[name]} = {row[name]:g}$"
            left.semilogy(TIMES, [row[f"E({t:g})"] for t in TIMES], ".-", color=colour, label=label)
            right.plot(TIMES, [row[f"BC({t:g})"] for t in TIMES], ".-", color=colour, label=label)
        left.set_ylabel("E, distance in the 1-norm")
        right.set_ylabel("Bhattacharyya coefficient")
        kind = "time steps" if name == "time" else "cells"
        left.set_title(f"{kind} against ${symbols[name]} = {references[name]:g}$", loc="left", fontsize=10)
        right.legend(frameon=False, fontsize=9)
        for panel in (left, right):
            panel.axvline(1.0, color="0.8", linewidth=0.8, zorder=0)
            panel.grid(alpha=0.25)
    for panel in axes[-1]:
        panel.set_xlabel("t (measurement at t = 1)")
    figure.tight_layout()
    figure.savefig(IMAGES / "gbees-convergence.png", dpi=150)


def main() -> None:
    """Draw both studies."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    contents = {name: record(f"gbees-convergence-{name}") for name in ("time", "width")}
    rows = {name: content["rows"] for name, content in contents.items()}
    draw(rows, {name: content["reference"] for name, content in contents.items()})
