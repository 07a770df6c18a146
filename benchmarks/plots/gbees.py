"""Cells against time of the Lorenz96 runs in ``results/gbees-gpu.json``.

What figure 10(b) of the GBEES-GPU paper shows, for its threshold and a larger one.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.plots import IMAGES, pyplot, record

RUNS = {"Lorenz96, p* 8e-09, float32": ("#4c72b0", "p* = 8e-9, as published"),
        "Lorenz96, p* 1e-06, float32": ("#dd8452", "p* = 1e-6")}  # fmt: skip


def main() -> None:
    """Draw it."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    plt = pyplot()

    kept = record("gbees-gpu")
    figure, axes = plt.subplots(figsize=(6.4, 3.9), layout="constrained")
    for name, (colour, label) in RUNS.items():
        run = kept[name]
        axes.plot(run["times"], np.array(run["cells"]) / 1e6, color=colour, lw=1.6, label=label)
    axes.set(xlabel="time", ylabel="cells stored, millions", yscale="log")
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(IMAGES / "gbees-cells.png", dpi=150)
    plt.close(figure)
