"""The five analyses of Gaurav and Wojtkiewicz (2011): times against size, from the records of `bench_analyses`."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.plots import IMAGES, pyplot, record

PANELS = {
    "static": ("static beam, 1000 loads", "DOF", "unknowns", {"method": ("dense", "banded")}),
    "frequency": ("spectral densities", "DOF", "unknowns", {}),
    "convolution": ("convolution, 1024 times", "states", "states", {"times": (1024,)}),
    "oscillator": (
        "oscillator, 1000 steps, noise given or drawn",
        "samples",
        "samples",
        {"variant": ("given", "drawn")},
    ),
    "quadrature": ("Gauss-Hermite, 4 nodes", "variables", "variables", {"integrand": ("sum of squares",)}),
}
"""Of each analysis: a title, what is on the axis and its label, and the cases that are drawn."""

COLUMNS = {"one thread ms": ("#0072b2", "o"), "all threads ms": ("#009e73", "^"), "device ms": ("#d55e00", "s")}

LINES = ("-", ":")


def rows_of(name: str) -> list[dict[str, Any]]:
    """Rows of the records of an analysis in double precision, that of the CPU first."""
    found: list[dict[str, Any]] = []
    for suffix in ("", "-h200-alone"):
        try:
            rows = record(f"analyses-{name}{suffix}")["rows"]
        except FileNotFoundError:
            continue
        found += [row for row in rows if row["precision"] == "DP"]
    return found


def draw_panel(axis: Any, name: str) -> None:
    """Milliseconds of one analysis."""
    title, key, label, cases = PANELS[name]
    rows = rows_of(name)
    [(choice, values)] = cases.items() or [("precision", ("DP",))]
    for line, value in zip(LINES, values, strict=False):
        for column, (colour, marker) in COLUMNS.items():
            points = sorted((row[key], row[column]) for row in rows if row[choice] == value and column in row)
            if points:
                axis.plot(*zip(*points, strict=True), marker + line, color=colour, markersize=4)
    axis.set(yscale="log", xlabel=label)
    if key != "variables":
        axis.set_xscale("log")
    axis.spines[["top", "right"]].set_visible(False)
    if len(values) > 1:
        shown = ", ".join(f"{'solid' if line == '-' else 'dotted'}: {value}" for line, value in zip(LINES, values))
        axis.set_title(f"{title}\n{shown}", fontsize=10)
    else:
        axis.set_title(title, fontsize=10)
    axis.xaxis.set_minor_formatter("")
    if key == "states":
        sizes = sorted({row[key] for row in rows if row[choice] in values})
        axis.set_xticks(sizes, [str(size) for size in sizes])


def draw() -> None:
    """A panel for each analysis, and one with the legend."""
    plt = pyplot()
    figure, axes = plt.subplots(2, 3, figsize=(11, 6.4), layout="constrained")
    for axis, name in zip(axes.flat, PANELS, strict=False):
        draw_panel(axis, name)
    for row in axes:
        row[0].set_ylabel("milliseconds, double precision")
    last = axes.flat[-1]
    for column, (colour, marker) in COLUMNS.items():
        last.plot([], [], marker + "-", color=colour, label=column.removesuffix(" ms"))
    last.legend(frameon=False, loc="center", fontsize=12)
    last.axis("off")
    figure.savefig(IMAGES / "analyses.png", dpi=130)
    plt.close(figure)


def main() -> None:
    """Draw the records."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw()
