"""What multigrid hierarchies of every kind share: levels, a coarsest solver, and the interface of a preconditioner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, library_of
from ensemble._check import kind_of, message, require
from ensemble._typing import Array, Ids, Vectors
from ensemble.linalg import BcrsMatrix, CrsGraph, CrsMatrix, SymmetricCrsMatrix
from ensemble.linalg.adapt import as_operator
from ensemble.linalg.bridge.host import host_matrix
from ensemble.linalg.linear_operator import LinearOperator
from ensemble.linalg.operators import multiply
from ensemble.multigrid.coarse import CoarseSolver
from ensemble.multigrid.repeated import RepeatedCycle, repeated_cycle


class Hierarchy(LinearOperator, ABC):
    """A multigrid hierarchy: a `LinearOperator` that applies one V-cycle.

    ``hierarchy @ r`` is the V-cycle's approximation of ``A^-1 r``, sample by sample. `smoothed_aggregation` and
    `approximate_ideal_restriction` make hierarchies. ``repr`` prints the level table.

    Attributes
    ----------
    levels : sequence of levels, the finest first
        Each has its matrix as `A`.
    coarse : CoarseSolver or None
        The direct solver of the coarsest level; None where that level is smoothed instead.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.gallery import poisson
    >>> from ensemble.multigrid import smoothed_aggregation
    >>> A = poisson((40, 40), n_samples=2)
    >>> hierarchy = smoothed_aggregation(A)
    >>> (hierarchy @ np.ones(1600)).shape                  # one V-cycle
    (1600,)
    >>> hierarchy.update(poisson((40, 40), n_samples=4)).n_samples
    4
    """

    __array_ufunc__ = None
    queues_kernels = True  # a device may run ahead of the host through `apply`
    levels: Sequence[Any]
    coarse: CoarseSolver | None

    @cached_property
    def replays(self) -> dict[Any, Any]:
        """Recorded solves with this hierarchy on a device; see `ensemble.krylov._replay`."""
        return {}

    @cached_property
    def cycles(self) -> dict[tuple[int, int, np.dtype], RepeatedCycle]:
        """V-cycles that programs repeat; see `repeated_cycle`."""
        return {}

    def forget_recordings(self) -> None:
        """Drop what was recorded of solves and V-cycles: matrices are about to change."""
        self.replays.clear()
        self.cycles.clear()

    def __getstate__(self) -> dict[str, Any]:
        recorded = "replays", "cycles"  # they stay in their process
        return {name: value for name, value in vars(self).items() if name not in recorded}

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the finest matrix."""
        n_rows, n_columns = self.levels[0].A.shape
        return n_rows, n_columns

    @property
    def local_shape(self) -> tuple[int, int]:
        n_rows, n_columns = self.levels[0].A.local_shape
        return n_rows, n_columns

    @property
    def space(self) -> Any:  # type: ignore[override]
        """The space (see `LinearOperator`) of the vectors of the finest level."""
        return self.levels[0].A.space

    @property
    def n_samples(self) -> int:
        """Samples held; 1 is shared by every sample."""
        return int(self.levels[0].A.n_samples)

    @property
    def dtype(self) -> np.dtype:
        """Type in which the V-cycle computes."""
        made: np.dtype = self.levels[0].A.dtype
        return made

    @property
    def _is_complex(self) -> bool:
        """Whether the matrices of the levels are."""
        return holds_complex(self.levels[0].A)

    @property
    def matrix_dtype(self) -> np.dtype:
        return self.dtype

    @property
    def reference_array(self) -> Array:
        """An array of the library, and on the device, that the hierarchy is kept in."""
        return self.levels[0].A.reference_array

    @property
    def operator_complexity(self) -> float:
        """Stored entries of all levels over those of the finest."""
        return float(sum(level.A.nnz for level in self.levels) / max(self.levels[0].A.nnz, 1))

    @property
    def grid_complexity(self) -> float:
        """Rows of all levels over those of the finest."""
        return float(sum(level.A.shape[0] for level in self.levels) / max(self.shape[0], 1))

    def level_table(self, heading: str, columns: str, entries: Sequence[str]) -> str:
        """The table that ``repr`` prints; `entries` are those of the last `columns`, one string per level."""
        lines = [
            f"{heading}, operator complexity {self.operator_complexity:.3f}, "
            f"grid complexity {self.grid_complexity:.3f}",
            f"level       rows        nnz  nnz/row{columns}",
        ]
        for k, (level, entry) in enumerate(zip(self.levels, entries, strict=True)):
            n_rows, nnz = level.A.shape[0], level.A.nnz
            lines.append(f"{k:5d} {n_rows:10d} {nnz:10d} {nnz / max(n_rows, 1):8.1f}{entry}")
        return "\n".join(lines)

    @abstractmethod
    def update(self, A: Any) -> Hierarchy:
        """Fill the hierarchy with new values on the same graph, in place; returns it.

        Graphs and all choices by strength are kept; everything else that depends on values is computed again.

        Raises
        ------
        ValueError
            If `A` does not have the graph that the hierarchy was built for.
        TypeError
            If `A` is no stored matrix, or complex where the hierarchy is real.
        """

    @abstractmethod
    def take_samples(self, samples: Ids) -> Hierarchy:
        """The hierarchy of the samples named; the graph work is shared."""

    @abstractmethod
    def workspace(self, n_samples: int) -> Any:
        """Vectors for `apply`; a solver makes them once."""

    def workspace_for(self, r: Array, workspace: Any) -> Any:
        """`workspace` if it was made for as many samples as `r` has, else a new one."""
        fits = workspace is not None and workspace.n_samples == r.shape[1]
        return workspace if fits else self.workspace(r.shape[1])

    @abstractmethod
    def apply(self, r: Vectors, out: Vectors | None = None, workspace: Any = None) -> Array:
        """One V-cycle on bare arrays: `r` of shape (n, n_samples)."""

    def precondition(self, r: Vectors, out: Vectors, workspace: Any) -> Array:
        cycle = repeated_cycle(self, r)
        return self.apply(r, out, workspace) if cycle is None else cycle(r, out)[0]

    @abstractmethod
    def precondition_dot(self, r: Vectors, out: Vectors | None = None, workspace: Any = None) -> Array:
        """`apply` to `out`, and the inner products of `r` with it, one per sample."""

    def __matmul__(self, r: Array) -> Any:
        return multiply(self, r, "Hierarchy")


def stored_matrix(
    A: Any, function: str, requirement: str = "be a CrsMatrix, a SymmetricCrsMatrix or a SciPy sparse matrix",
    advice: str = "", blocks: bool = False,
) -> Any:  # fmt: skip
    """`A` as a stored matrix of this library, or TypeError; a `BcrsMatrix` stays one only with `blocks`."""
    matrix = host_matrix(as_operator(A, function, "A"), function)
    if isinstance(matrix, BcrsMatrix):
        return matrix if blocks else matrix.to_crs()
    if not isinstance(matrix, CrsMatrix | SymmetricCrsMatrix) and not hasattr(matrix, "require_same_places"):
        raise TypeError(message(function, "A", requirement, kind_of(A), advice))
    return matrix


def entry_by_entry(A: Any) -> Any:
    """`A` as set-up work takes it: a `BcrsMatrix` as a `CrsMatrix`."""
    return A.to_crs() if isinstance(A, BcrsMatrix) else A


def holds_complex(A: Any) -> bool:
    """Whether the values of a stored matrix are complex, in any library."""
    return str(A.dtype).split(".")[-1].startswith("complex")


def complex_matrix(A: Any, dtype: Any, function: str) -> CrsMatrix:
    """`A` as a `CrsMatrix` of complex numbers of `dtype`, which are NumPy's or CuPy's."""
    if library_of(A.reference_array) not in ("numpy", "cupy") or hasattr(A, "require_same_places"):
        advice = "Build the hierarchy of the real part, A.real: it is an M for gmres and bicgstab with a complex A."
        wanted = "hold arrays of NumPy or CuPy on one process where numbers are complex"
        raise TypeError(message(function, "A", wanted, repr(A), advice))
    matrix = A if isinstance(A, CrsMatrix) else A.to_crs()
    return matrix.astype(dtype)


def require_square_and_real(A: Any, function: str) -> None:
    """Refuse a matrix that is not square or not of real floating-point values."""
    require(A.shape[0] == A.shape[1], function, "A", "be square", f"shape {A.shape}")
    require_real(A, function)


def require_real(A: Any, function: str) -> None:
    """Refuse a matrix that is not of real floating-point values."""
    if not array_namespace(A.reference_array).isdtype(A.dtype, "real floating"):
        advice = "A hierarchy of a real matrix, A.real say, is an M for gmres and bicgstab with a complex A."
        raise TypeError(message(function, "A", "be real", f"dtype {A.dtype}", advice))


def require_same_graph(A: Any, other: Any, function: str, builder: str, takes_complex: bool = False) -> None:
    """Refuse a matrix that is not real, or whose entries do not stand where those of `other` do."""
    if hasattr(A, "dtype") and not takes_complex:
        require_real(A, function)
    if not isinstance(other, CrsMatrix | BcrsMatrix | SymmetricCrsMatrix):
        other.require_same_places(A, function, builder)
        return
    require_graph(A, other.graph, function, builder)


def require_graph(A: Any, graph: CrsGraph, function: str, builder: str) -> None:
    """Refuse a matrix that is not on the graph that a hierarchy was built for."""
    wanted = "have the graph the hierarchy was built for"
    own = getattr(A, "graph", None)  # a matrix over processes has none
    require(own is not None and own.same_as(graph), function, "A", wanted, repr(A if own is None else own),
            f"Build a new one with {builder}.")  # fmt: skip
