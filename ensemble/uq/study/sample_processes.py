"""`SampleProcesses`: worker processes that are killed, one by one, where a sample does not end in time."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ensemble.uq.study.limited_calls import end_children, late_outcome
from ensemble.uq.study.parent_watch import end_with_parent
from ensemble.uq.study.sample_clock import SampleClock, late_text, watched_by

__all__ = ["SampleProcesses", "WorkerDeathError"]

SECONDS_BETWEEN_LOOKS = 0.5

READY = "ready"
"""What a process sends when its imports are done."""


class WorkerDeathError(RuntimeError):
    """A worker process ended during a call, by itself or by a signal from elsewhere."""


def serve(connection: Any, state: Any, seconds: float) -> None:
    """Carry out calls that come by a pipe, until it is closed."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpgid(0, 0)  # what the model starts ends with this process, and Ctrl-C is the driver's
    end_with_parent()
    connection.send(READY)
    clock = SampleClock(seconds, state)
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        answer: tuple[Any, BaseException | None]
        try:
            with watched_by(clock):
                answer = function(*arguments), None
        except BaseException as error:
            answer = None, error
        try:
            connection.send(answer)
        except (TypeError, AttributeError, ValueError) as error:  # an exception that cannot be pickled
            connection.send((None, RuntimeError(f"{type(answer[1]).__name__}: {answer[1]} ({error})")))


class Worker:
    """One process, started again where it has ended, and the thread that waits for it."""

    def __init__(self, pool: SampleProcesses) -> None:
        self.pool = pool
        self.process: Any = None
        self.connection: Any = None
        self.clock: SampleClock | None = None
        self.thread = threading.Thread(target=self.run, daemon=True, name="worker of samples")
        self.thread.start()

    def run(self) -> None:
        """Take tasks until the pool is closed."""
        with contextlib.suppress(Exception):  # a process that does not start is told with the first call
            self.start()
        self.pool.ready.set()
        while (task := self.pool.tasks.get()) is not None:
            future, function, arguments = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                value, error = self.call(function, arguments)
            except BaseException as raised:
                value, error = None, raised
            with contextlib.suppress(Exception):  # cancelled meanwhile
                future.set_result(value) if error is None else future.set_exception(error)
        self.end()

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
        """The answer of the process, or an outcome that is late."""
        try:
            self.start()
            assert self.clock is not None
            self.connection.send((function, arguments))
            while not self.connection.poll(self.clock.left(SECONDS_BETWEEN_LOOKS)):
                place = self.clock.overdue()
                if place is not None and not self.connection.poll(0.0):
                    self.end()
                    text = late_text(self.pool.seconds, "; its process was ended")
                    return late_outcome(arguments[1].n_samples, place, text), None
                if self.pool.closed.is_set():
                    self.end()
                    return None, WorkerDeathError("the study was ended")
            answer: tuple[Any, BaseException | None] = self.connection.recv()
            return answer
        except (EOFError, OSError):
            self.process.join(5.0)
            code = self.process.exitcode
            self.end()
            raise WorkerDeathError(f"a worker process ended with exit code {code}") from None

    def start(self) -> None:
        """Start the process unless it runs."""
        if self.process is not None and self.process.is_alive():
            return
        self.end()
        context = multiprocessing.get_context("spawn")
        state = context.RawArray("d", 3)
        self.clock = SampleClock(self.pool.seconds, state)
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, state, self.pool.seconds), name="worker of samples")
        self.process.start()
        theirs.close()
        while not self.connection.poll(SECONDS_BETWEEN_LOOKS):
            if self.pool.closed.is_set():
                raise WorkerDeathError("the study was ended")
        self.connection.recv()  # EOFError where it has died
        self.pool.begun.set()

    def end(self) -> None:
        """Kill the process, and what it has started."""
        if self.process is None:
            return
        if self.process.is_alive():
            end_children(self.process.pid, None)
            with contextlib.suppress(OSError, AttributeError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.connection.close()
        self.process = None


class SampleProcesses:
    """An executor of new processes, each of which is killed alone where a sample takes too long.

    Parameters
    ----------
    n : int
        Number of processes.
    seconds : float, s
        The time limit of a sample; infinite: processes are killed by `shutdown` alone.
    begun : threading.Event, optional
        Set when a process has done its imports.

    Attributes
    ----------
    ready : threading.Event
        Set when the first process has started.
    """

    def __init__(self, n: int, seconds: float = math.inf, begun: threading.Event | None = None) -> None:
        self.seconds, self._max_workers = seconds, n
        self.begun = threading.Event() if begun is None else begun
        self.tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.closed = threading.Event()
        self.ready = threading.Event()
        self.workers = [Worker(self) for _ in range(n)]

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """A future of ``function(*arguments)``, whose second argument is samples."""
        future: Future[Any] = Future()
        self.tasks.put((future, function, arguments))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, at once where futures are cancelled."""
        if cancel_futures:
            self.closed.set()
            with contextlib.suppress(queue.Empty):
                while True:
                    task = self.tasks.get_nowait()
                    if task is not None:
                        task[0].cancel()
        for _ in self.workers:
            self.tasks.put(None)
        for worker in self.workers:
            worker.thread.join()
