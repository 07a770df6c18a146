"""Pictures of Matplotlib as SVG inside a page: their colours are those of the page, equal pictures are equal text."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

from ensemble._optional import optional
from ensemble.uq.report.markup import Markup
from ensemble.uq.report.style import COLORS

__all__ = ["BLUE", "GREEN", "INK", "LINE", "MUTED", "ORANGE", "PURPLE", "Drawings"]

# Stand-ins, which the text of a picture has only once each: the page's variables take their places.
NAMES = {f"#0{k:x}0{k:x}0{15 - k:x}": name for k, name in enumerate(COLORS, 1)}
STAND_IN = {name: color for color, name in NAMES.items()}
INK, MUTED, LINE = STAND_IN["ink"], STAND_IN["muted"], STAND_IN["line"]
BLUE, ORANGE, GREEN, PURPLE = (STAND_IN[name] for name in ("blue", "orange", "green", "purple"))

CYCLE = [STAND_IN[name] for name in ("blue", "orange", "green", "purple", "red", "muted")]

LARGEST = 1.6
"""Pixels for a point of a picture, at most: in narrower windows pictures shrink."""

SETTINGS: dict[str, Any] = {
    "font.size": 10.0,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.formatter.limits": (-4, 5),  # 450000 and its neighbours would cover each other
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "patch.linewidth": 0.0,
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.edgecolor": LINE,
    "grid.color": LINE,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), LINE),
}


class Drawings:
    """Pictures of one page: each has names of its own inside, and settings that no configuration of a user changes."""

    def __init__(self) -> None:
        self._count = 0

    def draw(self, draw: Callable[[Any], Any], label: str, size: tuple[float, float] = (4.8, 3.0)) -> Markup:
        """What `draw` draws into a new figure of `size` inches, as an element; `label` says it to a screen reader."""
        style, cycler, figures = (optional(f"matplotlib.{name}", "report") for name in ("style", "rcsetup", "figure"))
        self._count += 1
        settings = SETTINGS | {"axes.prop_cycle": cycler.cycler(color=CYCLE), "svg.hashsalt": f"ensemble {self._count}"}
        with style.context(["default", settings]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # the reader's fonts draw the texts
            figure = figures.Figure(figsize=size, layout="constrained")
            draw(figure)
            text = io.StringIO()
            metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            figure.savefig(text, format="svg", metadata=metadata)
        return inline(text.getvalue(), label)


def inline(text: str, label: str) -> Markup:
    """A file of SVG as an element of a page: without what only files need, named by `label`."""
    from html import escape

    start, body = re.search(r"<svg\b[^>]*>", text), text
    assert start is not None
    box = re.search(r'viewBox="([^"]*)"', start[0])
    assert box is not None
    body = text[start.end() :].replace("</svg>", "").strip()
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    used = set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", body))
    body = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", body)
    body = re.sub(r"<style type=\"text/css\">[^<]*</style>", "", body)  # it would be that of the whole page
    body = re.sub(r" font-family: [^;\"]*;", "", body)
    body = re.sub(r" transform=\"rotate\(-0 [^\"]*\"", "", body)
    for color, name in NAMES.items():
        body = body.replace(color, f"var(--{name})")
    body = body.replace("#000000", "var(--ink)").replace("xlink:href", "href")
    body = re.sub(r"\s*\n\s*", "\n", body)
    width = LARGEST * float(box[1].split()[2])
    opened = (
        f'<svg class="picture" viewBox="{box[1]}" style="max-width: {width:.0f}px" role="img" '
        f'aria-label="{escape(label)}">'
    )
    return Markup(f"{opened}{body}</svg>")
