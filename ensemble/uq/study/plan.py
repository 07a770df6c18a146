"""`Plan`: the samples of a study as groups to be run, and what has been told of them.

Longer than 400 lines: one class, a third of it docstrings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import Any, Self

import numpy as np

from ensemble._check import array_of, integer, kind_of, message, one_of, require
from ensemble._interrupts import held
from ensemble._keywords import explains_calls
from ensemble._typing import Ids
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.samplers.choice import resolved_sampler
from ensemble.uq.samplers.sampler import checked_ids
from ensemble.uq.store.costs import CostRecord
from ensemble.uq.store.parts import PartStore, ids_of_part
from ensemble.uq.store.places import as_slice
from ensemble.uq.study.dataset import check_names, weighted_columns
from ensemble.uq.study.declared import Outputs
from ensemble.uq.study.groups import Group, GroupKey, order_of_samples, require_pending
from ensemble.uq.study.outputs import (
    Layout,
    Outcome,
    OutputError,
    check_layout,
    layout_of,
    named_outputs,
    non_finite,
)
from ensemble.uq.study.persistence import (
    checked_part,
    declared_outputs,
    has_study,
    manifest_of,
    most_attempts,
    opened,
    stored_manifest,
)
from ensemble.uq.study.streams import Stream, empty_streams
from ensemble.uq.study.study_memory import MemoryStore
from ensemble.uq.study.study_result import UqResult

__all__ = ["KEEP_MEMORY", "Plan", "plan"]

KEEP_MEMORY = 2**30
"""Bytes of outputs up to which ``keep=None`` keeps every sample."""

JOURNAL_BYTES = 2**30
"""Length of a journal from which its groups are moved into the Zarr group before the end."""

WATCHED_MEMORY = 2**26
"""Bytes of an output up to which its stored samples are read for a display."""

WINDOW = 256
"""Ids among which samples change places by `group_by` where outputs are not kept."""


class Plan:
    """The samples of a study, divided into groups; outputs are told group by group. Made by `plan`.

    Attributes
    ----------
    inputs : Inputs
    sampler : Sampler
    seed : int
    n : int
        The number of samples.
    samples : InputSamples
        All of them.
    """

    def __init__(
        self,
        inputs: Inputs,
        n: int | None,
        *,
        sampler: Any,
        seed: int | None,
        ensemble_size: int,
        group_by: GroupKey,
        keep: str | None,
        store: str | PathLike[str] | None = None,
        resume: bool | str = False,
        retry_failed: bool | int = False,
        part: Any = None,
        model: Callable[..., Any] | None = None,
        outputs: Outputs | None = None,
        function: str = "plan",
        most: int | None = None,
        check_sampler: Callable[[Any], None] | None = None,
    ) -> None:
        if not callable(getattr(inputs, "from_uniform", None)):
            raise TypeError(message(function, "inputs", "be Inputs", kind_of(inputs)))
        self.function, self.inputs, self.model, self.group_by = function, inputs, model, group_by
        self.part = checked_part(part, store, function)
        if self.part is not None:
            advice = "One job may go on with the whole study: leave part out."
            require(isinstance(resume, bool), function, "resume", "be True or False with part", repr(resume), advice)
            resume = has_study(store)  # the first job of several makes it
        self._most_attempts = most_attempts(retry_failed, bool(resume) or self.part is not None, function)
        stored = stored_manifest(store, resume, function)
        check_model_inputs = getattr(model, "check_inputs", None)
        if callable(check_model_inputs):
            check_model_inputs(inputs.names)
        self.declared = declared_outputs(outputs, stored, inputs.names, function)
        wanted = n
        if stored is not None and n is not None:
            n = min(integer(n, function, "n", minimum=1), stored["n"])  # a study never shrinks
        self.sampler, self.n = resolved_sampler(sampler, inputs, n, function)
        if check_sampler is not None:
            check_sampler(self.sampler)
        if seed is None:
            advice = "Jobs that draw seeds of their own would begin different studies."
            require(self.part is None or stored is not None, function, "seed", "be given with part", None, advice)
            drawn = int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> 1)
            seed = drawn if stored is None else stored["seed"]
        self.seed = integer(seed, function, "seed", minimum=0)
        self.ensemble_size = integer(ensemble_size, function, "ensemble_size", minimum=1)
        self.keep = keep if keep is None else one_of(keep, ("all", "statistics"), function, "keep")
        self.samples = self._draw(self.n)
        self.most = max(self.n, wanted or 0, most or 0)
        weighted = self.samples.weights is not None
        advice = "Leave keep out."
        require(not (weighted and keep == "statistics"), function, "keep", "be 'all' for weights", keep, advice)
        if weighted:
            self.keep = "all"  # histograms count samples, and rules need every point
        self.layout: Layout = {}
        self.failed, self.is_done = np.zeros(self.n, bool), np.zeros(self.n, bool)
        self.again = np.zeros(self.n, bool)
        self.reasons: dict[int, str] = {}
        self.earlier: dict[int, list[str]] = {}
        self.streams: dict[str, Stream] | None = None
        self._first_entries = np.full(self.n, np.nan)
        self._order = self._ordered()
        self.store: Any = MemoryStore(self.n)
        self.resumed = stored is not None
        self._mine = np.ones(self.n, bool) if self.part is None else ids_of_part(*self.part, self.n)
        if store is not None:
            manifest = self.manifest(stored)
            if stored is not None:
                manifest["n"] = stored["n"] if self.sampler.count() is None else self.n
            if self.part is not None:
                self.store = PartStore.join(store, manifest, *self.part)
            else:
                self.store = opened(store, manifest, resume if self.resumed else False)
            self._take_over(wanted)
        self.costs = CostRecord(self.store.path, None if self.part is None else self.part[0])

    def manifest(self, stored: dict[str, Any] | None = None) -> dict[str, Any]:
        """What makes the study this study; of one that is resumed with what was stored."""
        return manifest_of(self.inputs, self.sampler, self.seed, self.n, self.model, stored, self.declared)

    def _take_over(self, n: int | None) -> None:
        """What the store has already, and the further samples that are wanted now."""
        if self.store.n > self.n:
            self._grow(self.store.n)
        self.is_done, self.failed, self.reasons = self.store.done(), self.store.failed(), self.store.reasons()
        self.earlier = self.store.earlier_reasons()
        if self._most_attempts > 1.0:
            self.again = self.failed & self._mine
            spent = [i for i, texts in self.earlier.items() if 1 + len(texts) >= self._most_attempts]
            self.again[spent] = False
        if self.store.outputs:
            self._start({name: (tuple(o.shape), np.dtype(o.dtype)) for name, o in self.store.outputs.items()})
        if n is not None and n > self.n:
            self.extend(n)

    def _draw(self, n: int) -> Any:
        ids = np.arange(n)
        points = self.sampler.points(ids, self.inputs.n_germs, self.seed)
        normal = getattr(self.sampler, "space", "") == "normal"
        samples = (self.inputs.from_normal if normal else self.inputs.from_uniform)(points, ids)
        samples.seed, samples.weights = self.seed, self.sampler.weights(ids)
        return samples

    def _ordered(self) -> np.ndarray:
        window = None if self.keep == "all" else max(WINDOW, 8 * self.ensemble_size)
        return order_of_samples(self.samples, self.group_by, self.function, window)

    # --- what is to be run
    @property
    def pending(self) -> np.ndarray:
        """The ids of the samples that are to be run, in that order: nothing was told of them, or they run again."""
        wanted = (~self.is_done | self.again) & self._mine
        pending: np.ndarray = self._order[wanted[self._order]]
        return pending

    @property
    def n_done(self) -> int:
        """How many samples have been told, failed ones too."""
        return int(np.count_nonzero(self.is_done))

    def group(self, ids: Ids) -> Group:
        """The samples `ids` as one group."""
        numbers = checked_ids(ids, "plan.group", self.n)
        return Group(numbers, self.samples.take(numbers))

    def groups(self, ensemble_size: int | None = None) -> Iterator[Group]:
        """The pending samples in groups.

        Parameters
        ----------
        ensemble_size : int, optional
            Default: that of the plan.

        Yields
        ------
        Group
            With `ids` and `samples`. What is told meanwhile changes nothing; a new call leaves it out.
        """
        size = self.ensemble_size if ensemble_size is None else ensemble_size
        size = integer(size, "plan.groups", "ensemble_size", minimum=1)
        pending = self.pending
        for first in range(0, pending.size, size):
            yield self.group(pending[first : first + size])

    def extend(self, n: int) -> None:
        """Add samples up to `n`; those that were there stay as they are.

        Parameters
        ----------
        n : int, above the present number

        Raises
        ------
        ValueError
            If the sampler has a fixed number of points, or `n` is not above the present number.
        """
        n = integer(n, "plan.extend", "n", minimum=self.n + 1)
        extendable = self.sampler.count() is None and self.sampler.extendable
        require(extendable, "plan.extend", "sampler", "have no end", repr(self.sampler))
        self.sampler.for_inputs(self.inputs, n)  # it warns of numbers that do not suit it
        with held():
            self.store.extend(n)
            self._grow(n)

    def _grow(self, n: int) -> None:
        """Draw further samples."""
        more, self.n, self.most = n - self.n, n, max(n, self.most)
        self.samples = self._draw(n)
        self.failed, self.is_done, self.again = (
            np.concatenate([a, np.zeros(more, bool)]) for a in (self.failed, self.is_done, self.again)
        )
        self._first_entries = np.concatenate([self._first_entries, np.full(more, np.nan)])
        self._mine = np.concatenate([self._mine, np.ones(more, bool)])
        self._order = self._ordered()

    def take_lost(self) -> bool:
        """Add the samples of a part whose job was lost; False where there is none, or the study has no parts."""
        found = None if self.part is None else self.store.take_lost()
        if found is None:
            return False
        part, done = found
        assert self.part is not None
        self._mine |= ids_of_part(part, self.part[1], self.n) & ~done
        return True

    # --- what is told
    def tell(self, group: Any, outputs: Any, *, failed: Any = None, reasons: Mapping[int, str] | None = None) -> None:
        """Give the outputs of a group, in any order of the groups.

        Parameters
        ----------
        group : Group, or array of int: sample ids
        outputs : dict of str to Ensemble or array ``(*shape, n_samples)`` or number; or one of these: output "y"
        failed : array of bool, shape (n_samples,), optional
            Samples whose outputs count for nothing. Samples with a value that is not finite, and those that
            ``group.samples.fail`` has marked, are added.
        reasons : dict of int to str, optional
            Why, by sample id.

        Raises
        ------
        ValueError
            If a sample is not pending, or the outputs do not fit; nothing has changed then.
        """
        ids = array_of(getattr(group, "ids", group), "plan.tell", "group", "be a Group, or a vector of sample ids")
        require_pending(ids, self.is_done & ~self.again)
        arrays = named_outputs(outputs, ids.size, "plan.tell", arrays=True)
        wanted = f"be {ids.size} bools, one per sample"
        mask = np.zeros(ids.size, bool) if failed is None else array_of(failed, "plan.tell", "failed", wanted).copy()
        seen = f"{mask.dtype} of shape {mask.shape}"
        fits = mask.shape == ids.shape and mask.dtype == np.bool_
        require(fits, "plan.tell", "failed", wanted, seen)
        marked = getattr(getattr(group, "samples", None), "failures", {})
        by_place = {k: str((reasons or {}).get(int(ids[k]), "")) for k in np.flatnonzero(mask).tolist()}
        by_place |= {place: text for place, text in marked.items() if not by_place.get(place)}
        for name, array in arrays.items():
            for place in non_finite(array):
                by_place.setdefault(place, f"output {name!r} is not finite")
        mask[list(by_place)] = True
        if not arrays and not np.all(mask):
            raise OutputError(message("plan.tell", "outputs", "name an output unless all samples failed", "none"))
        self.accept(ids, Outcome(arrays, mask, by_place), "plan.tell")

    def accept(self, ids: np.ndarray, outcome: Outcome, function: str = "propagate") -> None:
        """Keep a checked outcome: the part of `tell` after its checks."""
        outputs = outcome.outputs
        if outputs:
            found = layout_of(outputs)
            if self.layout:
                check_layout(self.layout, found, function)
            else:
                check_names(found, self.inputs.names, function)
                self.declared.dims(found, function)
                self._start(found)
        with held():  # the store, what is done and the statistics belong together
            self._store(ids, outcome)
            self._count(ids, outcome)
        if getattr(self.store, "journal_bytes", 0) >= JOURNAL_BYTES:
            self.store.compact(weighted_columns(self.samples))

    def _store(self, ids: np.ndarray, outcome: Outcome) -> None:
        """Store a group."""
        reasons = {int(ids[place]): text for place, text in outcome.reasons.items()} if outcome.reasons else {}
        if outcome.earlier or self.again[ids].any():
            self._append_again(ids, outcome, reasons)
        else:
            self.store.append(ids, outcome.outputs, outcome.failed, reasons)

    def _count(self, ids: np.ndarray, outcome: Outcome) -> None:
        """Count a group that is stored."""
        places = as_slice(ids)
        self.is_done[places] = True
        self.failed[places] = outcome.failed
        for place, text in outcome.reasons.items():
            self.reasons[int(ids[place])] = text
        self._add_to_streams(ids, outcome.outputs, outcome.failed, places)
        self.costs.add(ids.size, outcome.seconds)

    def _append_again(self, ids: np.ndarray, outcome: Outcome, reasons: dict[int, str]) -> None:
        """Store a group with samples that had failed before; the reasons of those attempts are kept."""
        earlier = {int(ids[place]): texts for place, texts in outcome.earlier.items()}
        again = ids[self.again[ids]]
        self.store.append(ids, outcome.outputs, outcome.failed, reasons, again=again.size > 0, earlier=earlier)
        for i in again.tolist():
            self.earlier.setdefault(i, []).append(self.reasons.pop(i, ""))
        for i, texts in earlier.items():
            self.earlier.setdefault(i, []).extend(texts)
        self.again[again] = False

    def _start(self, layout: Layout) -> None:
        """Prepare for outputs of this layout."""
        try:
            self._prepare(layout)
        except BaseException:  # interrupted: the next group begins anew
            self.layout, self.streams = {}, None
            raise

    def _prepare(self, layout: Layout) -> None:
        """Decide what is kept, and gather statistics of what is stored."""
        self.layout = layout
        size = sum(math.prod(shape) * dtype.itemsize for shape, dtype in layout.values())
        if self.keep is None:
            self.keep = "all" if size * self.most <= KEEP_MEMORY else "statistics"
        if self.keep == "statistics":
            self.streams = self.new_streams(histograms=True)
            if isinstance(self.store, MemoryStore):
                self.store.keeps_outputs = False
        self._add_stored_to_streams()

    def _add_stored_to_streams(self) -> None:
        """Add the samples that were done before the layout was known, or before this process."""
        if self.streams is not None:
            for ids, outputs, failed in self.store.blocks():
                kept = np.flatnonzero(~self.again[ids])  # those that run again are added then
                if kept.size == ids.size:
                    self._add_to_streams(ids, outputs, failed)
                elif kept.size:
                    own = {name: array[..., kept] for name, array in outputs.items()}
                    self._add_to_streams(ids[kept], own, failed[kept])
            before = np.flatnonzero(self.is_done) if isinstance(self.store, MemoryStore) else np.zeros(0, int)
            if before.size:
                self._add_to_streams(before, {}, np.ones(before.size, bool))
        elif not isinstance(self.store, MemoryStore):
            name, (shape, dtype) = next(iter(self.layout.items()))
            good = np.flatnonzero(self.is_done & ~self.failed)
            if good.size and math.prod(shape) * dtype.itemsize * good.size <= WATCHED_MEMORY:
                self._add_to_streams(good, {name: self.store.read(name, good)}, np.zeros(good.size, bool))

    def new_streams(self, *, histograms: bool) -> dict[str, Stream]:
        """An empty stream for each output."""
        return empty_streams(self.layout, self.sampler.n_replicates, histograms=histograms)

    def _add_to_streams(
        self, ids: np.ndarray, outputs: dict[str, np.ndarray], failed: np.ndarray, places: Any = None
    ) -> None:
        """Add to the streams, and to the first entries that a display shows; no outputs where all samples failed."""
        if self.streams:
            weights = None if self.samples.weights is None else self.samples.weights[ids]
            for name, stream in self.streams.items():
                stream.add(ids, outputs.get(name), ~failed, weights)
        first = next(iter(outputs.values()), None)
        if first is not None and first.dtype.kind != "c" and first.size:
            self._first_entries[ids if places is None else places] = first.reshape(-1, ids.size)[0]

    def first_entries(self) -> np.ndarray:
        """The first entry of the first output, shape (n,), NaN where there is none yet: for a display."""
        return np.where(self.failed, np.nan, self._first_entries)

    def result(self) -> UqResult:
        """Statistics of the samples told so far.

        Returns
        -------
        UqResult
        """
        return UqResult(self)

    def close(self) -> None:
        """Compact the store into a Zarr group and close it; nothing without a store."""
        try:
            if getattr(self.store, "writable", True):
                self.costs.write()
                self.store.compact(weighted_columns(self.samples))
        finally:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Plan({self.n_done} of {self.n} samples done, {np.count_nonzero(self.failed)} failed)"


@explains_calls("plan")
def plan(
    inputs: Inputs,
    n: int | None = None,
    *,
    sampler: Any = "sobol",
    seed: int | None = None,
    ensemble_size: int = 32,
    group_by: GroupKey = None,
    store: str | PathLike[str] | None = None,
    resume: bool | str = False,
    retry_failed: bool | int = False,
    keep: str | None = None,
    outputs: Outputs | None = None,
) -> Plan:
    """Divide a study into groups that run anywhere, and gather their outputs: `propagate` without its loop.

    Parameters
    ----------
    inputs, n, sampler, seed, group_by, store, resume, retry_failed, keep, outputs
        As in `propagate`.
    ensemble_size : int
        Samples in a group.

    Returns
    -------
    Plan
        ``for group in plan.groups(): plan.tell(group, model(group.samples))``, then ``plan.result()``. Groups may be
        told in any order; what has not been told is `pending`. With a store, ``with en.plan(...) as study:`` closes it.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or out of range.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> study = en.plan(en.Inputs(load=stats.norm(1.0, 0.2)), 64, seed=5)
    >>> for group in study.groups():
    ...     study.tell(group, {"tip": group.samples.load / 3.0})
    >>> study.n_done, round(float(study.result().mean("tip")), 2)
    (64, 0.33)
    """
    return Plan(
        inputs,
        n,
        sampler=sampler,
        seed=seed,
        ensemble_size=ensemble_size,
        group_by=group_by,
        keep=keep,
        store=store,
        resume=resume,
        retry_failed=retry_failed,
        outputs=outputs,
    )
