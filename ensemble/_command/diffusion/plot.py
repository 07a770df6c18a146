"""The picture of a diffusion run: how the response spreads, and u along the middle line."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ensemble._command.diffusion.record import Record
from ensemble._command.shared.style import BLUE, GREY, INK, ORANGE, STYLE

__all__ = ["figure"]


def figure(record: Record) -> Figure:
    """A histogram of the response beside the mean and spread of u along z."""
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(9.6, 4.6), layout="constrained")
        FigureCanvasAgg(drawing)
        halves: Any = drawing.subfigures(1, 2, width_ratios=(1.15, 1.0))
        left, right = halves
        histogram(left.subplots(), record)
        profile(right.subplots(2, 1, sharex=True, height_ratios=(1.0, 1.25)), record)
        options = record.options
        x, y, z = record.problem.mesh.cells
        drawing.suptitle(
            f"Random diffusion, {x} × {y} × {z} cells, {record.done:,} samples, {options.terms} random terms",
            x=0.012,
            ha="left",
            fontsize=12,
            fontweight="bold",
        )
        drawing.draw_without_rendering()
        return drawing


def histogram(axes: Any, record: Record) -> None:
    """The response of the good samples, their mean and the interval around it."""
    response, found = record.response[record.good], record.estimate
    if response.size > 1:
        axes.hist(response, bins="auto", color=BLUE, alpha=0.75, edgecolor="white", linewidth=0.6)
        axes.plot(response, np.zeros_like(response), "|", color=INK, alpha=0.35, markersize=6, clip_on=False, zorder=3)
    if np.isfinite(found.low):
        half = (found.high - found.low) / 2.0
        axes.axvspan(found.low, found.high, color=ORANGE, alpha=0.35, linewidth=0, label=f"95 % interval ± {half:.2g}")
    axes.axvline(found.mean, color=ORANGE, linewidth=1.0, label=f"mean {found.mean:.6g}")
    axes.plot([], [], " ", label=f"std {found.std:.3g}")
    axes.set(title="Response", xlabel="mean of $u^2$ over the nodes", ylabel="samples")
    axes.set_ylim(bottom=0.0, top=axes.get_ylim()[1] * 1.22)
    axes.legend(loc="upper left", borderaxespad=0.2)
    axes.locator_params(axis="x", nbins=6)


def profile(pair: Any, record: Record) -> None:
    """Above, the mean of u along z; below, the deviations of samples from u = 1 + z."""
    upper, lower = pair
    z, u = record.problem.mesh.axes[2], record.profile[:, record.good]
    deviation = u - (1.0 + z)[:, None]
    mean = u.mean(axis=1) if u.size else np.full(z.size, np.nan)
    upper.plot(z, 1.0 + z, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)), label="$1 + z$")
    upper.plot(z, mean, color=BLUE, linewidth=1.8, label="mean of $u$")
    upper.set(title="$u$ along $z$ through the centre", ylabel="$u$")
    upper.legend(loc="upper left", borderaxespad=0.2)
    lower.axhline(0.0, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    if u.shape[1] > 1:
        for share, alpha in ((95, 0.18), (68, 0.32)):
            low, high = np.percentile(deviation, [50 - share / 2, 50 + share / 2], axis=1)
            lower.fill_between(z, low, high, color=BLUE, alpha=alpha, linewidth=0, label=f"{share} % of samples")
        height = np.ptp(lower.get_ylim())
        lower.set_ylim(top=lower.get_ylim()[1] + 0.3 * height)
        lower.legend(loc="upper center", ncols=2, borderaxespad=0.2, columnspacing=1.4, handlelength=1.4)
    lower.plot(z, mean - 1.0 - z, color=BLUE, linewidth=1.8)
    lower.set(xlabel="$z$", ylabel="$u - (1 + z)$", xlim=(0.0, 1.0))
