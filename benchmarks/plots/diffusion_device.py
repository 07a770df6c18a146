"""Kernel times of set-up and solve on a device, from the record of `bench_diffusion_device`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.plots import IMAGES, pyplot, record

SETUP = ("coefficient", "assembly", "power method", "diagonal", "prolongator", "Galerkin", "inverses")
"""How the names of the phases before the iterations begin."""


def draw(rows: list[dict[str, Any]]) -> None:
    """Milliseconds a sample, set-up and solve side by side: a stacked bar for each ensemble size."""
    plt = pyplot()

    names = [name for name in rows[0] if name not in ("samples", "iterations")]
    before = [name for name in names if name.startswith(SETUP)]
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 4.6), layout="constrained", sharey=True)
    parts = (before, [name for name in names if name not in before])
    for axes, chosen, title in zip(panels, parts, ("coefficient, assembly and set-up", "solve"), strict=True):
        colours = plt.get_cmap("tab20")(np.linspace(0.0, 1.0, len(chosen)))
        below = np.zeros(len(rows))
        for name, colour in zip(chosen, colours, strict=True):
            height = np.array([row[name] / row["samples"] for row in rows])
            axes.bar([str(row["samples"]) for row in rows], height, 0.7, below, label=name, color=colour)
            below += height
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("samples at once")
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], labels[::-1], frameon=False, fontsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("ms a sample in kernels")
    figure.savefig(IMAGES / "gpu-phases.png", dpi=160)
    plt.close(figure)


def main() -> None:
    """Draw the record of 64^3 cells."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw(record("gpu-phases-64")["rows"])
