"""Cost of a direct solve and of multigrid against unknowns and samples, from the record of `bench_direct --curves`."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.plots import BLUE, ORANGE, legend_panel, panels, record, save

STYLES = {"direct": (BLUE, "o-"), "multigrid": (ORANGE, "s--")}


def draw(rows: list[dict[str, Any]]) -> None:
    """Microseconds per sample: on squares and cubes with 16 samples, and on one square with 1 to 128 samples."""
    figure, axes = panels(2, 2, 5.8)
    chosen = {
        "16 samples, squares": ("n", [r for r in rows if r["dimensions"] == 2 and r["n_samples"] == 16]),
        "16 samples, cubes": ("n", [r for r in rows if r["dimensions"] == 3]),
        "a square of 60 by 60": ("n_samples", [r for r in rows if r["n"] == 3600]),
    }
    for axis, (title, (key, points)) in zip(axes.flat, chosen.items(), strict=False):
        points = sorted(points, key=lambda row: row[key])
        for name, (colour, style) in STYLES.items():
            values = [row[f"{name} us"] for row in points]
            axis.plot([row[key] for row in points], values, style, color=colour, label=name)
        axis.set(xscale="log", yscale="log", title=title, xlabel="unknowns" if key == "n" else "samples")
    for row in axes:
        row[0].set_ylabel("microseconds a sample")
    labels = ("direct: refactorisation\nand one solve", "multigrid: update and\nsolve to 1e-10")
    legend_panel(axes[1, 1], axes[0, 0].get_lines(), labels, title="one thread", labelspacing=1.0)
    save(figure, "direct-and-multigrid.png")


def main() -> None:
    """Draw the record."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw(record("direct-curves-1threads")["rows"])
