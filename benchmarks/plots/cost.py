"""Cost per sample against the size of the ensemble, from the record of `bench_cost`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.plots import IMAGES, pyplot, record


def draw(rows: list[dict[str, Any]], title: str) -> None:
    """Speed-up over one sample, and milliseconds a sample of each phase."""
    plt = pyplot()

    sizes = [row["n_samples"] for row in rows]
    colours = {"product": "#1b6ca8", "assembly": "#d1603d", "setup": "#6a994e", "solve": "#5e548e"}
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, colour in colours.items():
        left.plot(sizes, [row[f"x {name}"] for row in rows], "o-", color=colour, label=name)
    left.set(xscale="log", xlabel="samples in the ensemble", ylabel="speed per sample, over one at a time")
    left.axhline(1.0, color="0.7", lw=0.8)
    bottom = np.zeros(len(rows))
    for name in ("assembly", "setup", "solve"):
        heights = np.array([row[f"{name} ms"] for row in rows])
        right.bar(range(len(rows)), heights, bottom=bottom, color=colours[name], label=name, width=0.7)
        bottom += heights
    right.set(xlabel="samples in the ensemble", ylabel="milliseconds a sample")
    right.set_xticks(range(len(rows)), [str(s) for s in sizes])
    left.set_xticks(sizes, [str(s) for s in sizes])
    left.minorticks_off()
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.suptitle(title)
    figure.savefig(IMAGES / "cost-against-size.png", dpi=150)
    plt.close(figure)


def main() -> None:
    """Draw the record of 64^3 cells."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw(record("cost-64-2threads")["rows"], "Random diffusion, 64³ cells, 2 threads")
