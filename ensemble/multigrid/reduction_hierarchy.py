"""Reduction-based multigrid by approximate ideal restriction: set-up, hierarchy, and its V-cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like, contiguous
from ensemble._check import floating, integer, one_of, positive, require
from ensemble._compile.kept_memory import empty_like
from ensemble._compile.numba import threads_for
from ensemble._compile.recording import assign
from ensemble._kernels.krylov.vectors import dot
from ensemble._kernels.multigrid.reduction import relax_rows
from ensemble._kernels.sparse.row_sums import SERIAL, in_space
from ensemble._keywords import explains_calls
from ensemble._typing import Array, DType, Ids, Vectors
from ensemble.linalg import CrsMatrix
from ensemble.linalg.reordering import reordered_matrix
from ensemble.multigrid.coarse import LARGEST_DENSE, CoarseSolver, coarse_solver_of
from ensemble.multigrid.hierarchy import (
    Hierarchy,
    complex_matrix,
    holds_complex,
    require_real,
    require_same_graph,
    stored_matrix,
)
from ensemble.multigrid.reduction import Options, Reduction, reduction_of
from ensemble.multigrid.relaxation import inverse_diagonal
from ensemble.multigrid.reordered import ReorderedHierarchy, order_of
from ensemble.multigrid.repeated import repeated_cycle
from ensemble.multigrid.splitting import STRENGTHS, SharedStrength

FINE, COARSE = 0, 1


@explains_calls("approximate_ideal_restriction")
def approximate_ideal_restriction(
    A: Any,
    *,
    theta: float = 0.25,
    degree: int = 2,
    strength: str = "largest",
    theta_restriction: float = 0.02,
    drop_restriction: float = 0.01,
    drop_coarse: float = 1e-4,
    sweeps: tuple[int, int] = (2, 1),
    coarse_size: int = 100,
    max_levels: int = 30,
    dtype: DType | None = None,
    reorder: bool | str = "auto",
) -> Hierarchy:
    """Build a reduction-based multigrid hierarchy for nonsymmetric matrices, all samples of `A` at once.

    For convection and convection-diffusion. Rows are split into fine and coarse ones by strong entries [3]_, the
    restriction approximates the ideal one by a Neumann series of the fine block (nAIR) [1]_, [2]_, interpolation is the
    direct one from strong coarse neighbours [4]_, and after the coarse correction fine rows and then coarse rows are
    relaxed by Jacobi sweeps, nothing before it.

    Parameters
    ----------
    A : CrsMatrix, SymmetricCrsMatrix, DistributedCrsMatrix or SciPy sparse matrix, shape (n, n)
        Rows of a `DistributedCrsMatrix` are split domain by domain, in an order that the domains decide.
    theta : float in [0, 1], dimensionless
        An entry is strong when its absolute value is at least `theta` times the largest off-diagonal one of its row.
        Larger: fewer iterations, more levels; 0.5 for finite elements without upwinding.
    degree : int, at least 0
        Highest k of the Neumann series ``sum (I - D_ff^-1 A_ff)^k D_ff^-1``. Larger: fewer iterations, longer rows.
    strength : {"largest", "mean", "graph"}
        What samples share: an entry is strong, or small enough to be dropped, on the largest of its relative sizes over
        the samples, on their mean, or ("graph") every stored entry is strong and none is dropped.
    theta_restriction : float in [0, 1], dimensionless
        Entries below this times the largest off-diagonal one of their row stay out of the Neumann series.
    drop_restriction : float in [0, 1], dimensionless
        Entries of the restriction below this times the largest of their row are dropped, each times the diagonal of
        its column, so that the units of rows do not count.
    drop_coarse : float in [0, 1], dimensionless
        Entries of coarse matrices below this times the diagonal of their row are dropped.
    sweeps : (int, int)
        Jacobi sweeps over the fine rows, and then over the coarse rows.
    coarse_size : int
        Coarsen until a level has fewer rows than this; that level is solved directly.
    max_levels : int
        At most this many levels.
    dtype : float32 or float64, optional
        Type in which the hierarchy is set up and applied, of a complex A that of real and imaginary parts; the Krylov
        method around it stays in A's type.
    reorder : {"auto", True, False}
        Whether levels are kept in reverse Cuthill-McKee order; see `smoothed_aggregation`.

    Returns
    -------
    ReductionHierarchy, or ReorderedHierarchy around one
        A `LinearOperator`: ``gmres(A, b, M=hierarchy)`` or ``bicgstab(A, b, M=hierarchy)``.

    Raises
    ------
    ValueError
        If `A` is not square, or an option is out of range.
    TypeError
        If `A` is no stored matrix, or complex and not of NumPy's or CuPy's arrays on one process.

    Notes
    -----
    Samples share splitting and graphs, and nothing else: restriction, interpolation, coarse matrices and relaxation
    have each sample's own values. So a sample has the bits of its scalar run wherever that makes the same decisions:
    always with ``strength="graph"``, and always against the same hierarchy updated to the sample alone, ``M.update``.
    Otherwise entries that matter in one sample are kept in all. That does not slow a sample down by itself, but a
    splitting for many directions of convection has more levels and longer rows, and takes more iterations than one for
    each direction. A sample that is not finite decides nothing.

    ``strength="graph"`` takes more iterations, and fails for strong recirculation.

    Of a complex matrix sizes are magnitudes, and an entry counts as negative in the interpolation where the real part
    of its quotient by the diagonal is.

    For a matrix on a CUDA device the host reads the values of each level once, to decide on the graphs; all values of
    the hierarchy are made and kept on the device.

    References
    ----------
    .. [1] Manteuffel, Munzenmaier, Ruge, Southworth (2019), SIAM J. Sci. Comput. 41, S242-S268.
    .. [2] Manteuffel, Ruge, Southworth (2018), SIAM J. Sci. Comput. 40, A4105-A4130.
    .. [3] Ruge, Stueben (1987), in McCormick (ed.), Multigrid Methods, SIAM, 73-130, section 4.6.
    .. [4] Stueben (2001), in Trottenberg, Oosterlee, Schueller, Multigrid, section A.7.2.1.

    Examples
    --------
    >>> from scipy.sparse import diags_array
    >>> from ensemble.krylov import gmres
    >>> upwind = diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(400, 400))
    >>> M = approximate_ideal_restriction(upwind)
    >>> M
    ReductionHierarchy: 4 levels, 1 samples, float64, operator complexity 1.872, grid complexity 1.875
    level       rows        nnz  nnz/row      nnz(R)      nnz(P)
        0        400        799      2.0         399         400
        1        200        399      2.0         199         200
        2        100        199      2.0          99         100
        3         50         99      2.0      direct
    >>> gmres(upwind, np.ones(400), M=M).iterations
    array([1])
    """
    name = "approximate_ideal_restriction"
    A = stored_matrix(A, name, advice="Give A.to_crs().")
    A = A.to_crs() if A.stores_upper else A
    require(A.shape[0] == A.shape[1], name, "A", "be square", f"shape {A.shape}")
    dtype = A.dtype if dtype is None else floating(dtype, name, "dtype")
    if holds_complex(A):
        dtype = np.result_type(dtype, np.complex64)
        A = complex_matrix(A, dtype, name)
    else:
        require_real(A, name)
    ratios = {"theta": theta, "theta_restriction": theta_restriction,
              "drop_restriction": drop_restriction, "drop_coarse": drop_coarse}  # fmt: skip
    for argument, value in ratios.items():
        require(positive(value, name, argument, zero=True) <= 1.0, name, argument, "be from 0 to 1", value)
    integer(degree, name, "degree", minimum=0)
    one_of(strength, STRENGTHS, name, "strength")
    pair = isinstance(sweeps, tuple | list) and len(sweeps) == 2
    require(pair, name, "sweeps", "be (fine, coarse)", repr(sweeps))
    for count in sweeps:
        integer(count, name, "sweeps", minimum=0)
    integer(coarse_size, name, "coarse_size", minimum=1)
    integer(max_levels, name, "max_levels", minimum=1)
    options = Options(theta, degree, theta_restriction, drop_restriction, drop_coarse)
    own_options = getattr(A, "require_options", None)
    if own_options is not None:
        own_options(name, reorder=reorder is True)
    graph: Any = getattr(A, "graph", None)
    order = None if graph is None else order_of(graph, 1, reorder, name)
    if order is not None:
        A = reordered_matrix(A, graph, order)
    hierarchy = ReductionHierarchy([ReductionLevel(A.astype(dtype))], None, sweeps)
    hierarchy.set_up(SharedStrength(strength), options, coarse_size, max_levels)
    return hierarchy if order is None else ReorderedHierarchy(hierarchy, graph, order)


@dataclass
class ReductionLevel:
    """One level: its matrix, what its graph decides, the transfers to the next level, and its relaxation."""

    A: CrsMatrix
    plan: Reduction | None = None
    R: CrsMatrix | None = None
    P: CrsMatrix | None = None
    marks: Any = None  # FINE or COARSE for each row
    dinv: Array = None

    def fill(self, strength: SharedStrength | None = None) -> CrsMatrix:
        """Transfers of a level whose plan is set, and the matrix of the next one."""
        plan = self.plan
        assert plan is not None
        self.relax(plan.coarse)
        self.R = plan.restriction(self.A, self.dinv, strength)
        self.P = plan.interpolation(self.A)
        return plan.coarse_matrix(self.A, self.R, self.P, strength)

    def relax(self, coarse: np.ndarray) -> None:
        """What relaxation needs: the inverse diagonal, and the mark of each row."""
        self.dinv = inverse_diagonal(self.A)
        self.marks = asarray_like(np.where(coarse, COARSE, FINE).astype(np.uint8), self.A.values)

    def take_samples(self, samples: np.ndarray) -> ReductionLevel:
        """The level of the samples named."""
        R, P = (M and M.take_samples(samples) for M in (self.R, self.P))
        dinv = self.dinv
        if dinv is not None:
            dinv = contiguous(array_namespace(dinv).take(dinv, asarray_like(samples, dinv), axis=1))
        return ReductionLevel(self.A.take_samples(samples), self.plan, R, P, self.marks, dinv)


class ReductionWorkspace:
    """The vectors one V-cycle needs on each level; one per thread of control."""

    def __init__(self, matrices: list[Any], n_samples: int) -> None:
        self.n_samples = n_samples
        likes = [empty_like(A.values, (A.local_shape[0], n_samples)) for A in matrices]

        def vectors() -> list[Any]:
            return [A.space.vector(like) for A, like in zip(matrices, likes, strict=True)]

        self.swap, self.x = vectors(), vectors()
        self.b = [None, *vectors()[1:]]


class ReductionHierarchy(Hierarchy):
    """A hierarchy for nonsymmetric matrices: one V-cycle, made by `approximate_ideal_restriction`.

    ``hierarchy @ r`` is the V-cycle's approximation of ``A^-1 r``, sample by sample. ``repr`` prints the level table.

    Examples
    --------
    >>> from scipy.sparse import diags_array
    >>> from ensemble.linalg import CrsMatrix
    >>> from ensemble.multigrid import approximate_ideal_restriction
    >>> upwind = [diags_array([-c, 0.1 + c], offsets=[-1, 0], shape=(400, 400)) for c in (1.0, 2.0)]
    >>> hierarchy = approximate_ideal_restriction(CrsMatrix.from_scipy(upwind))
    >>> (hierarchy @ np.ones(400)).shape                   # one V-cycle
    (400,)
    >>> hierarchy.take_samples([1]).n_samples
    1
    """

    levels: list[ReductionLevel]

    def __init__(self, levels: list[ReductionLevel], coarse: CoarseSolver | None, sweeps: tuple[int, int]) -> None:
        self.levels, self.coarse, self.sweeps = levels, coarse, sweeps

    def __repr__(self) -> str:
        last = "      direct" if self.coarse else "     relaxed"
        entries = [
            f" {level.R.nnz:11d} {level.P.nnz:11d}" if level.R is not None and level.P is not None else last
            for level in self.levels
        ]
        heading = f"ReductionHierarchy: {len(self.levels)} levels, {self.n_samples} samples, {self.dtype}"
        return self.level_table(heading, "      nnz(R)      nnz(P)", entries)

    # --- set-up
    def set_up(self, strength: SharedStrength, options: Options, coarse_size: int, max_levels: int) -> None:
        """Decide and fill all levels below the finest matrix."""
        with np.errstate(all="ignore"), in_space(self.space):  # a NaN stays in its sample
            while len(self.levels) < max_levels and self.levels[-1].A.shape[0] >= coarse_size:
                level = self.levels[-1]
                with threads_for(level.A.values.size):
                    level.plan = reduction_of(level.A, strength, options)
                    if not level.plan.splits:
                        level.plan = None
                        break
                    self.levels.append(ReductionLevel(level.fill(strength)))
            self._finish(self.levels[-1].A.shape[0] <= LARGEST_DENSE)

    def _finish(self, direct: bool) -> None:
        """The coarsest level: an inverse, or relaxation of all rows."""
        last = self.levels[-1]
        self.coarse = coarse_solver_of(last.A) if direct else None
        if not direct:
            last.relax(np.zeros(last.A.local_shape[0], bool))

    def update(self, A: Any) -> ReductionHierarchy:
        """As `Hierarchy.update`; splittings and dropped entries are kept."""
        name = "ReductionHierarchy.update"
        A = stored_matrix(A, name)
        A = A.to_crs() if A.stores_upper else A
        finest = self.levels[0].A
        if self._is_complex:
            A = complex_matrix(A, self.dtype, name)
        require_same_graph(A, finest, name, "approximate_ideal_restriction", self._is_complex)
        self.forget_recordings()
        self.levels[0].A = finest.with_values(A.values).astype(self.dtype)
        with np.errstate(all="ignore"), in_space(self.space):
            for level, coarser in zip(self.levels, self.levels[1:], strict=False):
                with threads_for(level.A.values.size):
                    coarser.A = level.fill()
            self._finish(self.coarse is not None)
        return self

    def take_samples(self, samples: Ids) -> ReductionHierarchy:
        if self.n_samples == 1:
            return self
        samples = np.asarray(samples)
        levels = [level.take_samples(samples) for level in self.levels]
        return ReductionHierarchy(levels, self.coarse and self.coarse.take_samples(samples), self.sweeps)

    # --- one V-cycle
    @property
    def repeats_on_host(self) -> bool:
        if self.space is not SERIAL or self._is_complex:
            return False
        matrices = [part for level in self.levels for part in (level.A, level.R, level.P) if part is not None]
        return all(type(matrix) is CrsMatrix for matrix in matrices)

    def workspace(self, n_samples: int) -> Any:
        return ReductionWorkspace([level.A for level in self.levels], n_samples)

    def apply(self, r: Vectors, out: Vectors | None = None, workspace: Any = None) -> Array:
        workspace = self.workspace_for(r, workspace)
        if out is None:
            out = empty_like(r)
        if r.dtype == self.dtype:
            return self._cycle(0, r, out, workspace)
        if self._is_complex:  # kernels have complex numbers of one type
            out[...] = self._cycle(0, r.astype(self.dtype), workspace.x[0], workspace)
            return out
        if workspace.b[0] is None:
            workspace.b[0] = self.space.vector(workspace.swap[0])
        assign(workspace.b[0], r)
        found = self._cycle(0, workspace.b[0], workspace.x[0], workspace)
        assign(out, found)
        return out

    def precondition_dot(self, r: Vectors, out: Vectors | None = None, workspace: Any = None) -> Array:
        cycle = None if out is None else repeated_cycle(self, r)
        if cycle is not None and out is not None:
            return cycle(r, out)[1]
        z = self.apply(r, out, workspace)
        with in_space(self.space):
            return dot(r, z, None)

    def _cycle(self, k: int, b: Array, out: Array, workspace: Any) -> Any:
        """One V-cycle from a zero guess on level `k`, result in `out`.

        Bytes: per level R and P, the fine rows of A `sweeps[0]` times and the coarse rows `sweeps[1]` times.
        """
        level = self.levels[k]
        if level.R is None and self.coarse is not None:
            return self.coarse.apply(b, out)
        order = [FINE] * self.sweeps[0] + [COARSE] * self.sweeps[1]
        here, there = (workspace.swap[k], out) if len(order) % 2 else (out, workspace.swap[k])
        if level.R is None or level.P is None:
            assign(here, 0)
        else:
            level.R.apply(b, workspace.b[k + 1])
            self._cycle(k + 1, workspace.b[k + 1], workspace.x[k + 1], workspace)
            level.P.apply(workspace.x[k + 1], here)
        for mark in order:
            relax_rows(level.marks, mark, *level.A.arrays, level.dinv, b, level.A.whole(here), there)
            here, there = there, here
        return out
