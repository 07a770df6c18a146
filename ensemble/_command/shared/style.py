"""Colours and Matplotlib settings of the figures of sub-commands."""

from __future__ import annotations

from typing import Any

__all__ = ["BLUE", "GREY", "INK", "ORANGE", "STYLE"]

INK, GREY, BLUE, ORANGE = "#1b2733", "#8a96a3", "#2f6f9f", "#d9662b"

STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "svg.hashsalt": "ensemble",
}
