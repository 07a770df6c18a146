"""`IncompleteFactorization`: ILU, IC or block Jacobi of many sparse matrices on one graph, a preconditioner."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import integer, positive, require
from ensemble._kernels.direct.symbolic.elimination import Elimination
from ensemble._keywords import explains_construction
from ensemble._typing import DType
from ensemble.linalg.bridge.host import host_matrix
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.factorizations.orderings import (
    elimination_of,
    incomplete_elimination_of,
    matched_rows,
    thinned,
    value_places,
)
from ensemble.linalg.factorizations.triangular_factors import TriangularFactors
from ensemble.linalg.graph import CrsGraph

NAME = "IncompleteFactorization"

LEVELS = 8
"""Levels of fill that a drop tolerance chooses from by default."""


@explains_construction("IncompleteFactorization")
class IncompleteFactorization(TriangularFactors):
    """ILU, IC or block Jacobi, a preconditioner: elimination that drops fill [1]_, or all entries outside of blocks.

    One sample's operations are those of its own run. It serves matrices whose couplings are strong along the order of
    the unknowns, convection foremost, and M-matrices; multigrid needs fewer iterations where diffusion counts. Block
    Jacobi solves with the diagonal blocks of A: where the unknowns of a node are strongly coupled, and nodes are not.

    Parameters
    ----------
    A : CrsMatrix, SymmetricCrsMatrix or SciPy sparse matrices, shape (n, n)
    kind : {"auto", "ldlt", "lu"}
        "ldlt" is IC(0) in the form L D L^T, for symmetric matrices. "auto" takes it for a SymmetricCrsMatrix, "lu",
        which is ILU(0), for any other.
    ordering : "auto" or array of int, shape (n,)
        Columns in the order of elimination; "auto" is the order that they are given in.
    fill_level : int, optional
        Levels of fill that are kept [2]_: 0 is ILU(0) or IC(0), 1 keeps what products of two entries of A make, and so
        on. The graph alone decides. By default 0, and 8 with a `drop_tolerance`.
    drop_tolerance : float, optional
        Of the fill, keep the entries whose magnitude is above it, in units of the largest entry of the row in A, in any
        sample. This couples the samples: all have one pattern, so that the result of one depends on which others are
        there. Each sample's arithmetic on the pattern is that of its own run. `update` keeps the pattern.
    fill_factor : float, optional
        Most values kept, by the number of entries of A, with a `drop_tolerance`: the largest stay.
    block_size : int, optional
        Rows of a diagonal block: entries outside of the blocks are dropped, and no fill inside of them is. A last block
        of fewer rows takes the rest. Not together with levels of fill.
    dtype : data type, optional
        float32 or float64; that of A by default. Of a complex A, the type of real and imaginary parts: factors are
        complex then, LDL^T without conjugates, of NumPy's or CuPy's arrays.

    Attributes
    ----------
    broken : array of bool, shape (n_samples,)
        Samples with a pivot that is zero or a value that is not finite; all their products are NaN.

    Raises
    ------
    ValueError
        If A is not square, not symmetric where `kind` is "ldlt", or A or a diagonal block structurally singular, or
        options exclude each other.
    TypeError
        If A is no sparse matrix, or complex numbers of another library, or `update` is given complex numbers for a
        real factorisation.

    References
    ----------
    .. [1] Meijerink, van der Vorst (1977), Math. Comp. 31, 148-162.
    .. [2] Saad (2003), Iterative Methods for Sparse Linear Systems, 2nd ed., section 10.3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.gallery import convection_diffusion
    >>> from ensemble.linalg import IncompleteFactorization
    >>> A = convection_diffusion((8, 8), [[1.0], [0.5]], diffusion=1e-6)
    >>> x = IncompleteFactorization(A) @ (A @ np.ones(64))
    >>> bool(np.abs(x - 1.0).max() < 1e-3)
    True
    """

    _takes_complex = True

    def __init__(
        self,
        A: Any,
        *,
        kind: str = "auto",
        ordering: Any = "auto",
        fill_level: int | None = None,
        drop_tolerance: float | None = None,
        fill_factor: float | None = None,
        block_size: int | None = None,
        dtype: DType | None = None,
    ) -> None:
        if block_size is not None:
            block_size = integer(block_size, NAME, "block_size", minimum=1)
            for argument, given in (("fill_level", fill_level), ("drop_tolerance", drop_tolerance)):
                require(given is None, NAME, argument, "be None with a block_size", repr(given))
        if drop_tolerance is not None:
            drop_tolerance = positive(drop_tolerance, NAME, "drop_tolerance", zero=True)
        if fill_factor is not None:
            advice = "Without one, fill_level alone decides."
            require(drop_tolerance is not None, NAME, "fill_factor", "have a drop_tolerance", repr(fill_factor), advice)
            fill_factor = positive(fill_factor, NAME, "fill_factor")
        if fill_level is None:
            fill_level = 0 if drop_tolerance is None else LEVELS
        level = integer(fill_level, NAME, "fill_level", minimum=0)
        self._options, self._drops = (block_size, level), (drop_tolerance, fill_factor)
        super().__init__(A, kind, ordering, dtype)

    def _planned(self, graph: CrsGraph, symmetric: bool, ordering: np.ndarray | str) -> Elimination:
        (block_size, level), n = self._options, graph.shape[0]
        if block_size is None:
            pivots = np.arange(n) if symmetric else matched_rows(graph, NAME)
            return incomplete_elimination_of(graph, symmetric, pivots, ordering, level)
        inside = graph.row_of_entry // block_size == graph.indices // block_size
        blocks = graph.subgraph(inside)
        pivots = np.arange(n) if symmetric else matched_rows(blocks, f"{NAME}(block_size={block_size})")
        order = np.arange(n) if isinstance(ordering, str) else ordering
        return elimination_of(blocks, symmetric, pivots, order, np.flatnonzero(inside))

    def _plan_for(self, A: CrsMatrix, symmetric: bool, ordering: np.ndarray | str) -> Elimination:
        plan = super()._plan_for(A, symmetric, ordering)
        tolerance, factor = self._drops
        if tolerance is None:
            return plan
        own = host_matrix(A, NAME)
        self.plan = plan
        size = _sizes(self._with_plan().update(own), own)
        if factor is not None:
            room = max(int(factor * own.nnz) - int((plan.sources >= 0).sum()), 0)
            fill = np.sort(size[plan.sources < 0])[::-1]
            tolerance = max(tolerance, float(fill[room])) if room < fill.size else tolerance
        return thinned(plan, A.graph, size > tolerance)


def _sizes(factors: IncompleteFactorization, A: CrsMatrix) -> np.ndarray:
    """The largest magnitude over samples of each value, in units of the largest entry of its row in A."""
    plan, values = factors.plan, np.abs(to_numpy(factors.values))
    rows = np.repeat(np.arange(plan.rows.size), np.diff(plan.first))
    entries = np.abs(to_numpy(A.values))
    largest = np.zeros((plan.rows.size, entries.shape[1]))
    np.maximum.at(largest, A.graph.row_of_entry, entries)
    largest = largest[plan.rows]
    if not plan.symmetric:  # values left of the diagonal are divided by the pivots of their columns
        places = value_places(plan.lower_starts, plan.first[:-1])
        with np.errstate(all="ignore"):
            values[places] /= values[plan.diagonal[plan.lower]]
    with np.errstate(all="ignore"):
        relative = values / largest[rows]
    found: np.ndarray = np.nanmax(np.where(np.isfinite(relative), relative, 0.0), axis=1, initial=0.0)
    return found
