"""The runs of a `Gbees`: one, or one per sample; a failure of one leaves the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np

from ensemble._blas import n_processors
from ensemble._check import message
from ensemble._compile.numba import one_thread
from ensemble._interrupts import held, released, take
from ensemble._typing import Array
from ensemble.apps.gbees.engines.engine import Steps
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.run.single_run import Advance, GridRun, Weights
from ensemble.scalar import Ensemble

__all__ = ["GridRuns"]

FAILURES = (GridError, MemoryError)
"""Errors that end the run of one sample only."""

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
"""Parts of the warning for each mass that `GridRun.exceeded` names: requirement, quantity, advice."""

T = TypeVar("T")

Callback = Callable[[float, int, int], None]


class Interrupted(BaseException):
    """Ends the other samples after one of them, or the main thread, was interrupted."""


class GridRuns:
    """Runs by sample; None for a sample whose first grid failed.

    Attributes
    ----------
    runs : list of GridRun or None
    messages : list of str or None
        Why a sample could not continue.
    n_samples : int or None
        None for a run without samples, which raises where a sample would be flagged.
    """

    def __init__(self, runs: list[GridRun | None], messages: list[str | None], n_samples: int | None) -> None:
        self.runs, self.messages, self.n_samples = runs, messages, n_samples

    @classmethod
    def start(cls, begin: Callable[[int], GridRun], n_samples: int | None) -> GridRuns:
        """Make the run of every sample."""
        if n_samples is None:
            return cls([begin(0)], [None], None)
        runs: list[GridRun | None] = []
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
    def running(self) -> list[GridRun]:
        """The runs that have not failed."""
        return [run for run, text in zip(self.runs, self.messages) if run is not None and text is None]

    def _replicated(self, n_samples: int | None) -> GridRuns:
        """`n_samples` copies of the one run, the first of which is the run itself; these runs where they have samples.

        Messages are copies.
        """
        runs, messages, own = self.runs, list(self.messages), self.n_samples
        if n_samples is not None and own != n_samples:
            first = runs[0]
            runs = [first, *(None if first is None else first.copy() for _ in range(n_samples - 1))]
            messages, own = messages * n_samples, n_samples
        return GridRuns(runs, messages, own)

    def _become(self, other: GridRuns) -> None:
        self.runs, self.messages, self.n_samples = other.runs, other.messages, other.n_samples

    # -- operations per sample -----------------------------------------------------------------------------------------

    def _recording_failures(self, i: int, work: Callable[[GridRun], T]) -> T | None:
        """Return ``work(run)`` of sample `i`, None where it has failed; a run without samples raises instead."""
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

    def advance(self, until: float, callback: Callback | None) -> Steps | tuple[Steps | None, ...]:
        """Advance every sample to `until`, each in a thread or all in one launch; `callback` gets sums over samples."""
        if self.n_samples is None:
            return self.parts(lambda run: run.advance(until, callback))
        progress = Progress(self.runs, callback)

        def on_one_thread(i: int) -> Steps | None:
            with one_thread():
                return self._recording_failures(i, lambda run: run.advance(until, progress.of(i)))

        if hasattr(self.make, "advance_many"):
            return self._advance_many(until, callback)
        if len(self.runs) == 1:
            return (self._recording_failures(0, lambda run: run.advance(until, progress.of(0))),)
        with ThreadPoolExecutor(min(len(self.runs), n_processors())) as pool:
            futures: list[Future[Steps | None]] = [pool.submit(on_one_thread, i) for i in range(len(self.runs))]
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

    def _advance_many(self, until: float, callback: Callback | None) -> tuple[Steps | None, ...]:
        """Advance every sample to `until` by an engine for many grids at once."""
        numbers = [i for i, run in enumerate(self.runs) if run is not None and self.messages[i] is None]
        runs = self.running
        advances = [run.begin_advance(until) for run in runs]
        before = sum(int(np.sum(run.steps.cells)) for run in runs)

        def report(elapsed: float, n_cells: int, cell_steps: int) -> None:
            assert callback is not None
            callback(min(each.start for each in advances) + elapsed, n_cells, before + cell_steps)

        starts, spans, elapsed = ([getattr(each, part) for each in advances] for part in ("start", "span", "elapsed"))
        engines = [run.engine for run in runs]
        try:
            failures = self.make.advance_many(engines, starts, spans, report if callback is not None else None, elapsed)
        except BaseException:
            for run, advance in zip(runs, advances):
                run.record_advance(advance, completed=is_complete(run, advance))
            raise
        results: list[Steps | None] = [None] * len(self.runs)
        for i, run, advance, failure in zip(numbers, runs, advances, failures):
            run.record_advance(advance, completed=failure is None)
            if failure is None:
                results[i] = run.engine.taken
            else:
                self.messages[i] = str(failure)
        return tuple(results)

    def mass_warnings(self) -> list[str]:
        """Warnings of probability that left the grid, and of probability added by clipping, since the start."""
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

    def parts(self, work: Callable[[GridRun], T]) -> T | tuple[T | None, ...]:
        """The result of `work`, or a tuple with one per sample."""
        results = tuple(self._recording_failures(i, work) for i in range(len(self.runs)))
        if self.n_samples is not None:
            return results
        assert results[0] is not None
        return results[0]

    def numbers(self, work: Callable[[GridRun, int], float]) -> Array:
        """A number per sample: a float, or an Ensemble with NaN where a sample failed."""
        results = [self._recording_failures(i, lambda run, i=i: work(run, i)) for i in range(len(self.runs))]  # type: ignore[misc]
        return self._as_ensemble([np.asarray(np.nan if value is None else value) for value in results], float)

    def reweight(self, weigh: Callable[[GridRun, int], Weights], n_samples: int | None = None) -> Array:
        """Bayes' rule in every run, or in none where an exception comes: the logarithm of the evidence per sample.

        Ctrl-C is heard while `weigh` computes. A run without samples becomes `n_samples` runs where these are given.
        """
        before, taken_back = GridRuns(self.runs, self.messages, self.n_samples), []
        with released():
            made = self._replicated(n_samples)
            each = range(len(made.runs))
            weights = [made._recording_failures(i, lambda run, i=i: weigh(run, i)) for i in each]  # type: ignore[misc]
        try:
            with held():

                def change(run: GridRun, i: int) -> float:
                    take()
                    weight = weights[i]
                    if weight is None:
                        return float("nan")
                    log_evidence, take_back = run.reweight(weight)
                    taken_back.append(take_back)
                    return log_evidence

                found = made.numbers(change)
                take()
                self._become(made)
            return found  # nothing lies between the end of `held` and the caller where an interrupt could come
        except BaseException:
            with held():
                for take_back in taken_back:
                    take_back()
                self._become(before)
            raise

    def scalars(self, work: Callable[[GridRun], float]) -> Array:
        """Like `numbers`; `work` does not take the number of the sample."""
        return self.numbers(lambda run, i: work(run))

    def arrays(self, work: Callable[[GridRun], np.ndarray]) -> Array:
        """An array per sample: an array, or an Ensemble with NaN where a sample failed."""
        results = [self._recording_failures(i, work) for i in range(len(self.runs))]
        shape = next((value.shape for value in results if value is not None), None)
        if shape is None:
            raise GridError(
                f"Gbees: some sample must be left; got failures in all {len(self.runs)}. {self.messages[0]}"
            )
        return self._as_ensemble([np.full(shape, np.nan) if value is None else value for value in results], None)

    def _as_ensemble(self, values: list[np.ndarray], plain: Callable[[np.ndarray], float] | None) -> Array:
        if self.n_samples is None:
            return values[0] if plain is None else plain(values[0])
        return Ensemble(np.ascontiguousarray(np.stack(values, axis=-1)))

    def counts(self, work: Callable[[GridRun], int]) -> Array:
        """An integer per sample, of failed samples too."""
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

    def restore(self, state: dict[str, np.ndarray], like: Array) -> None:
        """Continue from `state`."""
        try:
            n_samples = int(state["n_samples"])
            have = -1 if self.n_samples is None else self.n_samples
            if n_samples != have and have != -1:
                raise ValueError(message("Gbees.restore", "state", f"have {have} samples", n_samples))
            runs, messages = [], []
            for i, run in enumerate(self.runs * n_samples if n_samples != have else self.runs):
                messages.append(str(state[f"{i}/message"]) or None)
                if run is not None:
                    parts = {name.partition("/")[2]: value for name, value in state.items() if name.startswith(f"{i}/")}
                    n = parts["indices"].shape[1]
                    if n != run.problem.n:
                        raise ValueError(message("Gbees.restore", "state", f"have {run.problem.n} dimensions", n))
                    run = run.restored(parts, like)
                runs.append(run)
        except KeyError as error:
            requirement = "hold all that Gbees.state gave"
            raise ValueError(message("Gbees.restore", "state", requirement, f"no entry {error}")) from None
        self._become(GridRuns(runs, messages, None if n_samples == -1 else n_samples))


def is_complete(run: GridRun, advance: Advance) -> bool:
    """Whether an interrupted call had completed this run; step lengths add up to the span but for rounding."""
    return float(np.sum(run.engine.taken.lengths)) + advance.elapsed >= advance.span * (1.0 - 1e-13)


class Progress:
    """Sums over samples for one callback."""

    def __init__(self, runs: list[GridRun | None], callback: Callback | None) -> None:
        self.callback = callback
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.latest = [
            (np.inf, 0, 0) if run is None else (run.time, run.engine.n_cells, int(np.sum(run.steps.cells)))
            for run in runs
        ]

    def of(self, i: int) -> Callback:
        """The callback of sample `i`."""

        def report(time: float, n_cells: int, cell_steps: int) -> None:
            if self.stop.is_set():
                raise Interrupted
            if self.callback is None:
                return
            with self.lock:
                self.latest[i] = (time, n_cells, cell_steps)
                times, cells, done = zip(*self.latest)
                self.callback(min(times), sum(cells), sum(done))

        return report
