"""The HTML of an ensemble in a notebook: its one-line text, and a small picture of its samples."""

from __future__ import annotations

import html as markup

import numpy as np

from ensemble.scalar.display.text import counted, shown_values, text
from ensemble.scalar.ensemble import Ensemble
from ensemble.scalar.protocol_table import PROTOCOLS

WIDTH, HEIGHT = 180, 36
MOST_POINTS = 180
"""Points along the band, at most: one per pixel."""


def html(x: Ensemble) -> str:
    """The text, and a histogram of a value or the band mean ± standard deviation along an array."""
    picture = _sparkline(x)
    return f'<div style="font-family: monospace">{markup.escape(text(x))}{picture}</div>'


def _sparkline(x: Ensemble) -> str:
    if shown_values(x.samples) is None:
        return ""
    values, weights, places = counted(x)
    if x.is_shared or not x.size or values.dtype.kind == "c":
        return ""
    rows = values.reshape(-1, places.size).astype(np.float64)
    keep = np.all(np.isfinite(rows), axis=0)
    if not np.any(keep):
        return ""
    rows, weights = rows[:, keep], np.ones(places.size)[keep] if weights is None else weights[keep]
    drawn = _histogram(rows[0], weights) if rows.shape[0] == 1 else _band(rows, weights)
    return (
        f'<br><svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{drawn}</svg>'
    )


def _histogram(values: np.ndarray, weights: np.ndarray) -> str:
    n_bins = int(np.clip(np.sqrt(values.size), 3, 24))
    counts, _ = np.histogram(values, bins=n_bins, weights=weights)
    heights = HEIGHT * counts / counts.max()
    step = WIDTH / n_bins
    bars = (
        f'<rect x="{k * step:.1f}" y="{HEIGHT - h:.1f}" width="{step - 1:.1f}" height="{h:.1f}" fill="#4477aa"/>'
        for k, h in enumerate(heights)
    )
    return "".join(bars)


def _band(rows: np.ndarray, weights: np.ndarray) -> str:
    rows = rows[np.linspace(0, rows.shape[0] - 1, min(rows.shape[0], MOST_POINTS)).round().astype(int)]
    mean = np.average(rows, axis=-1, weights=weights)
    std = np.sqrt(np.average((rows - mean[:, None]) ** 2, axis=-1, weights=weights))
    low, high = (mean - std).min(), (mean + std).max()
    scale = HEIGHT / (high - low) if high > low else 0.0
    across = np.linspace(0.0, WIDTH, mean.size)

    def points(heights: np.ndarray, along: np.ndarray) -> str:
        return " ".join(f"{a:.1f},{HEIGHT - (h - low) * scale:.1f}" for a, h in zip(along, heights, strict=True))

    outline = f"{points(mean - std, across)} {points((mean + std)[::-1], across[::-1])}"
    return (
        f'<polygon points="{outline}" fill="#4477aa" fill-opacity="0.3"/>'
        f'<polyline points="{points(mean, across)}" fill="none" stroke="#4477aa"/>'
    )


PROTOCOLS.html = html
