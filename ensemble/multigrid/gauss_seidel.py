"""Gauss-Seidel smoothing in the order of colours, the same for all samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous
from ensemble._check import integer
from ensemble._kernels.multigrid import gauss_seidel as kernels
from ensemble._keywords import explains_construction
from ensemble._typing import Array
from ensemble.linalg import CrsGraph, CrsMatrix


@explains_construction("GaussSeidel")
@dataclass(frozen=True)
class GaussSeidel:
    """Options of the Gauss-Seidel smoother, whose unknowns are updated colour by colour.

    Unknowns of one colour are not coupled, so that they are updated in parallel. Colours follow the graph alone (the
    lowest free one, in the order of the rows), so that each sample has the bits of its scalar run on any number of
    threads [1]_. Sweeps run forwards and backwards in turn; those after the coarse correction mirror those before it,
    and the V-cycle stays symmetric. Each sample needs a positive diagonal; no eigenvalue estimate enters.

    Parameters
    ----------
    sweeps : int, at least 1
        Before and after the coarse correction each. 2: a symmetric sweep, with as many passes over the matrix as a
        Chebyshev smoother of degree 2.

    References
    ----------
    .. [1] Adams (2001), A distributed memory unstructured Gauss-Seidel algorithm for multigrid smoothers, SC'01.

    Examples
    --------
    >>> from ensemble.gallery import poisson
    >>> from ensemble.multigrid import smoothed_aggregation
    >>> smoothed_aggregation(poisson((40, 40)), smoother=GaussSeidel(sweeps=1)).smoother
    GaussSeidel(sweeps=1)
    """

    sweeps: int = 2

    def __post_init__(self) -> None:
        integer(self.sweeps, "GaussSeidel", "sweeps", minimum=1)

    def smoother_of(self, A: CrsMatrix, dinv: Array, old: Any) -> GaussSeidelSmoother:
        """The smoother of one level; the colours of its `old` smoother are used again."""
        same = isinstance(old, GaussSeidelSmoother) and old.A.graph is A.graph
        return GaussSeidelSmoother(A, dinv, self.sweeps, old.colours if same else None)


class GaussSeidelSmoother:
    """Gauss-Seidel sweeps on one level, for all samples; each is one pass over A."""

    def __init__(self, A: CrsMatrix, dinv: Array, sweeps: int, colours: Any = None) -> None:
        """`colours` are those that `colours_of` finds, or None."""
        self.A, self.dinv, self.sweeps = A, dinv, sweeps
        self.colours = colours_of(A.graph) if colours is None else colours
        self.orders = [self._order(after) for after in (False, True)]

    def take_samples(self, A: CrsMatrix, samples: np.ndarray) -> GaussSeidelSmoother:
        """The smoother of the samples named, for their matrix `A`."""
        xp = array_namespace(self.dinv)
        dinv = contiguous(xp.take(self.dinv, asarray_like(samples, self.dinv), axis=1))
        return GaussSeidelSmoother(A, dinv, self.sweeps, self.colours)

    def _order(self, after: bool) -> list[int]:
        """The colours in the order of the sweeps before the coarse correction, or of those after it."""
        forwards = np.arange(len(self.colours[1]) - 1)
        parts = [forwards[:: 1 if k % 2 == 0 else -1] for k in range(self.sweeps)]
        colours = np.concatenate(parts)
        colours = colours[::-1] if after else colours
        again = np.zeros(colours.size, bool)
        again[1:] = colours[1:] == colours[:-1]  # a second update of a colour at once changes nothing but roundoff
        order: list[int] = colours[~again].tolist()
        return order

    def smooth(self, b: Array, x: Array, here: Array, there: Array, w: Array) -> Array:
        """Smooth `x`, in the buffer `here`, towards A x = b; None: zero, in `there`. Returns the buffer used."""
        rows, starts = self.colours
        after = x is not None
        if not after:
            here = there  # the V-cycle's own output
            here[...] = 0.0
        rows = self.A.graph.array_on(b, "rows by colour", rows)
        return kernels.gauss_seidel(*self.A.arrays, self.dinv, rows, starts, self.orders[after], b, here)


def colours_of(graph: CrsGraph) -> tuple[np.ndarray, list[int]]:
    """The rows colour by colour, each in order, and where each colour starts."""
    indptr, indices, _ = graph.transposed
    colour = kernels.greedy_colours(graph.indptr, graph.indices, indptr, indices)
    rows = np.argsort(colour, kind="stable").astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(colour))])
    return rows, starts.tolist()
