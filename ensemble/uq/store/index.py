"""Which samples of a store are done, which of those failed, and which record of the journal holds them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ensemble.uq.store.journal import Group, Journal, Output, Record
from ensemble.uq.store.places import as_slice, places_by_key

__all__ = ["Index", "Part", "gather"]

PIECE_BYTES = 1 << 23
"""At most so much of a record is read at once, or one row."""


class Part(NamedTuple):
    """The requested samples that one record holds: places in the request and places in the record."""

    record: Record
    requested: np.ndarray | slice
    stored: np.ndarray | slice


class Index:
    """State of the samples 0 to n - 1, and the place in the journal of those that are not compacted."""

    def __init__(self, n: int) -> None:
        self.done = np.zeros(n, dtype=bool)
        self.failed = np.zeros(n, dtype=bool)
        self.record_of = np.full(n, -1, dtype=np.int32)
        self.place_of = np.zeros(n, dtype=np.int32)
        self.records: list[Record] = []
        self.reasons: dict[int, str] = {}
        self.earlier: dict[int, list[str]] = {}

    def grow(self, n: int) -> None:
        """Count samples up to `n`."""
        more = n - len(self.done)
        self.done = np.append(self.done, np.zeros(more, dtype=bool))
        self.failed = np.append(self.failed, np.zeros(more, dtype=bool))
        self.record_of = np.append(self.record_of, np.full(more, -1, dtype=np.int32))
        self.place_of = np.append(self.place_of, np.zeros(more, dtype=np.int32))

    def add(self, group: Group, checked: Any = None) -> None:
        """Note a record of the journal; `checked` are its ids or their slice, where they are known to be in range.

        Of a sample in several records the last one counts, as it had failed before and was run again; but a success,
        which two jobs may have stored with the same bits, is never replaced.
        """
        ids: Any = group.ids if checked is None else checked
        failed, places = group.failed, np.arange(len(group.ids))
        if checked is None:
            inside = (ids >= 0) & (
                ids < len(self.done)
            )  # a writer may have extended the study after this reader read the manifest
            inside[inside] &= ~(self.done & ~self.failed)[ids[inside]]
            if not inside.all():
                ids, failed, places = ids[inside], failed[inside], places[inside]
            ids = as_slice(ids)
        if self.reasons:
            for i in range(ids.start, ids.stop) if isinstance(ids, slice) else ids.tolist():
                self.reasons.pop(i, None)
        self.done[ids] = True
        self.failed[ids] = failed
        self.record_of[ids] = len(self.records)
        self.place_of[ids] = places
        self.records.append(group.record)
        if group.reasons:
            self.reasons.update((i, text) for i, text in group.reasons.items() if i < len(self.done) and self.failed[i])
        if group.earlier:
            self.earlier.update(group.earlier)

    def add_compacted(
        self, done: np.ndarray, failed: np.ndarray, reasons: dict[int, str], earlier: dict[int, list[str]]
    ) -> None:
        """Note the samples that are in the Zarr group; of those that are in the journal, too, the journal decides."""
        better = done & ~failed & self.failed & (self.record_of >= 0)
        self.record_of[better], self.failed[better] = -1, False
        for i in np.flatnonzero(better).tolist():
            self.reasons.pop(i, None)
        in_journal = self.record_of >= 0
        self.done |= done
        self.failed |= failed & ~in_journal
        kept = {i: text for i, text in reasons.items() if i < len(done) and self.failed[i] and not in_journal[i]}
        self.reasons = {**kept, **self.reasons}
        self.earlier = {**earlier, **self.earlier}

    def clear_journal(self) -> None:
        """Forget the records: the journal has been emptied."""
        self.record_of[:] = -1
        self.records = []

    def parts(self, ids: np.ndarray, places: np.ndarray) -> list[Part]:
        """Group samples of the journal by the record that holds them; sample ``ids[k]`` will go to ``places[k]``."""
        return [
            Part(self.records[number], as_slice(places[chosen]), as_slice(self.place_of[ids[chosen]]))
            for number, chosen in places_by_key(self.record_of[ids])
        ]


def gather(journal: Journal, parts: list[Part], output: Output, start: int, stop: int, result: np.ndarray) -> None:
    """Copy the values `start` to `stop` of the flattened output from the journal into `result`.

    Groups without the output (all their samples failed before there was any) leave `result` as it is.
    """
    for record, requested, stored in parts:
        place = record.place(output.name)
        if place is None:
            continue
        step = max(1, PIECE_BYTES // (record.n_samples * output.dtype.itemsize))
        for first in range(start, stop, step):
            last = min(first + step, stop)
            values = (record.source or journal).rows(record, *place, first, last)
            result[first - start : last - start, requested] = values[:, stored]
