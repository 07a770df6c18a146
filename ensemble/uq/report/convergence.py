"""How the mean of an output and its interval became narrower with the number of samples."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ensemble.uq.report.source import Source

__all__ = ["Convergence", "converged"]

MOST_POINTS = 8
LEAST_SAMPLES = 16
MOST_VALUES = 2**25
"""Values of an output, over all samples, of which convergence is worked out: each point reads its samples again."""


class Convergence(NamedTuple):
    """The mean of one entry of an output from the first samples; intervals are NaN where there are none."""

    name: str
    counts: np.ndarray
    """Samples that did not fail, shape (n_points,), ascending."""
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def converged(source: Source, name: str, level: float) -> Convergence | None:
    """The convergence of an output, or of its entry of the largest deviation; None where it is not to be had."""
    result = source.result
    std = np.asarray(result.std(name))
    signed = result.weights is not None
    if not source.kept or signed or result.mean(name).dtype.kind == "c" or std.size * result.ids.size > MOST_VALUES:
        return None
    if not std.size or not np.isfinite(std).any():
        return None
    entry = tuple(int(k) for k in np.unravel_index(int(np.nanargmax(std)), std.shape))
    rows = []
    for n in counts_of(int(result.ids[-1]) + 1 if result.ids.size else 0, result.sampler.n_replicates):
        part = source.first(n)
        if part.ids.size < 2:
            continue
        low = high = math.nan
        if not part.no_interval():
            low, high = (float(np.asarray(end)[entry]) for end in part.confidence_interval(name, level))
        rows.append((part.ids.size, float(np.asarray(part.mean(name))[entry]), low, high))
    if len(rows) < 2:
        return None
    places = f"({', '.join(where(source, name, entry))})" if std.ndim else ""
    return Convergence(f"{name}{places}", *(np.array(column) for column in zip(*rows, strict=True)))


def where(source: Source, name: str, entry: tuple[int, ...]) -> list[str]:
    """The place of an entry by the coordinates of the axes, with their units."""
    found = []
    for dim, k in zip(source.result.dims[name], entry, strict=True):
        values = source.result.coordinates.get(dim)
        unit = source.result.units.get(dim, "")
        found.append(str(k) if values is None else f"{dim} = {short(values[k])}{' ' * bool(unit)}{unit}")
    return found


def short(value: object) -> str:
    """A coordinate as a text: a number to six digits."""
    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="auto"))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def counts_of(n: int, n_replicates: int) -> list[int]:
    """All samples, half of them, a quarter, and so on, ascending, as far as the replicates have two samples."""
    least = max(LEAST_SAMPLES, 2 * n_replicates)
    found = [n // 2**k for k in range(MOST_POINTS) if n // 2**k >= least]
    return sorted(found)
