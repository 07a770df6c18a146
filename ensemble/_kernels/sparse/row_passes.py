"""Which rows a kernel computes, and when: all at once, or those that no message concerns before the others.

Where rows of a vector are on their way from other processes, kernels on the CPU compute the blocks of rows that read
none of them, then wait, then compute the others. Each row is summed as ever, and sums over rows are those of whole
blocks, so that the bits are those of one pass. Such a kernel takes its rows from `row_runs` or `block_lists`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from ensemble._compile.numba import spliced

__all__ = ["Passes", "Travelling", "block_lists", "row_runs", "run_of_rows"]


@spliced
def run_of_rows(n_rows):
    """Rows of one run: at least 64 runs, for any number of threads, and not above 1024 rows."""
    return max(1, min(1024, (n_rows + 63) // 64))


class Passes:
    """The blocks of rows that read nothing from other processes, and the others.

    Parameters
    ----------
    bounds : array of int64, shape (n_blocks + 1,)
        The first row of each block and the number of rows.
    waits : array of bool, shape (n_blocks,)
        Which blocks read rows of other processes.

    Attributes
    ----------
    blocks : list of two arrays of int64
        The numbers of the blocks of each pass.
    runs : list of two arrays of int64, shape (n, 2)
        The first and the last row of each, the last one excluded.
    """

    def __init__(self, bounds: np.ndarray, waits: np.ndarray) -> None:
        self.blocks = [np.flatnonzero(~waits), np.flatnonzero(waits)]
        self.runs = [np.stack([bounds[k], bounds[k + 1]], axis=1) for k in self.blocks]
        self.n_early = int(np.sum(self.runs[0][:, 1] - self.runs[0][:, 0]))
        """Rows that wait for nothing."""


class Travelling:
    """A context in which one kernel runs while rows of `whole` travel: ``with Travelling(...) as whole``.

    Parameters
    ----------
    whole : array
        What the context gives: the vector that the kernel reads.
    passes : Passes
    finish : callable
        Waits until the rows are there.
    """

    def __init__(self, whole: Any, passes: Passes, finish: Callable[[], Any]) -> None:
        self.whole, self.passes = whole, passes
        self._finish: Callable[[], Any] | None = finish

    def __enter__(self) -> Any:
        self._token = _UNDER_WAY.set(self)
        return self.whole

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        _UNDER_WAY.reset(self._token)
        if kind is None and self._finish is not None:
            raise RuntimeError("a kernel that does not wait for rows of other processes: a fault of this library.")

    def parts(self, lists: list[np.ndarray]) -> Iterator[np.ndarray]:
        """The list of the first pass; after the wait that of the second."""
        finish, self._finish = self._finish, None
        if finish is None:
            raise RuntimeError("a second kernel while rows of other processes travel: a fault of this library.")
        if lists[0].size:
            yield lists[0]
        finish()
        if lists[1].size:
            yield lists[1]


_UNDER_WAY: ContextVar[Travelling | None] = ContextVar("under_way", default=None)


@functools.lru_cache(maxsize=64)
def _even_runs(n_rows: int) -> tuple[np.ndarray]:
    run = run_of_rows.py_func(n_rows)
    first = np.arange(0, n_rows, run, dtype=np.int64)
    return (np.stack([first, np.minimum(first + run, n_rows)], axis=1),)


def row_runs(n_rows: int) -> Any:
    """For each pass the runs of rows that it computes, int64, shape (n_runs, 2)."""
    under_way = _UNDER_WAY.get()
    return _even_runs(n_rows) if under_way is None else under_way.parts(under_way.passes.runs)


@functools.lru_cache(maxsize=64)
def _all_blocks(n_blocks: int) -> tuple[np.ndarray]:
    return (np.arange(n_blocks),)


def block_lists(n_blocks: int) -> Any:
    """For each pass the numbers of the blocks of rows that it computes, int64."""
    under_way = _UNDER_WAY.get()
    return _all_blocks(n_blocks) if under_way is None else under_way.parts(under_way.passes.blocks)
