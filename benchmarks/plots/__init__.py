"""Figures of `docs/images`, drawn from the records in `benchmarks/results`.

All have one width, and letters that a telephone shows at eight pixels or more: panels stand below each other where
three in a row would be too small.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[2] / "docs" / "images"
RESULTS = Path(__file__).parents[1] / "results"

WIDTH = 6.4
"""Of a figure in inches. A page shows it at its column's width: 370 pixels on a telephone, 740 on a desk."""

ON_A_TELEPHONE = 370
"""Pixels of a figure's width in a window of 400."""

LEAST = 8.0
"""Pixels of the smallest letters there."""

BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
"""Colours of Okabe and Ito, told apart by the colour-blind. Lines differ in their marks or dashes, too."""

STYLE = {
    "font.size": 10.5,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10.5,
    "figure.titlesize": 10.5,
    "legend.fontsize": 10.5,
    "legend.title_fontsize": 10.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.92",
    "lines.markersize": 5,
    "mathtext.fontset": "dejavusans",
}


def record(name: str) -> Any:
    """The content of ``benchmarks/results/NAME.json``."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def pyplot() -> Any:
    """Matplotlib without a window, in the style of all figures."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(STYLE)
    return plt


def panels(rows: int, columns: int, height: float, **options: Any) -> tuple[Any, Any]:
    """A figure of the common width and `height` inches, and its panels."""
    figure, axes = pyplot().subplots(rows, columns, figsize=(WIDTH, height), layout="constrained", **options)
    return figure, axes


def legend_panel(axes: Any, handles: Any, labels: Any, **options: Any) -> Any:
    """Fill a panel with a legend alone."""
    axes.axis("off")
    return axes.legend(handles, labels, **{"loc": "center", **options})


def smallest_letters(figure: Any) -> float:
    """Pixels of the smallest letters of a figure on a telephone."""
    from matplotlib.text import Text

    figure.canvas.draw()
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    return float(min(sizes) / 72.0 * ON_A_TELEPHONE / figure.get_figwidth())


def save(figure: Any, name: str) -> None:
    """Write the figure into `docs/images`; letters that a telephone shows too small are an error."""
    letters = smallest_letters(figure)
    if letters < LEAST:
        raise ValueError(f"{name}: letters of {letters:.1f} pixels in a window of 400; {LEAST:g} is the least.")
    figure.savefig(IMAGES / name, dpi=150)
    pyplot().close(figure)
