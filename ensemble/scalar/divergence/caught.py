"""Exceptions that unchanged code catches in a run: one that no sample alone would raise must not reach its handler.

An operation of an ensemble that fails ends the run by `Stop`. Python and other libraries raise by themselves where they
look at the type of a value: ``Decimal(v)``, ``json.dumps(v)``, a compiled function. Such an exception is judged where
it is about to be caught. If it is not known to be one of each sample, the samples are run each alone.

Python 3.12 and later tell of each caught exception by `sys.monitoring`. In Python 3.11 the functions that a run copies
call `judge` before their handlers; where code that is not copied has handlers, `sys.settrace` shows its exceptions.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

from ensemble._byte_code import raises
from ensemble.scalar.divergence.handler_code import HAS_EVENTS, is_caught_at
from ensemble.scalar.divergence.paths import Follower
from ensemble.scalar.divergence.policy import DECIDERS, policy_in_force
from ensemble.scalar.divergence.swallowed import holds_ensemble

__all__ = ["judge", "judging", "may_be_of_samples"]


TYPE_TESTS = frozenset(("callable", "hasattr", "isinstance", "issubclass", "type"))

OF_TYPES = (TypeError, AttributeError)
"""What Python raises for a value of a type that it cannot use."""

MAX_DEPTH = 3
"""How deep the values of a frame are searched for ensembles."""


def judge(error: BaseException) -> None:
    """Stop the run where `error`, about to be caught, may not be one of each of its samples."""
    _judge(error, error.__traceback__)


def _judge(error: BaseException, traceback: TracebackType | None) -> None:
    follower = policy_in_force.get()
    if isinstance(follower, Follower):
        if not follower.stopped and not is_of_samples(error, follower, traceback):
            raise follower.refused(error)  # type: ignore[arg-type]
        return
    for other in DECIDERS:  # this thread may be one that a run has started
        if isinstance(other, Follower) and not is_of_samples(error, other, traceback):
            other.hear(error, other.ids.size)


def is_of_samples(error: BaseException, follower: Follower, traceback: TracebackType | None) -> bool:
    """Whether every sample alone raises `error`, as far as that is known without a run of each.

    It is so if a sample was seen to raise it; if the code of the user raised it by name, or by an operation of Python
    that found a wrong value and not a wrong type; if no ensemble is near the place that raised it.
    """
    if not isinstance(error, Exception) or isinstance(error, StopIteration | StopAsyncIteration):
        return True
    if any(error is known for known in follower.known):
        return True
    if isinstance(error, AttributeError) and holds_ensemble(error.obj, 0):
        return _is_absent_from_samples(error, follower)
    frames, places = [], []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        places.append(traceback.tb_lasti)
        traceback = traceback.tb_next
    if frames and _is_own(frames[-1], follower.package):
        if raises(frames[-1].f_code, places[-1]):
            return True
        if type(error).__module__ == "builtins" and not isinstance(error, OF_TYPES):
            return True
    return not any(holds_ensemble(dict(frame.f_locals), MAX_DEPTH) for frame in frames)


def _is_absent_from_samples(error: AttributeError, follower: Follower) -> bool:
    """Whether the samples do not have the attribute either, which `error`, raised by Python itself, is about.

    If so, `error` becomes that of a sample.
    """
    try:
        getattr(follower.one_of(error.obj), str(error.name))
    except AttributeError as own:
        error.args, error.obj = own.args, own.obj
        return True
    return False


def _is_own(frame: FrameType, package: str) -> bool:
    """Whether `frame` is of the package of the function that runs, and its tests of types are of one sample."""
    scope = frame.f_globals
    if str(scope.get("__name__", "")).partition(".")[0] != package:
        return False
    return type(scope) is not dict or TYPE_TESTS.isdisjoint(frame.f_code.co_names)


def may_be_of_samples(error: BaseException, follower: Follower) -> bool:
    """Whether `error`, which ended a run, may be one of each sample: one of them, run alone, shows it."""
    own = is_of_samples(error, follower, error.__traceback__)
    return own and error is not follower.heard and not _is_from_arrays(error, follower)


def _is_from_arrays(error: BaseException | None, follower: Follower) -> bool:
    """Whether `error` or a cause of it was raised by an operation on ensembles, in which one sample may not fail."""
    while error is not None:
        if all(error is not known for known in follower.known) and _ends_in_arrays(error.__traceback__):
            return True
        error = error.__cause__ or error.__context__
    return False


def _ends_in_arrays(traceback: TracebackType | None) -> bool:
    last = None
    while traceback is not None:
        last, traceback = traceback, traceback.tb_next
    module = "" if last is None else last.tb_frame.f_globals.get("__name__", "")
    return module.startswith(("ensemble.", "numpy.", "array_api_compat.", "array_api_strict."))


# -- where exceptions that are caught become known ---------------------------------------------------------------------


@contextlib.contextmanager
def judging(traces: bool) -> Iterator[None]:
    """Judge the exceptions that code catches inside the ``with`` block; `traces`: also those of code not copied."""
    if HAS_EVENTS:
        with _EVENTS:
            yield
    elif traces:
        before = sys.gettrace()
        sys.settrace(_trace)
        try:
            yield
        finally:
            sys.settrace(before)
    else:
        yield


def _trace(frame: FrameType, event: str, argument: Any) -> Any:
    """The function for `sys.settrace`."""
    frame.f_trace_lines = False
    if event == "exception" and is_caught_at(frame.f_code, frame.f_lasti) and not _is_of_this_library(frame):
        _judge(argument[1], argument[2])
    return _trace if frame.f_code.co_exceptiontable else None


def _on_caught(code: CodeType, offset: int, error: BaseException) -> None:
    """The function for `sys.monitoring`."""
    if not _is_of_this_library(sys._getframe(1)):
        judge(error)


def _is_of_this_library(frame: FrameType) -> bool:
    """Whether `frame` is one of those that catch exceptions of samples on purpose, and of the run itself."""
    return str(frame.f_globals.get("__name__", "")).startswith("ensemble.")


class _Events:
    """The events of `sys.monitoring` for caught exceptions, as long as one thread or more needs them."""

    def __init__(self) -> None:
        self._lock, self._users, self._tool = threading.Lock(), 0, -1

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._begin(sys.monitoring)  # type: ignore[attr-defined, unused-ignore]

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._tool >= 0:
                sys.monitoring.set_events(self._tool, 0)  # type: ignore[attr-defined, unused-ignore]
                sys.monitoring.free_tool_id(self._tool)  # type: ignore[attr-defined, unused-ignore]

    def _begin(self, monitoring: Any) -> None:
        free = [tool for tool in (4, 3, 5, 2, 1, 0) if monitoring.get_tool(tool) is None]
        if not free:
            raise RuntimeError("run: one tool of sys.monitoring must be free; got six in use. End a profiler.")
        self._tool = free[0]
        monitoring.use_tool_id(self._tool, "ensemble.run")
        event = monitoring.events.EXCEPTION_HANDLED
        monitoring.register_callback(self._tool, event, _on_caught)
        monitoring.set_events(self._tool, event)


_EVENTS = _Events()
