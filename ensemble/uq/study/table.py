"""The text of a result: one line for each output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble.uq.study.failures import NO_REASON
from ensemble.uq.study.study_protocols import StudyResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ensemble.uq.study.failures import Failures

__all__ = ["failure_lines", "interval_text", "table"]

LARGEST = 10**6
"""Entries of an output up to which its interval is worked out for a text."""

MOST_REASONS = 6
"""Reasons of failures in a text."""


def table(result: StudyResult) -> str:
    """Output, shape, mean, standard deviation, interval; how many samples; what is missing."""
    good = f"{result.ids.size:,} of {result.n:,} samples"
    sampler = getattr(result.sampler, "name", type(result.sampler).__name__)
    lines = [f"UqResult: {good}, {sampler}, seed {result.seed}"]
    if result.ids.size:
        rows = [("output", "shape", "mean", "std", "95 % interval of the mean")]
        rows += [_row(result, name) for name in result.names]
        widths = [max(len(row[k]) for row in rows) for k in range(5)]
        lines += ["  " + "  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        if result.no_interval():
            lines.append(f"  no interval: {result.no_interval()}")
    if result.n_failed:
        first = int(np.flatnonzero(result.failed)[0])
        reason = result.reasons.get(first) or NO_REASON
        lines.append(f"  {result.n_failed:,} failed; first sample {first}: {reason}")
    failures = result.failures
    if len(failures) > 1 or any(counts.repeated or counts.recovered for counts in failures.values()):
        lines += [f"    {line}" for line in failure_lines(failures)]
    if result.n_done < result.n:
        lines.append(f"  {result.n - result.n_done:,} not run")
    if result.target_met is False:
        lines.append("  the target was missed")
    return "\n".join(lines)


def failure_lines(failures: Mapping[str, Failures]) -> list[str]:
    """A line for each of the most frequent reasons."""
    lines = []
    for reason, counts in list(failures.items())[:MOST_REASONS]:
        again = f" ({counts.repeated:,} of them more than once)" if counts.repeated else ""
        parts = [f"{counts.failed:,} failed{again}"] if counts.failed else []
        parts += [f"{counts.recovered:,} succeeded when run again"] if counts.recovered else []
        lines.append(f"{', '.join(parts)}: {reason}")
    more = len(failures) - len(lines)
    return [*lines, f"and {more:,} other reasons"] if more else lines


def _row(result: StudyResult, name: str) -> tuple[str, str, str, str, str]:
    """One output."""
    mean = np.asarray(result.mean(name))
    if not mean.size:
        return name, str(mean.shape), "", "", ""
    interval = ""
    if not result.no_interval() and mean.dtype.kind != "c" and mean.size <= LARGEST:
        low, high = result.confidence_interval(name)
        if mean.ndim:
            interval = f"± {_number(np.max(0.5 * (np.asarray(high) - low)))} at most"
        else:
            interval = interval_text(float(low), float(high))
    with np.errstate(invalid="ignore"):
        std = np.asarray(result.std(name))
    return name, str(mean.shape), _range(mean), _range(std), interval


def _range(values: np.ndarray) -> str:
    """A number, or the smallest and the largest of several."""
    if values.dtype.kind == "c":
        return f"{complex(values.reshape(-1)[0]):.4g}" + (", ..." if values.size > 1 else "")
    low, high = values.min(), values.max()
    return _number(low) if not values.ndim else f"{_number(low)} to {_number(high)}"


def _number(value: Any) -> str:
    return f"{float(value):.4g}"


def interval_text(low: float, high: float) -> str:
    """Both ends to two digits of their distance."""
    gap = abs(high - low)
    if not np.isfinite(gap) or gap == 0.0:
        return f"{low:.6g} to {high:.6g}"
    digits = int(np.floor(np.log10(max(abs(low), abs(high)) / gap))) + 2
    digits = min(15, max(2, digits))
    return f"{low:.{digits}g} to {high:.{digits}g}"
