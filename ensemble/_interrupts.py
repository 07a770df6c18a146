"""Ctrl-C that is taken where a state is whole: after a step, not between two of its updates."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["checked", "held", "take"]


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
    _HELD.handler, _HELD.came, _HELD.depth = handler, False, 1
    signal.signal(signal.SIGINT, _HELD.note)
    try:
        yield
    finally:
        _HELD.depth = 0
        signal.signal(signal.SIGINT, handler)
        if _HELD.came:
            _HELD.came = False
            handler(signal.SIGINT, None)


def take() -> None:
    """Handle an interrupt that was held: the handler of Python raises KeyboardInterrupt here."""
    if _HELD.came and _HELD.handler is not None:
        _HELD.came = False
        _HELD.handler(signal.SIGINT, None)


def checked(callback: Callable[..., Any] | None) -> Callable[..., Any]:
    """A callback that also takes interrupts, in any thread."""

    def call(*arguments: Any) -> Any:
        answer = None if callback is None else callback(*arguments)
        take()
        return answer

    return call
