"""What the runs of a study took: the file ``cost.json`` beside the manifest.

It has times, so that two equal studies differ in this one file. Jobs that run parts of a study at the same time have a
file each, ``cost-3.json``.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

from ensemble._files import write_whole
from ensemble.uq.store.store import PRIVATE

__all__ = ["COST_FILE", "Cost", "CostRecord", "read_costs"]

COST_FILE = "cost.json"

SECONDS_BETWEEN_WRITES = 2.0

MOST_RUNS = 1000
"""Runs of a study that are listed; the first of more are left out."""


class Cost(NamedTuple):
    """What one run of a study took, from its first group to its last so far."""

    began: float
    """Seconds since 1970, UTC."""
    ended: float
    n_samples: int
    model_seconds: float
    """Seconds inside the model, added up over all workers."""

    @property
    def seconds(self) -> float:
        """Seconds of the run."""
        return max(0.0, self.ended - self.began)


class CostRecord:
    """The costs of a study in this process, and of its earlier runs.

    Parameters
    ----------
    folder : path or None
        That of the store; None keeps them in memory alone.
    part : int, optional
        Number of the part that this process runs.
    """

    def __init__(self, folder: Path | None, part: int | None = None) -> None:
        self._file = None if folder is None else file_of(folder, part)
        self._before = [] if self._file is None else costs_in(self._file)
        self._written = -math.inf
        now = time.time()
        self.current = Cost(now, now, 0, 0.0)

    @property
    def runs(self) -> list[Cost]:
        """Earlier runs of the study, or of this part, and this one, where it has run samples."""
        return [*self._before, *([self.current] if self.current.n_samples else [])]

    def add(self, n_samples: int, model_seconds: float) -> None:
        """Count a finished group."""
        began, _, before, seconds = self.current
        self.current = Cost(began, max(began, time.time()), before + n_samples, seconds + model_seconds)
        if time.monotonic() - self._written >= SECONDS_BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Replace the file; a study goes on where that cannot be done, as on a full disk."""
        self._written = time.monotonic()
        if self._file is None or not self.current.n_samples:
            return
        text = json.dumps({"runs": [run._asdict() for run in self.runs[-MOST_RUNS:]]}).encode()
        with contextlib.suppress(OSError):
            write_whole(self._file, lambda file: file.write(text))


def file_of(folder: Path, part: int | None = None) -> Path:
    """The file of the store in `folder`, or of one of its parts."""
    return folder / PRIVATE / (COST_FILE if part is None else f"cost-{part}.json")


def read_costs(folder: Path) -> list[Cost]:
    """The runs of the store in `folder` and of its parts, in the order of their beginning."""
    parts = [file for file in Path(folder, PRIVATE).glob("cost-*.json") if file.stem[5:].isdecimal()]
    found = [cost for file in (file_of(folder), *parts) for cost in costs_in(file)]
    return sorted(found, key=lambda cost: cost.began)[-MOST_RUNS:]


def costs_in(file: Path) -> list[Cost]:
    """The runs of one file; none where there is no file, or what it says is impossible."""
    try:
        return [cost_of(run) for run in json.loads(file.read_bytes())["runs"]][-MOST_RUNS:]
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return []


def cost_of(run: dict[str, Any]) -> Cost:
    """One run of the file; ValueError where it is none."""
    cost = Cost(float(run["began"]), float(run["ended"]), int(run["n_samples"]), float(run["model_seconds"]))
    year_9999 = 253_402_300_799.0
    possible = 0.0 <= cost.began <= cost.ended <= year_9999 and cost.n_samples > 0 and cost.model_seconds >= 0.0
    if not (possible and math.isfinite(cost.model_seconds)):
        raise ValueError("no run of a study")
    return cost
