"""Kernel times of set-up and solve on a device, from the record of `bench_diffusion_device`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.plots import BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW, record, save
from benchmarks.plots import panels as figure_of

SETUP = ("coefficient", "assembly", "power method", "diagonal", "prolongator", "Galerkin", "inverses")
"""How the names of the phases before the iterations begin."""


COLOURS = (BLUE, YELLOW, GREEN, PURPLE, SKY, ORANGE, "#bbbbbb")
"""The last one, of the others, is grey."""

LARGEST = 6
"""Parts with a colour of their own; the others are one part."""


def draw(rows: list[dict[str, Any]]) -> None:
    """Milliseconds a sample, set-up and solve side by side: a stacked bar for each ensemble size."""
    names = [name for name in rows[0] if name not in ("samples", "iterations")]
    before = [name for name in names if name.startswith(SETUP)]
    figure, panels = figure_of(2, 1, 6.4, sharex=True)
    parts = (before, [name for name in names if name not in before])
    sizes = [f"{row['samples']:d}" for row in rows]
    for axes, chosen, title in zip(panels, parts, ("coefficient, assembly, set-up", "solve"), strict=True):
        heights = {name: np.array([row[name] / row["samples"] for row in rows]) for name in chosen}
        large = sorted(sorted(chosen, key=lambda name: -heights[name][0])[:LARGEST], key=chosen.index)
        heights["others"] = sum((heights[name] for name in chosen if name not in large), np.zeros(len(rows)))
        left = np.zeros(len(rows))
        for name, colour in zip([*large, "others"], COLOURS, strict=True):
            axes.barh(sizes, heights[name], 0.7, left, label=in_words(name), color=colour, edgecolor="white", lw=0.6)
            left += heights[name]
        for k, total in enumerate(left):
            axes.annotate(f"{total:.2f}", (total, k), textcoords="offset points", xytext=(4, 0), va="center")
        axes.invert_yaxis()
        axes.set_title(title, loc="left")
        axes.grid(visible=False)
        axes.set_ylabel("samples at once")
        axes.legend(loc="lower right", handlelength=1.0)
    panels[1].set_xlabel("milliseconds a sample in kernels")
    save(figure, "gpu-phases.png")


def in_words(name: str) -> str:
    """ "smoother 1" as "smoother, level 1"."""
    word, _, level = name.rpartition(" ")
    return f"{word}, level {level}" if level.isdigit() else name


def main() -> None:
    """Draw the record of 64^3 cells."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw(record("gpu-phases-64")["rows"])
