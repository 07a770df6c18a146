"""The Galerkin product: the coarse matrix P^T A P of every sample, on graphs that are worked out once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ensemble._backend import array_namespace, library_and_device
from ensemble._check import require
from ensemble._kernels.multigrid import galerkin as kernels
from ensemble._kernels.sparse.complex_numbers import is_complex
from ensemble._typing import Array
from ensemble.linalg.crs_matrix import CrsMatrix
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.linear_operator import inherited

if TYPE_CHECKING:
    from ensemble.linalg.symmetric import SymmetricCrsMatrix


class GalerkinProduct:
    """``P^T A P`` for any values on two known graphs, and ``P^H A P`` by `with_adjoint`.

    The constructor does all graph work (symbolic phase); a call only multiplies and adds (numeric phase), for all
    samples at once. ``product(A, P)`` sums over fine rows in ascending order, so that each sample has the bits of its
    own scalar run.

    Parameters
    ----------
    graph_a : CrsGraph, shape (n, n)
    graph_p : CrsGraph, shape (n, n_coarse)

    Examples
    --------
    >>> import numpy as np
    >>> A = CrsMatrix(CrsGraph([0, 2, 4], [0, 1, 0, 1], (2, 2)), np.array([2.0, -1.0, -1.0, 2.0]))
    >>> P = CrsMatrix(CrsGraph([0, 1, 2], [0, 0], (2, 1)), np.array([1.0, 1.0]))
    >>> GalerkinProduct(A.graph, P.graph)(A, P).values
    array([[2.]])
    """

    def __init__(self, graph_a: CrsGraph, graph_p: CrsGraph) -> None:
        n, n_coarse = graph_p.shape
        require(graph_a.shape == (n, n), "GalerkinProduct", "graph_a", f"be {n} by {n} to fit P", graph_a.shape)
        self.graph_ap = graph_a.product(graph_p)
        restriction = CrsGraph.unchecked(*graph_p.transposed[:2], (n_coarse, n))
        self.graph = restriction.product(self.graph_ap)
        self._tasks: dict[Any, Any] = {}

    def __call__(self, A: CrsMatrix | SymmetricCrsMatrix, P: CrsMatrix, out: Any = None) -> CrsMatrix:
        """The coarse matrix; `A` may be a `SymmetricCrsMatrix`, `out` a buffer of shape (graph.nnz, n_samples)."""
        if not is_complex(P.values):
            return self.with_adjoint(A, P, out)
        A = A if isinstance(A, CrsMatrix) else A.to_crs()
        a, p, ap, c = (graph.arrays_on(P.values) for graph in (A.graph, P.graph, self.graph_ap, self.graph))
        product = kernels.product_values(a, A.values, p, P.values, ap, None)
        *restriction, entries = P.graph.transposed_arrays_on(P.values)
        transposed = array_namespace(P.values).take(P.values, entries, axis=0)
        values = kernels.product_values(tuple(restriction), transposed, ap, product, c, out)
        return inherited(CrsMatrix(self.graph, values), A, P)

    def with_adjoint(self, A: CrsMatrix | SymmetricCrsMatrix, P: CrsMatrix, out: Array | None = None) -> CrsMatrix:
        """The coarse matrix ``P^H A P``; of a real `P` that of a call.

        Parameters
        ----------
        A : CrsMatrix or real SymmetricCrsMatrix, shape (n, n), on the graph of the constructor
        P : CrsMatrix, shape (n, n_coarse), on the graph of the constructor, of the same type
        out : array, shape (graph.nnz, n_samples), optional
            Memory for its values.

        Returns
        -------
        CrsMatrix, shape (n_coarse, n_coarse)

        Examples
        --------
        >>> import numpy as np
        >>> A = CrsMatrix(CrsGraph([0, 1, 2], [0, 1], (2, 2)), np.array([2.0, 1.0]))
        >>> P = CrsMatrix(CrsGraph([0, 1, 2], [0, 0], (2, 1)), np.array([1.0, 1j]))
        >>> GalerkinProduct(A.graph, P.graph).with_adjoint(A.astype(complex), P).values
        array([[3.+0.j]])
        """
        a, p = A.graph_arrays, P.graph.arrays_on(P.values)
        ap, c = self.graph_ap.arrays_on(A.values), self.graph.arrays_on(A.values)
        restriction, place = P.graph.transposed_arrays_on(P.values), library_and_device(A.values)
        if place not in self._tasks:
            self._tasks[place] = kernels.galerkin_tasks(A.values, a, p, ap, restriction, c)
        values = kernels.galerkin_values(a, A.values, p, P.values, ap, restriction, self._tasks[place], c, out)
        return inherited(CrsMatrix(self.graph, values), A, P)
