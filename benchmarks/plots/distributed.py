"""Weak scaling measured and predicted, and the gain of a message, from the records of `bench_distributed`."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.plots import IMAGES, pyplot, record

COLOURS = {1: "#1b6ca8", 8: "#d1603d", 16: "#6a994e", 32: "#5e548e"}
SHOWN = "32^3 rows a rank"


def draw(halo: dict[str, Any], weak: dict[str, Any], scaling: dict[str, Any]) -> None:
    """The gain by samples; time over one rank's; speed per sample over one sample at a time."""
    plt = pyplot()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for (way, rows), style in {("shared memory", 50): "o-", ("shared memory", 1000): "s-", ("TCP", 1000): "^-"}.items():
        own = [r for r in halo["rows"] if (r["what"], r["way"], r["rows"]) == ("exchange", way, rows)]
        gains = [r["samples"] * own[0]["least us"] / r["least us"] for r in own]
        left.plot([r["samples"] for r in own], gains, style, label=f"{way}, {rows} rows")
        fit = next(f for f in halo["fits"] if (f["way"], f["rows"]) == (way, rows))
        a, b = fit["a us"], fit["b us"]
        left.plot(
            [r["samples"] for r in own], [r["samples"] * (a + b) / (a + b * r["samples"]) for r in own], "k:", lw=1
        )
    left.set(xscale="log", yscale="log", xlabel="samples in a message", ylabel="speed per sample, exchange")
    left.set_xticks([1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8, 16, 32, 64])
    rows = [row for row in scaling["rows"] if row["variant"] == SHOWN]
    for S, colour in COLOURS.items():
        own = [row for row in rows if row["samples"] == S]
        ranks = [row["ranks"] for row in own]
        middle.plot(ranks, [1.0 / row["efficiency"] for row in own], "-", color=colour, label=f"{S} samples")
        right.plot(ranks, [row["x one sample"] for row in own], "-", color=colour, label=f"{S} samples")
        measured = {row["ranks"]: row["least us"] for row in weak["rows"] if row["samples"] == S and row["edge"] == 32}
        ones = {row["ranks"]: row["least us"] for row in weak["rows"] if row["samples"] == 1 and row["edge"] == 32}
        middle.plot(list(measured), [us / measured[1] for us in measured.values()], "o", color=colour)
        right.plot(list(measured), [S * ones[P] / us for P, us in measured.items()], "o", color=colour)
    middle.set(xscale="log", xlabel="ranks", ylabel="time of an iteration, over one rank's", ylim=(0.0, None))
    right.set(xscale="log", xlabel="ranks", ylabel="speed per sample, over one at a time", ylim=(0.0, None))
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.suptitle("Left: measured, and equation 14 (dotted). Middle, right: points measured, "
                    "lines predicted, 32³ cells a rank", fontsize=10)  # fmt: skip
    figure.savefig(IMAGES / "weak-scaling.png", dpi=150)
    plt.close(figure)


def draw_gpus(found: dict[str, Any]) -> None:
    """Work of k GPUs over that of one in the same time, and times of exchanges by their bytes."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    shown = {
        "weak128 product": ("product, 128³ a GPU", "o-", "#1b6ca8"),
        "weak128 solve": ("solve, 128³ a GPU", "s-", "#1b6ca8"),
        "weak product": ("product, 64³ a GPU", "o--", "#d1603d"),
        "weak solve": ("solve, 64³ a GPU", "s--", "#d1603d"),
        "kalman weak smoother": ("smoother, 10⁷ steps a GPU", "^-", "#6a994e"),
        "grids": ("GBEES, 64 grids in all", "v-", "#5e548e"),
    }
    for what, (label, style, colour) in shown.items():
        own = {row["GPUs"]: row["gain"] for row in found["gains"] if row["what"] == what}
        left.plot([1, *own], [1.0, *own.values()], style, color=colour, label=label)
    left.plot([1, 4], [1, 4], "k:", lw=1)
    left.set(xlabel="GPUs", ylabel="work in the time of one GPU", xticks=[1, 2, 4], ylim=(0.0, None))
    for gpus, colour in {2: "#1b6ca8", 4: "#d1603d"}.items():
        for rows, style in {50: "o", 1000: "s", 4225: "^", 16641: "v"}.items():
            own = next(
                r for r in found["rows"]
                if r.get("message") == f"exchange of {rows} rows" and r["ranks"] == gpus
            )  # fmt: skip
            sizes = [int(size.split()[0]) for size in own["us"]]
            right.plot(sizes, list(own["us"].values()), style + "-", color=colour, label=f"{rows} rows, {gpus} GPUs")
    right.set(xscale="log", yscale="log", xlabel="bytes to each neighbour", ylabel="time of an exchange, us")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=7)
    figure.savefig(IMAGES / "scaling-gpus.png", dpi=150)
    plt.close(figure)


def main() -> None:
    """Draw the records."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw(*(record(f"distributed-{name}") for name in ("halo", "weak", "scaling")))
    draw_gpus(record("distributed-gpus"))
