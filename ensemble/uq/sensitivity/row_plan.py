"""A study of rows of samples: its groups run as those of `propagate`, its result are sensitivity indices."""

from __future__ import annotations

import math
from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np

from ensemble._check import message, positive, require
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.sensitivity.indices import SensitivityIndices
from ensemble.uq.sensitivity.row_sums import RowSums
from ensemble.uq.sensitivity.rows import Rows
from ensemble.uq.study.declared import Outputs
from ensemble.uq.study.plan import Plan
from ensemble.uq.study.propagate import carried_out, checked_size

__all__ = ["RowPlan", "RowStream", "run_rows"]


class RowStream:
    """The sums of one output; groups may come in any order and wait until those before them are there."""

    histograms = None

    def __init__(self, shape: tuple[int, ...], sums: RowSums) -> None:
        self.n_outputs = math.prod(shape)
        self.sums = sums
        self._next = 0
        self._waiting: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def add(
        self, ids: np.ndarray, values: np.ndarray | None, good: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """Add samples, shape ``(*shape, len(ids))``; the rows of those that are not `good` are left out."""
        if values is None:
            values = np.zeros((self.n_outputs, ids.size))
        values = values.reshape(self.n_outputs, ids.size)
        if np.any(ids[1:] < ids[:-1]):
            order = np.argsort(ids)
            ids, values, good = ids[order], values[:, order], good[order]
        starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 2) > 1)
        for start, stop in zip(starts, [*starts[1:], ids.size], strict=True):
            self._waiting[int(ids[start])] = values[:, start:stop], ~good[start:stop]
        while self._next in self._waiting:
            part, failed = self._waiting.pop(self._next)
            self._next += failed.size
            self.sums.update(part, failed)
        for first, (part, failed) in self._waiting.items():
            if part.base is not None:  # the memory of a group that may be used again
                self._waiting[first] = part.copy(), failed


class RowPlan(Plan):
    """A plan whose samples are rows, and whose result are indices."""

    def __init__(self, inputs: Inputs, n_rows: int, *, sampler: Rows, **options: Any) -> None:
        self.make_sums: Callable[[Rows, int], RowSums]
        self.kind: type[SensitivityIndices]
        self.names: tuple[str, ...]
        self.level: float
        vars(self).update(options.pop("analysis"))
        super().__init__(inputs, n_rows * sampler.n_parts, sampler=sampler, group_by=None, keep="statistics", **options)

    def new_streams(self, *, histograms: bool) -> dict[str, Any]:
        streams = {}
        for name, (shape, dtype) in self.layout.items():
            if dtype.kind == "c":
                advice = "Return its real and imaginary part."
                raise TypeError(message(self.function, f"output {name!r}", "be real", f"dtype {dtype}", advice))
            streams[name] = RowStream(shape, self.make_sums(self.sampler, self.seed))
        return streams

    def first_entries(self) -> np.ndarray:
        """None: the interval of a mean would not be that of an index."""
        return np.zeros(0)

    def result(self) -> Any:
        """The indices from the rows that are complete."""
        streams: dict[str, Any] = self.streams or {}
        for stream in streams.values():
            stream.sums.finish()
        if not streams or next(iter(streams.values())).sums.n_used == 0:
            first = next(iter(self.reasons.values()), "none was run")
            seen = f"{np.count_nonzero(self.failed)} failed of {self.n_done} samples that were run"
            raise ValueError(
                message(self.function, "the study", "have a row without failures", seen, f"First: {first}.")
            )
        shapes = {name: shape for name, (shape, _) in self.layout.items()}
        sums = {name: stream.sums for name, stream in streams.items()}
        n_failed = int(np.count_nonzero(self.failed))
        return self.kind(
            self.names, shapes, sums, level=self.level, n_failed=n_failed, seed=self.seed, declared=self.declared,
            dims=self.declared.dims(self.layout, self.function),
        )  # fmt: skip


def run_rows(
    model: Callable[[Any], Any],
    inputs: Inputs,
    n: int,
    sampler: Rows,
    analysis: dict[str, Any],
    *,
    function: str,
    seed: int | None,
    ensemble_size: Any,
    backend: str,
    on_failure: str | None,
    store: str | PathLike[str] | None,
    resume: bool | str,
    retry_failed: bool | int,
    sample_seconds: float | None,
    progress: bool,
    executor: Any,
    outputs: Outputs | None,
) -> Any:
    """All rows through the model, and their indices."""
    own = "input" in getattr(outputs, "coordinates", ())
    advice = "Give the axis another name."
    require(not own, function, "names of axes", "differ from the axis of the inputs", "'input'", advice)
    limit = None if sample_seconds is None else positive(sample_seconds, function, "sample_seconds")
    size = checked_size(function, model, ensemble_size, on_failure, backend)

    def make_study() -> RowPlan:
        return RowPlan(
            inputs, n, sampler=sampler, analysis=analysis, seed=seed, ensemble_size=size, store=store, resume=resume,
            retry_failed=retry_failed, model=model, function=function, outputs=outputs,
        )  # fmt: skip

    return carried_out(
        make_study, model, auto=ensemble_size == "auto", on_failure=on_failure, backend=backend, progress=progress,
        executor=executor, sample_seconds=limit,
    )  # fmt: skip
