"""The tasks of a study on rank 0: which group runs what, and what came of it."""

from __future__ import annotations

import pickle
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from ensemble.distributed.mail import Ended, Mail, Message, pickled

__all__ = ["INTERRUPT", "OUTCOME", "TASK", "Dispatcher", "carried_out", "packed"]

TASK, OUTCOME, INTERRUPT = "task", "outcome", "interrupt"
"""Kinds of messages: a group is to run a task; what came of it; a rank was interrupted."""


def carried_out(task: bytes) -> tuple[bool, Any]:
    """Run a task: whether it returned, and its value or its exception."""
    try:
        function, arguments = pickle.loads(task)
        return True, function(*arguments)
    except BaseException as error:
        return False, error


def packed(returned: bool, value: Any) -> bytes:
    """What `carried_out` gave, for another rank."""
    if returned:
        try:
            return pickled((True, value))
        except Exception as error:
            value = error
    return pickled((False, Ended.of(value)))


class Dispatcher:
    """An executor whose workers are groups of ranks: `submit` returns futures.

    `submit` is called by the thread of the study, `exchange` by one other thread, which alone sends and receives.

    Parameters
    ----------
    mail : Mail
        Between rank 0 and the roots of the other groups.
    roots : list of int
        The roots of all groups; the first is rank 0.
    in_advance : int
        Tasks that another group has besides the one that it runs.
    """

    takes_model = True
    """The model of a task is `ModelOfGroup`, which needs no pickling of the user's."""

    def __init__(self, mail: Mail, roots: list[int], in_advance: int) -> None:
        self.mail, self.roots = mail, roots
        self._max_workers = len(roots)
        self.most_in_flight = len(roots) + in_advance * (len(roots) - 1)
        self.news = threading.Event()
        self._most = {root: 1 if root == 0 else 1 + in_advance for root in roots}
        self._running: dict[int, deque[Future[Any]]] = {root: deque() for root in roots}
        self._pending: deque[tuple[Future[Any], bytes]] = deque()
        self._open: set[Future[Any]] = set()
        self._own: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stopped: BaseException | None = None

    # --- the thread of the study
    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """The future of a task that the next free group runs."""
        task = pickled((function, arguments))
        future: Future[Any] = Future()
        with self._lock:
            if self._stopped is not None:
                raise self._stopped
            self._pending.append((future, task))
            self._open.add(future)
        self.news.set()
        return future

    # --- the thread that talks to the other groups
    def exchange(self) -> bool:
        """Take what the groups have sent and give tasks to those that are free; whether there was any."""
        active = False
        while (came := self.mail.look()) is not None:
            self._take(came)
            active = True
        while (given := self._next()) is not None:
            root, task = given
            active = True
            if root == 0:
                self._own.put(task)
            else:
                self.mail.send(root, TASK, task)
        return active

    def _next(self) -> tuple[int, bytes] | None:
        """A group with least tasks that takes one more, and the next task."""
        with self._lock:
            while self._pending:
                free = [root for root in self.roots if len(self._running[root]) < self._most[root]]
                if not free:
                    return None
                root = min(free, key=lambda one: (len(self._running[one]), one == 0))
                future, task = self._pending.popleft()
                if future.set_running_or_notify_cancel():
                    self._running[root].append(future)
                    return root, task
        return None

    def _take(self, came: Message) -> None:
        if came.kind == OUTCOME:
            try:
                returned, value = pickle.loads(came.content)
            except Exception as error:
                returned, value = False, Ended.of(error)
            self.settle(came.source, returned, value if returned else value.from_another_rank())
        elif came.kind == INTERRUPT:
            self.stop(came.content.from_another_rank())

    def settle(self, root: int, returned: bool, value: Any) -> None:
        """Give the oldest task of a group its value, or its exception."""
        with self._lock:
            future = self._running[root].popleft()
        with suppress(InvalidStateError):  # the study has been stopped
            if returned:
                future.set_result(value)
            else:
                future.set_exception(value)
        self._open.discard(future)

    # --- the main thread
    def own_task(self, seconds: float) -> bytes | None:
        """The next task of the group of rank 0; None where there is none in that time."""
        try:
            return self._own.get(timeout=seconds) if seconds else self._own.get_nowait()
        except queue.Empty:
            return None

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` has been called."""
        return self._stopped is not None

    def wake(self) -> None:
        """End a wait of `own_task`."""
        self._own.put(None)

    def stop(self, error: BaseException) -> None:
        """End the study by an exception."""
        with self._lock:
            if self._stopped is not None:
                return
            self._stopped = error
            self._pending.clear()
            futures, self._open = self._open, set()
        for future in futures:  # also one whose outcome an interrupt has kept from it
            with suppress(InvalidStateError):
                future.set_exception(error)
