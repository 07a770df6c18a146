"""Groups on other threads, processes or machines: any executor with ``submit`` that returns futures."""

from __future__ import annotations

import functools
import io
import math
import multiprocessing
import pickle
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from ensemble._check import integer, kind_of, message, warn_caller
from ensemble.uq.study.dask_workers import DaskWorkers, is_dask
from ensemble.uq.study.evaluation import evaluate
from ensemble.uq.study.groups import Group, single
from ensemble.uq.study.late_groups import LateGroups
from ensemble.uq.study.limited_calls import InTurn, Limits, evaluated_in_time
from ensemble.uq.study.outputs import Outcome
from ensemble.uq.study.parent_watch import end_with_parent
from ensemble.uq.study.sample_processes import SampleProcesses, WorkerDeathError

__all__ = ["Workers", "workers_of"]

MOST_WORKER_FAILURES = 3
"""Failures of workers after which the group that they ran is not tried again."""

SECONDS_BETWEEN_POLLS = 0.5
"""Time limit of one wait for a future: an interrupt is handled after it."""


def run_pickled(
    model: bytes, samples: Any, on_failure: str, backend: str, probe: Any, limits: Limits | None = None
) -> Outcome:
    """`evaluate` in a worker, with `limits` in a thread that can be given up."""
    return run_here(unpickled(model), samples, on_failure, backend, probe, limits)


def run_here(
    model: Any, samples: Any, on_failure: str, backend: str, probe: Any, limits: Limits | None = None
) -> Outcome:
    """`evaluate`, with `limits` in a thread that can be given up."""
    if limits is None:
        return evaluate(model, samples, on_failure, backend, probe)
    return evaluated_in_time(evaluate, limits, model, samples, on_failure, backend, probe)


@functools.lru_cache(maxsize=4)
def unpickled(model: bytes) -> Any:
    """The model, made once in each worker, which from then on ends with the process that started it."""
    end_once_with_parent()
    return pickle.loads(model)


@functools.cache
def end_once_with_parent() -> None:
    """`end_with_parent`, once in each worker: also in those of a pool that was made elsewhere."""
    end_with_parent()


def pickled(model: Any) -> bytes:
    """The model for other processes: by cloudpickle where it is installed, which takes local functions, too."""
    pickler: ModuleType = pickle
    with suppress(ImportError):
        import cloudpickle

        pickler = cloudpickle
    try:
        stream = io.BytesIO()
        pickler.dump(model, stream)
        return stream.getvalue()
    except Exception as error:
        advice = "Define it at the top level of a module without open files or locks"
        advice += "." if pickler is not pickle else ", or install cloudpickle."
        wanted = "be picklable for other processes"
        raise TypeError(message("propagate", "model", wanted, f"{type(error).__name__}: {error}", advice)) from error


class Workers:
    """An executor, and how to make another one where that is known.

    Parameters
    ----------
    make : callable
        Gives the executor.
    own : bool
        Whether executors are made and closed here, so that a broken one can be replaced.
    begun : event, optional
        Set by the first own process that has imported what it needs. Default: not known.
    """

    def __init__(self, make: Callable[[], Any], own: bool, begun: Any = None) -> None:
        self.make, self.own, self.begun = make, own, begun
        self.executor = make()
        if not callable(getattr(self.executor, "submit", None)):
            raise no_executor(self.executor)

    def count(self) -> int:
        """Number of groups that run at a time, where the executor has it; else a guess."""
        found = getattr(self.executor, "_max_workers", None) or getattr(self.executor, "num_workers", None)
        if found is None and callable(getattr(self.executor, "nthreads", None)):
            found = sum(self.executor.nthreads().values())
        return int(found) if isinstance(found, int) and found > 0 else 4

    def require_begun(self, error: BaseException) -> None:
        """Raise RuntimeError where no own process has ever begun: all others would end as the first did."""
        if self.begun is not None and not self.begun.is_set():
            seen = f"processes that ended before their first sample ({error})"
            raise RuntimeError(message("propagate", "executor", "start processes", seen, GUARD)) from error

    def replace(self) -> None:
        """A new executor for a broken one."""
        self.close()
        self.executor = self.make()

    def close(self) -> None:
        """Shut an own executor down; what has not begun is dropped."""
        if self.own:
            with suppress(BrokenExecutor):
                self.executor.shutdown(wait=False, cancel_futures=True)


def workers_of(executor: Any, sample_seconds: float | None = None) -> Workers:
    """The workers of an executor, a factory of executors, or a number of processes.

    With a time limit, which may be infinite, processes are such as can be killed, and None is a thread of this process.
    """
    if executor is None:
        return Workers(InTurn, own=True)
    if isinstance(executor, int) and not isinstance(executor, bool):
        n_processes = integer(executor, "propagate", "executor", minimum=1)
        end_where_a_process_imports_the_script()
        begun: Any = threading.Event() if sample_seconds is not None else spawning().Event()
        if sample_seconds is not None:
            return Workers(functools.partial(SampleProcesses, n_processes, sample_seconds, begun), True, begun)
        return Workers(functools.partial(processes, n_processes, begun), True, begun)
    if hasattr(executor, "submit"):
        return Workers(lambda: executor, own=False)
    if callable(executor):
        return Workers(executor, own=True)
    raise no_executor(executor)


def no_executor(executor: Any) -> TypeError:
    """The error for what runs no calls."""
    wanted = "have a method submit, or give an executor when called, or be a number of processes"
    is_comm = hasattr(executor, "Get_rank")
    advice = "ensemble.distributed.groups(comm, 1) is an executor of the ranks of MPI." if is_comm else ""
    return TypeError(message("propagate", "executor", wanted, kind_of(executor), advice))


GUARD = (
    'In a script, write the call below `if __name__ == "__main__":`, for each process imports the script. Another '
    "reason stands above."
)


def end_where_a_process_imports_the_script() -> None:
    """End a process that is still importing the script of its parent: it can start none, and the parent says why."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(1)


def spawning() -> Any:
    """How processes are made: new ones, for forked ones would share threads and locks of the kernels."""
    return multiprocessing.get_context("spawn")


def processes(n: int, begun: Any) -> Any:
    """A pool of `n` new processes."""
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(n, mp_context=spawning(), initializer=begin_process, initargs=(begun,))


def begin_process(begun: Any) -> None:
    """What a process of a pool does first."""
    end_once_with_parent()
    begun.set()


KILLED, CANCELLED = "KilledWorker", ("CancelledError", "FutureCancelledError")
"""Names of Dask's exceptions: workers died with a task too often, or with what it needs."""


def is_worker_failure(error: BaseException) -> bool:
    """Whether a worker ended, instead of the model having raised."""
    return isinstance(error, BrokenExecutor | WorkerDeathError) or type(error).__name__ in (KILLED, *CANCELLED)


def n_deaths(error: BaseException, *, alone: bool) -> int:
    """How many deaths of workers an error counts for, in a group that ran alone or beside others."""
    if type(error).__name__ == KILLED:  # Dask has tried it again by itself
        return min(MOST_WORKER_FAILURES - 1, 1 + getattr(error, "allowed_failures", 1))
    if type(error).__name__ in CANCELLED:  # the model was lost with other workers
        return int(alone)
    return 1


class GroupScheduler:
    """Groups in flight on the workers, at most twice as many as these.

    After a worker fails, each group that was in flight runs alone: the next failure shows which group causes it.

    Parameters
    ----------
    sample_seconds : float, s, optional
        The time limit of a sample; infinite where calls may have to be given up at the end of the study alone. Default:
        none.
    """

    def __init__(
        self, workers: Workers, model: Any, on_failure: str, backend: str, sample_seconds: float | None = None
    ) -> None:
        self.workers, self.on_failure, self.backend = workers, on_failure, backend
        self.probe: Any = False
        self.ends_alike = False
        self.ends_at = math.inf
        self.ended = threading.Event()
        takes_model = getattr(workers.executor, "takes_model", False)
        local = isinstance(workers.executor, ThreadPoolExecutor) or takes_model
        self.work: Callable[..., Outcome] = (evaluate if takes_model else run_here) if local else run_pickled
        self.limits: tuple[Limits, ...] = ()
        if sample_seconds is not None and not takes_model and not isinstance(workers.executor, SampleProcesses):
            self.limits = (Limits(sample_seconds, self.ended),)
        self.may_give_up = sample_seconds is not None and not takes_model
        self.late_groups, self.told_held = LateGroups(on_failure), False
        self.model = model if local else pickled(model)
        self.dask: DaskWorkers | None = None
        self._connect()
        self.n_parallel = workers.count()
        self.most = getattr(workers.executor, "most_in_flight", 2 * self.n_parallel)
        self.finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.in_flight: dict[Any, tuple[Group, int]] = {}
        self.run_alone: deque[tuple[Group, int]] = deque()

    def run(self, groups: Iterator[Group]) -> Iterator[tuple[Group, Outcome]]:
        """Outcomes in the order in which they come."""
        more = True
        while more or self.in_flight or self.run_alone or self.late_groups.waiting:
            if self.is_over():
                self.give_up()
                return
            if self.run_alone:
                if not self.in_flight:
                    self._submit(*self.run_alone.popleft())
            else:
                waiting = self.late_groups.waiting
                while (more or waiting) and len(self.in_flight) < self.most and not self.run_alone:
                    group = waiting.popleft() if waiting else next(groups, None)
                    more = more and group is not None
                    if group is not None:
                        self._submit(group, 0)
            yield from self._next()

    def wait_until_ready(self) -> None:
        """Wait for the first of own processes to start, which is no time of the study."""
        executor = self.workers.executor
        while isinstance(executor, SampleProcesses) and not executor.ready.wait(SECONDS_BETWEEN_POLLS):
            pass

    def is_over(self) -> bool:
        """Whether calls that have not ended yet are given up."""
        return self.may_give_up and time.perf_counter() >= self.ends_at

    def give_up(self) -> None:
        """Wait for no call any more: its samples are pending, and what it gives is dropped."""
        self.ended.set()
        for future in self.in_flight:
            future.cancel()
        self.in_flight.clear()
        self.run_alone.clear()
        self.late_groups.waiting.clear()

    def _connect(self) -> None:
        """Place the model where groups find it: on Dask once, and not with every group."""
        executor = self.workers.executor
        if self.dask is not None:
            self.dask.close()
        self.dask = DaskWorkers(executor) if is_dask(executor) else None
        self.placed = self.model if self.dask is None else self.dask.placed(self.model)

    def _submit(self, group: Group, failures: int) -> None:
        probe, self.probe = self.probe, False
        limits = [replace(one, most=self.ends_at - time.perf_counter()) for one in self.limits]
        arguments = self.placed, group.samples, self.on_failure, self.backend, probe, *limits
        try:
            future = (self.dask or self.workers.executor).submit(self.work, *arguments)
        except Exception as error:
            if not is_worker_failure(error):
                raise
            self._replace_executor(error, [(group, failures)])
            return
        self.in_flight[future] = group, failures
        future.add_done_callback(self.finished.put)

    def _next(self) -> Iterator[tuple[Group, Outcome]]:
        if not self.in_flight:
            return
        future = None
        try:
            while future is None:
                with suppress(queue.Empty):
                    left = max(0.0, self.ends_at - time.perf_counter()) if self.may_give_up else SECONDS_BETWEEN_POLLS
                    future = self.finished.get(timeout=min(left, SECONDS_BETWEEN_POLLS))
                if future is None and self.is_over():
                    return
                if future is None and self.dask is not None:
                    self.dask.look()
        except BrokenExecutor as error:
            kept, self.in_flight = list(self.in_flight.values()), {}
            self._replace_executor(error, kept)
            return
        if future not in self.in_flight:
            return
        group, failures = self.in_flight.pop(future)
        try:
            outcome = future.result() if self.dask is None else self.dask.result(future, SECONDS_BETWEEN_POLLS)
        except Exception as error:
            if not is_worker_failure(error):
                raise
            yield from self._after_failure(error, group, failures)
        else:
            self._tell_held(outcome)
            if outcome.late is None:
                yield self.late_groups.noted(group, outcome)
            else:
                yield from self.late_groups.settled(group, outcome)
        finally:
            del future  # it has the exception, whose traceback has this frame

    def _tell_held(self, outcome: Outcome) -> None:
        """Warn once of a model that a time limit in this process cannot end."""
        if outcome.held and not self.told_held:
            self.told_held = True
            text = (
                f"propagate: sample_seconds cannot end code that holds Python's lock; a call let no other code run for "
                f"{outcome.held:.3g} s. executor=8 runs it in processes that are ended, and code compiled by Numba "
                "gives the lock up with nogil=True."
            )
            warn_caller(text, RuntimeWarning)

    def _after_failure(self, error: Exception, group: Group, failures: int) -> Iterator[tuple[Group, Outcome]]:
        """A group whose worker died, and all others in flight on a broken executor."""
        self.workers.require_begun(error)
        failures += n_deaths(error, alone=not self.in_flight)
        if self.dask is not None:
            self.placed = self.dask.placed(self.model)  # its task may have been blamed for the death
        others = list(self.in_flight.values()) if isinstance(error, BrokenExecutor) else []
        if others:
            self.in_flight.clear()
        kept = [(other, count + 1) for other, count in others]
        if failures < MOST_WORKER_FAILURES:
            kept.insert(0, (group, failures))
        elif self.on_failure == "retry" and group.n_samples > 1:
            kept += [(single(group, place), MOST_WORKER_FAILURES - 1) for place in range(group.n_samples)]
        elif self.on_failure == "raise":
            text = (
                f"propagate: the worker of samples {group.ids[0]} to {group.ids[-1]} died {failures} times ({error!r})."
            )
            raise RuntimeError(f"{text} on_failure='mask' leaves them out.") from error
        else:
            reason = f"its worker died: {type(error).__name__}"
            failed = np.ones(group.n_samples, bool)
            yield group, Outcome({}, failed, dict.fromkeys(range(group.n_samples), reason))
        if isinstance(error, BrokenExecutor):
            self._replace_executor(error, kept)
        else:
            self.run_alone.extend(kept)

    def _replace_executor(self, error: Exception, groups: list[tuple[Group, int]]) -> None:
        """Replace a broken executor; its groups run alone."""
        if not self.workers.own:
            seen = f"{type(error).__name__}: {error}"
            advice = "Call again with a new executor, or give a function that makes one: that replaces it by itself."
            raise RuntimeError(message("propagate", "the executor", "keep its workers", seen, advice)) from error
        self.workers.require_begun(error)
        self.run_alone.extend(groups)
        self.workers.replace()
        self._connect()

    def close(self) -> None:
        """Drop what has not begun."""
        self.ended.set()
        for future in list(self.in_flight):
            with suppress(Exception):
                future.cancel()
        if self.dask is not None:
            self.dask.close()
        self.workers.close()
