"""The picture of a grid's run: its distributions, and how many cells it took."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ensemble._command.gbees.report import Outcome
from ensemble._command.shared.style import INK, STYLE
from ensemble.apps.gbees import legend_handles, marginal, plot_cells, plot_isosurfaces, plot_region

__all__ = ["figure"]

MASSES = (0.5, 0.9, 0.99)
"""Probability inside the surfaces, or regions, of each record."""


def figure(outcome: Outcome) -> Figure:
    """Distributions of all records, a panel for each span between measurements, beside cells against time.

    Three coordinates are drawn as isosurfaces, two as regions of highest density, one as a density. Of more than three
    coordinates the first three and the last three are drawn, at the first and the last record.
    """
    with matplotlib.rc_context(STYLE):
        n = len(outcome.axes)
        panels = panels_of(outcome, n)
        drawing = Figure(figsize=(4.6 * len(panels) + 4.4, 4.6), layout="constrained")
        FigureCanvasAgg(drawing)
        grid = drawing.add_gridspec(1, len(panels) + 1, width_ratios=[1.25] * len(panels) + [1.0])
        for k, (title, coordinates, records) in enumerate(panels):
            projection = "3d" if len(coordinates) == 3 else None
            ax: Any = drawing.add_subplot(grid[0, k], projection=projection)
            draw_records(ax, outcome, coordinates, records)
            ax.set_title(title)
        ax = drawing.add_subplot(grid[0, -1])
        saved_run = outcome.saved_run
        plot_cells(saved_run.step_times, saved_run.steps.cells, ax=ax)
        ax.set_xlabel(f"time ({outcome.time_unit})" if outcome.time_unit else "time")
        ax.yaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
        ax.set_title("Cells stored")
        drawing.suptitle(
            f"GBEES {saved_run.title}: threshold {saved_run.threshold:g}, {saved_run.cell_steps:,} cell-steps",
            x=0.012, ha="left", fontsize=12, fontweight="bold", color=INK,
        )  # fmt: skip
        drawing.draw_without_rendering()
        return drawing


def panels_of(outcome: Outcome, n: int) -> list[tuple[str, tuple[int, ...], list[int]]]:
    """Title, coordinates and records of each panel."""
    spans = np.array(outcome.saved_run.spans)
    if n > 3:
        ends = [0, len(spans) - 1] if len(spans) > 1 else list(range(len(spans)))
        return [(", ".join(outcome.axes[i] for i in axes), axes, ends) for axes in ((0, 1, 2), tuple(range(n - 3, n)))]
    panels = []
    for span in np.unique(spans):
        title = "From the start" if span == 0 else f"After measurement {span}"
        panels.append((title, tuple(range(n)), np.flatnonzero(spans == span).tolist()))
    return panels


def draw_records(ax: Any, outcome: Outcome, coordinates: tuple[int, ...], records: list[int]) -> None:
    """The distributions with the numbers `records`, later ones in lighter colours."""
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, max(len(records), 2)))
    n, names = len(coordinates), outcome.labels
    entries: list[Any] = []
    for colour, k in zip(colours, records):
        cells = outcome.saved_run.distributions[k]
        if n == 3:
            plot_isosurfaces(cells, coordinates, ax=ax, masses=MASSES, color=colour[:3], names=names)
        elif n == 2:
            plot_region(cells, coordinates, ax=ax, masses=MASSES, color=colour[:3], names=names)
        else:
            found = marginal(cells, coordinates)
            ax.plot(found.coordinates[0], found.density, color=colour)
            unit = outcome.units[coordinates[0]] if outcome.units else ""
            ax.set(xlabel=names[coordinates[0]], ylabel=f"density (1/{unit})" if unit else "density")
        entries.append(Patch(color=colour, label=f"t = {cells.time:.4g} {outcome.time_unit}".rstrip()))
    inside = legend_handles(MASSES, surfaces=n == 3) if n > 1 else []
    style: dict[str, Any] = {"fontsize": 8, "handlelength": 1.0, "handleheight": 1.0}
    if n == 3:  # the box leaves both upper corners empty
        ax.add_artist(ax.legend(handles=inside, loc="upper right", **style))
        ax.legend(handles=entries, loc="upper left", **style)
    else:
        ax.legend(handles=entries + inside, loc="upper left", bbox_to_anchor=(1.0, 1.0), **style)
    if n == 3:
        ax.set_box_aspect(None, zoom=0.94)  # the labels of the third axis would be cut off
