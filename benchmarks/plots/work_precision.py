"""Time per sample against error of initial value problems, from the record of `work-precision`."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.plots import IMAGES, pyplot, record

STYLES = {
    "ensemble tsit5": ("#1b6ca8", "o-"),
    "ensemble dop853": ("#0b3c5d", "s-"),
    "ensemble taylor": ("#5aa9e6", "^-"),
    "ensemble rodas4": ("#0b3c5d", "s-"),
    "ensemble bdf": ("#5aa9e6", "^-"),
    "heyoka": ("#2e8b57", "v--"),
    "CasADi CVODES": ("#8a6d3b", "P--"),
    "numbalsoda LSODA": ("#2e8b57", "v--"),
    "diffrax Dopri8": ("#8e44ad", "D--"),
    "diffrax Kvaerno5": ("#8e44ad", "D--"),
    "SciPy DOP853": ("#d1603d", "s:"),
    "SciPy LSODA": ("#e8a33d", "o:"),
    "SciPy BDF": ("#b03a5b", "^:"),
    "SciPy Radau": ("#d1603d", "v:"),
}


def draw(rows: list[dict[str, Any]]) -> None:
    """One axis for each case; below and to the left is better."""
    plt = pyplot()
    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure, axes = plt.subplots(2, 3, figsize=(13, 8), layout="constrained")
    lines: dict[bool, dict[str, Any]] = {False: {}, True: {}}
    for axis, case in zip(axes.flat, cases, strict=False):
        stiff = any(row["solver"] == "ensemble rodas4" for row in rows if row["case"] == case)
        for name, (colour, style) in STYLES.items():
            points = [row for row in rows if row["case"] == case and row["solver"] == name and 0.0 < row["error"] < 1.0]
            if points:
                errors, times = [p["error"] for p in points], [p["us per sample"] for p in points]
                lines[stiff][name] = axis.plot(errors, times, style, color=colour, markersize=5, linewidth=1.4)[0]
        axis.set(xscale="log", yscale="log", title=case, xlabel="error")
        axis.invert_xaxis()
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, which="major")
    for axis in axes[:, 0]:
        axis.set_ylabel("microseconds per sample, one core")
    for axis in axes.flat[len(cases) :]:
        axis.axis("off")
    for stiff, place in ((False, "upper left"), (True, "upper right")):
        found = lines[stiff]
        title = "stiff: HIRES, Robertson" if stiff else "not stiff"
        legend = axes.flat[-1].legend(found.values(), found.keys(), loc=place, frameon=False, title=title)
        if not stiff:
            axes.flat[-1].add_artist(legend)
    figure.savefig(IMAGES / "work-precision.png", dpi=130)
    plt.close(figure)


def main() -> None:
    """Draw the record."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw(record("work-precision")["rows"])
