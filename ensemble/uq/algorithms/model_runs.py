"""`ModelRuns`: the model runs of an algorithm, on an executor, kept in a store, within a time.

An algorithm that chooses its next points by the values of earlier ones is a function of these values and of its seed.
So a store keeps what the model gave, group by group, and nothing of the algorithm: a resumed run repeats the
algorithm's own steps with the values that are there, and calls the model from where they end. Each algorithm has the
same bits after a kill by that alone, at any instant, also between the groups of one step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Self

from ensemble._check import positive, require
from ensemble._progress import SECONDS_BETWEEN_LINES, Display
from ensemble.uq.algorithms.algorithm_result import AlgorithmError
from ensemble.uq.algorithms.evaluations import n_germs_of, require_model, seed_or_entropy
from ensemble.uq.algorithms.kept import Kept, manifest_of
from ensemble.uq.study.evaluation import evaluate
from ensemble.uq.study.executors import GroupScheduler, workers_of
from ensemble.uq.study.groups import Group, single
from ensemble.uq.study.limited_calls import time_to_finish
from ensemble.uq.study.outputs import Outcome
from ensemble.uq.study.persistence import stored_manifest

__all__ = ["ModelRuns", "TimeUpError"]


class TimeUpError(Exception):
    """The time of an algorithm is up before its next group; it ends with its last whole step."""


class ModelRuns(Display):
    """How the model runs of one call of an algorithm are carried out; a context manager.

    Parameters
    ----------
    function : str
        The algorithm, for messages.
    models : sequence of callables
        What evaluations run; each has streams of its own.
    inputs : Inputs or int
    settings : dict
        What, beside these and the seed, determines the points: a resumed run must have the same.
    seed : int or None
        None takes that of the store, or a new one.
    argument : str
        What the algorithm calls its model, for messages.
    executor, store, resume, progress, sample_seconds, max_seconds
        As in `propagate`.
    n_streams : int
        How many streams of points are numbered apart.
    """

    def __init__(
        self, function: str, models: Sequence[Any], inputs: Any, settings: dict[str, Any], seed: int | None,
        argument: str, *,
        executor: Any, store: str | PathLike[str] | None, resume: bool | str, progress: bool,
        sample_seconds: float | None, max_seconds: float | None, n_streams: int = 1,
    ) -> None:  # fmt: skip
        for model in models:
            require_model(model, function, argument)
        n_germs_of(inputs, function)
        seconds = math.inf if max_seconds is None else positive(max_seconds, function, "max_seconds")
        self.function, self.deadline = function, time.perf_counter() + seconds
        self._to_finish = time_to_finish(seconds)
        limit = None if sample_seconds is None else positive(sample_seconds, function, "sample_seconds")
        self._limit = limit if limit is not None or seconds == math.inf else math.inf
        self.n_new = self.n_repeated = 0
        self.step = ""
        self.is_plain = store is None and executor is None and self._limit is None and not progress
        taking_part = callable(getattr(executor, "take_part", None))
        advice = "Give a number of processes, or an executor with submit."
        require(not taking_part, function, "executor", "run single models", "groups of ranks", advice)
        stored = stored_manifest(store, resume, function)
        self.seed = int(stored["seed"]) if seed is None and stored is not None else seed_or_entropy(seed, function)
        self._schedulers: dict[int, GroupScheduler] = {}
        self._workers = None
        self.kept: Kept | None = None
        super().__init__(quiet=not progress, unit=" evaluations")
        if store is not None:
            manifest = manifest_of(function, models, inputs, settings, self.seed)
            self.kept = Kept(store, manifest, n_streams, resume if stored is not None else False, function)
        try:
            if executor is not None or self._limit is not None:
                self._workers = self._of_executor(workers_of, executor, self._limit)
        except BaseException:
            self.close()
            raise

    def _of_executor(self, make: Any, *arguments: Any) -> Any:
        """Call `make`, a function of `propagate`, so that its errors name this algorithm instead."""
        try:
            return make(*arguments)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("propagate: ", f"{self.function}: ", 1)) from error

    @property
    def n_parallel(self) -> int:
        """Groups that run at a time."""
        return 1 if self._workers is None else self._workers.count()

    def run(self, model: Any, groups: list[Group], number: int) -> Iterator[tuple[Group, Outcome]]:
        """Outcomes of groups; where a model raises on several samples together, those of each alone.

        `number` tells models from each other.

        Raises
        ------
        TimeUpError
            If the time is up before all have begun.
        """
        alone: list[Group] = []
        for group, outcome in self._each(model, groups, number):
            if not outcome.outputs and group.n_samples > 1:
                alone += [single(group, place) for place in range(group.n_samples)]
            else:
                yield group, outcome
        yield from self._each(model, alone, number) if alone else ()

    def _each(self, model: Any, groups: list[Group], number: int) -> Iterator[tuple[Group, Outcome]]:
        pending = sum(group.n_samples for group in groups)  # a group of which a sample was late comes in parts
        for group, outcome in self._outcomes(model, groups, number):
            pending -= group.n_samples
            yield group, outcome
        if pending:
            raise TimeUpError

    def _outcomes(self, model: Any, groups: list[Group], number: int) -> Iterator[tuple[Group, Outcome]]:
        """Outcomes of the groups that begin and end in time."""
        if self._workers is None:
            for group in self._in_time(groups):
                yield group, evaluate(model, group.samples, "mask")
            return
        if number not in self._schedulers:
            make = lambda: GroupScheduler(self._workers, model, "mask", "numpy", self._limit)
            scheduler = self._schedulers[number] = self._of_executor(make)
            if self.deadline < math.inf:
                began = time.perf_counter()
                scheduler.wait_until_ready()
                self.deadline += time.perf_counter() - began
            scheduler.ends_at = self.deadline + self._to_finish
        yield from self._schedulers[number].run(self._in_time(groups))

    def _in_time(self, groups: list[Group]) -> Iterator[Group]:
        """The groups until the time is up."""
        for group in groups:
            if time.perf_counter() >= self.deadline:
                return
            yield group

    def count(self, n_new: int, n_repeated: int) -> None:
        """Count evaluations that were run, and those that the store had."""
        self.n_new += n_new
        self.n_repeated += n_repeated
        if self.quiet or not n_new:
            return
        if self.bar is not None:
            self.bar.set_postfix_str(self.step, refresh=False)
            self.bar.update(n_new)
            return
        now = time.perf_counter()
        if now - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = now
            rate = self.n_new / max(now - self.started, 1e-9)
            where = f"{self.step}, " if self.step else ""
            self.say(f"{self.function}: {where}{self.n_new:,} evaluations, {rate:.3g} a second")

    def nothing_done(self, what: str) -> AlgorithmError:
        """The error of an algorithm whose first step did not end in time."""
        more = "Give max_seconds more." if self.kept is None else "resume=True goes on with what is in the store."
        return AlgorithmError(f"{self.function}: {what} was finished within max_seconds. {more}")

    def close(self) -> None:
        """End the workers, and close the store."""
        for scheduler in self._schedulers.values():
            scheduler.close()
        if self._workers is not None:
            self._workers.close()
        if self.kept is not None:
            self.kept.close()
            self.kept = None  # a result has no use of it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is not None and self.kept is not None and self.kept.n_stored:
            where = f"{self.kept.n_stored:,} evaluations are in the store {str(self.kept.path)!r}"
            error.add_note(f"{self.function}: {where}: resume=True goes on.")
        self.close()
