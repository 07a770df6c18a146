"""Weak scaling measured and predicted, and the gain of a message, from the records of `bench_distributed`."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.plots import BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW, legend_panel, panels, record, save

STYLES = {1: (BLUE, "o", "-"), 8: (ORANGE, "s", "--"), 16: (GREEN, "^", "-."), 32: (PURPLE, "D", ":")}
"""Of each number of samples: colour and mark, and the dashes of what is predicted."""

SHOWN = "32^3 rows a rank"


def draw_messages(axes: Any, halo: dict[str, Any]) -> None:
    """The gain of an exchange by the samples in a message, measured and by the fitted equation."""
    ways = {("shared memory", 50): (BLUE, "o"), ("TCP", 1000): (GREEN, "^"), ("shared memory", 1000): (ORANGE, "s")}
    for (way, rows), (colour, mark) in ways.items():
        own = [r for r in halo["rows"] if (r["what"], r["way"], r["rows"]) == ("exchange", way, rows)]
        sizes, gains = [r["samples"] for r in own], [r["samples"] * own[0]["least us"] / r["least us"] for r in own]
        axes.plot(sizes, gains, f"{mark}-", color=colour, label=f"{way},\n{rows} rows")
        fit = next(f for f in halo["fits"] if (f["way"], f["rows"]) == (way, rows))
        a, b = fit["a us"], fit["b us"]
        fitted = axes.plot(sizes, [S * (a + b) / (a + b * S) for S in sizes], "k:", lw=1.2)
    fitted[0].set_label("equation 14")
    axes.set(xscale="log", yscale="log", xlabel="samples in a message", title="exchange: speed per sample")
    axes.set_xticks([1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8, 16, 32, 64])
    axes.set_yticks([1, 2, 5, 10, 20], [1, 2, 5, 10, 20])
    axes.minorticks_off()


def draw(halo: dict[str, Any], weak: dict[str, Any], scaling: dict[str, Any]) -> None:
    """The gain by samples; time over one rank's; speed per sample over one sample at a time."""
    figure, axes = panels(3, 2, 8.2, width_ratios=(1.0, 0.6))
    (above, middle, below), (first, second, third) = axes[:, 0], axes[:, 1]
    draw_messages(above, halo)
    legend_panel(first, *above.get_legend_handles_labels(), loc="center left", labelspacing=0.8)
    ones = {row["ranks"]: row["least us"] for row in weak["rows"] if row["samples"] == 1 and row["edge"] == 32}
    for S, (colour, mark, dashes) in STYLES.items():
        own = [row for row in scaling["rows"] if row["variant"] == SHOWN and row["samples"] == S]
        ranks = [row["ranks"] for row in own]
        middle.plot(ranks, [1.0 / row["efficiency"] for row in own], ls=dashes, color=colour)
        below.plot(ranks, [row["x one sample"] for row in own], ls=dashes, color=colour)
        measured = {row["ranks"]: row["least us"] for row in weak["rows"] if row["samples"] == S and row["edge"] == 32}
        middle.plot(list(measured), [us / measured[1] for us in measured.values()], mark, color=colour)
        below.plot(list(measured), [S * ones[P] / us for P, us in measured.items()], mark, color=colour)
        word = "sample" if S == 1 else "samples"
        middle.plot([], [], ls=dashes, marker=mark, color=colour, label=f"{S} {word}")
    middle.set(xscale="log", ylim=(0.0, None), xlabel="ranks", title="time of an iteration, over one rank's")
    below.set(xscale="log", ylim=(0.0, None), xlabel="ranks", title="speed per sample, over one at a time")
    both: dict[str, Any] = {"loc": "center left", "handlelength": 3.2, "title": "marks: measured\nlines: predicted\n"
                            "32³ cells a rank", "alignment": "left"}  # fmt: skip
    legend_panel(second, *middle.get_legend_handles_labels(), **both)
    legend_panel(third, *middle.get_legend_handles_labels(), **both)
    save(figure, "weak-scaling.png")


def draw_gpus(found: dict[str, Any]) -> None:
    """Work of k GPUs over that of one in the same time, and times of exchanges by their bytes."""
    figure, axes = panels(2, 2, 6.8, width_ratios=(1.0, 0.62))
    (above, below), (first, second) = axes[:, 0], axes[:, 1]
    shown = {
        "weak128 product": ("product, 128³ a GPU", "o-", BLUE),
        "weak128 solve": ("solve, 128³ a GPU", "s-", SKY),
        "weak product": ("product, 64³ a GPU", "o--", ORANGE),
        "weak solve": ("solve, 64³ a GPU", "s--", YELLOW),
        "kalman weak smoother": ("smoother,\n10⁷ steps a GPU", "^-", GREEN),
        "grids": ("GBEES,\n64 grids in all", "v-", PURPLE),
    }
    for what, (label, style, colour) in shown.items():
        own = {row["GPUs"]: row["gain"] for row in found["gains"] if row["what"] == what}
        above.plot([1, *own], [1.0, *own.values()], style, color=colour, label=label)
    above.plot([1, 4], [1, 4], "k:", lw=1, label="GPUs times as much")
    above.set(xlabel="GPUs", title="work in the time of one GPU", xticks=[1, 2, 4], ylim=(0.0, None))
    for gpus, (colour, dashes) in {2: (BLUE, "-"), 4: (ORANGE, "--")}.items():
        for rows, mark in {50: "o", 1000: "s", 4225: "^", 16641: "v"}.items():
            own = next(
                r for r in found["rows"]
                if r.get("message") == f"exchange of {rows} rows" and r["ranks"] == gpus
            )  # fmt: skip
            sizes = [int(size.split()[0]) for size in own["us"]]
            line = f"{rows:,} rows, {gpus} GPUs"
            below.plot(sizes, list(own["us"].values()), marker=mark, ls=dashes, color=colour, label=line)
    below.set(xscale="log", yscale="log", xlabel="bytes to each neighbour", title="microseconds of an exchange")
    below.set_yticks([20, 30, 50, 70], [20, 30, 50, 70])
    below.minorticks_off()
    for panel, beside in ((above, first), (below, second)):
        legend_panel(beside, *panel.get_legend_handles_labels(), loc="center left", handlelength=2.6)
    save(figure, "scaling-gpus.png")


def main() -> None:
    """Draw the records."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw(*(record(f"distributed-{name}") for name in ("halo", "weak", "scaling")))
    draw_gpus(record("distributed-gpus"))
