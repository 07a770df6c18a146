"""`IncompleteFactorization`: ILU(0), IC(0) or block Jacobi of many sparse matrices on one graph, a preconditioner."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import integer
from ensemble._kernels.direct.elimination import Elimination
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.orderings import elimination_of, matched_rows, unfilled_elimination_of
from ensemble.linalg.triangular_factors import TriangularFactors


class IncompleteFactorization(TriangularFactors):
    """ILU(0), IC(0) or block Jacobi, a preconditioner: elimination that drops all fill [1]_, or all outside of blocks.

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
    block_size : int, optional
        Rows of a diagonal block: entries outside of the blocks are dropped, and no fill inside of them is. A last block
        of fewer rows takes the rest. Without, ILU(0) or IC(0).
    dtype : data type, optional
        float32 or float64; that of A by default.

    Attributes
    ----------
    broken : array of bool, shape (n_samples,)
        Samples with a pivot that is zero or a value that is not finite; all their products are NaN.

    Raises
    ------
    ValueError
        If A is not square, not symmetric where `kind` is "ldlt", or A or a diagonal block structurally singular.
    TypeError
        If A is no sparse matrix, or complex.

    References
    ----------
    .. [1] Meijerink, van der Vorst (1977), Math. Comp. 31, 148-162.

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

    def __init__(
        self, A: Any, *, kind: str = "auto", ordering: Any = "auto", block_size: int | None = None, dtype: Any = None
    ) -> None:
        if block_size is not None:
            block_size = integer(block_size, "IncompleteFactorization", "block_size", minimum=1)
        self._options = (block_size,)
        super().__init__(A, kind, ordering, dtype)

    def _planned(self, graph: CrsGraph, symmetric: bool, ordering: np.ndarray | str) -> Elimination:
        (block_size,), n, name = self._options, graph.shape[0], type(self).__name__
        if block_size is None:
            pivots = np.arange(n) if symmetric else matched_rows(graph, name)
            return unfilled_elimination_of(graph, symmetric, pivots, ordering)
        inside = graph.row_of_entry // block_size == graph.indices // block_size
        blocks = graph.subgraph(inside)
        pivots = np.arange(n) if symmetric else matched_rows(blocks, f"{name}(block_size={block_size})")
        order = np.arange(n) if isinstance(ordering, str) else ordering
        return elimination_of(blocks, symmetric, pivots, order, np.flatnonzero(inside))
