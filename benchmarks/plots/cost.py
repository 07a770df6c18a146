"""Cost per sample against the size of the ensemble, from the record of `bench_cost`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.plots import BLUE, GREEN, ORANGE, PURPLE, panels, record, save

STYLES = {"product": (BLUE, "o"), "assembly": (ORANGE, "s"), "setup": (GREEN, "^"), "solve": (PURPLE, "D")}
"""Colour and mark of each phase."""


def draw(rows: list[dict[str, Any]], title: str) -> None:
    """Speed-up over one sample, and milliseconds a sample of each phase."""
    sizes = [row["n_samples"] for row in rows]
    figure, (left, right) = panels(1, 2, 3.6)
    for name, (colour, mark) in STYLES.items():
        left.plot(sizes, [row[f"x {name}"] for row in rows], f"{mark}-", color=colour, label=name)
    left.set(xscale="log", xlabel="samples in the ensemble", title="speed per sample,\nover one at a time")
    left.axhline(1.0, color="0.7", lw=0.8)
    bottom = np.zeros(len(rows))
    for name in ("assembly", "setup", "solve"):
        heights = np.array([row[f"{name} ms"] for row in rows])
        right.bar(range(len(rows)), heights, bottom=bottom, color=STYLES[name][0], width=0.7)
        bottom += heights
    right.set(xlabel="samples in the ensemble", title="milliseconds\na sample")
    right.set_xticks(range(len(rows)), [str(s) for s in sizes])
    right.grid(visible=False, axis="x")
    left.set_xticks(sizes, [str(s) for s in sizes])
    left.minorticks_off()
    figure.legend(loc="outside lower center", ncols=4, columnspacing=1.2)
    figure.suptitle(title)
    save(figure, "cost-against-size.png")


def main() -> None:
    """Draw the record of 64^3 cells."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw(record("cost-64-2threads")["rows"], "Random diffusion, 64³ cells, 2 threads")
