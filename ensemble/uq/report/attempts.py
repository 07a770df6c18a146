"""Samples that were run again after a failure: how often, why, and what became of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ensemble.uq.report.markup import element, paragraph, table
from ensemble.uq.report.texts import count
from ensemble.uq.study.failures import NO_REASON
from ensemble.uq.study.study_protocols import StudyResult

__all__ = ["attempts_parts", "n_recovered", "numbered"]

MOST_SAMPLES, MOST_REASONS = 20, 20
"""Samples and reasons that are listed."""


def n_recovered(result: StudyResult) -> int:
    """How many samples succeeded when they were run again."""
    return sum(not result.failed[i] for i in result.earlier_reasons)


def attempts_parts(result: StudyResult) -> list[Any]:
    """What a page says of samples that were run more than once; nothing where there are none."""
    again = np.array(sorted(result.earlier_reasons), np.int64)
    if not again.size:
        return []
    recovered = n_recovered(result)
    text = (
        f"{count(again.size, 'sample')} {'was' if again.size == 1 else 'were'} run more than once: {recovered:,} "
        f"succeeded at last, and {again.size - recovered:,} failed in every attempt so far."
    )
    parts = [
        element("h3", "Samples that were run again"), paragraph(text), counts_table(result), reasons_table(result),
        samples_table(result, again),
    ]  # fmt: skip
    if again.size > MOST_SAMPLES:
        parts.append(paragraph(f"{count(again.size - MOST_SAMPLES, 'further sample')} are not listed."))
    return parts


def counts_table(result: StudyResult) -> Any:
    """How many samples had so many attempts."""
    attempts = result.attempts
    rows = []
    for k in np.unique(attempts[result.done]).tolist():
        mine = attempts == k
        failed = int(np.count_nonzero(mine & result.failed))
        n = int(np.count_nonzero(mine))
        rows.append((f"{k}", f"{n:,}", f"{n - failed:,}", f"{failed:,}"))
    return table("Samples by the number of their attempts", ("attempts", "samples", "succeeded", "failed"), rows)


def reasons_table(result: StudyResult) -> Any:
    """The reasons of all attempts, and whether they went away."""
    listed = list(result.failures.items())
    rows: list[tuple[str, ...]] = [
        (reason, f"{counts.recovered:,}", f"{counts.repeated:,}", f"{counts.failed - counts.repeated:,}")
        for reason, counts in listed[:MOST_REASONS]
    ]
    if more := listed[MOST_REASONS:]:
        left = [counts for _, counts in more]
        sums = (sum(c.recovered for c in left), sum(c.repeated for c in left), sum(c.failed - c.repeated for c in left))
        rows.append((count(len(more), "other reason"), *(f"{n:,}" for n in sums)))
    columns = ("reason", "succeeded when run again", "failed again", "not run again")
    return table("Reasons of all attempts, and what became of their samples", columns, rows, (0,))


def samples_table(result: StudyResult, again: np.ndarray) -> Any:
    """The samples one by one, those with most attempts first, with the reasons of their attempts in order."""
    rows = []
    order = np.lexsort((again, ~result.failed[again], -result.attempts[again]))
    for i in again[order[:MOST_SAMPLES]].tolist():
        texts = [first_line(text) for text in result.earlier_reasons[i]]
        now = first_line(result.reasons.get(i, "")) if result.failed[i] else "succeeded"
        rows.append((f"{i}", f"{len(texts) + 1}", numbered(texts), now))
    columns = ("sample", "attempts", "reasons of earlier attempts", "last attempt")
    return table("Samples with more than one attempt, most attempts first", columns, rows, (2, 3))


def numbered(texts: list[str]) -> str:
    """The reasons with the numbers of their attempts; equal ones that follow each other are one."""
    found, first = list[str](), 1
    for text, group in itertools.groupby(texts):
        last = first + len(list(group)) - 1
        found.append(f"{first}{f' to {last}' if last > first else ''}: {text}")
        first = last + 1
    return "\n".join(found)


def first_line(text: str) -> str:
    """The first line of a reason, its numbers kept."""
    lines = text.strip().splitlines()
    return lines[0][:160] if lines else NO_REASON
