"""Failed samples by reason, and where in the space of the inputs they lie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ensemble.uq.report.source import Column, Source
from ensemble.uq.study.failures import NO_REASON

__all__ = ["Place", "Reason", "places_of_failures", "reasons_of"]

MOST_REASONS = 20
NUMBER = re.compile(r"[-+]?\d[\d.]*(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Reason:
    """Samples that failed alike."""

    text: str
    """The reason; where texts differ in their numbers alone, with a # for each number."""
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """Where on the axis of one number of the inputs the failed samples lie."""

    column: Column
    distance: float
    """Largest distance between the distribution functions of failed samples and of others (Kolmogorov and Smirnov)."""
    chance: float
    """The probability of so large a distance where failures do not depend on this number."""
    failed: np.ndarray
    """Values of the failed samples, ascending."""
    others: np.ndarray


def reasons_of(reasons: Mapping[int, str], failed: np.ndarray) -> list[Reason]:
    """The reasons, most frequent first; samples without one are together."""
    texts = {int(k): reasons.get(int(k), "").strip() or NO_REASON for k in np.flatnonzero(failed)}
    if len(set(texts.values())) > MOST_REASONS:  # texts with numbers of the sample in them
        texts = {k: NUMBER.sub("#", text) for k, text in texts.items()}
    found: dict[str, list[int]] = {}
    for k, text in texts.items():
        found.setdefault(text, []).append(k)
    ordered = sorted(found.items(), key=lambda one: (-len(one[1]), one[1][0]))
    rest = [k for _, ids in ordered[MOST_REASONS:] for k in ids]
    listed = [Reason(text, tuple(ids)) for text, ids in ordered[:MOST_REASONS]]
    return [*listed, Reason("other reasons", tuple(sorted(rest)))] if rest else listed


def places_of_failures(source: Source) -> list[Place]:
    """The numbers of the inputs, those first in which failed samples differ most from the others."""
    from scipy.stats import ks_2samp

    done, failed = source.result.done, source.result.failed
    found = []
    for column in source.columns:
        known = np.isfinite(column.values) & done
        bad, good = np.sort(column.values[known & failed]), np.sort(column.values[known & ~failed])
        if bad.size and good.size:
            test = ks_2samp(bad, good, method="asymp")
            found.append(Place(column, float(test.statistic), float(min(1.0, test.pvalue)), bad, good))
    return sorted(found, key=lambda place: -place.distance)


def shares_in_bins(place: Place, n_bins: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """The share of failed samples between quantiles of all samples: edges ``(n + 1,)`` and shares ``(n,)``."""
    everything = np.concatenate([place.failed, place.others])
    distinct = np.unique(everything[:: max(1, everything.size // 4096)])
    if place.column.labels or distinct.size <= n_bins:  # a bin for each value
        middles = 0.5 * (distinct[1:] + distinct[:-1])
        half = 0.5 * np.diff(distinct).min(initial=1.0)
        edges = np.array([everything.min() - half, *middles, everything.max() + half])
    else:
        edges = np.unique(np.quantile(everything, np.linspace(0.0, 1.0, n_bins + 1)))
    counts, _ = np.histogram(everything, edges)
    failed, _ = np.histogram(place.failed, edges)
    with np.errstate(invalid="ignore"):
        return edges, np.where(counts > 0, failed / np.maximum(counts, 1), np.nan)
