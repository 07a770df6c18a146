"""`propagate`: uncertain inputs through a model, group by group.

Longer than 400 lines: a third of it is the docstring of one function.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from typing import Any, Literal

import numpy as np

from ensemble._backend import prototype
from ensemble._check import integer, kind_of, message, one_of, positive, require
from ensemble._keywords import explains_calls
from ensemble._typing import Executor
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.study.declared import Outputs
from ensemble.uq.study.ensemble_size import choose_ensemble_size
from ensemble.uq.study.evaluation import evaluate
from ensemble.uq.study.executors import GroupScheduler, workers_of
from ensemble.uq.study.first_failures import FirstFailures
from ensemble.uq.study.groups import Group, GroupKey
from ensemble.uq.study.limited_calls import time_to_finish
from ensemble.uq.study.outputs import Outcome, layout_of
from ensemble.uq.study.persistence import discard
from ensemble.uq.study.plan import Plan
from ensemble.uq.study.progress import StudyProgress
from ensemble.uq.study.study_result import UqResult
from ensemble.uq.study.target import Target

__all__ = ["propagate"]

SIZE_BEFORE_TIMING = 32


class Serial:
    """Groups one after the other in this process."""

    n_parallel = 1

    def __init__(self, model: Callable[[Any], Any], on_failure: str, backend: str) -> None:
        self.model, self.on_failure, self.backend = model, on_failure, backend
        self.probe: Any = False
        self.ends_alike = False
        self.ends_at = math.inf  # a call in this thread ends by itself

    def run(self, groups: Iterator[Group]) -> Iterator[tuple[Group, Outcome]]:
        """Outcomes in the order of the groups."""
        for group in groups:
            probe, self.probe = self.probe, False
            yield group, evaluate(self.model, group.samples, self.on_failure, self.backend, probe)

    def wait_until_ready(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class StudyRun:
    """One call of `propagate`: a plan, the runner of its groups, and a display."""

    def __init__(
        self,
        study: Plan,
        runner: Serial | GroupScheduler,
        display: StudyProgress,
        deadline: float,
        target: Target | None,
    ) -> None:
        self.study, self.runner, self.display = study, runner, display
        self.deadline, self.target = deadline, target
        proven = study.n_done > 0 or not runner.ends_alike
        self.first = FirstFailures(0 if proven else study.pending.size, tuple(study.samples.names))

    def groups(self) -> Iterator[Group]:
        """The pending groups until the time is up."""
        for group in self.study.groups():
            if self.is_time_up():
                return
            yield group

    def is_time_up(self) -> bool:
        """Whether the time is up."""
        return time.perf_counter() >= self.deadline

    def keep(self, group: Group, outcome: Outcome) -> None:
        """Add an outcome to the plan and to the display, once the first samples have not all raised the same."""
        for passed in self.first.passed(group, outcome):
            self._add(*passed)

    def keep_rest(self) -> None:
        """Add the outcomes that were held back."""
        for held in self.first.rest():
            self._add(*held)

    def _add(self, group: Group, outcome: Outcome) -> None:
        if self.target is not None and not self.study.layout and outcome.outputs:
            self.target.check_outputs(layout_of(outcome.outputs))
        self.study.accept(group.ids, outcome)
        self.display.advance(group.n_samples)

    def timed(self, group: Group) -> Outcome | None:
        """Run one group now; None where it does not fit into memory or its worker died."""
        whole, late = None, False
        try:
            for done, outcome in self.runner.run(iter([group])):
                if outcome.out_of_memory and not outcome.outputs:
                    return None
                self.keep(done, outcome)
                late = late or outcome.late is not None
                whole = outcome if done is group else whole
        except MemoryError:
            return None
        return replace(whole or Outcome({}, np.ones(group.n_samples, bool)), seconds=math.inf) if late else whole

    def run(self) -> None:
        """All pending groups."""
        for group, outcome in self.runner.run(self.groups()):
            self.keep(group, outcome)
        self.keep_rest()

    def choose_ensemble_size(self) -> None:
        """Time several sizes on the first groups."""
        study, runner = self.study, self.runner
        study.ensemble_size, why = choose_ensemble_size(
            study, self.timed, self.is_time_up, runner.n_parallel, runner.backend
        )
        self.display.say(f"ensemble size {study.ensemble_size}: {why}")

    def run_to_target(self) -> UqResult:
        """All groups; with a target more samples until it is met."""
        self.run()
        while not self.is_time_up() and self.study.take_lost():
            self.run()
        result = self.study.result()
        if self.target is None:
            return result
        while True:
            result.target_met = self.target.is_met(result)
            n, hopeless = 2 * self.study.n, result.n_failed == result.n_done
            if result.target_met or result.n_done < result.n or n > self.target.max_n or hopeless:
                return result
            self.study.extend(n)
            self.display.extend()
            self.run()
            result = self.study.result()


@explains_calls("propagate")
def propagate(
    model: Callable[[Any], Any],
    inputs: Inputs,
    n: int | Literal["auto"] | None = None,
    *,
    ensemble_size: int | Literal["auto"] = "auto",
    sampler: Any = "sobol",
    seed: int | None = None,
    backend: str = "numpy",
    group_by: GroupKey = None,
    on_failure: str | None = None,
    store: str | PathLike[str] | None = None,
    resume: bool | str = False,
    retry_failed: bool | int = False,
    sample_seconds: float | None = None,
    part: tuple[int, int] | str | None = None,
    progress: bool = True,
    executor: Executor | None = None,
    keep: str | None = None,
    target: Any = None,
    max_n: int | None = None,
    max_seconds: float | None = None,
    outputs: Outputs | None = None,
) -> UqResult:
    """Run a model on samples of uncertain inputs, many samples in a call, and take statistics of its outputs.

    Sample i is the same whatever the ensemble size, the order, the executor or the number of samples; so is its output,
    where the model keeps samples apart, and so are all statistics, to the bit.

    Parameters
    ----------
    model : callable
        Takes `InputSamples`, with an Ensemble (or a field) for each input, ``x.E``; returns a dict of Ensembles by
        name, or one Ensemble, which is output "y", or what `run` returns: samples that raised have failed, integers and
        bools are float64. ``x.fail(mask, reason)`` marks samples that failed. For a model of plain numbers:
        `vectorize`.
    inputs : Inputs
    n : int, or "auto"
        The number of samples; "auto": doubled until `target` is met. Left out for samplers of a fixed number of points.
    ensemble_size : int, or "auto"
        Samples in a call. "auto" times two groups of each of 8, 16, 32, ... samples while larger ones are faster and
        fit into memory; their results are kept.
    sampler : str or Sampler
        As in ``inputs.samples``.
    seed : int, optional
        Default: a new one, which is the attribute `seed` of the result.
    backend : {"numpy", "cupy"}
        The array library of the model's inputs.
    group_by : str or callable, optional
        Samples of a similar value run together: the name of a scalar input, or a function of `InputSamples` that gives
        a number for each sample, say predicted iterations. Unless `keep` is "all", samples are reordered among 256
        (or eight groups) only, so that blocks of samples are complete early.
    on_failure : {"mask", "retry", "raise"}, optional
        What to do with samples on which the model raises, which it marks, or whose outputs are not finite: leave them
        out of the statistics; run each once more, alone; or raise. Where the model raises, all samples of that call
        fail. Errors of the program, as a wrong name or outputs of changing shapes, are always raised. Default: "mask",
        but where the model raises in the first call, and the same type of error on the first, middle and last of its
        samples alone, that error ends the study; so does one of the same type and text that each of the first eight
        samples raises in `run` or `vectorize`, also with "retry".
    store : path, optional
        A folder of this machine, or the URL of an object store as a text, ``"s3://bucket/run.zarr"``, that keeps
        finished groups; at the end it is a Zarr group, which ``xarray.open_zarr`` opens. A kill loses the groups that
        were running, and no other.
    resume : bool, or "force"
        Go on with the study in `store`, also with more samples, another ensemble size or executor. Inputs, sampler,
        seed and the source of the model must be those of the study; "force" lets the source differ. A study never
        shrinks: a smaller `n` than the stored one means the stored one. Samples of lost or damaged files run again.
    retry_failed : bool, or int, at least 2
        With `resume`: run the samples again that have failed; of a number, those that had fewer attempts than that.
        What they give now takes the place of the failure; a sample counts as failed until then. The store and the
        result keep the reasons of earlier attempts.
    part : (int, int) or str, optional
        Part k of several of a study, ``(k, n_parts)`` or "3/16", whose jobs run at the same time and write to one
        `store` of a file system that they share. Each job is the same call with another k from 1; the first makes the
        store, and no `resume` is needed. A job that has ended its part takes those of jobs that were lost. The last one
        moves all samples into the Zarr group. The result has the samples that were stored when the job began, and its
        own; `open_study` has all. `n` and `seed` must be given. Default: the whole study in this job.
    progress : bool
        Show a bar on a terminal, elsewhere a line every five seconds.
    executor : optional
        Runs groups elsewhere: anything with ``submit(function, *arguments)`` that returns futures (a pool of
        `concurrent.futures`, a client of Dask, ``mpi4py.futures.MPIPoolExecutor``); a function that makes one; or a
        number of processes. Where a worker dies, its groups are run again, which needs one of the latter two for pools
        that break as a whole. A group during which workers died three times has failed. ``distributed.groups(comm, 4)``
        runs each group on four ranks of MPI: `model` then takes a communicator, too, and every rank calls `propagate`
        and gets the result.
    sample_seconds : float, s, optional
        Time after which a sample is ended and marked as failed. A call of k samples has k times as long; where it is
        ended, its samples run again, each alone, and count from then on. In a model of `vectorize` each sample has its
        own time in every group. With a number of processes, the process is killed with what it has started; elsewhere
        the call runs in a thread, whose processes are killed and whose Python code is ended. Compiled code and sleeping
        threads cannot be ended: they go on, what they give is dropped, and the reason names that. A sample that was
        late and succeeds when it runs again, with "retry" or `retry_failed`, has not failed. Default: no limit.
    keep : {None, "all", "statistics"}
        Whether the result has every sample, or moments and histograms alone. None: all, unless they take above 1 GiB.
        Samples with weights are kept always.
    target : dict of str to float or (float, float), for ``n="auto"``
        For each output the half-width of its 95 % interval that is narrow enough: relative to its mean, or relative and
        absolute, ``rtol * max|mean| + atol``; of an array the widest entry counts.
    max_n : int, optional
        Most samples of ``n="auto"``; default 1,048,576.
    max_seconds : float, s, optional
        No group begins after that time; the result has what was done. Groups that run then have another tenth of that
        time, at least a second, and are given up after it: their samples are pending. What ends them is as for
        `sample_seconds`. Groups of `distributed.groups` are waited for. The start of worker processes does not count.
    outputs : Outputs, optional
        Coordinates of the axes of outputs, and units: ``en.Outputs(t=times, units={"t": "s"})``. They must fit the
        outputs of the first group. On resuming they are those of the store, or equal to them. Default: none.

    Returns
    -------
    UqResult

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or out of range, or the outputs are.
    SampleError
        If samples failed and `on_failure` is "raise", or the first samples all raised the same.
    KeyboardInterrupt
        Finished groups are kept: in the store, and in ``error.result``, a `UqResult`, as with every other error.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> inputs = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0))
    >>> result = en.propagate(lambda x: {"tip": x.load / x.stiffness}, inputs, 1024, seed=7, progress=False)
    >>> round(float(result.mean("tip")), 3), result.n_failed
    (0.335, 0)
    """
    size = checked_size("propagate", model, ensemble_size, on_failure, backend)
    seconds = math.inf if max_seconds is None else positive(max_seconds, "propagate", "max_seconds")
    limit = None if sample_seconds is None else positive(sample_seconds, "propagate", "sample_seconds")
    goal = Target.of(n, target, max_n)
    advice = "Jobs cannot know when the others meet a target: give n."
    require(part is None or goal is None, "propagate", "n", "be a number with part", "'auto'", advice)

    def make_study() -> Plan:
        return Plan(
            inputs,
            n if goal is None else goal.first_n,  # type: ignore[arg-type]
            sampler=sampler,
            seed=seed,
            ensemble_size=size,
            group_by=group_by,
            keep=keep,
            store=store,
            resume=resume,
            retry_failed=retry_failed,
            part=part,
            model=model,
            outputs=outputs,
            function="propagate",
            most=None if goal is None else goal.max_n,
            check_sampler=None if goal is None else goal.check_sampler,
        )

    result: UqResult = carried_out(
        make_study, model, auto=ensemble_size == "auto", on_failure=on_failure, backend=backend, progress=progress,
        executor=executor, seconds=seconds, sample_seconds=limit, target=goal,
        arguments={
            "inputs": inputs, "n": n, "ensemble_size": ensemble_size, "sampler": sampler, "seed": seed,
            "group_by": group_by, "store": store, "resume": resume, "retry_failed": retry_failed, "part": part,
            "keep": keep,
            "target": target, "max_n": max_n, "max_seconds": max_seconds, "outputs": outputs,
        },
    )  # fmt: skip
    return result


def checked_size(function: str, model: Any, ensemble_size: Any, on_failure: str | None, backend: str) -> int:
    """The ensemble size to begin with; raises if an argument of every study is of the wrong kind."""
    if not callable(model):
        raise TypeError(message(function, "model", "be callable", kind_of(model)))
    if on_failure is not None:
        one_of(on_failure, ("mask", "retry", "raise"), function, "on_failure")
    one_of(backend, ("numpy", "cupy"), function, "backend")
    prototype(backend)
    return (
        SIZE_BEFORE_TIMING if ensemble_size == "auto" else integer(ensemble_size, function, "ensemble_size", minimum=1)
    )


def carried_out(
    make_study: Callable[[], Plan],
    model: Callable[[Any], Any],
    *,
    auto: bool,
    on_failure: str | None,
    backend: str,
    progress: bool,
    executor: Any,
    seconds: float = math.inf,
    sample_seconds: float | None = None,
    target: Target | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Any:
    """The result of a study whose arguments are checked: all its groups through the model.

    An executor with `take_part` is called on every process of a parallel program, with the same arguments: it calls
    back on one of them, and gives the result on all.
    """
    if callable(getattr(executor, "take_part", None)):
        advice = "A rank that is ended leaves the others waiting: limit the time inside the model."
        wanted = "be None with distributed.groups"
        require(sample_seconds is None, "propagate", "sample_seconds", wanted, sample_seconds, advice)
        compared = {"model": model, "on_failure": on_failure, "backend": backend, **(arguments or {})}
        return executor.take_part(
            model,
            lambda own, workers: carried_out(
                make_study, own, auto=auto, on_failure=on_failure, backend=backend, progress=progress,
                executor=workers, seconds=seconds, target=target,
            ),
            texts_of(compared),
        )  # fmt: skip
    runner: Serial | GroupScheduler = Serial(model, on_failure or "mask", backend)
    limit = sample_seconds if sample_seconds is not None or seconds == math.inf else math.inf
    if executor is not None or limit is not None:
        runner = GroupScheduler(workers_of(executor, limit), model, on_failure or "mask", backend, limit)
    try:
        study = make_study()
        runner.probe = on_failure is None and proof_of(study)
        runner.ends_alike = on_failure in (None, "retry")
        with StudyProgress(study, quiet=not progress) as display:
            if seconds < math.inf:
                runner.wait_until_ready()
            deadline = time.perf_counter() + seconds
            runner.ends_at = deadline + time_to_finish(seconds)
            run = StudyRun(study, runner, display, deadline, target)
            try:
                if auto:
                    run.choose_ensemble_size()
                result = run.run_to_target()
                study.close()
            except BaseException as error:
                with suppress(Exception):
                    run.keep_rest()
                attach_result(error, study)
                raise
    finally:
        runner.close()
    return result


def texts_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Arguments as texts that are equal in processes that have been given the same."""
    texts = {}
    for name, value in arguments.items():
        if isinstance(value, Inputs):
            digest = hashlib.sha256(json.dumps(value.description(), sort_keys=True, default=str).encode())
            texts[name] = f"{', '.join(value.names)} ({digest.hexdigest()[:12]})"
        elif isinstance(value, Outputs):
            texts[name] = hashlib.sha256(json.dumps(value.description()).encode()).hexdigest()[:12]
        elif value is None or isinstance(value, bool | int | float | str | PathLike):
            texts[name] = str(value)
        else:  # its text may have an address, and a model what belongs to its process
            texts[name] = str(getattr(value, "__qualname__", type(value).__qualname__))
    return texts


def proof_of(study: Plan) -> Any:
    """A sample of an earlier call on which the model did not fail; True where none was run, False where all failed."""
    good = np.flatnonzero(study.is_done & ~study.failed)
    return study.samples.take(good[:1]) if good.size else not study.n_done


def attach_result(error: BaseException, study: Plan) -> None:
    """Attach the result so far to an error, and close the store."""
    path = study.store.path
    place = "in error.result" if path is None else f"in the store {str(path)!r}: resume=True goes on"
    text = f"{study.function}: {study.n_done:,} of {study.n:,} samples were done; they are {place}."
    text = text if study.n_done else f"{study.function}: none of {study.n:,} samples was done."
    if isinstance(error, KeyboardInterrupt):
        error.args = (text,)
    else:
        error.add_note(text)
    if path is not None and not study.n_done and not study.resumed and study.part is None:
        discard(study.store)
        return
    try:
        study.close()
    except Exception as second:
        error.add_note(f"{study.function}: the store was not compacted ({second}). Nothing in it is lost.")
    with suppress(Exception):
        error.result = study.result()  # type: ignore[attr-defined]
