"""Time per sample against error of initial value problems, from the record of `work-precision`."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.plots import BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW, legend_panel, panels, record, save

STYLES = {
    "ensemble tsit5": (BLUE, "o-"),
    "ensemble dop853": ("#0b3c5d", "s-"),
    "ensemble taylor": (SKY, "^-"),
    "ensemble rodas4": ("#0b3c5d", "s-"),
    "ensemble bdf": (SKY, "^-"),
    "heyoka": (GREEN, "v--"),
    "CasADi CVODES": ("#8a6d3b", "P--"),
    "numbalsoda LSODA": (GREEN, "v--"),
    "diffrax Dopri8": (PURPLE, "D--"),
    "diffrax Kvaerno5": (PURPLE, "D--"),
    "SciPy DOP853": (ORANGE, "s:"),
    "SciPy LSODA": (YELLOW, "o:"),
    "SciPy BDF": ("0.3", "^:"),
    "SciPy Radau": (ORANGE, "v:"),
}


def draw_case(axis: Any, case: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Draw the lines of a case; below and to the left is better. Give them by solver."""
    lines = {}
    for name, (colour, style) in STYLES.items():
        points = [row for row in rows if row["case"] == case and row["solver"] == name and 0.0 < row["error"] < 1.0]
        if points:
            errors, times = [p["error"] for p in points], [p["us per sample"] for p in points]
            lines[name] = axis.plot(errors, times, style, color=colour, linewidth=1.4)[0]
    axis.set(xscale="log", yscale="log", title=case, xlabel="error")
    limits = axis.get_xlim()
    axis.set_xticks([10.0**-k for k in range(2, 16, 4)])
    axis.minorticks_off()
    axis.set_xlim(limits)
    axis.invert_xaxis()
    return lines


def draw(rows: list[dict[str, Any]]) -> None:
    """One panel for each case: three that are not stiff, with their legend, and two that are, above theirs."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    stiff = [case for case in cases if any(row["solver"] == "ensemble rodas4" for row in rows if row["case"] == case)]
    figure, axes = panels(4, 2, 10.4, height_ratios=(1.0, 1.0, 1.0, 0.5))
    first: dict[str, Any] = {}
    for axis, case in zip(axes.flat, [case for case in cases if case not in stiff], strict=False):
        first |= draw_case(axis, case, rows)
    legend_panel(axes[1, 1], first.values(), first.keys(), title="not stiff", handlelength=3.0)
    second: dict[str, Any] = {}
    for axis, case in zip(axes[2], stiff, strict=True):
        second |= draw_case(axis, case, rows)
    for axis in axes[:3, 0]:
        axis.set_ylabel("microseconds per sample")
    axes[3, 0].axis("off")
    axes[3, 1].axis("off")
    axes[3, 0].legend(
        second.values(), second.keys(), title="stiff", ncols=2, handlelength=3.0, loc="upper left",
        bbox_to_anchor=(0.0, 1.0), borderaxespad=0.0,
    ).set_in_layout(False)  # fmt: skip
    save(figure, "work-precision.png")


def main() -> None:
    """Draw the record."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw(record("work-precision")["rows"])
