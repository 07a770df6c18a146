"""Ctrl-C that is taken where a state is whole: after a step, not between two of its updates."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import contextvars
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

__all__ = ["apart", "checked", "ending", "go_on", "held", "postpone", "released", "shielded", "take"]

Result = TypeVar("Result")


class _Held:
    """The interrupts that have come while they were held, and who handles them."""

    def __init__(self) -> None:
        self.depth = 0
        self.came = False
        self.handler: Callable[[int, Any], Any] | None = None

    def note(self, number: int, frame: Any) -> None:
        """Handle a signal by remembering it."""
        self.came = True


_HELD = _Held()


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold SIGINT until `take` is called, or the ``with`` block ends.

    Python raises KeyboardInterrupt between any two of its instructions, also right behind a compiled call whose results
    are not noted yet. A state that is changed inside of the block is whole when the exception comes. Blocks may be
    nested; in other threads than the main one, and where SIGINT has no handler of Python, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if _HELD.depth:
        _HELD.depth += 1
        try:
            yield
        finally:
            _HELD.depth -= 1
        return
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        yield
        return
    _HELD.handler, _HELD.came = handler, False
    signal.signal(signal.SIGINT, _HELD.note)
    _HELD.depth = 1  # only now: an interrupt until here was raised, and must not leave a depth behind
    try:
        yield
    finally:
        _HELD.depth = 0
        signal.signal(signal.SIGINT, handler)
        if _HELD.came:
            _HELD.came = False
            handler(signal.SIGINT, None)


@contextlib.contextmanager
def released() -> Iterator[None]:
    """Take interrupts as they come, inside of a `held` block, where nothing is changed: while code is compiled."""
    if not _HELD.depth or threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, depth = _HELD.handler, _HELD.depth
    _HELD.depth = 0
    signal.signal(signal.SIGINT, handler)
    try:
        take()
        yield
    finally:
        signal.signal(signal.SIGINT, _HELD.note)
        _HELD.handler, _HELD.depth = handler, depth


def take() -> None:
    """Handle an interrupt that was held: the handler of Python raises KeyboardInterrupt here."""
    if _HELD.came and _HELD.handler is not None:
        _HELD.came = False
        _HELD.handler(signal.SIGINT, None)


def postpone() -> None:
    """Take an interrupt again at the end of the `held` block: one that `released` let through, and was caught there.

    Without such a block it is raised here.
    """
    if not _HELD.depth or threading.current_thread() is not threading.main_thread():
        raise KeyboardInterrupt
    _HELD.came = True


class _Call:
    """A call that another thread makes: what it gave, and whether it should end."""

    def __init__(self, call: Callable[[Callable[[], bool]], Any]) -> None:
        self.call: Any = call
        self.context = contextvars.copy_context()
        self.done, self.stop = threading.Lock(), threading.Event()
        self.done.acquire()
        self.result: Any = None
        self.error: BaseException | None = None

    def make(self) -> None:
        """Make the call; nothing of it is kept but the result."""
        _HERE.ended = self.stop.is_set
        try:
            self.result = self.context.run(self.call, self.stop.is_set)
        except BaseException as error:
            self.error = error
        self.call = self.context = None  # type: ignore[assignment]
        self.done.release()


_HERE = threading.local()
"""``ended``: what tells a thread that the call it makes was interrupted."""


def ending() -> Callable[[], bool]:
    """What tells whether the call of `apart` that this thread makes was interrupted: no more of it need be done."""
    found: Callable[[], bool] = getattr(_HERE, "ended", _never)
    return found


def go_on() -> None:
    """Raise where the call of `apart` that this thread makes was interrupted: nobody waits for its result."""
    if ending()():
        raise KeyboardInterrupt


def _never() -> bool:
    return False


_IDLE: list[queue.SimpleQueue[_Call]] = []
"""Threads without work, by the queues that they wait at."""

_RUNNING: list[threading.Lock] = []
"""A lock of each call of `shielded` that runs, held until its end."""

if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_IDLE.clear)
    os.register_at_fork(after_in_child=_RUNNING.clear)


def _work(made: _Call) -> None:
    """Make a call, and those that follow."""
    calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
    while True:
        made.make()
        del made
        _IDLE.append(calls)
        made = calls.get()


def apart(call: Callable[[Callable[[], bool]], Result]) -> Result:
    """What ``call(stopped)`` returns, made in another thread, so that Ctrl-C has an effect while compiled code runs.

    Compiled code that is running ends by itself; ``stopped()`` is then True, so that no more of it is begun. What it
    writes must be new memory. Outside of the main thread, and where SIGINT has no handler of Python, the call is made
    here.
    """
    here = threading.current_thread() is not threading.main_thread()
    if here or not callable(signal.getsignal(signal.SIGINT)):
        return call(_never)
    found: Result = _by_another_thread(_Call(call))
    return found


def shielded(call: Callable[[], Result]) -> Result:
    """What ``call()`` returns, made in another thread, where nothing raises an exception from outside.

    The handler of a signal raises in the main thread, and the end of a time limit in the thread of a model. Code that
    hands memory from one owner to another, as Python's interface of LLVM does, would free it twice then, or keep its
    lock. A caller that is interrupted does not wait for the end of the call; the process does, before it ends.
    """
    if hasattr(_HERE, "ended"):
        return call()

    def noted(_: Callable[[], bool]) -> Result:
        here = threading.Lock()
        with here:
            _RUNNING.append(here)
            try:
                return call()
            finally:
                _RUNNING.remove(here)

    found: Result = _by_another_thread(_Call(noted))
    return found


LONGEST_WAIT_AT_EXIT = 10.0
"""Seconds in which the calls of `shielded` that run when the process ends come to their end: what they use goes."""


@atexit.register
def _wait_for_running() -> None:
    until = time.monotonic() + LONGEST_WAIT_AT_EXIT
    for running in list(_RUNNING):
        if running.acquire(timeout=max(0.0, until - time.monotonic())):
            running.release()


def _by_another_thread(made: _Call) -> Any:
    """Make a call in an idle thread, or a new one, and return what it gives."""
    try:
        _IDLE.pop().put(made)
    except IndexError:
        try:
            _thread.start_new_thread(_work, (made,))  # an interrupt in Thread.start would leave a thread half known
        except RuntimeError:  # the process ends, or has too many threads
            made.make()
            del _HERE.ended  # this thread is no worker
    try:
        made.done.acquire()
    except BaseException:
        made.stop.set()
        raise
    return _given_by(made)


def _given_by(made: _Call) -> Any:
    """Return what a finished call returned, or raise what it raised."""
    if made.error is not None:
        try:
            raise made.error
        finally:
            made.error = None  # it refers to this frame
    return made.result


def checked(callback: Callable[..., Any] | None) -> Callable[..., Any]:
    """A callback that also takes interrupts, in any thread."""

    def call(*arguments: Any) -> Any:
        answer = None if callback is None else callback(*arguments)
        take()
        return answer

    return call
