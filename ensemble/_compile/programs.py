"""Programs: calls of compiled loops that Python makes once, and that compiled code repeats on the same memory.

A call from Python chooses among implementations, types, widths and threads, which takes longer than a loop over some
hundred rows. What a CUDA graph is on a device, a program is on the host: addresses and numbers of all loops, in order.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._compile.c_functions import call_loop, call_rounds
from ensemble._compile.loops.native_call import COUNT, N_WORDS, PART
from ensemble._compile.numba import SMALL, compiled_procedure, thread_count
from ensemble._compile.recording import Recording, recording

__all__ = ["Program", "serves_as_program"]


def serves_as_program(values: np.ndarray, vectors: np.ndarray) -> bool:
    """Whether loops over a matrix and vectors are short, and run on the calling thread anyway, as a program does."""
    return vectors.size <= SMALL and (values.size <= SMALL or thread_count() == 1)


@compiled_procedure
def _run(steps):
    """Call loops one after another on the calling thread: addresses of the functions of reader.py and of the words."""
    for k in range(steps.shape[0]):
        rounds = np.int64(1)
        if steps[k, 0] != 0:
            rounds = call_rounds(steps[k, 0], (steps[k, 2],))
        call_loop(steps[k, 1], (steps[k, 2], np.int64(0), rounds))


class Program:
    """Launches of loops: called by Python the first time, repeated by compiled code from then on.

    `launches` must call loops (`work_sharing.py`) on memory that stays where it is, take steps of Python by `aside`,
    and do nothing else. The same loops run in the same order on the same memory, on one thread: the bits are the same.
    A program keeps the arrays that its loops were given. Where a loop was compiled by Numba, Python calls all of them
    again.
    """

    def __init__(self, launches: Callable[[], Any], record: bool = True) -> None:
        self._launches: Callable[[], Any] | None = launches
        self._record, self._steps = record, list[Callable[[], Any]]()

    def release_launches(self) -> bool:
        """Whether there is a program to repeat; what it was recorded from is let go then."""
        if self._steps:
            self._launches = None
        return bool(self._steps)

    def __call__(self) -> None:
        for step in self._steps:
            step()
        if self._steps:
            return
        assert self._launches is not None
        if not self._record:
            self._launches()
            return
        with recording() as found:
            self._launches()
        self._steps, self._record = steps_of(found), found.complete


def steps_of(found: Recording) -> list[Callable[[], Any]]:
    """Return what repeats a recording: for calls of loops that follow each other, one call of them all."""
    if not found.complete:
        return []
    steps: list[Callable[[], Any]] = []
    together: list[tuple[Any, tuple[Any, ...]]] = []
    for call in (*found.calls, None):
        if isinstance(call, tuple):
            together.append(call)
            continue
        if together:
            steps.append(_Loops(together))
            together = []
        if call is not None:
            steps.append(call)
    return steps


class _Loops:
    """Loops that follow each other, and what they were given."""

    def __init__(self, calls: Sequence[tuple[Any, tuple[Any, ...]]]) -> None:
        self.held = tuple(calls)
        tables = [function.__self__ for function, _ in calls]
        words = [words_of(arguments) for _, arguments in calls]
        assert all(len(each) == table[N_WORDS] for each, table in zip(words, tables, strict=True))
        self.words = np.array([word for each in words for word in each], np.int64)
        ends = np.cumsum([0, *map(len, words)])[:-1]
        places = self.words.ctypes.data + 8 * ends
        steps = [(table[COUNT], table[PART], place) for table, place in zip(tables, places, strict=True)]
        self.run = functools.partial(_run, np.array(steps, np.int64))

    def __call__(self) -> None:
        self.run()


def words_of(arguments: Sequence[Any]) -> list[int]:
    """Return the arguments of a loop as `reader.py` hands them over: of an array its address and its extents."""
    words: list[int] = []
    for value in arguments:
        if type(value) is np.ndarray:
            words += [value.ctypes.data, *value.shape]
        elif isinstance(value, tuple):
            words += words_of(value)
        elif isinstance(value, float):
            words += struct.unpack("=q", struct.pack("=d", value))
        elif isinstance(value, np.float32):
            words += struct.unpack("=q", struct.pack("=fi", value, 0))
        else:
            words.append(int(value))
    return words
