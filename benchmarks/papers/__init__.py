"""The five papers, table by table: published numbers beside records of `benchmarks/results`.

One module for each paper holds the published numbers and says which record answers them; `page` prints and writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["NotRun", "Paper", "Record", "Stored", "Table", "compared", "found", "ours_over", "times_faster"]

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class NotRun:
    """What stands where a figure of ours is missing: why."""

    why: str


@dataclass(frozen=True)
class Record:
    """A record: its name and the words after ``python -m benchmarks`` that make it; those of a device say so."""

    name: str
    words: tuple[str, ...]
    device: bool = False
    precision: str = "float64"


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper: rows of published and of our numbers, and what differs in the set-up."""

    name: str
    title: str
    where: str
    rows: list[dict[str, Any]]
    differs: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()
    image: str | None = None


@dataclass(frozen=True)
class Paper:
    """A paper: how it is cited, its machines, its tables, and what of it has no table here and why."""

    number: str
    title: str
    citation: str
    machines: str
    tables: list[Table]
    summary: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    signed: tuple[str, str] | None = None
    """What a second reader compared with the paper, and what remains disputed."""


@dataclass
class Stored:
    """Records by name; each is read once. `folder` is looked into first, the stored ones after."""

    folder: Path | None = None
    seen: dict[str, Any] = field(default_factory=dict)

    def content(self, record: Record) -> dict[str, Any] | None:
        """What a record holds, or None where there is none."""
        if record.name not in self.seen:
            places = [place / f"{record.name}.json" for place in (self.folder, RESULTS) if place is not None]
            path = next((path for path in places if path.exists()), None)
            self.seen[record.name] = None if path is None else json.loads(path.read_text())
        content: dict[str, Any] | None = self.seen[record.name]
        return content

    def rows(self, record: Record, under: str = "rows") -> list[dict[str, Any]]:
        """The rows of a record; none where there is no record."""
        content = self.content(record)
        return [] if content is None else list(content.get(under, []))


def found(stored: Stored, record: Record, column: str, under: str = "rows", why: str = "", **keys: Any) -> Any:
    """The number in `column` of the one row whose entries equal `keys`, else `NotRun` with the reason."""
    if stored.content(record) is None:
        return NotRun(f"no record {record.name} yet")
    rows = [row for row in stored.rows(record, under) if all(row.get(key) == value for key, value in keys.items())]
    if len(rows) > 1:
        raise ValueError(f"{record.name}: {len(rows)} rows have {keys}")
    if not rows or column not in rows[0]:
        return NotRun(why or f"record {record.name} has no such row")
    return rows[0][column]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def compared(about: dict[str, Any], published: Any, ours: Any, heading: str, upside: bool) -> dict[str, Any]:
    """A row: published, ours, and one over the other where both are numbers."""
    ratio: Any = ""
    if _number(published) and _number(ours):
        ratio = published / ours if upside else ours / published
    return {**about, "published": published, "ours": ours, heading: ratio}


def times_faster(about: dict[str, Any], published: Any, ours: Any) -> dict[str, Any]:
    """A row of times: above one where ours is shorter."""
    return compared(about, published, ours, "published / ours", True)


def ours_over(about: dict[str, Any], published: Any, ours: Any) -> dict[str, Any]:
    """A row of gains, rates or values: ours over the published one."""
    return compared(about, published, ours, "ours / published", False)


def unique(records: Iterable[Record]) -> list[Record]:
    """Each record once, in order."""
    return list({record.name: record for record in records}.values())
