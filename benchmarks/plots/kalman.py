"""Plots of Kalman filters and smoothers by scan and length, simulated or measured.

``python -m benchmarks plots-kalman``: those of the device, from ``results/kalman-cuda.json`` and
``kalman-two-gpus.json``.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.plots import IMAGES, pyplot, record

METHODS = ("PKF", "PRTS", "PTFS")

TWO = ("PRTS, one GPU", "PTFS, one GPU", "PTFS, two GPUs")
"""Smoothers of the figures with two devices, and how many run them."""

WORDS = {"PKF": "filter", "PRTS": "Rauch-Tung-Striebel smoother", "PTFS": "two-filter smoother"}
"""What the names of the methods in the records stand for."""

STYLES = {
    "Hillis-Steele": ("#cc79a7", "s"),
    "Blelloch": ("#d55e00", "^"),
    "Ladner-Fischer": ("#0072b2", "o"),
    "Sengupta A": ("#009e73", "D"),
    "Sengupta B": ("#e69f00", "v"),
    "ours": ("#000000", "o"),
}
"""Colour and mark of every scan, the same in all plots: colours of Okabe and Ito, told apart by the colour-blind."""


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
    """The method of a record in words, with what stands behind its name."""
    name, comma, rest = method.partition(",")
    return WORDS[name] + comma + rest


def lines(
    rows: list[dict[str, Any]], value: str, label: str, file: str, methods: tuple[str, ...] = METHODS,
) -> None:  # fmt: skip
    """A panel for each method: `value` against the number of steps, a line for each scan."""
    plt = pyplot()
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.9), layout="constrained", sharey=True)
    for axes, method in zip(panels, methods, strict=True):
        for scan, (colour, mark) in _scans(rows).items():
            points = sorted((r["T"], r[value]) for r in rows if r["method"] == method and r["scan"] == scan)
            width = 2.2 if scan == "ours" else 1.3
            dash = (0, (2, 2)) if scan == "Sengupta A" else "-"  # over Ladner and Fischer's line, which it often covers
            axes.plot(*zip(*points, strict=True), color=colour, marker=mark, ms=4, lw=width, ls=dash, label=scan)
        axes.set(xscale="log", yscale="log", xlabel="steps")
        axes.set_title(in_words(method), fontsize=10)
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(label)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", frameon=False, fontsize=9, ncols=len(labels))
    figure.savefig(IMAGES / file, dpi=150)
    plt.close(figure)


def speedup(rows: list[dict[str, Any]], file: str) -> None:
    """The parallel filter over the recursion on one thread of the same device."""
    plt = pyplot()
    alone = {r["T"]: r["call ms"] for r in rows if r["scan"] == "one thread"}
    figure, axes = plt.subplots(figsize=(5.6, 3.9), layout="constrained")
    for scan in ("ours", "Ladner-Fischer"):
        colour, mark = STYLES[scan]
        filters = [r for r in rows if r["method"] == "PKF" and r["scan"] == scan]
        points = sorted((r["T"], alone[r["T"]] / r["graph ms"]) for r in filters)
        axes.plot(*zip(*points, strict=True), color=colour, marker=mark, label=scan)
        above = scan == "ours"
        for T, x in points:
            shift = (-8, 5) if above else (8, -13)
            axes.annotate(f"{x:,.0f}", (T, x), textcoords="offset points", xytext=shift, ha="center", fontsize=8)
    axes.axhline(500, color="0.6", lw=0.9, ls="--")
    axes.annotate("published for an A100: about 500", (1.2e7, 470), fontsize=8, color="0.35", ha="right", va="top")
    axes.set(xscale="log", yscale="log", xlabel="steps", ylabel="filter: speed over one GPU thread")
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper left")
    axes.set_ylim(5.0, 2e4)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGES / file, dpi=150)
    plt.close(figure)


def by_devices(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of smoothers on one device and on two, the method and the number of devices as the method."""
    names = [r["run"].rsplit(", ", 1) for r in rows]
    full = dict(zip(("PRTS, one", "PTFS, one", "PTFS, two"), TWO, strict=True))
    return [{**r, "method": full[method], "scan": scan} for r, (method, scan) in zip(rows, names, strict=True)]


def main() -> None:
    """All plots of the device."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    rows = record("kalman-cuda")["rows"]
    rows = [r for r in rows if not r["scan"].startswith("chunks")] + [{**r, "scan": "ours"} for r in best_chunks(rows)]
    rows = [r for r in rows if not r["scan"].startswith("JAX")]
    lines(rows, "graph ms", "ms", "kalman-gpu.png")
    speedup(rows, "kalman-gpu-speedup.png")
    rows = by_devices(record("kalman-two-gpus")["rows"])
    lines(rows, "ms", "ms", "kalman-two-gpus.png", TWO)
