"""Cells against time of the Lorenz96 runs in ``results/gbees-gpu.json``.

What figure 10(b) of the GBEES-GPU paper shows, for its threshold and a larger one.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.plots import BLUE, ORANGE, panels, record, save

RUNS = {"Lorenz96, p* 8e-09, float32": (BLUE, "-", "p* = 8e-9, as published"),
        "Lorenz96, p* 1e-06, float32": (ORANGE, "--", "p* = 1e-6")}  # fmt: skip


def main() -> None:
    """Draw it."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    kept = record("gbees-gpu")
    figure, axes = panels(1, 1, 3.9)
    for name, (colour, dashes, label) in RUNS.items():
        run = kept[name]
        axes.plot(run["times"], np.array(run["cells"]) / 1e6, color=colour, ls=dashes, lw=1.6, label=label)
    axes.set(xlabel="time", ylabel="cells stored, millions", yscale="log")
    axes.legend()
    save(figure, "gbees-cells.png")
