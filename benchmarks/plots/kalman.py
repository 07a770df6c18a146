"""Plots of Kalman filters and smoothers by scan and length, simulated or measured.

``python -m benchmarks plots-kalman``: those of the device, from ``results/kalman-cuda.json`` and
``kalman-two-gpus.json``, and the simulated ones, from ``kalman-operations.json``.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.plots import BLUE, GREEN, ORANGE, PURPLE, YELLOW, legend_panel, panels, record, save

METHODS = ("PKF", "PRTS", "PTFS")

TWO = ("PRTS, one GPU", "PTFS, one GPU", "PTFS, two GPUs")
"""Smoothers of the figures with two devices, and how many run them."""

WORDS = {"PKF": "filter", "PRTS": "Rauch-Tung-Striebel smoother", "PTFS": "two-filter smoother"}
"""What the names of the methods in the records stand for."""

OPERATIONS = "operations, one after another"
"""What the simulation counts."""

STYLES = {
    "Hillis-Steele": (PURPLE, "s"),
    "Blelloch": (ORANGE, "^"),
    "Ladner-Fischer": (BLUE, "o"),
    "Sengupta A": (GREEN, "D"),
    "Sengupta B": (YELLOW, "v"),
    "ours": ("#000000", "o"),
}
"""Colour and mark of every scan, the same in all plots."""


def best_chunks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the rows by chunks, the fastest for each length and method."""
    chunks = [r for r in rows if r["scan"].startswith("chunks")]
    keys = {(r["T"], r["method"]) for r in chunks}
    same = lambda key: [r for r in chunks if (r["T"], r["method"]) == key]
    return [min(same(key), key=lambda r: r["graph ms"]) for key in sorted(keys)]


def _scans(rows: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Colours and marks of the scans that occur."""
    return {scan: style for scan, style in STYLES.items() if any(r["scan"] == scan for r in rows)}


def in_words(method: str) -> str:
    """The method of a record in words, and on a line of its own what stands behind its name."""
    name, comma, rest = method.partition(",")
    return WORDS[name] + comma + rest.replace(" ", "\n", 1)


def lines(
    rows: list[dict[str, Any]], value: str, label: str, file: str, methods: tuple[str, ...] = METHODS,
) -> None:  # fmt: skip
    """A panel for each method, and one with the legend: `value` against the number of steps, a line for each scan."""
    figure, axes = panels(2, 2, 5.6, sharex=True, sharey=True)
    for panel, method in zip(axes.flat, methods, strict=False):
        for scan, (colour, mark) in _scans(rows).items():
            points = sorted((r["T"], r[value]) for r in rows if r["method"] == method and r["scan"] == scan)
            width = 2.2 if scan == "ours" else 1.3
            dash = (0, (2, 2)) if scan == "Sengupta A" else "-"  # over Ladner and Fischer's line, which it often covers
            panel.plot(*zip(*points, strict=True), color=colour, marker=mark, ms=4, lw=width, ls=dash, label=scan)
        panel.set(xscale="log", yscale="log", title=in_words(method))
    figure.supylabel(label, fontsize=10.5)
    low, high = axes[0, 0].get_ylim()
    if high < 100.0 * low:  # less than two decades: one tick is too few
        axes[0, 0].set_yticks([0.2, 0.5, 1.0, 2.0, 5.0], [0.2, 0.5, 1, 2, 5])
        axes[0, 0].minorticks_off()
    axes[0, 1].tick_params(labelbottom=True)  # the panel below it has no axis
    for panel in (axes[1, 0], axes[0, 1]):
        panel.set_xlabel("steps")
    legend_panel(axes[1, 1], *axes[0, 0].get_legend_handles_labels())
    save(figure, file)


def speedup(rows: list[dict[str, Any]], file: str) -> None:
    """The parallel filter over the recursion on one thread of the same device."""
    alone = {r["T"]: r["call ms"] for r in rows if r["scan"] == "one thread"}
    figure, axes = panels(1, 1, 4.2)
    for scan in ("ours", "Ladner-Fischer"):
        colour, mark = STYLES[scan]
        filters = [r for r in rows if r["method"] == "PKF" and r["scan"] == scan]
        points = sorted((r["T"], alone[r["T"]] / r["graph ms"]) for r in filters)
        axes.plot(*zip(*points, strict=True), color=colour, marker=mark, label=scan)
        above = scan == "ours"
        for T, x in points:
            shift = (-8, 5) if above else (8, -15)
            axes.annotate(f"{x:,.0f}", (T, x), textcoords="offset points", xytext=shift, ha="center")
    axes.axhline(500, color="0.6", lw=0.9, ls="--")
    axes.annotate("published for an\nA100: about 500", (8e2, 530), color="0.35", va="bottom")
    axes.set(xscale="log", yscale="log", xlabel="steps", ylabel="filter: speed over one GPU thread")
    axes.legend(loc="upper left")
    axes.set_ylim(5.0, 2e4)
    save(figure, file)


def by_devices(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of smoothers on one device and on two, the method and the number of devices as the method."""
    names = [r["run"].rsplit(", ", 1) for r in rows]
    full = dict(zip(("PRTS, one", "PTFS, one", "PTFS, two"), TWO, strict=True))
    return [{**r, "method": full[method], "scan": scan} for r, (method, scan) in zip(rows, names, strict=True)]


def main() -> None:
    """All plots of the records."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    rows = record("kalman-cuda")["rows"]
    rows = [r for r in rows if not r["scan"].startswith("chunks")] + [{**r, "scan": "ours"} for r in best_chunks(rows)]
    rows = [r for r in rows if not r["scan"].startswith("JAX")]
    lines(rows, "graph ms", "milliseconds", "kalman-gpu.png")
    speedup(rows, "kalman-gpu-speedup.png")
    rows = by_devices(record("kalman-two-gpus")["rows"])
    lines(rows, "ms", "milliseconds", "kalman-two-gpus.png", TWO)
    lines(record("kalman-operations")["rows"], "time", OPERATIONS, "kalman-operations.png")
