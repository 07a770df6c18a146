"""The rows of the table of statistics: one for each output, and several along the entries of an array."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ensemble.uq.report.convergence import where
from ensemble.uq.report.source import Source
from ensemble.uq.report.texts import DASH, number

__all__ = ["columns_of", "left_out", "rows_of"]

QUANTILES = (0.05, 0.5, 0.95)
ALL_ROWS = 24
"""Entries of an array that all have a row."""

MOST_ROWS = 7
"""Rows of a larger array, at entries of equal distance, its first and last among them."""


def columns_of(level: float) -> tuple[str, ...]:
    """The names of the columns."""
    return ("output", "unit", "mean", f"{100 * level:g} % interval of the mean", "deviation",
            *(f"{100 * q:g} % quantile" for q in QUANTILES), "least", "largest")  # fmt: skip


def rows_of(source: Source, name: str, level: float) -> list[tuple[str, ...]]:
    """The rows of one output."""
    result = source.result
    with np.errstate(invalid="ignore"):
        mean, std = np.asarray(result.mean(name)), np.asarray(result.std(name))
    unit = result.units.get(name, "")
    found: list[Any] = [mean, None, None, std, *(None,) * len(QUANTILES), None, None]
    if mean.dtype.kind != "c" and mean.size:
        if not result.no_interval():
            found[1:3] = result.confidence_interval(name, level)
        if result.weights is None or not np.any(result.weights < 0.0):
            found[4:7] = np.asarray(result.quantile(name, QUANTILES))
        if not result.no_interval() or result.weights is None:
            found[7:9] = result.minimum(name), result.maximum(name)
    rows = []
    for entry in entries_of(mean.shape):
        m, low, high, *rest = (None if one is None else np.asarray(one)[entry] for one in found)
        interval = DASH if low is None else f"{number(low)} to {number(high)}"
        texts = [DASH if one is None else number(one) for one in rest]
        title = f"{name}({', '.join(where(source, name, entry))})" if mean.ndim else name
        rows.append((title, unit, number(m), interval, *texts))
    return rows


def left_out(source: Source, names: Iterable[str]) -> str:
    """Return a sentence on outputs too large for the table, which has some of their entries; empty without such."""
    sizes = {name: np.asarray(source.result.mean(name)).size for name in names}
    some = [f"{MOST_ROWS} of the {size:,} entries of {name}" for name, size in sizes.items() if size > ALL_ROWS]
    return f"The table has {', '.join(some)}, evenly spread." if some else ""


def entries_of(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All entries of a small array, some of a larger one, in order; the only one of a number."""
    size = int(np.prod(shape))
    n_rows = size if size <= ALL_ROWS else MOST_ROWS
    flat = np.unique(np.linspace(0, size - 1, n_rows).round().astype(int)) if size else np.zeros(0, int)
    return [tuple(int(k) for k in np.unravel_index(k, shape)) for k in flat] if shape else [()]
