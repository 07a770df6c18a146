"""The numbers of the samples that a study calls its model with: its random numbers and messages are of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sized
from contextvars import ContextVar

import numpy as np

__all__ = ["numbered_by_place", "numbered_in_turn", "numbered_samples", "sample_numbers"]

Numbers = np.ndarray | Callable[[], np.ndarray]

_numbers: ContextVar[Numbers | None] = ContextVar("numbers of the samples of a model's call", default=None)


@contextlib.contextmanager
def numbered_samples(numbers: np.ndarray) -> Iterator[None]:
    """Give the samples of calls in this context these `numbers`, shape (n_samples,)."""
    token = _numbers.set(numbers)
    try:
        yield
    finally:
        _numbers.reset(token)


@contextlib.contextmanager
def numbered_in_turn() -> Iterator[Callable[[np.ndarray], object]]:
    """Yield a setter: calls in this context have the sample numbers that it was last given."""
    token = _numbers.set(None)
    try:
        yield _numbers.set
    finally:
        _numbers.reset(token)


@contextlib.contextmanager
def numbered_by_place(numbers: np.ndarray, done: Sized) -> Iterator[None]:
    """Number one sample after the other: the one that runs has ``numbers[len(done)]``, without a write for each."""

    def present() -> np.ndarray:
        place = len(done)
        return numbers[place : place + 1]

    token = _numbers.set(present)
    try:
        yield
    finally:
        _numbers.reset(token)


def sample_numbers() -> np.ndarray | None:
    """The numbers of the samples of the present call of a study's model; None outside of one."""
    numbers = _numbers.get()
    return numbers() if callable(numbers) else numbers
