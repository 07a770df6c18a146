"""`IncompleteFactorization`: ILU(0) or IC(0) of many sparse matrices on one graph, a preconditioner."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._kernels.direct.elimination import Elimination
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.orderings import matched_rows, unfilled_elimination_of
from ensemble.linalg.triangular_factors import TriangularFactors


class IncompleteFactorization(TriangularFactors):
    """ILU(0) or IC(0): elimination that keeps the graph of A and drops all fill [1]_, as a preconditioner.

    One sample's operations are those of its own run. It serves matrices whose couplings are strong along the order of
    the unknowns, convection foremost, and M-matrices; multigrid needs fewer iterations where diffusion counts.

    Parameters
    ----------
    A : CrsMatrix, SymmetricCrsMatrix or SciPy sparse matrices, shape (n, n)
    kind : {"auto", "ldlt", "lu"}
        "ldlt" is IC(0) in the form L D L^T and reads the entries on and above the diagonal. "auto" takes it for a
        SymmetricCrsMatrix, "lu", which is ILU(0), for any other.
    ordering : "auto" or array of int, shape (n,)
        Columns in the order of elimination; "auto" is the order that they are given in.
    dtype : data type, optional
        float32 or float64; that of A by default.

    Attributes
    ----------
    broken : array of bool, shape (n_samples,)
        Samples with a pivot that is zero or a value that is not finite; all their products are NaN.

    Raises
    ------
    ValueError
        If A is not square, or structurally singular.
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

    def __init__(self, A: Any, *, kind: str = "auto", ordering: Any = "auto", dtype: Any = None) -> None:
        super().__init__(A, kind, ordering, dtype)

    def _planned(self, graph: CrsGraph, symmetric: bool, ordering: np.ndarray | str) -> Elimination:
        pivots = np.arange(graph.shape[0]) if symmetric else matched_rows(graph, type(self).__name__)
        return unfilled_elimination_of(graph, symmetric, pivots, ordering)
