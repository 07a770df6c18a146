"""Failures by reason: how many samples failed for it, and how many succeeded when they were run again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["NO_REASON", "Failures", "failures_by_reason", "kind_of_reason"]

NO_REASON = "no reason was given"
"""What a text says of a sample that failed without a reason."""

EXIT_CODE = r"(?<!exit code )(?<!exit code \d)(?<!exit code \d\d)"
"""Exit codes tell faults apart: they stay."""

NUMBERS = re.compile(rf"(?<![A-Za-z_]){EXIT_CODE}[-+]?(?:0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)")

LONGEST = 160
"""Characters of a reason that tell its kind."""


class Failures(NamedTuple):
    """How many samples failed for one reason.

    Attributes
    ----------
    failed : int
        Samples whose last attempt failed for this reason.
    repeated : int
        Those of them that were run more than once: a fault that stays.
    recovered : int
        Samples of which an attempt failed for this reason and a later one succeeded: a transient fault.
    """

    failed: int
    repeated: int
    recovered: int


def kind_of_reason(reason: str) -> str:
    """The first line of a reason, with ``#`` for numbers, which differ from sample to sample."""
    lines = reason.strip().splitlines()
    text = NUMBERS.sub("#", lines[0] if lines else "") or NO_REASON
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def failures_by_reason(reasons: Mapping[int, str], earlier: Mapping[int, Sequence[str]]) -> dict[str, Failures]:
    """Counts by the kind of the reason, most frequent first.

    `reasons` are those of the samples that have failed, by id; `earlier` those of attempts before the last one. A kind
    that stands for one text alone is named by that text.
    """
    counts: dict[str, list[int]] = {}
    texts: dict[str, set[str]] = {}

    def count(reason: str, place: int) -> None:
        kind = kind_of_reason(reason)
        counts.setdefault(kind, [0, 0, 0])[place] += 1
        texts.setdefault(kind, set()).add((reason.strip().splitlines() or [kind])[0])

    for i, reason in reasons.items():
        count(reason, 0)
        if i in earlier:
            count(reason, 1)
    for i, attempts in earlier.items():
        if i not in reasons:
            for reason in {kind_of_reason(text): text for text in attempts}.values():
                count(reason, 2)
    named = {}
    for kind in sorted(counts, key=lambda kind: (-sum(counts[kind]), kind)):
        only = texts[kind].pop() if len(texts[kind]) == 1 else kind
        named[only if len(only) <= LONGEST else kind] = Failures(*counts[kind])
    return named
