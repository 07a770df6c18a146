"""The five analyses of Gaurav and Wojtkiewicz (2011): times against size, from the records of `bench_analyses`."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.plots import BLUE, GREEN, ORANGE, RESULTS, legend_panel, panels, record, save

PANELS = {
    "static": ("static beam, 1000 loads", "DOF", "unknowns", {"method": ("dense", "banded")}),
    "frequency": ("spectral densities", "DOF", "unknowns", {}),
    "convolution": ("convolution, 1024 times", "states", "states", {"times": (1024,)}),
    "oscillator": (
        "oscillator, 1000 steps of noise",
        "samples",
        "samples",
        {"variant": ("given", "drawn")},
    ),
    "quadrature": ("Gauss-Hermite, 4 nodes", "variables", "variables", {"integrand": ("sum of squares",)}),
}
"""Of each analysis: a title, what is on the axis and its label, and the cases that are drawn."""

COLUMNS = {"one thread ms": (BLUE, "o"), "all threads ms": (GREEN, "^"), "device ms": (ORANGE, "s")}

LINES = ("-", ":")


def rows_of(name: str) -> list[dict[str, Any]]:
    """Rows of an analysis in double precision: times of threads from the one record, of the device from the other."""
    on_device = f"analyses-{name}-h200-alone"
    there = record(on_device if (RESULTS / f"{on_device}.json").exists() else f"analyses-{name}-h200")["rows"]
    rows = [*record(f"analyses-{name}")["rows"], *({k: v for k, v in r.items() if "thread" not in k} for r in there)]
    return [row for row in rows if row["precision"] == "DP"]


def draw_panel(axis: Any, name: str) -> None:
    """Milliseconds of one analysis."""
    title, key, label, cases = PANELS[name]
    rows = rows_of(name)
    [(choice, values)] = cases.items() or [("precision", ("DP",))]
    for line, value in zip(LINES, values, strict=False):
        for column, (colour, marker) in COLUMNS.items():
            points = sorted((row[key], row[column]) for row in rows if row[choice] == value and column in row)
            if points:
                axis.plot(*zip(*points, strict=True), marker + line, color=colour)
    axis.set(yscale="log", xlabel=label)
    if key != "variables":
        axis.set_xscale("log")
    if len(values) > 1:
        shown = ", ".join(f"{'solid' if line == '-' else 'dotted'}: {value}" for line, value in zip(LINES, values))
        axis.set_title(f"{title}\n{shown}")
    else:
        axis.set_title(title)
    axis.xaxis.set_minor_formatter("")
    if key == "states":
        sizes = sorted({row[key] for row in rows if row[choice] in values})
        axis.set_xticks(sizes, [str(size) for size in sizes])


def draw() -> None:
    """A panel for each analysis, and one with the legend."""
    figure, axes = panels(3, 2, 8.4)
    for axis, name in zip(axes.flat, PANELS, strict=False):
        draw_panel(axis, name)
    for row in axes:
        row[0].set_ylabel("milliseconds")
    lines = [axes[0, 0].plot([], [], marker + "-", color=colour)[0] for colour, marker in COLUMNS.values()]
    names = [column.removesuffix(" ms") for column in COLUMNS]
    legend_panel(axes[2, 1], lines, names, title="double precision")
    save(figure, "analyses.png")


def main() -> None:
    """Draw the records."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw()
