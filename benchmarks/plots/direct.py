"""Cost of a direct solve and of multigrid against unknowns and samples, from the record of `bench_direct --curves`."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.plots import IMAGES, pyplot, record

STYLES = {"direct": ("#1b6ca8", "o-"), "multigrid": ("#d1603d", "s--")}


def draw(rows: list[dict[str, Any]]) -> None:
    """Microseconds per sample: on squares and cubes with 16 samples, and on one square with 1 to 128 samples."""
    plt = pyplot()

    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    chosen = {
        "unknowns, 2-D, 16 samples": ("n", [r for r in rows if r["dimensions"] == 2 and r["n_samples"] == 16]),
        "unknowns, 3-D, 16 samples": ("n", [r for r in rows if r["dimensions"] == 3]),
        "samples, 60 by 60": ("n_samples", [r for r in rows if r["n"] == 3600]),
    }
    for axis, (label, (key, points)) in zip(axes, chosen.items(), strict=True):
        points = sorted(points, key=lambda row: row[key])
        for name, (colour, style) in STYLES.items():
            values = [row[f"{name} us"] for row in points]
            axis.plot([row[key] for row in points], values, style, color=colour, label=name)
        axis.set(xscale="log", yscale="log", xlabel=label)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("microseconds a sample, one thread")
    axes[0].legend(frameon=False)
    figure.suptitle("Refactorisation and one solve, and update and solve with multigrid to 1e-10")
    figure.savefig(IMAGES / "direct-and-multigrid.png", dpi=150)
    plt.close(figure)


def main() -> None:
    """Draw the record."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw(record("direct-curves-1threads")["rows"])
