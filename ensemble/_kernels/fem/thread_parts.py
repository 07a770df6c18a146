"""Which elements and rows of a matrix each thread takes."""

from __future__ import annotations

import itertools

import numpy as np

from ensemble._kernels.sparse.element_map import ElementMap

__all__ = ["ThreadParts"]

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(first, elements, rows): part p visits ``elements[first[p]:first[p + 1]]`` and fills ``rows[p]:rows[p + 1]``."""


class ThreadParts:
    """The parts of a space by their number, with about equally many incidences each; made once per number.

    Parameters
    ----------
    made : ElementMap
    unknowns : array of int, shape (n_elements, k)
        Elements in the order in which they are added.
    """

    def __init__(self, made: ElementMap, unknowns: np.ndarray) -> None:
        self._made, self._unknowns = made, unknowns
        self._known: dict[int, Parts] = {}

    def __call__(self, count: int) -> Parts:
        if count not in self._known:
            self._known[count] = self._divided(count)
        return self._known[count]

    def _divided(self, count: int) -> Parts:
        n_elements, n_rows = len(self._unknowns), self._made.indptr.size - 1
        if count == 1:
            return np.array([0, n_elements]), np.arange(n_elements, dtype=np.int32), np.array([0, n_rows])
        first, visited = self._made.first, self._unknowns
        rows = np.searchsorted(first, np.linspace(0, first[-1], count + 1))
        rows[0], rows[-1] = 0, n_rows
        lists = [
            np.flatnonzero(((visited >= low) & (visited < high)).any(axis=1)).astype(np.int32)
            for low, high in itertools.pairwise(rows)
        ]
        return np.cumsum([0, *(elements.size for elements in lists)]), np.concatenate(lists), rows
