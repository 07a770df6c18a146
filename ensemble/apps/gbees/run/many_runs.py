"""The runs behind a `Gbees`: one, or one per sample, each of which may fail without the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np

from ensemble._check import message
from ensemble._compile.numba import one_thread
from ensemble.apps.gbees.engines.engine import Steps
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.run.single_run import Run, Way
from ensemble.scalar import Ensemble

__all__ = ["Runs"]

FAILURES = (GridError, MemoryError)
"""What ends one sample and no other."""

MASSES = {
    "mass_loss": (
        "the grid must keep all but 0.01 of a probability of 1", "lost over its rim",
        "Lower the threshold, or widen bounds.",
    ),
    "mass_gain": (
        "negative values must be below 0.01 of a probability of 1", "added by setting them to zero",
        "The distribution is thinner than cells can resolve: use a larger factor.",
    ),
}  # fmt: skip
"""Of `Run.exceeded`: what must hold, what is counted, and what to do."""

T = TypeVar("T")

Watch = Callable[[float, int, int], None]


class Interrupted(BaseException):
    """Ends the other samples when one of them, or the main thread, was interrupted."""


class Runs:
    """Runs by sample; None for one whose first grid failed.

    Attributes
    ----------
    runs : list of Run or None
    messages : list of str or None
        Why a sample could not go on.
    n_samples : int or None
        None for a run that is no Ensemble; it raises where a sample would be flagged.
    """

    def __init__(self, runs: list[Run | None], messages: list[str | None], n_samples: int | None) -> None:
        self.runs, self.messages, self.n_samples = runs, messages, n_samples

    @classmethod
    def begun(cls, begin: Callable[[int], Run], n_samples: int | None) -> Runs:
        """Make the run of every sample."""
        if n_samples is None:
            return cls([begin(0)], [None], None)
        runs: list[Run | None] = []
        messages: list[str | None] = []
        for i in range(n_samples):
            try:
                runs.append(begin(i))
                messages.append(None)
            except FAILURES as error:
                runs.append(None)
                messages.append(str(error))
        return cls(runs, messages, n_samples)

    @property
    def alive(self) -> list[Run]:
        """The runs that have not failed."""
        return [run for run, text in zip(self.runs, self.messages) if run is not None and text is None]

    def spread(self, n_samples: int) -> None:
        """One run becomes `n_samples` that are alike."""
        if self.n_samples == n_samples:
            return
        first = self.runs[0]
        copies = n_samples - 1
        self.runs = [first, *(None if first is None else first.copy() for _ in range(copies))]
        self.messages = self.messages * n_samples
        self.n_samples = n_samples

    # -- doing something with each -------------------------------------------------------------------------------------

    def _guarded(self, i: int, work: Callable[[Run], T]) -> T | None:
        """`work` on sample `i`; a failure is noted, or raised where there are no samples."""
        run = self.runs[i]
        if run is None or self.messages[i] is not None:
            return None
        if self.n_samples is None:
            return work(run)
        try:
            return work(run)
        except FAILURES as error:
            self.messages[i] = str(error)
            return None

    def advance(self, until: float, watch: Watch | None) -> Any:
        """Every sample to `until`, each in a thread or all in one launch, with a watch that adds samples up."""
        if self.n_samples is None:
            return self._guarded(0, lambda run: run.advance(until, watch))
        progress = Progress(self.runs, watch)

        def guarded(i: int) -> Steps | None:
            with one_thread():
                return self._guarded(i, lambda run: run.advance(until, progress.of(i)))

        if hasattr(self.make, "together"):
            return self._together(until, watch)
        if len(self.runs) == 1:
            return (self._guarded(0, lambda run: run.advance(until, progress.of(0))),)
        with ThreadPoolExecutor(min(len(self.runs), len(os.sched_getaffinity(0)))) as pool:
            futures: list[Future[Steps | None]] = [pool.submit(guarded, i) for i in range(len(self.runs))]
            try:
                wait(futures, return_when="FIRST_EXCEPTION")
                for future in futures:
                    if future.done() and not isinstance(future.exception(), Interrupted):
                        future.result()
            finally:
                progress.stop.set()
        return tuple(future.result() for future in futures)

    @property
    def make(self) -> Any:
        """The class of the engines."""
        return next((run.make for run in self.runs if run is not None), None)

    def _together(self, until: float, watch: Watch | None) -> tuple[Steps | None, ...]:
        """Every sample to `until` by an engine that takes many grids at once."""
        numbers = [i for i, run in enumerate(self.runs) if run is not None and self.messages[i] is None]
        runs = self.alive
        ways = [run.way(until) for run in runs]
        before = sum(int(np.sum(run.steps.cells)) for run in runs)

        def report(elapsed: float, n_cells: int, cell_steps: int) -> None:
            assert watch is not None
            watch(min(way.begun for way in ways) + elapsed, n_cells, before + cell_steps)

        begun, spans, gone = ([getattr(way, part) for way in ways] for part in ("begun", "span", "elapsed"))
        engines = [run.engine for run in runs]
        try:
            failures = self.make.together(engines, begun, spans, report if watch is not None else None, gone)
        except BaseException:
            for run, way in zip(runs, ways):
                run.settle(way, finished=is_over(run, way))
            raise
        results: list[Steps | None] = [None] * len(self.runs)
        for i, run, way, failure in zip(numbers, runs, ways, failures):
            run.settle(way, finished=failure is None)
            if failure is None:
                results[i] = run.engine.taken
            else:
                self.messages[i] = str(failure)
        return tuple(results)

    def told_masses(self) -> list[str]:
        """Warnings of probability lost over the rim, and of what clipping added, since the start."""
        texts = []
        for name, (requirement, what, advice) in MASSES.items():
            found = {i: run.exceeded(name) for i, run in enumerate(self.runs) if run is not None}
            worst = max(((value, i) for i, value in found.items() if value is not None), default=None)
            if worst is not None:
                where = "" if self.n_samples is None else f" in sample {worst[1]}"
                texts.append(
                    f"Gbees.advance: {requirement}; got {worst[0]:.2g} {what} since the start{where}. {advice}"
                )
        return texts

    def parts(self, work: Callable[[Run], T]) -> Any:
        """`work` on every sample: its result, or a tuple of results."""
        results = tuple(self._guarded(i, work) for i in range(len(self.runs)))
        return results[0] if self.n_samples is None else results

    def numbers(self, work: Callable[[Run, int], float]) -> Any:
        """A number each: a float, or an Ensemble with NaN where a sample failed."""
        results = [self._guarded(i, lambda run, i=i: work(run, i)) for i in range(len(self.runs))]  # type: ignore[misc]
        return self._as_ensemble([np.asarray(np.nan if value is None else value) for value in results], float)

    def scalars(self, work: Callable[[Run], float]) -> Any:
        """Like `numbers`, of what needs no sample's number."""
        return self.numbers(lambda run, i: work(run))

    def arrays(self, work: Callable[[Run], np.ndarray]) -> Any:
        """An array each: itself, or an Ensemble with NaN where a sample failed."""
        results = [self._guarded(i, work) for i in range(len(self.runs))]
        shape = next((value.shape for value in results if value is not None), None)
        if shape is None:
            raise GridError(
                f"Gbees: some sample must be left; got failures in all {len(self.runs)}. {self.messages[0]}"
            )
        return self._as_ensemble([np.full(shape, np.nan) if value is None else value for value in results], None)

    def _as_ensemble(self, values: list[np.ndarray], plain: Callable[[Any], Any] | None) -> Any:
        if self.n_samples is None:
            return values[0] if plain is None else plain(values[0])
        return Ensemble(np.ascontiguousarray(np.stack(values, axis=-1)))

    def counts(self, work: Callable[[Run], int]) -> Any:
        """A whole number each, of failed samples too."""
        results = [0 if run is None else work(run) for run in self.runs]
        return results[0] if self.n_samples is None else np.array(results, dtype=np.int64)

    # -- state ---------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Every run's state, with the number of its sample before each name."""
        state: dict[str, np.ndarray] = {"n_samples": np.array(-1 if self.n_samples is None else self.n_samples)}
        for i, (run, text) in enumerate(zip(self.runs, self.messages)):
            state[f"{i}/message"] = np.array("" if text is None else text)
            if run is not None:
                state.update({f"{i}/{name}": value for name, value in run.state().items()})
        return state

    def restore(self, state: dict[str, np.ndarray], like: Any) -> None:
        """Go on from `state`."""
        try:
            n_samples = int(state["n_samples"])
            have = -1 if self.n_samples is None else self.n_samples
            if n_samples != have and have == -1:
                self.spread(n_samples)
            elif n_samples != have:
                raise ValueError(message("Gbees.restore", "state", f"have {have} samples", n_samples))
            for i, run in enumerate(self.runs):
                text = str(state[f"{i}/message"])
                self.messages[i] = text or None
                if run is not None:
                    parts = {name.partition("/")[2]: value for name, value in state.items() if name.startswith(f"{i}/")}
                    n = parts["indices"].shape[1]
                    if n != run.problem.n:
                        raise ValueError(message("Gbees.restore", "state", f"have {run.problem.n} dimensions", n))
                    run.restore(parts, like)
        except KeyError as error:
            requirement = "hold all that Gbees.state gave"
            raise ValueError(message("Gbees.restore", "state", requirement, f"no entry {error}")) from None


def is_over(run: Run, way: Way) -> bool:
    """Whether a run that an interruption found had come to its end; lengths add up to the span but for rounding."""
    return float(np.sum(run.engine.taken.lengths)) + way.elapsed >= way.span * (1.0 - 1e-13)


class Progress:
    """What all samples have done so far, told to one watch."""

    def __init__(self, runs: list[Run | None], watch: Watch | None) -> None:
        self.watch = watch
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.latest = [
            (np.inf, 0, 0) if run is None else (run.time, run.engine.n_cells, int(np.sum(run.steps.cells)))
            for run in runs
        ]

    def of(self, i: int) -> Watch:
        """The watch of sample `i`."""

        def report(time: float, n_cells: int, cell_steps: int) -> None:
            if self.stop.is_set():
                raise Interrupted
            if self.watch is None:
                return
            with self.lock:
                self.latest[i] = (time, n_cells, cell_steps)
                times, cells, done = zip(*self.latest)
                self.watch(min(times), sum(cells), sum(done))

        return report
