"""Hierarchies whose levels are in another order of rows than the caller's vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ensemble._check import message
from ensemble._compile.kept_memory import empty_like
from ensemble._kernels.sparse.crs import far_columns
from ensemble._typing import Array, Ids, Vectors
from ensemble.linalg import BcrsMatrix, CrsGraph, CrsMatrix, SymmetricCrsMatrix
from ensemble.linalg.adapt import as_operator
from ensemble.linalg.graph import Reordering
from ensemble.linalg.reordering import reordered_matrix, reordered_vectors, restored_vectors
from ensemble.multigrid.hierarchy import Hierarchy, require_graph

if TYPE_CHECKING:
    import numpy as np

FEWEST_ROWS = 1000
"""Rows below which matrices are not reordered: the caches hold them."""


def order_of(graph: CrsGraph, block_size: int, reorder: bool | str, function: str) -> Reordering | None:
    """The order in which a hierarchy of a matrix on `graph` keeps its levels; None for the caller's.

    By default the reverse Cuthill-McKee order where the columns of neighbouring rows lie apart in the caller's and
    together in that one. The graph alone decides. The `block_size` rows of a node stay adjacent.
    """
    if not (isinstance(reorder, bool) or (isinstance(reorder, str) and reorder == "auto")):
        raise ValueError(message(function, "reorder", "be True, False or 'auto'", repr(reorder)))
    small = graph.shape[0] < FEWEST_ROWS * block_size
    if reorder is False or (reorder == "auto" and (small or not is_scattered(graph, block_size))):
        return None
    found = graph.reordered(block_size)
    return None if reorder == "auto" and is_scattered(found.graph, block_size) else found


def is_scattered(graph: CrsGraph, block_size: int) -> bool:
    """Whether one entry in eight of some rows is far from all columns of the row that is one node before."""
    return bool(far_columns(graph.indptr, graph.indices, block_size))


class ReorderedWorkspace:
    """The vectors of the inner V-cycle, and those for the caller's vectors in its order."""

    def __init__(self, inner: Any, n_samples: int) -> None:
        self.inner, self.n_samples = inner, n_samples
        self.r: Any = None
        self.z: Any = None

    def vectors(self, like: Any) -> tuple[Any, Any]:
        """Two vectors of the shape, type and device of `like`."""
        if self.r is None or self.r.dtype != like.dtype:
            self.r, self.z = empty_like(like), empty_like(like)
        return self.r, self.z


class ReorderedHierarchy(Hierarchy):
    """A `Hierarchy` whose levels are in another order of rows than the caller's matrix and vectors.

    Made by `smoothed_aggregation` and `approximate_ideal_restriction` of a matrix in a scattered order. The Krylov
    methods of this library permute the whole system to that order, once a solve (`in_own_order`); others have each
    vector permuted and permuted back.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.gallery import poisson
    >>> from ensemble.multigrid import smoothed_aggregation
    >>> A = poisson((40, 40)).to_scipy()
    >>> p = np.random.default_rng(0).permutation(1600)
    >>> hierarchy = smoothed_aggregation(A[p][:, p])
    >>> type(hierarchy).__name__
    'ReorderedHierarchy'
    >>> (hierarchy @ np.ones(1600)).shape
    (1600,)
    """

    queues_kernels = False  # vectors change their order between kernels

    def __init__(self, inner: Hierarchy, graph: CrsGraph, reordering: Reordering) -> None:
        """`inner` is a hierarchy of the matrix in the order of `reordering`, `graph` the caller's graph."""
        self.inner, self.graph, self.reordering = inner, graph, reordering
        self.levels, self.coarse = inner.levels, inner.coarse

    @property
    def matrix_dtype(self) -> np.dtype:
        return self.inner.matrix_dtype

    def __repr__(self) -> str:
        return f"{self.inner!r}\nrows in reverse Cuthill-McKee order"

    def in_own_order(self, A: Any) -> tuple[Any, Any, Reordering] | None:
        """`A` and the preconditioner in the order of the levels, and that order; None for an `A` of another graph."""
        A = self._stored(A)
        if A is None or not A.graph.same_as(self.graph):
            return None
        return reordered_matrix(A, self.graph, self.reordering), self.inner, self.reordering

    def update(self, A: Any) -> ReorderedHierarchy:
        """Fill the hierarchy with new values on the same graph, in place; returns it. See the inner one's `update`."""
        name = f"{type(self.inner).__name__}.update"
        A = as_operator(A, name, "A")
        stored = self._stored(A)
        if stored is not None:
            require_graph(stored, self.graph, name, "the function that made this")
            A = reordered_matrix(stored, self.graph, self.reordering)
        self.inner.update(A)
        self.levels, self.coarse = self.inner.levels, self.inner.coarse
        return self

    def _stored(self, A: Any) -> Any:
        """`A` as a matrix whose graph may be that of the hierarchy; None where it is no stored matrix."""
        if isinstance(A, BcrsMatrix):
            return A if isinstance(self.levels[0].A, BcrsMatrix) else A.to_crs()
        of_entries = not isinstance(self.levels[0].A, BcrsMatrix)
        return A if of_entries and isinstance(A, CrsMatrix | SymmetricCrsMatrix) else None

    def take_samples(self, samples: Ids) -> ReorderedHierarchy:
        if self.n_samples == 1:
            return self
        return ReorderedHierarchy(self.inner.take_samples(samples), self.graph, self.reordering)

    # --- one V-cycle
    def workspace(self, n_samples: int) -> Any:
        return ReorderedWorkspace(self.inner.workspace(n_samples), n_samples)

    def _run(self, r: Array, out: Array, workspace: Any, with_dot: bool) -> tuple[Any, Any]:
        workspace = self.workspace_for(r, workspace)
        here, z = workspace.vectors(r)
        reordered_vectors(r, self.reordering, here)
        if with_dot:
            inner = self.inner.precondition_dot(here, z, workspace.inner)
        else:
            inner = None
            self.inner.apply(here, z, workspace.inner)
        return restored_vectors(z, self.reordering, out), inner

    def apply(self, r: Vectors, out: Vectors | None = None, workspace: Any = None) -> Array:
        return self._run(r, out, workspace, False)[0]

    def precondition_dot(self, r: Vectors, out: Vectors | None = None, workspace: Any = None) -> Array:
        return self._run(r, out, workspace, True)[1]
